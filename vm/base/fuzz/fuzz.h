// Fuzzing: a target is one function that takes any bytes and must return.
//
// A target's file defines the three functions below; two mains run it:
//   nimble-fuzz-NAME     libFuzzer (preset fuzz, scripts/fuzz): coverage-guided, for minutes
//   nimble-replay-NAME   this build's compiler, no libFuzzer: the seeds, some mutants of each,
//                        and every input that once was a finding; scripts/test runs it
// A finding is an abort, a sanitizer's report, a hang, or memory without bound. Its minimised
// input goes to the folder `fuzz/regressions` beside the target and is replayed for ever.
//
// Wrong input ends in nimble::Error, which a target catches; anything else that is thrown, and
// every `require` that fails, is a finding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/error.h"

namespace nimble::fuzz {

struct Seed {
  std::string name;  // of its file
  std::string bytes;
};

// Runs one input.
void run(std::span<const uint8_t> input);
// Well-formed inputs, small, from the fixtures that the tests use.
std::vector<Seed> seeds();
// Words of the format, for libFuzzer to insert.
std::vector<std::string> dictionary();

inline std::string_view text_of(std::span<const uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// Writes the seeds into a folder, and the words into FOLDER.dict as libFuzzer reads them.
void write_corpus(const std::string& folder);

// What must hold of any input; aborts with the message otherwise.
#define NIMBLE_FUZZ_REQUIRE(condition, ...) NIMBLE_CHECK(condition, __VA_ARGS__)

// A folder of this process alone, deleted at its end; in memory where there is such a place.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Not atomic and not synced, unlike write_file_atomically: nobody else reads it.
  void write(const std::string& name, std::string_view contents) const;

 private:
  std::string path_;
};

}  // namespace nimble::fuzz
