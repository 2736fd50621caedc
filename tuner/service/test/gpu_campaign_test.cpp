// Campaigns for a GPU: on a stand-in for its driver with candidates that go wrong, and with the
// compiler's, which NVRTC makes.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "compiler/driver/compile.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "db/store/test/all.h"
#include "tuner/fleet/case_record.h"
#include "tuner/measure/test/gpu_fault_executable.h"
#include "tuner/search/search.h"
#include "tuner/service/model_tasks.h"
#include "tuner/service/test/gpu_cases.h"
#include "tuner/service/test/quick_campaign.h"
#include "tuner/service/tuning_machine.h"
#include "vm/base/device_number.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/executable/reader.h"
#include "vm/runtime/cuda_facts.h"
#include "vm/runtime/test/standin/cuda.h"

namespace nimble::tuner {
namespace {

using db::TrialState;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuCampaign : public QuickCampaignTest {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_nvrtc(); !why.empty()) GTEST_SKIP() << why;
    driver().reset();
  }
  void TearDown() override { driver().reset(); }
  static const StandInCuda& driver() { return standin_cuda(NIMBLE_STANDIN_CUDA); }
  CampaignOptions quick_gpu(const std::string& model) const {
    CampaignOptions o = quick(model);
    o.threads = {};
    o.target = "sm_90a";
    o.worker = NIMBLE_GPU_FAULT_WORKER;
    o.hang_ms = 1500;
    return o;
  }
  std::vector<TuningTask> tasks(const CampaignOptions& o) const {
    return tasks_of_model(o, hopper(), nullptr).tasks;
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
  // The libraries that a machine may have compute on no stand-in.
  const ScopedVariable cublaslt_{"NIMBLE_CUBLASLT", "off"}, cudnn_{"NIMBLE_CUDNN", "off"};
};

// Hands out kernels of the GPU that go wrong, by what the configuration's hash says.
class FaultyGpuBackend : public CopyingBackend {
 public:
  static constexpr const char* kKernels[] = {"copy",    "trap", "wrong",     "hang",
                                             "failing", "slow", "late_trap", "uncompilable"};
  std::string good;  // this one is fine in any case
  std::string kernel_of(const tuned::Candidate& c) const {
    return text_of(c) == good ? "copy" : kKernels[hash64(text_of(c)) % std::size(kKernels)];
  }
  Built build(const kernels::Workload&, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    Built b;
    EXPECT_TRUE(target.is_gpu());
    std::vector<std::string> names;
    for (const tuned::Candidate& c : candidates) {
      names.push_back(kernel_of(c));
      if (names.back() == "uncompilable") b.error = "NVRTC refuses this kernel";
      b.code_hashes.push_back(hex(hash64(text_of(c))));
    }
    if (b.error.empty()) b.executable = gpu_fault_executable(names);
    b.compile_ms = 1;
    return b;
  }
};

TEST_F(GpuCampaign, CandidatesThatGoWrongAreRecordedAndTheOthersMakeATable) {
  const CampaignOptions o = quick_gpu(kCopy);
  const std::vector<TuningTask> all = tasks(o);
  ASSERT_EQ(all.size(), 1u);
  FaultyGpuBackend backend;
  backend.good = text_of(Space(all[0].workload(), hopper()).default_candidate());
  const CampaignReport report = run_campaign(o, backend, kNever);
  ASSERT_EQ(report.tasks.size(), 1u);
  ASSERT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  EXPECT_EQ(report.tasks[0].threads, 1);

  std::shared_ptr<db::Store> store = db::Store::open(o.database);
  std::map<std::string, std::set<TrialState>> states;  // by kernel
  for (const db::TrialOutcome& t : store->outcomes(report.campaign)) {
    if (t.trial.key.role != db::Role::kSearch) continue;
    const auto info = store->config(t.trial.key.config);
    const std::string kernel = backend.kernel_of(candidate_of(info->template_name, info->json));
    states[kernel].insert(t.trial.state);
    if (kernel == "trap") {
      EXPECT_THAT(t.trial.message, HasSubstr("ILLEGAL_ADDRESS"));
    }
  }
  const std::map<std::string, TrialState> due = {
      {"copy", TrialState::kOk},         {"slow", TrialState::kOk},
      {"trap", TrialState::kCrashed},    {"late_trap", TrialState::kCrashed},
      {"failing", TrialState::kCrashed}, {"wrong", TrialState::kWrong},
      {"hang", TrialState::kTimeout},    {"uncompilable", TrialState::kCompileFailed}};
  EXPECT_GE(states.size(), 4u);
  for (const auto& [kernel, seen] : states)
    EXPECT_EQ(seen, std::set<TrialState>{due.at(kernel)}) << kernel;

  // Under the GPU's own name and NVRTC's.
  const db::Hardware gpu = db::gpu_hardware(rt::cuda_facts());
  const db::DispatchTable table = *store->table(*report.tasks[0].table);
  EXPECT_EQ(table.hardware, db::key_of(gpu));
  EXPECT_EQ(table.toolchain, db::key_of(tuned::toolchain_record(hopper())));
  EXPECT_EQ(table.status, db::TableStatus::kActive) << report.tasks[0].inactive;
  for (const db::DispatchEntry& e : table.entries) {
    const auto& info = table.configs.at(e.config);
    const std::string kernel = backend.kernel_of(candidate_of(info.template_name, info.json));
    EXPECT_EQ(kernel, "copy");
  }

  // It serves this GPU, and nobody else.
  const kernels::Workload& w = all[0].workload();
  const auto found = [&](const db::Hardware& cpu, std::optional<db::Hardware> other,
                         const kernels::TargetInfo& target) {
    return tuned::database_source(store, cpu, std::move(other))
        ->find(w, target, table.policy_class)
        .choice.has_value();
  };
  const db::Hardware host = db::host_hardware();
  EXPECT_TRUE(found(host, gpu, hopper()));
  db::Hardware larger = gpu;
  larger.model_name = "NVIDIA H200";
  EXPECT_FALSE(found(host, larger, hopper()));
  EXPECT_FALSE(found(host, std::nullopt, hopper()));
  EXPECT_FALSE(found(gpu, std::nullopt, hopper())) << "a GPU is no CPU";
  EXPECT_FALSE(found(host, gpu, kernels::target_by_name("sm_80")));
  EXPECT_FALSE(found(host, gpu, kernels::target_by_name("sm_100")));
  EXPECT_FALSE(found(gpu, gpu, kernels::detect_host()));

  EXPECT_TRUE(run_campaign(o, backend, kNever).nothing_to_do);
}

// The compiler, whose kernels are exchanged for those of the stand-in of the same names, or of one
// name that is given: what they compute is the worker's.
class StandInBackend : public Backend {
 public:
  explicit StandInBackend(std::string kernel = "") : kernel_(std::move(kernel)) {}
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    Built b = compiler_->build(w, candidates, target);
    if (!b.error.empty()) return b;
    exec::Executable e = exec::deserialize(b.executable);
    if (e.images.empty()) return b;  // a library's routine
    std::string bytes;
    if (!kernel_.empty()) {
      bytes = STANDIN_CUDA_IMAGE + kernel_;
      e.images[0].modules.clear();
      for (exec::Kernel& k : e.kernels)
        for (exec::Implementation& i : k.implementations) i.symbol = kernel_;
    }
    for (exec::NativeImage::Module& m : e.images[0].modules) {
      const std::string module = STANDIN_CUDA_IMAGE + m.symbol;
      m.bytes = module.size();
      bytes += module;
    }
    e.images[0].bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
    b.executable = exec::serialize(e);
    return b;
  }
  Expectation expect(const TuningTask& task, const WorkloadPoint& point, const tuned::Candidate& c,
                     const DefaultResult& run) override {
    return compiler_->expect(task, point, c, run);
  }
  bool is_right(const TuningTask& task, const WorkloadPoint& point, const Expectation& e,
                uint32_t output, int64_t element) override {
    return compiler_->is_right(task, point, e, output, element);
  }
  std::string why_no_vendor(const std::string& routine) const override {
    return compiler_->why_no_vendor(routine);
  }

