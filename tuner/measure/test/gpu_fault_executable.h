// Executables whose kernels are a GPU's that copy x f32 (n) to y f32 (n), or are meant to and go
// wrong: those of gpu_fault_worker.cpp.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "vm/base/device_number.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::tuner {

// What the check of "failing" says.
inline constexpr char kGpuCheck[] = "this kernel refuses";

// A routine of a library that takes so long to open, as long to ask, and has nothing for any call.
inline constexpr char kSlowLibrary[] = "test.slow_library";
inline constexpr int64_t kSlowLibraryMs = 1500;
// The kernel "product" is relu(x w) of x f32 (n, depth) and w f32 (depth, columns).
inline constexpr int64_t kProductDepth = 24, kProductColumns = 40;

inline std::vector<uint8_t> gpu_fault_executable(const std::vector<std::string>& kernels) {
  std::string text;
  for (size_t i = 0; i < kernels.size(); ++i)
    text += fmt::format(
        "kernel \"k{}\" {{\n  source \"copy\"\n  symbols s0 device d2\n  in f32 ([a0])\n"
        "  out f32 ([a0])\n  dispatch {{ 0: 0 }}\n"
        "  native \"{}\" launch ([a0 31 + 32 //], [1], [1]) block 32 shared 0\n}}\n",
        i, kernels[i]);
  exec::Executable e = exec::assemble(text);
  e.texts.push_back(kGpuCheck);
  std::string bytes = STANDIN_CUDA_IMAGE;
  for (const std::string& name : std::set<std::string>(kernels.begin(), kernels.end()))
    bytes += name + " ";
  exec::NativeImage image;
  image.target = "sm_90a";
  image.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  image.device = kCudaDevice;
  e.images.push_back(image);
  return exec::serialize(e);
}

}  // namespace nimble::tuner
