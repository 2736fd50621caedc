// Spaces of a GPU's templates: every operator's has points that can be told apart, and a search
// walks them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/driver/compile.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "tuner/search/features.h"
#include "tuner/search/search.h"
#include "vm/base/device_number.h"

namespace nimble::tuner {
namespace {

const kernels::TargetInfo& hopper() {
  static const kernels::TargetInfo target = kernels::target_by_name("sm_90a");
  return target;
}

// The workloads of a program that run on the GPU.
std::vector<driver::WorkloadUse> workloads(const char* text) {
  passes::PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  context.gpu = hopper();
  context.device = kCudaDevice;
  const ir::Module lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context);
  std::vector<driver::WorkloadUse> out;
  for (driver::WorkloadUse& use : driver::workloads_of(lowered))
    if (use.device == kCudaDevice) out.push_back(std::move(use));
  return out;
}

constexpr const char* kNetwork = R"(fn @main(%x: Tensor[(n, 96), f32], %w: Tensor[(96, 80), f32],
                                             %i: Tensor[(1, 4, 9, 9), f32], %f: Tensor[(8, 4, 3, 3), f32]) {
  let %y = matmul(%x, %w);
  let %r = relu(%y);
  let %s = softmax(%r) {axis = 1};
  let %c = conv2d(%i, %f) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1],
                               groups = 1};
  let %e = exp(%c);
  let %t = (%s, %e);
  %t
})";

TEST(GpuSearch, SpacesHaveTheRoutinesOfGpusLibraries) {
  const auto uses = workloads(kNetwork);
  ASSERT_GE(uses.size(), 3u);
  for (const driver::WorkloadUse& use : uses) {
    const Space space(use.workload, hopper());
    // Behind the convolution comes what the library has not.
    EXPECT_EQ(space.vendor_candidate() ? space.vendor_candidate()->vendor : "",
              use.workload.anchor == "matmul" ? "cublaslt.matmul" : "")
        << use.source;
    EXPECT_EQ(space.vendor_candidate().has_value(), space.no_vendor().empty()) << use.source;
    EXPECT_TRUE(space.contains(space.default_candidate())) << use.source;
    EXPECT_TRUE(space.default_candidate().template_name.starts_with("gpu_")) << use.source;
  }
}

// A search over several shapes learns from how each fills the GPU.
TEST(GpuSearch, FeaturesTellHowALaunchFillsTheGpu) {
  for (const driver::WorkloadUse& use : workloads(kNetwork)) {
    const Space space(use.workload, hopper());
    const tuned::Candidate c = space.default_candidate();
    const kernels::Lowered lowered = kernels::find_template(c.template_name)
                                         ->lower(use.workload, c.config, hopper(), "candidate");
    const kir::Function& f = lowered.functions.at(0);
    const std::vector<int64_t> none(use.workload.contract.symbols.size(), 0);
    const std::vector<int64_t> few(none.size(), 1), many(none.size(), 1 << 16);
    const auto blocks = [&](const std::vector<int64_t>& symbols) {
      const std::vector<float> launch = launch_features(f, symbols, hopper());
      for (float x : launch) EXPECT_TRUE(std::isfinite(x)) << use.source;
      for (float x : features_of(f, symbols, 1, hopper())) EXPECT_TRUE(std::isfinite(x));
      EXPECT_EQ(launch[1], static_cast<float>(f.launch->threads));
      EXPECT_LE(launch[3], 1) << "more than a multiprocessor holds";
      EXPECT_LE(launch[5], 1);
      EXPECT_EQ(launch.size(), kLaunchFeatures);
      return launch[0];
    };
    if (none.empty()) continue;
    EXPECT_LE(blocks(none), blocks(few)) << use.source;
    EXPECT_GE(blocks(few), 1) << use.source;
    EXPECT_GT(blocks(many), blocks(few)) << use.source;
  }
}

