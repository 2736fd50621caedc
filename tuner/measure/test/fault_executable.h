// Executables whose kernels copy x f32 (n) to y f32 (n), or are meant to and go wrong: the kernels
// of fault_worker.cpp. One that is named vendor.… is a routine of a library that is nowhere.
#pragma once

#include <string>
#include <vector>

#include "tuner/measure/protocol.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble::tuner {

inline std::vector<uint8_t> fault_executable(const std::vector<std::string>& host_kernels) {
  std::string text;
  for (size_t i = 0; i < host_kernels.size(); ++i)
    text += fmt::format(
        "kernel \"k{}\" {{\n  source \"copy\"\n  symbols s0\n  in f32 ([a0])\n  out f32 ([a0])\n"
        "  dispatch {{ 0: 0 }}\n  {} \"{}\"\n}}\n",
        i, host_kernels[i].starts_with("vendor.") ? "vendor" : "host", host_kernels[i]);
  return exec::serialize(exec::assemble(text));
}

// A case for kernels 0 … count - 1 of executable `id`, quick to measure.
inline Case copy_case(uint32_t id, uint32_t count, int64_t n = 64) {
  Case c;
  c.symbols = {n};
  c.seed = 7;
  c.inputs = {Fill{}};
  std::vector<uint8_t> x(static_cast<size_t>(n) * 4);
  fill_tensor(c.inputs[0], DType::kF32, c.seed, 0, x);
  c.expected = {x};
  c.tolerance = 1e-6;
  c.policy.batch_ns = 20'000;
  c.policy.case_ns = 300'000'000;
  for (uint32_t k = 0; k < count; ++k) c.entries.push_back({id, k});
  return c;
}

}  // namespace nimble::tuner
