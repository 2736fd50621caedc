// Campaigns of a service for GPUs, which the service's machine need not have: hardware and target
// of a campaign, what is expected of candidates, and a fleet whose workers measure on a stand-in
// for the driver.
#include <set>

#include "compiler/kernels/targets.h"
#include "db/store/gpu_records.h"
#include "tuner/measure/test/gpu_fault_executable.h"
#include "tuner/service/packing.h"
#include "tuner/service/publisher.h"
#include "tuner/service/test/gpu_cases.h"
#include "tuner/service/test/service_fixture.h"
#include "tuner/service/tuning_machine.h"
#include "vm/base/device_number.h"
#include "vm/base/test/scoped_variable.h"
#include "vm/runtime/cuda_facts.h"

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;

db::Hardware card(const std::string& name, int capability) {
  return db::gpu_hardware({name, capability, 132, 232448, 50 << 20, uint64_t{80} << 30});
}

TEST(TargetOn, IsTheClosestOneThatTheHardwareRuns) {
  const auto native = [](int capability) { return target_on("native", card("GPU", capability)); };
  EXPECT_EQ(native(80).level, "sm_80");
  EXPECT_EQ(native(86).level, "sm_80");
  EXPECT_EQ(native(90).level, "sm_90a");
  EXPECT_EQ(native(100).level, "sm_100");
  EXPECT_EQ(native(120).level, "compute_80");
  EXPECT_EQ(target_on("native", db::host_hardware()).level, kernels::detect_host().level);
  // Of a card of another capability than the code's only the least is known.
  const int64_t least = kernels::target_by_name("compute_80").shared_bytes;
  EXPECT_EQ(native(80).shared_bytes, kernels::target_by_name("sm_80").shared_bytes);
  EXPECT_EQ(native(86).shared_bytes, least);
  EXPECT_EQ(native(90).shared_bytes, hopper().shared_bytes);

  const auto refused = [](const std::string& level, const db::Hardware& hardware) {
    return refusal([&] { target_on(level, hardware); }, Status::kUnsupported);
  };
  EXPECT_THAT(refused("sm_80", card("NVIDIA H100", 90)), HasSubstr("NVIDIA H100 (sm_90)"));
  EXPECT_THAT(refused("x86-64-v3", card("NVIDIA H100", 90)), HasSubstr("cannot run such code"));
  EXPECT_THAT(refused("sm_90a", db::host_hardware()), HasSubstr("cannot run such code"));
  EXPECT_THAT(refused("native", card("NVIDIA V100", 70)), HasSubstr("compute capability 7.0"));
}

// The driver makes machine code of assembly: another one's is another toolchain's.
TEST(TuningMachine, OfAssemblyTheToolchainNamesTheDriver) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  standin_cuda(NIMBLE_STANDIN_CUDA).reset();
  if (const std::string why = why_no_nvrtc(); !why.empty()) GTEST_SKIP() << why;
  const db::Toolchain machine_code = tuning_machine("sm_90a").toolchain;
  const db::Toolchain assembly = tuning_machine("compute_80").toolchain;
  EXPECT_EQ(machine_code.flags, tuned::toolchain_record(hopper()).flags);
  EXPECT_EQ(assembly.flags, machine_code.flags + " driver=13.0");
  EXPECT_EQ(assembly.version, machine_code.version);
}

