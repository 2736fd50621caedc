// The space: what the templates say, no more and no less.
#include "tuner/space/space.h"

#include <gmock/gmock.h>

#include <set>

#include "compiler/driver/compile.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// A product whose right-hand side is a constant, hence packed.
std::string product_text() {
  std::string weights = "0.5";
  for (int i = 1; i < 96 * 80; ++i) weights += ", 0.5";
  return "fn @main(%x: Tensor[(n, 96), f32]) -> Tensor[(n, 80), f32] {\n  let %y = matmul(%x, "
         "f32[96, 80]{" +
         weights + "});\n  %y\n}\n";
}

kernels::TargetInfo target() {
  return kernels::target_by_name("x86-64-v3");
}

// The first workload of a text whose anchor is `anchor`.
kernels::Workload workload_of(const std::string& text, const std::string& anchor) {
  passes::PassContext context;
  context.target = target();
  const ir::Module lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context);
  for (const driver::WorkloadUse& use : driver::workloads_of(lowered))
    if (use.workload.anchor == anchor) return use.workload;
  throw Error(Status::kNotFound, "test", "no workload " + anchor);
}

kernels::Workload product() {
  return workload_of(product_text(), "packed_matmul");
}

TEST(Space, EveryDrawIsValidAndOfTheSpace) {
  const kernels::Workload w = product();
  const kernels::TargetInfo t = target();
  const Space space(w, t);
  Random random(1);
  std::set<std::string> seen;
  for (int i = 0; i < 300; ++i) {
    const auto c = space.sample(random);
    ASSERT_TRUE(c);
    EXPECT_TRUE(space.contains(*c)) << text_of(*c);
    seen.insert(text_of(*c));
    const auto m = space.mutate(*c, random);
    ASSERT_TRUE(m);
    EXPECT_TRUE(space.contains(*m));
    EXPECT_NE(m->config, c->config);
  }
  EXPECT_GT(seen.size(), 100u);
  EXPECT_LE(static_cast<int64_t>(seen.size()), space.size());
}

TEST(Space, EqualSeedsWalkEqualWays) {
  const kernels::Workload w = product();
  const kernels::TargetInfo t = target();
  const Space space(w, t);
  Random a(7), b(7), c(8);
  std::string left, right, other;
  for (int i = 0; i < 20; ++i) {
    left += text_of(*space.sample(a));
    right += text_of(*space.sample(b));
    other += text_of(*space.sample(c));
  }
  EXPECT_EQ(left, right);
  EXPECT_NE(left, other);
}

TEST(Space, NeighboursDifferInOneKnobByOneStep) {
  const kernels::Workload w = product();
  const kernels::TargetInfo t = target();
  const Space space(w, t);
  const tuned::Candidate from = space.default_candidate();
  EXPECT_TRUE(space.contains(from));
  const auto near = space.neighbours(from);
  EXPECT_GE(near.size(), 4u);
  for (const tuned::Candidate& c : near) {
    EXPECT_TRUE(space.contains(c));
    int different = 0;
    for (const auto& [knob, value] : c.config) different += value != from.config.at(knob);
    EXPECT_EQ(different, 1) << text_of(c);
  }
}

TEST(Space, EnumeratesSmallSpacesWholeAndLargeOnesNotAtAll) {
  const kernels::TargetInfo t = target();
  const kernels::Workload small = workload_of(
      R"(fn @main(%x: Tensor[(n, 64), f32]) -> Tensor[(n, 64), f32] { let %y = relu(%x); %y })",
      "elementwise");
  const Space space(small, t);
  const auto all = space.enumerate(1000);
  EXPECT_FALSE(all.empty());
  std::set<std::string> distinct;
  for (const tuned::Candidate& c : all) {
    EXPECT_TRUE(space.contains(c));
    distinct.insert(text_of(c));
  }
  EXPECT_EQ(distinct.size(), all.size());
  Random random(2);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(distinct.contains(text_of(*space.sample(random))));
  const kernels::Workload large = product();
  EXPECT_TRUE(Space(large, t).enumerate(10).empty());
}

