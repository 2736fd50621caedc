// A routine of a GPU's library as a candidate, on stand-ins for the library and for NVIDIA's
// driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "tuner/measure/test/product_case.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/library/test/standin/cublaslt.h"
#include "vm/runtime/gpu_losses.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::tuner {
namespace {

std::vector<uint8_t> executable() {
  exec::VendorCall call;
  call.routine = "cublaslt.matmul";
  return product_executable(call, [](size_t kernel) {
    return fmt::format(
        "kernel \"k{}\" {{ symbols m device d2 in f32 ([a0], [{}]) in f32 ([{}], [{}]) "
        "in f32 ([{}]) out f32 ([a0], [{}]) scratch [0] dispatch {{ 0: 0 }} "
        "vendor \"cublaslt.matmul\" }}",
        kernel, kDepth, kDepth, kColumns, kColumns, kColumns);
  });
}

Case case_of(int64_t m, uint64_t seed) {
  Case c;
  c.threads = 1;
  c.seed = seed;
  c.inputs = {Fill{}, Fill{-1, 1, true}, Fill{-1, 1, true}};
  c.tolerance = 1e-5;
  c.policy.choose_class("warm");
  c.policy.batch_ns = 20'000;
  c.policy.case_ns = 100'000'000;
  expect_product(c, m, kDepth * kColumns,
                 [](int64_t k, int64_t column) { return k * kColumns + column; });
  return c;
}

TEST(GpuVendorBench, ARoutineIsACandidate) {
  const ScopedVariable driver("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  const ScopedVariable library("NIMBLE_CUBLASLT", NIMBLE_STANDIN_CUBLASLT);
  const StandInCuda& cuda = standin_cuda(NIMBLE_STANDIN_CUDA);
  const StandInCublasLt& cublaslt = standin_cublaslt(NIMBLE_STANDIN_CUBLASLT);
  cuda.reset();
  cublaslt.reset();
  rt::forget_lost_gpus();
  {
    Progress progress;
    Bench bench(&progress);
    ASSERT_EQ(bench.load(1, executable()), 3u);
    for (const auto& [m, seed] : {std::pair{5, 1}, {37, 2}, {1, 3}}) {
      Case c = case_of(m, static_cast<uint64_t>(seed));
      expect_outcomes(bench, c);
    }
  }
  EXPECT_STREQ(cublaslt.violations(), "");
  EXPECT_STREQ(cuda.violations(), "");
}

}  // namespace
}  // namespace nimble::tuner