 private:
  const std::string kernel_;
  const std::unique_ptr<Backend> compiler_ = compiler_backend();
};

TEST_F(GpuCampaign, ItsRecordsAreExactForTheCompiledModel) {
  CampaignOptions o = quick_gpu(kCopy);
  o.search_end.max_trials = 16;
  o.top_k = 4;
  StandInBackend backend;
  const CampaignReport report = run_campaign(o, backend, kNever);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_EQ(report.tasks[0].failed, 0);
  ASSERT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  EXPECT_EQ(report.tasks[0].inactive, "");

  const auto source = tuned::database_source(db::Store::open(o.database), db::host_hardware(),
                                             db::gpu_hardware(rt::cuda_facts()));
  driver::CompileOptions options;
  options.target = kernels::detect_host();
  options.gpus = {hopper()};
  options.device = kCudaDevice;
  options.tuned = source.get();
  driver::CompileReport compiled;
  driver::compile(ir::infer_types(ir::read_module(o.model)), options, &compiled);
  ASSERT_EQ(compiled.kernels.size(), 1u);
  EXPECT_EQ(compiled.kernels[0].device, kCudaDevice);
  EXPECT_EQ(compiled.kernels[0].outcome, tuned::Lookup::Outcome::kTuned)
      << compiled.kernels[0].reason;
  EXPECT_EQ(compiled.gpu_class, "cached");
}

