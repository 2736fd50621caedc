// What becomes of a kernel whose products of groups of warps the assembler does one after the
// other. Of which kernels it says so, its version decides; so the cache of code is given the log of
// one that did, of the kernel of another candidate than the default.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "compiler/codegen/code_cache.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/cuda/kept_code.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/kernel_set.h"
#include "compiler/driver/test/cuda_options.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "vm/base/device_number.h"

namespace nimble::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of extents that no other test has, not even of these: they share a cache and may run at a time.
std::string product() {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  int number = 0;
  while (all.current_test_suite()->GetTestInfo(number) != all.current_test_info()) ++number;
  return fmt::format(
      "fn @main(%x: Tensor[(n, 88), f32], %w: Tensor[(88, {0}), f32]) {{"
      " let %y = matmul(%x, %w); %y }}",
      136 + 8 * number);
}

constexpr const char* kSaid =
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to insufficient register resources for the wgmma pipeline in the function 'k'";

// A record of one configuration.
class OneRecord : public tuned::TunedSource {
 public:
  OneRecord(tuned::Candidate candidate, std::string code_hash) {
    choice_.candidates = {std::move(candidate)};
    choice_.code_hashes = {std::move(code_hash)};
    choice_.tree = exec::DispatchTree::single(0);
    choice_.evidence = R"({"schedule":"tuned"})";
  }
  tuned::Lookup find(const kernels::Workload&, const kernels::TargetInfo&,
                     const std::string& /*policy_class*/) override {
    tuned::Lookup out;
    out.outcome = tuned::Lookup::Outcome::kTuned;
    out.choice = choice_;
    return out;
  }
  std::string identity() const override { return "one record"; }

 private:
  tuned::TunedChoice choice_;
};

class SerializedProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = codegen::why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
    cache_ = codegen::CodeCache::of_user();
    if (!cache_) GTEST_SKIP() << "there is no cache of code";
    passes::PassContext context;
    context.target = options_.target;
    context.gpu = gpu_;
    context.device = kCudaDevice;
    const std::vector<WorkloadUse> uses = workloads_of(passes::run_pipeline(module(), context));
    ASSERT_EQ(uses.size(), 1u);
    workload_ = uses[0].workload;
    const kernels::Template* t = kernels::template_for(workload_, gpu_);
    ASSERT_NE(t, nullptr);
    kernels::Config config = t->default_config(workload_, gpu_);
    int64_t& stages = std::get<int64_t>(config.at("stages"));
    stages = stages > 2 ? stages - 1 : 3;
    ASSERT_TRUE(t->valid(workload_, config, gpu_)) << kernels::to_json(config);
    candidate_ = {std::string(t->name()), config, {}};
    key_ = codegen::key_of_cuda(alone().listing().cuda, gpu_);
    say("");  // a test that was killed may have left it
    KernelSet set = alone();
    exec::Executable e;
    set.finish(options_, e, nullptr);
    code_hash_ = set.code_hash(0, 0);
    say(std::string(kSaid) + "\n");
    ASSERT_TRUE(kept()) << "it is not in the cache";
  }
  void TearDown() override {
    if (cache_) say("");
  }

  static ir::Module module() { return ir::infer_types(ir::parse_module(product())); }

  // The candidate's kernel and no other.
  KernelSet alone() const {
    KernelSet set(options_.target, {}, {}, {gpu_});
    set.add_fixed(workload_.group, workload_.constant_parameter, candidate_, "alone");
    return set;
  }

  std::optional<codegen::Nvrtc::Output> kept() const {
    const auto bytes = cache_->find(key_);
    return bytes ? codegen::unpacked(*bytes) : std::nullopt;
  }
  // Makes it what the assembler said of the kernel, before all else.
  void say(const std::string& what) const {
    std::optional<codegen::Nvrtc::Output> output = kept();
    if (!output) return;
    if (output->log.starts_with(kSaid)) output->log.erase(0, std::string(kSaid).size() + 1);
    output->log = what + output->log;
    cache_->keep(key_, codegen::packed(*output));
  }

  template <typename Action>
  static void expect_refused(const Action& action) {
    try {
      action();
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kUnsupported);
      EXPECT_THAT(e.problem(), AllOf(HasSubstr("one after the other"), HasSubstr(kSaid)));
      EXPECT_THAT(e.remedy(), HasSubstr("another configuration"));
    }
  }

  const kernels::TargetInfo gpu_ = kernels::target_by_name("sm_90a");
  CompileOptions options_ = testing::cuda_options({"sm_90a"});
  codegen::CodeCache* cache_ = nullptr;
  kernels::Workload workload_;
  tuned::Candidate candidate_;
  std::string code_hash_;

 private:
  Hash128 key_;  // of the candidate's code
};

TEST_F(SerializedProducts, AreRefusedOfACandidate) {
  expect_refused([&] {
    exec::Executable e;
    alone().finish(options_, e, nullptr);
  });
}

TEST_F(SerializedProducts, AreRefusedOfAPersonsKnobs) {
  options_.knobs = {{candidate_.template_name, candidate_.config}};
  expect_refused([&] { compile(module(), options_); });
}

// It was measured with another compiler, and is the best that is known.
TEST_F(SerializedProducts, AreToldOfARecord) {
  OneRecord record(candidate_, code_hash_);
  options_.tuned = &record;
  CompileReport report;
  const exec::Executable e = compile(module(), options_, &report);
  ASSERT_EQ(report.kernels.size(), 1u);
  const KernelReport& k = report.kernels[0];
  EXPECT_EQ(k.outcome, tuned::Lookup::Outcome::kTuned);
  EXPECT_THAT(k.reason, AllOf(HasSubstr("one after the other"), HasSubstr(kSaid),
                              HasSubstr("tune again with this NVRTC")));
  EXPECT_EQ(e.kernels.at(0).implementations.at(0).config, kernels::to_json(candidate_.config));
}

// The default schedule is another kernel, of which nothing is said.
TEST_F(SerializedProducts, AreNotTakenForThoseOfAnother) {
  CompileReport report;
  compile(module(), options_, &report);
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_EQ(report.kernels[0].reason, "");
}

}  // namespace
}  // namespace nimble::driver