TEST(Space, CrossingTakesEachKnobFromAParent) {
  const kernels::Workload w = product();
  const kernels::TargetInfo t = target();
  const Space space(w, t);
  Random random(3);
  int crossed = 0;
  for (int i = 0; i < 100; ++i) {
    const auto a = space.sample(random), b = space.sample(random);
    const auto c = space.cross(*a, *b, random);
    if (!c) continue;
    ++crossed;
    EXPECT_TRUE(space.contains(*c));
    for (const auto& [knob, value] : c->config)
      EXPECT_TRUE(value == a->config.at(knob) || value == b->config.at(knob));
  }
  EXPECT_GT(crossed, 20);
}

TEST(Space, TheVendorTakesPartWhereItComputesTheWorkload) {
  const kernels::TargetInfo t = target();
  const kernels::Workload packed = product();
  const Space space(packed, t);
  EXPECT_EQ(space.no_vendor(), "");
  const tuned::Candidate vendor{tuned::kVendorTemplate, {}, "onednn.matmul"};
  EXPECT_TRUE(space.contains(vendor));
  ASSERT_TRUE(space.vendor_candidate());
  EXPECT_EQ(text_of(*space.vendor_candidate()), text_of(vendor));
  const kernels::Workload sums = workload_of(
      R"(fn @main(%x: Tensor[(n, 64), f32]) -> Tensor[(n), f32] {
        let %y = sum(%x) {axes = [1], keepdims = false};
        %y
      })",
      "sum");
  EXPECT_THAT(Space(sums, t).no_vendor(), ::testing::HasSubstr("no routine for sum"));
  EXPECT_FALSE(Space(sums, t).contains(vendor));
  EXPECT_FALSE(Space(sums, t).vendor_candidate());
}

TEST(Space, AVendorThatIsLeftOutIsNoCandidate) {
  const kernels::TargetInfo t = target();
  const kernels::Workload packed = product();
  Space space(packed, t);
  const tuned::Candidate vendor = *space.vendor_candidate();
  const int64_t with = space.size();
  space.leave_out_vendor("libdnnl.so.2 is not installed");
  EXPECT_EQ(space.no_vendor(), "libdnnl.so.2 is not installed");
  EXPECT_FALSE(space.vendor_candidate());
  EXPECT_FALSE(space.contains(vendor));
  EXPECT_EQ(space.size(), with - 1);
  for (const tuned::Candidate& c : space.enumerate(1 << 20)) EXPECT_EQ(c.vendor, "");
}

TEST(Space, CandidatesAreStoredAndReadBack) {
  const kernels::Workload w = product();
  const kernels::TargetInfo t = target();
  const Space space(w, t);
  Random random(4);
  for (int i = 0; i < 20; ++i) {
    const auto c = space.sample(random);
    const tuned::Candidate back = candidate_of(c->template_name, config_json(*c));
    EXPECT_EQ(text_of(back), text_of(*c));
  }
  EXPECT_EQ(candidate_of("vendor", R"({"routine":"onednn.matmul"})").vendor, "onednn.matmul");
  EXPECT_THROW(candidate_of("vendor", "{}"), Error);
}

// Of a GPU its own library's.
TEST(Space, ARoutineOfAGpuIsOneOfItsPoints) {
  const kernels::Workload w = kernels::make_workload(
      *ir::infer_types(ir::parse_module("fn @main(%x: Tensor[(n, 96), f32], %w: Tensor[(96, 80), "
                                        "f32]) { let %y = matmul(%x, %w); %y }"))
           .functions.at(0)
           .second);
  const kernels::TargetInfo gpu = kernels::target_by_name("sm_90a");
  const Space space(w, gpu);
  const tuned::Candidate vendor{tuned::kVendorTemplate, {}, "cublaslt.matmul"};
  EXPECT_EQ(space.no_vendor(), "");
  EXPECT_TRUE(space.contains(vendor));
  EXPECT_FALSE(space.contains({tuned::kVendorTemplate, {}, "onednn.matmul"}));
  ASSERT_TRUE(space.vendor_candidate());
  EXPECT_EQ(text_of(*space.vendor_candidate()), text_of(vendor));
  EXPECT_EQ(candidate_of(tuned::kVendorTemplate, config_json(vendor)), vendor);
}

}  // namespace
}  // namespace nimble::tuner