// A product of a group of warps reads its factors itself: 64 rows and the columns, 16 of k each.
TEST(GpuSearch, FeaturesCountWhatProductsOfGroupsRead) {
  using namespace kir;  // NOLINT
  const auto feature = [](int columns, const std::string& name) {
    const auto shared = [](const char* of) {
      return build::buffer(of, Scope::kShared, DType::kBF16, 1 << 12);
    };
    Function f;
    f.launch = Launch{{1, 1, 1}, kGroupThreads};
    f.body = build::group_dot(GroupFragment::kBf16Group, columns,
                              build::buffer("sum", Scope::kRegister, DType::kF32, columns / 2), 0,
                              {shared("a"), 0, true, 16, 0}, {shared("b"), 0, true, 16, 0});
    const std::vector<std::string>& names = feature_names();
    const auto at = std::find(names.begin(), names.end(), name) - names.begin();
    return features_of(f, {}, 1, hopper()).at(static_cast<size_t>(at));
  };
  for (const int columns : {16, 64, 128}) {
    const double bytes = (64.0 + columns) * 16 * 2 / kGroupThreads;  // of a thread
    EXPECT_FLOAT_EQ(feature(columns, "load bytes"), static_cast<float>(std::log2(bytes + 1)));
    EXPECT_FLOAT_EQ(feature(columns, "loads"), static_cast<float>(std::log2(bytes / 4 + 1)));
    EXPECT_FLOAT_EQ(feature(columns, "store bytes"), 0);
  }
}

TEST(GpuSearch, RoundsProposeValidPointsAndLearn) {
  for (const driver::WorkloadUse& use : workloads(kNetwork)) {
    const Space space(use.workload, hopper());
    SearchOptions options;
    const size_t symbols = use.workload.contract.symbols.size();
    options.shapes = {std::vector<int64_t>(symbols, 37), std::vector<int64_t>(symbols, 256)};
    options.pool = 32;
    Search search(space, options);
    std::set<std::string> seen;
    for (int round = 0; round < 3; ++round) {
      for (const Proposal& p : search.propose(8)) {
        EXPECT_TRUE(space.contains(p.candidate)) << text_of(p.candidate);
        EXPECT_TRUE(seen.insert(text_of(p.candidate)).second) << text_of(p.candidate);
        for (const std::optional<double>& ns : p.predicted_ns)
          EXPECT_TRUE(!ns || std::isfinite(*ns)) << text_of(p.candidate);
        for (size_t s = 0; s < options.shapes.size(); ++s)
          search.tell(p.candidate, 1000.0 + static_cast<double>(seen.size() * (s + 1)), s);
      }
      search.learn();
    }
    EXPECT_GT(seen.size(), 1u) << use.source << " has nothing to choose";
  }
}

// Rows of the model are of one length, a library's routine and schedules of ours alike.
TEST(GpuSearch, TimesOfALibrarysRoutineAreLearntFromBesideOurs) {
  int with_routine = 0;
  for (const driver::WorkloadUse& use : workloads(kNetwork)) {
    const Space space(use.workload, hopper());
    const std::optional<tuned::Candidate> routine = space.vendor_candidate();
    if (!routine) continue;
    ++with_routine;
    SearchOptions options;
    options.shapes = {std::vector<int64_t>(use.workload.contract.symbols.size(), 37)};
    options.pool = 32;
    Search search(space, options);
    search.tell(*routine, 500.0);
    double ns = 1000;
    for (int round = 0; round < 3; ++round) {
      const std::vector<Proposal> proposals = search.propose(8);
      EXPECT_FALSE(proposals.empty()) << use.source;
      for (const Proposal& p : proposals) {
        EXPECT_NE(p.candidate, *routine) << "it was tried";
        search.tell(p.candidate, ns += 100);
      }
      search.learn();
      EXPECT_TRUE(search.model().trained()) << use.source;
    }
    EXPECT_EQ(search.best(1).at(0).first, *routine);
  }
  EXPECT_GT(with_routine, 0);
}

}  // namespace
}  // namespace nimble::tuner