// The routine of a GPU's library is measured beside ours, and what is learnt is of both.
TEST_F(GpuCampaign, ALibrarysRoutineCompetes) {
  const ScopedVariable library("NIMBLE_CUBLASLT", NIMBLE_STANDIN_CUBLASLT);
  CampaignOptions o = quick_gpu(fmt::format(R"(
fn @main(%x: Tensor[(n, {0}), f32], %w: Tensor[({0}, {1}), f32]) {{
  let %y = matmul(%x, %w);
  let %z = relu(%y);
  %z
}})",
                                            kProductDepth, kProductColumns));
  o.search_end.max_trials = 24;
  o.top_k = 4;
  StandInBackend backend("product");
  ASSERT_EQ(backend.why_no_vendor("cublaslt.matmul"), "");
  const CampaignReport report = run_campaign(o, backend, kNever);
  ASSERT_EQ(report.tasks.size(), 1u);
  ASSERT_TRUE(report.tasks[0].table) << report.tasks[0].note;

  std::shared_ptr<db::Store> store = db::Store::open(o.database);
  std::set<TrialState> theirs, ours;
  for (const db::TrialOutcome& t : store->outcomes(report.campaign)) {
    if (t.trial.key.role != db::Role::kSearch) continue;
    const auto info = store->config(t.trial.key.config);
    (info->template_name == tuned::kVendorTemplate ? theirs : ours).insert(t.trial.state);
  }
  EXPECT_EQ(theirs, std::set<TrialState>{TrialState::kOk});
  EXPECT_TRUE(ours.contains(TrialState::kOk));
}

// Says of each candidate what its code takes. Those that are not to be measured trap.
class TellingGpuBackend : public FaultyGpuBackend {
 public:
  std::map<std::string, GpuCode> takes;  // by candidate
  std::set<std::string> traps;
  std::atomic<bool> cancel{false};
  int builds_until_cancel = 1 << 20;

  Built build(const kernels::Workload&, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo&) override {
    Built b;
    std::vector<std::string> names;
    for (const tuned::Candidate& c : candidates) {
      names.push_back(traps.contains(text_of(c)) ? "trap" : "copy");
      b.gpu_code.push_back(takes.at(text_of(c)));
      b.code_hashes.push_back(hex(hash64(text_of(c))));
      const std::lock_guard lock(mutex_);
      ++builds_[text_of(c)];
    }
    if (++calls_ == builds_until_cancel) cancel = true;
    b.executable = gpu_fault_executable(names);
    b.compile_ms = 1;
    return b;
  }
  int builds(const std::string& candidate) const { return builds_.at(candidate); }

 private:
  std::mutex mutex_;
  std::map<std::string, int> builds_;
  std::atomic<int> calls_{0};
};

