// What the compiler takes from a tuning database for a GPU: that GPU's records for its kernels, the
// CPU's for the CPU's, and nobody else's for either.
#include <gmock/gmock.h>

#include <filesystem>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/kernel_set.h"
#include "compiler/driver/vendor_versions.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "db/store/store.h"
#include "vm/base/device_number.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/dispatch_json.h"
#include "vm/executable/vendor_call.h"

namespace nimble::driver {
namespace {

using Outcome = tuned::Lookup::Outcome;
using ::testing::HasSubstr;

// A product on the GPU, and a softmax that its author keeps on the CPU.
constexpr const char* kProgram = R"(
fn @here(%x: Tensor[(k, 40), f32]) -> Tensor[(k, 40), f32] attrs {device = 0} {
  let %y = softmax(%x) {axis = 1};
  %y
}
fn @main(%x: Tensor[(n, 24), f32], %w: Tensor[(24, 40), f32]) {
  let %y = matmul(%x, %w);
  let %r = relu(%y);
  let %s = @here(%r);
  %s
})";

db::Hardware gpu_named(const std::string& name, int capability = 90) {
  return db::gpu_hardware(
      {name, capability, 132, 232448, 50 << 20, uint64_t{80} << 30, 2'619'000, 5120});
}

class TunedGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = codegen::why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
    std::string pattern = ::testing::TempDir() + "nimble-tuned-gpu-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    store_ = db::Store::open(folder_ + "/tuning.db");
    for (WorkloadUse& use : uses(kProgram))
      (use.device == kCudaDevice ? product_ : softmax_) = std::move(use);
    ASSERT_EQ(product_.source, "matmul+relu");
    ASSERT_EQ(softmax_.source, "softmax");
  }
  ~TunedGpu() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  static ir::Module module(const std::string& program) {
    return ir::infer_types(ir::parse_module(program));
  }
  std::vector<WorkloadUse> uses(const std::string& program) const {
    passes::PassContext context;
    context.target = cpu_;
    context.gpu = hopper_;
    context.device = kCudaDevice;
    return workloads_of(passes::run_pipeline(module(program), context));
  }
  // A configuration that is not the default one.
  static tuned::Candidate other(const kernels::Workload& w, const kernels::TargetInfo& target) {
    const kernels::Template* t = kernels::template_for(w, target);
    for (const kernels::Knob& knob : t->knobs(w, target))
      for (const kernels::KnobValue& choice : knob.choices) {
        kernels::Config c = t->default_config(w, target);
        if (c.at(knob.name) == choice) continue;
        c[knob.name] = choice;
        if (t->valid(w, c, target)) return {std::string(t->name()), c, {}};
      }
    ADD_FAILURE() << w.key;
    return {};
  }
  std::string code_of(const kernels::Workload& w, const tuned::Candidate& c,
                      const kernels::TargetInfo& target) const {
    std::vector<kernels::TargetInfo> gpus;
    if (target.is_gpu()) gpus.push_back(target);
    KernelSet kernels(target.is_gpu() ? cpu_ : target, {}, {}, gpus);
    kernels.add_fixed(w.group, w.constant_parameter, c, "alone");
    CompileOptions options;
    options.portable = false;
    exec::Executable e;
    kernels.finish(options, e, nullptr);
    return kernels.code_hash(0, 0);
  }
  // An active table of one configuration, with the measurement that it rests on.
  void record(const WorkloadUse& use, const tuned::Candidate& candidate,
              const kernels::TargetInfo& target, const db::Hardware& hardware,
              const std::string& code_hash) {
    db::NewDispatchTable t;
    db::TrialKey trial;
    db::Measurement m;
    store_->transaction([&] {
      t.workload = store_->put(tuned::workload_record(use.workload, target, 1));
      t.hardware = store_->put(hardware);
      t.toolchain = store_->put(tuned::toolchain_record(target));
      t.policy =
          store_->put(db::MeasurePolicy{db::CacheMode::kWarm, 3, 2, "rdtsc", "ci", "cached"});
      t.objective = "mean";
      const db::Hash schedule =
          store_->put(db::Template{candidate.template_name, tuned::kTemplateVersion, ""});
      const db::Hash config = store_->put(
          db::Config{schedule, candidate.vendor.empty()
                                   ? kernels::to_json(candidate.config)
                                   : fmt::format(R"({{"routine":"{}"}})", candidate.vendor)});
      trial = {store_->create_campaign({code_hash, t.hardware, ++campaigns_}, 10, "test"),
               t.workload, config, store_->put(db::Shape{t.workload, {{"s0", 64}}, 1, 1})};
      m.artifact = store_->put(db::Artifact{code_hash, t.workload, config, t.toolchain, 1, 1});
      m.machine = store_->put(db::Machine{"", "box", t.hardware});
      m.host_state = store_->put(db::HostState{});
    });
    store_->enqueue({{trial}});
    store_->claim({trial.campaign, "me"});
    m.trial = db::uuid_of(trial);
    m.policy = t.policy;
    m.median_ns = m.ci_low_ns = m.ci_high_ns = 100;
    m.stop_reason = "ci";
    m.samples_ns = {100};
    store_->finish({m.trial, "me", db::TrialState::kOk, "", "", m});
    db::DispatchEntry e;
    e.config = trial.config;
    e.expected_ns = 100;
    e.evidence = store_->measurements(m.trial).at(0).measurement.uuid;
    t.entries = {e};
    t.tree = exec::tree_to_json(exec::DispatchTree::single(0), use.workload.contract.symbols);
    store_->activate(store_->create_table(t), "test");
  }

  struct Compiled {
    exec::Executable executable;
    CompileReport report;
    const KernelReport& of(const std::string& source) const {
      for (const KernelReport& k : report.kernels)
        if (k.source == source) return k;
      throw std::out_of_range(source);
    }
    std::string config_of(const std::string& source) const {
      for (const exec::Kernel& k : executable.kernels)
        if (k.source == source) return k.implementations.at(0).config;
      throw std::out_of_range(source);
    }
  };
  Compiled compiled(std::optional<db::Hardware> gpu, std::vector<kernels::TargetInfo> gpus,
                    const std::string& program = kProgram) const {
    const auto source = tuned::database_source(store_, db::host_hardware(), std::move(gpu));
    CompileOptions options;
    options.target = cpu_;
    options.device = gpus.empty() ? kCpuDevice : kCudaDevice;
    options.gpus = std::move(gpus);
    options.tuned = source.get();
    Compiled out;
    out.executable = driver::compile(module(program), options, &out.report);
    return out;
  }

  const kernels::TargetInfo cpu_ = kernels::detect_host();
  const kernels::TargetInfo hopper_ = kernels::target_by_name("sm_90a");
  const kernels::TargetInfo ampere_ = kernels::target_by_name("sm_80");
  const db::Hardware h100_ = gpu_named("NVIDIA H100 80GB HBM3");
  std::string folder_;
  std::shared_ptr<db::Store> store_;
  WorkloadUse product_, softmax_;
  int64_t campaigns_ = 0;
};