// A card is one machine, whether a campaign of this process measures on it or a fleet's worker.
TEST(TuningMachine, OfAGpuIsTheCardAsAWorkerNamesIt) {
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  standin_cuda(NIMBLE_STANDIN_CUDA).reset();
  try {
    tuned::require_toolchain(hopper());
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  const db::Machine here = tuning_machine("sm_90a").machine;
  const db::Machine workers = db::gpu_machine(rt::cuda_facts());
  EXPECT_FALSE(here.uuid.empty());
  EXPECT_EQ(here.uuid, workers.uuid);
  EXPECT_EQ(here.hostname, workers.hostname);
  EXPECT_THAT(here.hostname, HasSubstr(" GPU 0000:3b:00"));
  EXPECT_EQ(here.hardware, workers.hardware);
}

class GpuServiceTest : public ServiceTest {
 protected:
  Submission gpu_submission(const std::string& model = kCopy,
                            const kernels::TargetInfo& target = hopper()) const {
    Submission s = submission();
    const ir::Module typed = ir::infer_types(ir::parse_module(model));
    passes::PassContext context;
    context.target = kernels::detect_host();
    context.gpu = target;
    context.device = kCudaDevice;
    PointOptions points;
    points.largest = 64;
    points.representative = 16;
    s.tasks = tuning_tasks(passes::run_pipeline(typed, context), model_points(typed, points),
                           target, nullptr);
    s.target = target.level;
    return s;
  }
  // The card's facts are asked in this process, since a child of it may not use the driver.
  void start_gpu_worker(const std::string& name, const GpuFacts& gpu) {
    FleetWorkerOptions o = worker(name, NIMBLE_GPU_FAULT_WORKER);
    o.gpu = gpu;
    start(o);
  }

  const ScopedVariable library_{"NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA};
  const ScopedVariable cublaslt_{"NIMBLE_CUBLASLT", "off"}, cudnn_{"NIMBLE_CUDNN", "off"};
};

TEST_F(GpuServiceTest, WhoseGpuACampaignIsForIsNamedOrTheOnlyOne) {
  const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  const auto refused = [&](Status status) {
    return refusal([&] { gpu_of_fleet(*store, hopper()); }, status);
  };
  store->put(db::host_hardware());
  store->put(card("NVIDIA A100", 80));
  EXPECT_THAT(refused(Status::kNotFound), HasSubstr("knows no GPU that runs such code"));
  store->put(card("NVIDIA H100", 90));
  EXPECT_EQ(gpu_of_fleet(*store, hopper()).model_name, "NVIDIA H100");
  store->put(card("NVIDIA H200", 90));
  EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("NVIDIA H200"));
  // This machine's before all others.
  const ScopedVariable library("NIMBLE_CUDA_DRIVER", NIMBLE_STANDIN_CUDA);
  standin_cuda(NIMBLE_STANDIN_CUDA).reset();
  EXPECT_EQ(gpu_of_fleet(*store, hopper()).model_name, "Stand-in GPU");
}

// The default schedule is slow; of the others some go wrong, and some would trap that take more of
// a GPU than is worth measuring.
class GpuCopyBackend : public CopyingBackend {
 public:
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    Built b;
    EXPECT_EQ(target.level, "sm_90a");
    const std::string base = text_of(Space(w, target).default_candidate());
    std::vector<std::string> names;
    for (const tuned::Candidate& c : candidates) {
      const uint64_t number = hash64(text_of(c));
      const bool spills = text_of(c) != base && number % 4 == 0;
      names.push_back(text_of(c) == base ? "slow" : spills ? "trap" : kKernels[number / 4 % 6]);
      if (names.back() == "uncompilable") b.error = "NVRTC refuses this kernel";
      b.gpu_code.push_back({128, 0, spills ? 255 : 64, spills ? 512 : 0});
      b.code_hashes.push_back(hex(number));
    }
    if (b.error.empty()) b.executable = gpu_fault_executable(names);
    b.compile_ms = 1;
    b.image_bytes = 100;
    return b;
  }
  static constexpr const char* kKernels[] = {"copy",  "copy", "copy",
                                             "wrong", "trap", "uncompilable"};
};

TEST_F(GpuServiceTest, TunesForTheGpusOfItsWorkers) {
  if (const std::string why = why_no_nvrtc(); !why.empty()) GTEST_SKIP() << why;
  standin_cuda(NIMBLE_STANDIN_CUDA).reset();
  const GpuFacts first = rt::cuda_facts();
  GpuFacts second = first;
  second.slot = "0000:3c:00";
  second.uuid.back() = '1';
  const db::Hardware gpu = db::gpu_hardware(first);
  const db::Uuid uuid = submit(*store, gpu_submission(), store->put(gpu), 3, "test");
  start_gpu_worker("a", first);
  start_gpu_worker("b", second);
  start_worker("cpu");
  GpuCopyBackend gpu_backend;
  const ServiceTally tally =
      serve_campaigns(serving, gpu_backend, key, load_submission, kNever,
                      [this](const std::string& text) { said += text + "\n"; });
  EXPECT_EQ(tally.finished, 1) << said;
  expect_tuned(uuid);
  const db::DispatchTable table = *store->table(tables(uuid).at(0).uuid);
  EXPECT_EQ(table.hardware, db::key_of(gpu));
  EXPECT_EQ(table.toolchain, db::key_of(tuned::toolchain_record(hopper())));

  // Nothing of them was measured, and everything else was.
  int64_t pruned = 0;
  for (const db::TrialOutcome& o : store->outcomes(uuid)) {
    const auto info = store->config(o.trial.key.config);
    const tuned::Candidate c = candidate_of(info->template_name, info->json);
    const bool spills = o.trial.key.role == db::Role::kSearch && hash64(text_of(c)) % 4 == 0;
    EXPECT_EQ(o.trial.error_class == db::kPruned, spills) << o.trial.message;
    pruned += spills;
    if (spills) {
      EXPECT_THAT(o.trial.message, HasSubstr("spills 512 bytes"));
    }
  }
  EXPECT_GT(pruned, 0);
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("\"pruned\""));
  for (const db::Consumption& c : store->consumption(uuid))
    EXPECT_THAT(c.hostname, HasSubstr(" GPU 0000:3"));
}

