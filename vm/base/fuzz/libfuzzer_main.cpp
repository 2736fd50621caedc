// The entry points that libFuzzer calls. `nimble-fuzz-NAME --write-corpus FOLDER` writes the seeds
// and the dictionary instead of fuzzing.
#include <cstdlib>
#include <cstring>

#include "vm/base/fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::strcmp((*argv)[1], "--write-corpus") == 0) {
    nimble::fuzz::write_corpus((*argv)[2]);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nimble::fuzz::run({data, size});
  return 0;
}
