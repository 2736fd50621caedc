// Kernels of a GPU for the tests of its printer.
#pragma once

#include <gtest/gtest.h>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/kernel_builder.h"
#include "vm/base/error.h"

namespace nimble::codegen::testing {

// Skips a test where there is no NVRTC.
#define NIMBLE_NEEDS_NVRTC() \
  if (const std::string why = why_no_cuda(); !why.empty()) GTEST_SKIP() << "no NVRTC: " << why

inline kernels::TargetInfo gpu_target(const std::string& level = "sm_90a") {
  return kernels::target_by_name(level);
}

// An argument whose address is a multiple of 64 bytes, as those of a GPU's tensors are.
inline kir::BufferRef tensor(kir::testing::KernelBuilder& k, const std::string& name, DType t,
                             const ir::Dim& extent, bool out) {
  out ? k.out(name, t, extent) : k.in(name, t, extent);
  auto b = std::make_shared<kir::Buffer>(*k.function().arguments.back());
  b->alignment = 64;
  k.function().arguments.back() = b;
  return b;
}

}  // namespace nimble::codegen::testing