// Candidates of four kinds beside the default, and what becomes of each.
class PrunedGpuCampaign : public GpuCampaign {
 protected:
  struct Kind {
    GpuCode code;
    std::string why;  // it is not measured; empty: it is
  };
  // By candidate.
  std::map<std::string, Kind> candidates(const TuningTask& task, int64_t default_spills) {
    const Space space(task.workload(), hopper());
    usual = text_of(space.default_candidate());
    const Kind kinds[] = {
        {{128, 0, 64}, ""},
        {{128, 0, 255, 512}, default_spills < 512 ? "spills 512 bytes" : ""},
        {{128, 0, 255, 32}, ""},
        {{32, 150'000, 40}, "4 schedulers"},
    };
    std::map<std::string, Kind> out;
    for (const tuned::Candidate& c : space.enumerate(kEnumerateUpTo))
      if (text_of(c) != usual) out[text_of(c)] = kinds[out.size() % std::size(kinds)];
    out[usual] = {{128, 0, 64, default_spills}, ""};
    return out;
  }
  static void tell(const std::map<std::string, Kind>& kinds, TellingGpuBackend* backend) {
    for (const auto& [candidate, kind] : kinds) {
      backend->takes[candidate] = kind.code;
      if (!kind.why.empty()) backend->traps.insert(candidate);
    }
  }
  // Reasons of trials that were not measured; how often each came.
  static std::map<std::string, int64_t> check_trials(db::Store& store, const db::Uuid& campaign,
                                                     const std::map<std::string, Kind>& kinds) {
    std::map<std::string, int64_t> out;
    for (const db::TrialOutcome& t : store.outcomes(campaign)) {
      if (!db::is_final(t.trial.state)) continue;
      const auto info = store.config(t.trial.key.config);
      const std::string candidate = text_of(candidate_of(info->template_name, info->json));
      const Kind& kind = kinds.at(candidate);
      if (kind.why.empty()) {
        EXPECT_EQ(t.trial.state, TrialState::kOk) << candidate << t.trial.message;
        continue;
      }
      EXPECT_EQ(t.trial.key.role, db::Role::kSearch) << candidate;
      EXPECT_EQ(t.trial.state, TrialState::kCompileFailed) << candidate << t.trial.message;
      EXPECT_EQ(t.trial.error_class, db::kPruned);
      EXPECT_THAT(t.trial.message, HasSubstr(kind.why)) << candidate;
      ++out[kind.why];
    }
    return out;
  }
  std::string usual;
};

TEST_F(PrunedGpuCampaign, WhatSpillsOrFillsLittleIsNotMeasured) {
  const CampaignOptions o = quick_gpu(kCopy);
  TellingGpuBackend backend;
  const auto kinds = candidates(tasks(o).at(0), 0);
  tell(kinds, &backend);
  const CampaignReport report = run_campaign(o, backend, kNever);
  ASSERT_EQ(report.tasks.size(), 1u);
  ASSERT_TRUE(report.tasks[0].table) << report.tasks[0].note;
  const auto store = db::Store::open(o.database);
  const auto pruned = check_trials(*store, report.campaign, kinds);
  EXPECT_EQ(pruned.size(), 2u);
  int64_t trials = 0;
  for (const auto& [why, count] : pruned) trials += count;
  EXPECT_EQ(report.tasks[0].pruned, trials);
  EXPECT_EQ(report.tasks[0].failed, trials);
}

// Else its space could be empty.
TEST_F(PrunedGpuCampaign, WhatSpillsNoMoreThanTheDefaultIsMeasured) {
  const CampaignOptions o = quick_gpu(kCopy);
  TellingGpuBackend backend;
  const auto kinds = candidates(tasks(o).at(0), 512);
  tell(kinds, &backend);
  const CampaignReport report = run_campaign(o, backend, kNever);
  ASSERT_EQ(report.tasks.size(), 1u);
  const auto store = db::Store::open(o.database);
  EXPECT_EQ(check_trials(*store, report.campaign, kinds).size(), 1u);
}

// A rule of thumb does not overrule what an earlier campaign measured.
TEST_F(PrunedGpuCampaign, WhatATableHoldsIsMeasuredWhateverItTakes) {
  const CampaignOptions o = quick_gpu(kCopy);
  const TuningTask task = tasks(o).at(0);
  TellingGpuBackend backend;
  auto kinds = candidates(task, 0);
  const auto seed = std::ranges::find_if(
      kinds, [](const auto& kind) { return kind.second.why.starts_with("spills"); });
  ASSERT_NE(seed, kinds.end());
  seed->second.why.clear();
  tell(kinds, &backend);
  db::Hash config;
  {
    const auto store = db::Store::open(o.database);
    const Space space(task.workload(), hopper());
    for (const tuned::Candidate& c : space.enumerate(kEnumerateUpTo))
      if (text_of(c) == seed->first)
        config = store->put(
            db::Config{store->put(db::Template{c.template_name, tuned::kTemplateVersion, ""}),
                       config_json(c)});
    db::NewDispatchTable table;
    table.workload = store->put(tuned::workload_record(task.workload(), hopper(), 1));
    table.hardware = store->put(db::gpu_hardware(rt::cuda_facts()));
    table.toolchain = store->put(tuned::toolchain_record());
    table.policy = store->put(policy_record(Policy::of_class("cached"), 1));
    table.objective = "weighted mean";
    table.tree = R"({"leaf": 0})";
    table.entries.emplace_back().config = config;
    store->create_table(table);
  }
  const CampaignReport report = run_campaign(o, backend, kNever);
  ASSERT_EQ(report.tasks.size(), 1u);
  EXPECT_EQ(report.tasks[0].seeds, 1u);
  const auto store = db::Store::open(o.database);
  check_trials(*store, report.campaign, kinds);
  const auto outcomes = store->outcomes(report.campaign);
  EXPECT_TRUE(std::ranges::any_of(outcomes, [&](const db::TrialOutcome& t) {
    return t.trial.key.config == config && t.median_ns;
  }));
}

// The default, which all are compared with, is not compiled again.
TEST_F(PrunedGpuCampaign, AProcessThatGoesOnKnowsWhatTheCodeTakes) {
  const CampaignOptions o = quick_gpu(kCopy);
  TellingGpuBackend backend;
  const auto kinds = candidates(tasks(o).at(0), 0);
  tell(kinds, &backend);
  backend.builds_until_cancel = 2;  // the first is the default
  const CampaignReport cut = run_campaign(o, backend, backend.cancel);
  EXPECT_TRUE(cut.interrupted);
  const auto store = db::Store::open(o.database);
  const size_t before = store->outcomes(cut.campaign).size();
  backend.cancel = false;
  const CampaignReport rest = run_campaign(o, backend, backend.cancel);
  EXPECT_TRUE(rest.resumed);
  EXPECT_EQ(backend.builds(usual), 1);
  EXPECT_GT(store->outcomes(cut.campaign).size(), before);
  EXPECT_EQ(check_trials(*store, cut.campaign, kinds).size(), 2u);
}

TEST_F(GpuCampaign, WhatCannotBeMeasuredHereIsRefusedFirst) {
  FaultyGpuBackend backend;
  CampaignOptions o = quick_gpu(kCopy);
  const auto refused = [&](Status status) {
    return refusal([&] { run_campaign(o, backend, kNever); }, status);
  };
  o.threads = {1, 2};
  EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("--threads 2"));
  o.threads = {1};
  o.target = "sm_80";
  EXPECT_THAT(refused(Status::kUnsupported),
              AllOf(HasSubstr("--target sm_80"), HasSubstr("Stand-in GPU"),
                    HasSubstr("compute capability 9.0"), HasSubstr("NIMBLE_CUDA_DEVICE")));
  o.target = "sm_90a";
  driver().set(13000, 0, 90);
  EXPECT_THAT(refused(Status::kUnsupported),
              AllOf(HasSubstr("there is no GPU to measure on"), HasSubstr("nvidia-smi")));
  const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  EXPECT_THAT(refused(Status::kUnsupported),
              AllOf(HasSubstr("--target sm_90a"), HasSubstr("its driver is not there")));
  EXPECT_FALSE(std::filesystem::exists(o.database));
}

// A card of an architecture that has less shared memory than the largest.
TEST_F(GpuCampaign, TheSpaceIsThatOfTheCard) {
  driver().set(13000, 1, 86);
  const TuningMachine on = tuning_machine("sm_80");
  EXPECT_EQ(on.target.level, "sm_80");
  EXPECT_EQ(on.target.shared_bytes, 99 << 10);
  EXPECT_EQ(on.hardware.isa, "sm_86");
}

// What runs on the CPU beside the GPU's kernels is none of the campaign's.
TEST_F(GpuCampaign, TasksAreTheGpusKernels) {
  const CampaignOptions o = quick_gpu(R"(
fn @here(%x: Tensor[(k, 4), f32]) -> Tensor[(k, 4), f32] attrs {device = 0} {
  let %y = softmax(%x) {axis = 1};
  %y
}
fn @main(%x: Tensor[(n, 4), f32]) {
  let %a = exp(%x);
  let %b = @here(%a);
  let %c = tanh(%b);
  %c
})");
  const ModelTasks gpus = tasks_of_model(o, hopper(), nullptr);
  std::set<std::string> sources;
  for (const TuningTask& t : gpus.tasks) {
    EXPECT_EQ(t.use.device, kCudaDevice);
    sources.insert(t.use.source);
  }
  EXPECT_EQ(sources, (std::set<std::string>{"exp", "tanh"}));
  EXPECT_EQ(gpus.cpu_kernels, 1u);

  // Those that stay beside it have a campaign of their own.
  CampaignOptions beside = o;
  beside.target = "native";
  beside.beside = "sm_90a";
  const ModelTasks cpus = tasks_of_model(beside, kernels::detect_host(), nullptr);
  ASSERT_EQ(cpus.tasks.size(), 1u);
  EXPECT_EQ(cpus.tasks[0].use.source, "softmax");
  EXPECT_EQ(cpus.tasks[0].use.device, 0);
  EXPECT_EQ(cpus.cpu_kernels, 0u);
  EXPECT_THAT(refusal([&] { tasks_of_model(beside, hopper(), nullptr); }, Status::kInvalidArgument),
              HasSubstr("--beside sm_90a"));
}

// The code that is measured is the code that is compiled into a model: such a record is exact.
TEST_F(GpuCampaign, CandidatesAreTheCodeOfACompiledModel) {
  const CampaignOptions o = quick_gpu(R"(
fn @main(%x: Tensor[(n, 24), f32], %w: Tensor[(24, 40), f32]) {
  let %y = matmul(%x, %w);
  let %z = relu(%y);
  %z
})");
  const std::vector<TuningTask> all = tasks(o);
  ASSERT_EQ(all.size(), 1u);
  const kernels::Workload& w = all[0].workload();
  const Space space(w, hopper());
  std::vector<tuned::Candidate> candidates = {space.default_candidate()};
  Random random(3);
  while (candidates.size() < 3)
    if (const auto c = space.sample(random); c && !(*c == candidates.back()))
      candidates.push_back(*c);
  const std::unique_ptr<Backend> backend = compiler_backend();
  const Built built = backend->build(w, candidates, hopper());
  ASSERT_EQ(built.error, "");
  ASSERT_EQ(built.code_hashes.size(), 3u);
  ASSERT_EQ(built.gpu_code.size(), 3u);
  for (const GpuCode& code : built.gpu_code) {
    EXPECT_GT(code.registers, 0);
    EXPECT_GT(blocks_at_once(code, hopper()), 0);
  }
  const exec::Executable e = exec::deserialize(built.executable);
  ASSERT_EQ(e.images.size(), 1u) << "nothing of the CPU's";
  EXPECT_EQ(e.images[0].target, "sm_90a");
  EXPECT_EQ(e.images[0].device, kCudaDevice);
  for (const exec::Kernel& k : e.kernels) {
    EXPECT_EQ(k.device, kCudaDevice);
    EXPECT_FALSE(k.portable) << "it must not run in the GPU's place";
    for (const exec::Implementation& i : k.implementations) EXPECT_TRUE(i.launch);
  }

  driver::CompileOptions options;
  options.target = kernels::detect_host();
  options.gpus = {hopper()};
  options.device = kCudaDevice;
  const exec::Executable model =
      driver::compile(ir::infer_types(ir::read_module(o.model)), options);
  const auto kernel = std::find_if(model.kernels.begin(), model.kernels.end(),
                                   [&](const exec::Kernel& k) { return k.workload == w.key; });
  ASSERT_NE(kernel, model.kernels.end());
  ASSERT_EQ(kernel->implementations.size(), 1u);
  EXPECT_EQ(hex(kernel->implementations[0].code_hash), built.code_hashes[0]);

  std::set<std::string> kinds;
  for (const CodeText& c : backend->code(w, candidates[0], hopper())) kinds.insert(c.kind);
  EXPECT_EQ(kinds, (std::set<std::string>{"kernel-ir", "cuda", "ptx"}));
}

}  // namespace
}  // namespace nimble::tuner