TEST_F(TunedGpu, EachKernelGetsTheRecordsOfWhatItRunsOn) {
  const tuned::Candidate there = other(product_.workload, hopper_);
  const tuned::Candidate here = other(softmax_.workload, cpu_);
  record(product_, there, hopper_, h100_, code_of(product_.workload, there, hopper_));
  record(softmax_, here, cpu_, db::host_hardware(), code_of(softmax_.workload, here, cpu_));
  const Compiled c = compiled(h100_, {hopper_});
  EXPECT_EQ(c.of("matmul+relu").outcome, Outcome::kTuned) << c.of("matmul+relu").reason;
  EXPECT_EQ(c.of("matmul+relu").device, kCudaDevice);
  EXPECT_EQ(c.config_of("matmul+relu"), kernels::to_json(there.config));
  EXPECT_EQ(c.of("softmax").outcome, Outcome::kTuned) << c.of("softmax").reason;
  EXPECT_EQ(c.of("softmax").device, kCpuDevice);
  EXPECT_EQ(c.config_of("softmax"), kernels::to_json(here.config));
  EXPECT_EQ(c.report.gpu_class, "cached");
}

TEST_F(TunedGpu, OtherCodeThanWasMeasuredIsStale) {
  const tuned::Candidate there = other(product_.workload, hopper_);
  record(product_, there, hopper_, h100_, "other code");
  const Compiled c = compiled(h100_, {hopper_});
  EXPECT_EQ(c.of("matmul+relu").outcome, Outcome::kStale);
  EXPECT_EQ(c.config_of("matmul+relu"), kernels::to_json(there.config))
      << "it is used all the same";
}

