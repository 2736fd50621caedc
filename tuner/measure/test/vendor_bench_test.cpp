// A vendor's routine as a candidate: made ready for the case's size and each copy of its weights,
// and checked like any other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "tuner/measure/test/product_case.h"
#include "vm/base/error.h"
#include "vm/library/registry.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kWidth = 32, kPanels = 2;

std::vector<uint8_t> executable(const std::string& version) {
  exec::VendorCall call;
  call.routine = "onednn.matmul";
  call.library = version;
  call.panel = exec::VendorCall::Panel{kWidth, 1};
  return product_executable(call, [](size_t kernel) {
    return fmt::format(
        "kernel \"k{}\" {{ symbols m in f32 ([a0], [{}]) in f32 ([{}], [{}], [{}]) "
        "in f32 ([{}]) out f32 ([a0], [{}]) scratch [0] dispatch {{ 0: 0 }} "
        "vendor \"onednn.matmul\" }}",
        kernel, kDepth, kPanels, kDepth, kWidth, kColumns, kColumns);
  });
}

Case case_of(int64_t m, uint64_t seed, double weight, const std::string& policy) {
  Case c;
  c.threads = 2;
  c.seed = seed;
  c.inputs = {Fill{}, Fill{-weight, weight, true}, Fill{-1, 1, true}};
  c.tolerance = 1e-5;
  c.policy.choose_class(policy);
  c.policy.rotate_bytes = 5 * kPanels * kDepth * kWidth * 4;
  c.policy.batch_ns = 20'000;
  c.policy.case_ns = 100'000'000;
  expect_product(c, m, kPanels * kDepth * kWidth, [](int64_t k, int64_t column) {
    return (column / kWidth * kDepth + k) * kWidth + column % kWidth;
  });
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
      expect_outcomes(bench, c);
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
