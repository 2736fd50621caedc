// Where NVIDIA's compiler for GPUs is on this machine. Opened at run time: nothing of nimble needs
// it but code generation for GPUs (compiler/codegen/cuda), and whoever asks why there is none.
#pragma once

#include <string>

namespace nimble {

struct NvrtcLibrary {
  void* handle = nullptr;  // of dlopen; never closed
  std::string version;     // "13.0"
  std::string why;         // there is none, if so
};

// The library that NIMBLE_NVRTC names (a file, or the folder of it), else the system's, else that
// of the toolkit in /usr/local/cuda; looked for once.
const NvrtcLibrary& nvrtc_library();

}  // namespace nimble