TEST_F(TunedGpu, RecordsOfOneGpuServeNoOther) {
  const tuned::Candidate there = other(product_.workload, hopper_);
  record(product_, there, hopper_, h100_, "code");
  const auto unused = [&](const Compiled& c, Outcome outcome) {
    EXPECT_EQ(c.of("matmul+relu").outcome, outcome);
    EXPECT_NE(c.config_of("matmul+relu"), kernels::to_json(there.config));
    return c.of("matmul+relu").reason;
  };
  // Of the same architecture; it is said whose they are.
  EXPECT_THAT(unused(compiled(gpu_named("NVIDIA H200"), {hopper_}), Outcome::kMismatch),
              HasSubstr("tuned on other hardware (NVIDIA H100 80GB HBM3), this is NVIDIA H200"));
  unused(compiled(std::nullopt, {hopper_}), Outcome::kUntuned);
  // Of another, whatever the hardware is called.
  unused(compiled(h100_, {ampere_}), Outcome::kUntuned);
  EXPECT_THAT(unused(compiled(h100_, {ampere_, hopper_}), Outcome::kUntuned),
              HasSubstr("compile for each by itself"));
}

TEST_F(TunedGpu, NoRecordsAreSharedWithTheCpu) {
  // The same softmax, as a GPU's and as a CPU's, each under the other's hardware or target.
  const tuned::Candidate there = other(softmax_.workload, hopper_);
  const tuned::Candidate here = other(softmax_.workload, cpu_);
  record(softmax_, there, hopper_, h100_, "code");
  record(softmax_, here, cpu_, h100_, "code");
  record(softmax_, there, hopper_, db::host_hardware(), "code");
  for (const Compiled& c : {compiled(h100_, {hopper_}), compiled(h100_, {})}) {
    EXPECT_EQ(c.of("softmax").outcome, Outcome::kMismatch);
    EXPECT_THAT(c.of("softmax").reason, HasSubstr("tuned for ISA sm_90"));
    EXPECT_NE(c.config_of("softmax"), kernels::to_json(here.config));
  }
  // And a product's of the CPU is none of the GPU's.
  record(product_, other(product_.workload, hopper_), cpu_, db::host_hardware(), "code");
  EXPECT_EQ(compiled(h100_, {hopper_}).of("matmul+relu").outcome, Outcome::kUntuned);
}

// The routine of the GPU's own vendor runs with the version of its library that was measured, which
// need not be where the model is compiled.
TEST_F(TunedGpu, AVendorsRoutineThatWonIsServed) {
  const tuned::Candidate routine{tuned::kVendorTemplate, {}, "cublaslt.matmul"};
  record(product_, routine, hopper_, h100_, "cublaslt.matmul cuBLASLt 13.7.9");
  for (const char* library : {"off", "/nowhere/libcublasLt.so.13"}) {
    const ScopedVariable named("NIMBLE_CUBLASLT", library);
    const Compiled c = compiled(h100_, {hopper_});
    EXPECT_EQ(c.of("matmul+relu").outcome, Outcome::kTuned) << c.of("matmul+relu").reason;
    const exec::VendorCall call = exec::vendor_call_of(c.config_of("matmul+relu"));
    EXPECT_EQ(call.routine, "cublaslt.matmul");
    EXPECT_EQ(call.library, "cuBLASLt 13.7.9");
  }
}

