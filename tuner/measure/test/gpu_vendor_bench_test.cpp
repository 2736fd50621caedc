// A routine of a GPU's library as a candidate, on stand-ins for the library and for NVIDIA's
// driver.
#include <gmock/gmock.h>

#include <cstring>

#include "tuner/measure/bench.h"
#include "vm/base/error.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/assembler.h"
#include "vm/executable/vendor_call.h"
#include "vm/executable/writer.h"
#include "vm/library/test/standin/cublaslt.h"
#include "vm/runtime/gpu_losses.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kDepth = 24, kColumns = 40;

// Kernels of a product with a bias and a ReLU: one that is told so, one without the ReLU, one that
// is told of other weights, for which nothing can be made ready.
std::vector<uint8_t> executable() {
  exec::VendorCall call;
  call.routine = "cublaslt.matmul";
  call.w = 1;
  call.y = 3;
  call.k = kDepth;
  call.n = kColumns;
  call.then = {{exec::VendorOp::kAdd, 2}, {exec::VendorOp::kRelu}};
  exec::VendorCall wrong = call;
  wrong.then.pop_back();
  exec::VendorCall other = call;
  other.k = kDepth + 1;
  exec::Executable e;
  for (const exec::VendorCall& c : {call, wrong, other}) {
    exec::Kernel k =
        exec::assemble(fmt::format("kernel \"k{}\" {{ symbols m device d2 "
                                   "in f32 ([a0], [{}]) in f32 ([{}], [{}]) "
                                   "in f32 ([{}]) out f32 ([a0], [{}]) scratch [0] "
                                   "dispatch {{ 0: 0 }} vendor \"cublaslt.matmul\" }}",
                                   e.kernels.size(), kDepth, kDepth, kColumns, kColumns, kColumns))
            .kernels[0];
    k.implementations[0].config = exec::to_json(c);
    e.kernels.push_back(std::move(k));
  }
  return exec::serialize(e);
}

Case case_of(int64_t m, uint64_t seed) {
  Case c;
  c.symbols = {m};
  c.threads = 1;
  c.seed = seed;
  c.inputs = {Fill{}, Fill{-1, 1, true}, Fill{-1, 1, true}};
  c.tolerance = 1e-5;
  c.policy.choose_class("warm");
  c.policy.batch_ns = 20'000;
  c.policy.case_ns = 100'000'000;
  std::vector<float> x(m * kDepth), w(kDepth * kColumns), b(kColumns), y(m * kColumns);
  const auto fill = [&](uint32_t i, std::vector<float>& to) {
    fill_tensor(c.inputs[i], DType::kF32, seed, i,
                {reinterpret_cast<uint8_t*>(to.data()), to.size() * 4});
  };
  fill(0, x);
  fill(1, w);
  fill(2, b);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = b[j];
      for (int64_t k = 0; k < kDepth; ++k) sum += double{x[i * kDepth + k]} * w[k * kColumns + j];
      y[i * kColumns + j] = static_cast<float>(std::max(sum, 0.0));
    }
  c.expected.emplace_back(y.size() * 4);
  std::memcpy(c.expected[0].data(), y.data(), y.size() * 4);
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
      c.entries = {{1, 0}, {1, 1}, {1, 2}};
      std::vector<EntryResult> results(3);
      bench.measure(c, [&](const EntryResult& r) { results.at(r.index) = r; });
      EXPECT_EQ(results[0].state, EntryState::kOk) << results[0].message;
      EXPECT_FALSE(results[0].samples_ns.empty());
      EXPECT_EQ(results[1].state, EntryState::kWrong) << "it leaves the ReLU out";
      EXPECT_EQ(results[2].state, EntryState::kUnavailable) << results[2].message;
    }
  }
  EXPECT_STREQ(cublaslt.violations(), "");
  EXPECT_STREQ(cuda.violations(), "");
}

}  // namespace
}  // namespace nimble::tuner
