// A vendor's routine as a candidate: made ready for the case's size and each copy of its weights,
// and checked like any other.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tuner/measure/bench.h"
#include "vm/base/error.h"
#include "vm/executable/assembler.h"
#include "vm/executable/vendor_call.h"
#include "vm/executable/writer.h"
#include "vm/library/registry.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kDepth = 24, kColumns = 40, kWidth = 32, kPanels = 2;

// Kernels of a product with packed weights, a bias and a ReLU: one that is told so, one without the
// ReLU, one that is told of other weights, for which nothing can be made ready.
std::vector<uint8_t> executable(const std::string& version) {
  exec::VendorCall call;
  call.routine = "onednn.matmul";
  call.library = version;
  call.w = 1;
  call.y = 3;
  call.k = kDepth;
  call.n = kColumns;
  call.panel = exec::VendorCall::Panel{kWidth, 1};
  call.then = {{exec::VendorOp::kAdd, 2}, {exec::VendorOp::kRelu}};
  exec::VendorCall wrong = call;
  wrong.then.pop_back();
  exec::VendorCall other = call;
  other.k = kDepth + 1;
  exec::Executable e;
  for (const exec::VendorCall& c : {call, wrong, other}) {
    exec::Kernel k =
        exec::assemble(
            fmt::format("kernel \"k{}\" {{ symbols m in f32 ([a0], [{}]) in f32 ([{}], [{}], [{}]) "
                        "in f32 ([{}]) out f32 ([a0], [{}]) scratch [0] dispatch {{ 0: 0 }} "
                        "vendor \"onednn.matmul\" }}",
                        e.kernels.size(), kDepth, kPanels, kDepth, kWidth, kColumns, kColumns))
            .kernels[0];
    k.implementations[0].config = exec::to_json(c);
    e.kernels.push_back(std::move(k));
  }
  return exec::serialize(e);
}

Case case_of(int64_t m, uint64_t seed, double weight, const std::string& policy) {
  Case c;
  c.symbols = {m};
  c.threads = 2;
  c.seed = seed;
  c.inputs = {Fill{}, Fill{-weight, weight, true}, Fill{-1, 1, true}};
  c.tolerance = 1e-5;
  c.policy.choose_class(policy);
  c.policy.rotate_bytes = 5 * kPanels * kDepth * kWidth * 4;
  c.policy.batch_ns = 20'000;
  c.policy.case_ns = 100'000'000;
  std::vector<float> x(m * kDepth), w(kPanels * kDepth * kWidth), b(kColumns), y(m * kColumns);
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
      for (int64_t k = 0; k < kDepth; ++k)
        sum += double{x[i * kDepth + k]} * w[(j / kWidth * kDepth + k) * kWidth + j % kWidth];
      y[i * kColumns + j] = static_cast<float>(std::max(sum, 0.0));
    }
  c.expected.emplace_back(y.size() * 4);
  std::memcpy(c.expected[0].data(), y.data(), y.size() * 4);
  return c;
}

TEST(VendorBench, ARoutineIsMadeReadyForEachCase) {
  const rt::LibraryKernel* routine =
      rt::find_library_kernel(exec::ImplementationKind::kVendor, "onednn.matmul");
  if (const std::string why = routine->unavailable(); !why.empty()) GTEST_SKIP() << why;
  Progress progress;
  Bench bench(&progress);
  ASSERT_EQ(bench.load(1, executable(routine->version())), 3u);
  // Other sizes, other rows, other weights where the ones before lay.
  for (const char* policy : {"warm", "cold"})
    for (const auto& [m, seed, weight] :
         {std::tuple{5, 1, 1.0}, {5, 2, 1.0}, {37, 2, 1.0}, {37, 2, 0.5}, {1, 3, 0.25}}) {
      Case c = case_of(m, static_cast<uint64_t>(seed), weight, policy);
      c.entries = {{1, 0}, {1, 1}, {1, 2}};
      std::vector<EntryResult> results(3);
      bench.measure(c, [&](const EntryResult& r) { results.at(r.index) = r; });
      EXPECT_EQ(results[0].state, EntryState::kOk) << results[0].message;
      EXPECT_FALSE(results[0].samples_ns.empty());
      EXPECT_EQ(results[1].state, EntryState::kWrong) << "it leaves the ReLU out";
      EXPECT_EQ(results[2].state, EntryState::kUnavailable) << results[2].message;
      c.entries = {{1, 0}};
      const auto outputs = bench.run(c);
      EXPECT_LE(compare_tensors(DType::kF32, outputs.at(0), c.expected[0]), 1e-5);
    }
}

TEST(VendorBench, AnotherVersionIsNoCandidate) {
  Progress progress;
  Bench bench(&progress);
  EXPECT_THROW(bench.load(1, executable("oneDNN 1.0.0")), Error);
}

}  // namespace
}  // namespace nimble::tuner