// Before cuBLASLt was told that it may round, its f32 was measured in the place of its TF32: the
// same routine of the same version, and yet no exact record. It is used as one of other code is.
TEST_F(TunedGpu, AVendorsRoutineThatMayRoundIsOtherCode) {
  std::string program = kProgram;
  const std::string product = "matmul(%x, %w)";
  program.insert(program.find(product) + product.size(), " {tf32 = true}");
  WorkloadUse rounded;
  for (WorkloadUse& use : uses(program))
    if (use.device == kCudaDevice) rounded = std::move(use);
  const ScopedVariable named("NIMBLE_CUBLASLT", "off");
  for (const auto& [code, outcome] :
       {std::pair("cublaslt.matmul cuBLASLt 13.7.9", Outcome::kStale),
        std::pair("cublaslt.matmul+tf32 cuBLASLt 13.7.9", Outcome::kTuned)}) {
    std::filesystem::remove_all(folder_ + "/tuning.db");
    store_ = db::Store::open(folder_ + "/tuning.db");
    record(rounded, {tuned::kVendorTemplate, {}, "cublaslt.matmul"}, hopper_, h100_, code);
    const Compiled c = compiled(h100_, {hopper_}, program);
    EXPECT_EQ(c.of("matmul+relu").outcome, outcome) << code << ": " << c.of("matmul+relu").reason;
    const exec::VendorCall call = exec::vendor_call_of(c.config_of("matmul+relu"));
    EXPECT_TRUE(call.tf32);
    EXPECT_EQ(call.library, "cuBLASLt 13.7.9") << code;
  }
}

TEST(VendorCode, NamesTheVersionAndWhetherFactorsMayBeRounded) {
  exec::VendorCall call;
  call.routine = "cublaslt.matmul";
  call.library = "cuBLASLt 13.7.9";
  EXPECT_EQ(code_of_call(call), "cublaslt.matmul cuBLASLt 13.7.9");
  call.tf32 = true;
  EXPECT_EQ(code_of_call(call), "cublaslt.matmul+tf32 cuBLASLt 13.7.9");
  EXPECT_EQ(version_in(code_of_call(call), call.routine), call.library);
  EXPECT_EQ(version_in("cublaslt.matmul cuBLASLt 13.7.9", call.routine), call.library);
  call.library.clear();
  EXPECT_EQ(version_in(code_of_call(call), call.routine), "");
}

// Any version would do where none is named, and none was measured.
TEST_F(TunedGpu, AVendorsRoutineOfAnUnknownVersionRunsNowhere) {
  record(product_, {tuned::kVendorTemplate, {}, "cublaslt.matmul"}, hopper_, h100_,
         "cublaslt.matmul");
  const ScopedVariable named("NIMBLE_CUBLASLT", "off");
  const Compiled c = compiled(h100_, {hopper_});
  EXPECT_EQ(c.of("matmul+relu").outcome, Outcome::kStale);
  EXPECT_THAT(c.of("matmul+relu").reason, HasSubstr("ours runs in its place"));
  EXPECT_NE(exec::vendor_call_of(c.config_of("matmul+relu")).library, "");
}

// Whoever wrote such a table.
TEST_F(TunedGpu, ACpusRoutineIsNoGpusKernel) {
  record(product_, {tuned::kVendorTemplate, {}, "onednn.matmul"}, hopper_, h100_, "code");
  const Compiled c = compiled(h100_, {hopper_});
  EXPECT_EQ(c.of("matmul+relu").outcome, Outcome::kMismatch);
  EXPECT_THAT(c.of("matmul+relu").reason, HasSubstr("does not compute it"));
}

TEST_F(TunedGpu, TheToolchainIsNvrtc) {
  const db::Toolchain t = tuned::toolchain_record(hopper_);
  EXPECT_EQ(t.compiler, "nvrtc");
  EXPECT_FALSE(t.version.empty());
  EXPECT_THAT(t.flags, HasSubstr("--fmad=false"));
  EXPECT_NE(db::key_of(t), db::key_of(tuned::toolchain_record(cpu_)));
}

}  // namespace
}  // namespace nimble::driver