// Records of assembly name the driver that made machine code of it, a fleet's as those of one
// machine: a campaign is of the driver that its workers have.
TEST_F(GpuServiceTest, ACampaignOfAssemblyIsOfItsWorkersDriver) {
  const kernels::TargetInfo assembly = kernels::target_by_name("compute_80");
  try {
    tuned::require_toolchain(assembly);
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  const Submission s = gpu_submission(kCopy, assembly);
  const GpuFacts gpu = {"NVIDIA L40", 89, 142, 101376, 96 << 20, uint64_t{48} << 30};
  const db::Hash hardware = store->put(db::gpu_hardware(gpu));
  const auto submitted = [&] { return submit(*store, s, hardware, 3, "test"); };
  EXPECT_THAT(refusal(submitted, Status::kNotFound), HasSubstr("no worker that is alive"));
  const auto begin_worker = [&](int driver) {
    db::Worker worker;
    worker.machine = store->put(db::gpu_machine(gpu));
    worker.name = "box";
    worker.pid = 1;
    worker.version = "1";
    worker.capabilities = fmt::format(R"({{"gpu":{{"driver":{}}}}})", driver);
    store->add(worker);
  };
  begin_worker(12080);
  const db::Uuid first = submitted();
  EXPECT_EQ(submitted(), first);
  EXPECT_EQ(db::driver_of(store->campaign(first)->key), 12080);
  begin_worker(13000);
  const db::Uuid second = submitted();
  EXPECT_NE(second, first) << "after an update it is another one";
  EXPECT_EQ(db::driver_of(store->campaign(second)->key), 13000);
  // As `nimble tune` names it (OfAssemblyTheToolchainNamesTheDriver).
  const db::Toolchain named = toolchain_on(assembly, 13000);
  EXPECT_EQ(named.flags, tuned::toolchain_record(assembly).flags + " driver=13.0");
  std::set<db::Hash> known;
  for (const db::Toolchain& t : store->toolchains()) known.insert(db::key_of(t));
  EXPECT_TRUE(known.contains(db::key_of(named)));
  EXPECT_TRUE(known.contains(db::key_of(toolchain_on(assembly, 12080))));
  // Of machine code the driver makes nothing, and for whom a packed one is nobody knows.
  EXPECT_EQ(driver_of_fleet(*store, hopper(), hardware), 0);
  EXPECT_EQ(driver_of_fleet(*store, assembly, store->put(any_gpu(assembly))), 0);
  EXPECT_EQ(toolchain_on(hopper(), 13000).flags, tuned::toolchain_record(hopper()).flags);
}

// For a machine that reaches nobody: all of it is in a file, and comes back as one that merges.
TEST_F(GpuServiceTest, ACampaignIsPackedAndMeasuredElsewhere) {
  if (const std::string why = why_no_nvrtc(); !why.empty()) GTEST_SKIP() << why;
  const auto say = [this](const std::string& text) { said += text + "\n"; };
  GpuCopyBackend gpu_backend;
  const Submission s = gpu_submission();
  const Packed packed = pack_campaign(*store, gpu_backend, key, s,
                                      {20, "planner", NIMBLE_FAULT_WORKER, 1}, "test", kNever, say);
  EXPECT_EQ(packed.workloads, 1) << said;
  EXPECT_GT(packed.jobs, 1);

  standin_cuda(NIMBLE_STANDIN_CUDA).reset();
  FleetWorkerOptions o;
  o.database = serving.database;
  o.program = NIMBLE_GPU_FAULT_WORKER;
  o.gpu = rt::cuda_facts();
  o.max_idle_s = 0.3;
  SignedBy permission(key.public_key());
  EXPECT_EQ(serve_jobs(o, permission, kNever, say).jobs, 0) << "they are not for its kind";
  o.jobs_for = db::key_of(any_gpu(hopper()));
  EXPECT_EQ(serve_jobs(o, permission, kNever, say).jobs, packed.jobs) << said;

  const db::Hash gpu = db::key_of(db::gpu_hardware(*o.gpu));
  int64_t ok = 0, pruned = 0;
  for (const db::TrialOutcome& t : store->outcomes(packed.campaign)) {
    EXPECT_TRUE(db::is_final(t.trial.state));
    ok += t.median_ns.has_value();
    pruned += t.trial.error_class == db::kPruned;
  }
  EXPECT_GT(ok, 1);
  EXPECT_GT(pruned, 0);
  EXPECT_THAT(store->check().problems, testing::IsEmpty());
  // Merged, they are that GPU's.
  store->export_to(file("far.nimbledb"));
  const auto here = db::Store::open(file("here.db"));
  here->import_from(file("far.nimbledb"));
  db::ResultQuery query;
  query.workload = db::key_of(tuned::workload_record(s.tasks[0].workload(), hopper(), 1));
  query.hardware = gpu;
  query.policy = db::key_of(policy_record(s.policy, 1));
  query.codegen_version = tuned::toolchain_record(hopper()).codegen_version;
  EXPECT_FALSE(here->results(query).empty());
  // What stands for many is no hardware that a campaign can be for.
  const ScopedVariable none("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  EXPECT_EQ(gpu_of_fleet(*here, hopper()).model_name, "Stand-in GPU");

  Submission cpus = s;
  cpus.target = "x86-64-v3";
  const auto pack = [&] { pack_campaign(*store, gpu_backend, key, cpus, {}, "test", kNever, say); };
  EXPECT_THAT(refusal(pack, Status::kUnsupported), HasSubstr("are packed for GPUs alone"));
}

// No machine of the service's has a GPU: its CPU's code computes what is expected.
TEST_F(GpuServiceTest, WhatIsExpectedTheServicesCpuComputes) {
  class AskingBackend : public Backend {
   public:
    Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
                const kernels::TargetInfo& target) override {
      if (!target.is_gpu()) return compiler_->build(w, candidates, target);
      Built b;
      b.error = "nobody needs it";
      return b;
    }
    Expectation expect(const TuningTask& task, const WorkloadPoint& point,
                       const tuned::Candidate& base, const DefaultResult& run) override {
      const auto outputs = run();
      const Expectation due = compiler_->expect(task, point, base, [] { return std::nullopt; });
      ++asked;
      right += outputs && outputs->size() == 1 &&
               compare_tensors(DType::kF32, outputs->at(0), due.outputs.at(0)) <= due.tolerance;
      return due;
    }
    int asked = 0, right = 0;

   private:
    const std::unique_ptr<Backend> compiler_ = compiler_backend();
  };
  const Submission s = gpu_submission(
      "fn @main(%x: Tensor[(n, 24), f32], %w: Tensor[(24, 40), f32]) {"
      "  let %y = matmul(%x, %w); let %z = relu(%y); %z }");
  db::CampaignKey campaign_key;
  campaign_key.digest = "test";
  campaign_key.hardware = store->put(card("NVIDIA H100", 90));
  const db::Uuid uuid = store->create_campaign(campaign_key, 1, "test");
  RunnerOptions runner_options;
  runner_options.program = NIMBLE_FAULT_WORKER;
  Runner runner(runner_options);
  AskingBackend asking;
  Publishing publishing{*store,
                        asking,
                        runner,
                        key,
                        "planner",
                        hopper(),
                        s.policy,
                        *store->campaign(uuid),
                        store->put(tuned::toolchain_record(hopper())),
                        nullptr,
                        1,
                        [this](const std::string& text) { said += text + "\n"; }};
  ASSERT_EQ(s.tasks.size(), 1u);
  Publisher publisher(publishing, s.tasks[0], 1);
  for (size_t point = 0; point < s.tasks[0].points.size(); ++point)
    EXPECT_TRUE(publisher.possible(point)) << said;
  EXPECT_GT(asking.asked, 2);
  EXPECT_EQ(asking.right, asking.asked) << said;
}

}  // namespace
}  // namespace nimble::tuner
