#include "compiler/driver/test/tuned_fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "compiler/driver/kernel_set.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "db/store/host_records.h"
#include "vm/executable/dispatch_json.h"

namespace nimble::driver::testing {
namespace {

using exec::DispatchNode;
using exec::DispatchTree;

// Configurations that the template calls valid, no two alike; the default one first.
std::vector<tuned::Candidate> candidates_of(const kernels::Workload& w,
                                            const kernels::TargetInfo& target, size_t count) {
  const kernels::Template* t = kernels::template_for(w, target);
  std::vector<tuned::Candidate> out = {{std::string(t->name()), t->default_config(w, target), {}}};
  unsigned state = 1;
  for (int attempt = 0; attempt < 2000 && out.size() < count; ++attempt) {
    kernels::Config c;
    for (const kernels::Knob& k : t->knobs(w, target)) {
      state = state * 1664525 + 1013904223;
      c[k.name] = k.choices[(state >> 16) % k.choices.size()];
    }
    bool known = std::any_of(out.begin(), out.end(),
                             [&](const tuned::Candidate& o) { return o.config == c; });
    if (!known && t->valid(w, c, target)) out.push_back({std::string(t->name()), c, {}});
  }
  return out;
}

DispatchTree by_rows(size_t leaves) {
  DispatchTree tree;
  const int64_t limits[] = {8, 32};
  for (uint32_t i = 0; i + 1 < leaves; ++i) {
    auto here = static_cast<uint32_t>(tree.nodes.size());
    tree.nodes.push_back({DispatchNode::Test::kLessEqual, {}, limits[i], here + 1, here + 2});
    tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, i, 0});
  }
  tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, static_cast<uint32_t>(leaves - 1), 0});
  return tree;
}

}  // namespace

WorkloadUse workload_of(const std::string& text, const std::string& anchor) {
  passes::PassContext context;
  context.target = kernels::detect_host();
  ir::Module lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context);
  // lower-memory has replaced the calls: ask before it.
  passes::PipelineOptions until_fused;
  std::vector<std::string>& names = until_fused.passes;
  names.erase(std::find(names.begin(), names.end(), "lower-memory"), names.end());
  lowered = passes::run_pipeline(ir::infer_types(ir::parse_module(text)), context, until_fused);
  for (WorkloadUse& u : workloads_of(lowered))
    if (anchor.empty() || u.workload.anchor == anchor) return u;
  ADD_FAILURE() << "no workload " << anchor;
  return {};
}

Tuned::Tuned() {
  std::string pattern = ::testing::TempDir() + "nimble-tuned-XXXXXX";
  folder_ = mkdtemp(pattern.data());
  store_ = db::Store::open(folder_ + "/tuning.db");
  use_ = workload_of(kDense, "packed_matmul");
  candidates_ = candidates_of(use_.workload, target_, 3);
}

Tuned::~Tuned() {
  std::filesystem::remove_all(folder_);
}

db::Uuid Tuned::table(int64_t threads, std::vector<size_t> chosen, const Change& change) {
  db::NewDispatchTable t;
  db::Hardware hardware = db::host_hardware();
  if (!change.isa.empty()) hardware.isa = change.isa;
  if (!change.model_name.empty()) hardware.model_name = change.model_name;
  db::Toolchain toolchain = tuned::toolchain_record();
  if (!change.toolchain_version.empty()) toolchain.version = change.toolchain_version;
  store_->transaction([&] {
    t.workload = store_->put(tuned::workload_record(use_.workload, target_, threads));
    t.hardware = store_->put(hardware);
    t.toolchain = store_->put(toolchain);
    t.policy = store_->put(
        db::MeasurePolicy{db::CacheMode::kWarm, 3, 2, "rdtsc", "ci<1%", change.policy_class});
    t.objective = "mean";
    for (size_t c : chosen) {
      db::Hash h = store_->put(db::Template{
          change.template_name.empty() ? candidates_[c].template_name : change.template_name,
          change.template_version ? change.template_version : tuned::kTemplateVersion, "knobs"});
      db::DispatchEntry e;
      e.config = store_->put(
          db::Config{h, !change.config.empty() ? change.config
                        : candidates_[c].vendor.empty()
                            ? kernels::to_json(candidates_[c].config)
                            : fmt::format(R"({{"routine":"{}"}})", candidates_[c].vendor)});
      e.expected_ns = 100;
      if (change.evidence)
        e.evidence = measured(t, e.config, change.changed ? "other code" : code_of(c));
      t.entries.push_back(e);
    }
    t.tree = change.tree.empty()
                 ? exec::tree_to_json(by_rows(chosen.size()), use_.workload.contract.symbols)
                 : change.tree;
  });
  db::Uuid uuid = store_->create_table(t);
  store_->activate(uuid, "test");
  return uuid;
}

std::string Tuned::code_of(size_t candidate) {
  std::string& known = codes_[candidate];
  if (!known.empty()) return known;
  KernelSet kernels(target_, {});
  kernels.add_fixed(use_.workload.group, use_.workload.constant_parameter, candidates_[candidate],
                    "alone");
  CompileOptions options = options_of({"default"});
  options.portable = false;
  exec::Executable e;
  kernels.finish(options, e, nullptr);
  return known = kernels.code_hash(0, 0);
}

db::Uuid Tuned::measured(const db::NewDispatchTable& t, const db::Hash& config,
                         const std::string& code_hash) {
  const db::CampaignKey key{code_hash, t.hardware, ++campaigns_};
  db::TrialKey trial{store_->create_campaign(key, 10, "test"), t.workload, config,
                     store_->put(db::Shape{t.workload, {{"s0", 64}}, 1, 1})};
  store_->enqueue({{trial}});
  store_->claim({trial.campaign, "me"});
  db::Measurement m;
  m.trial = db::uuid_of(trial);
  m.artifact = store_->put(db::Artifact{code_hash, t.workload, config, t.toolchain, 1, 1});
  m.policy = t.policy;
  m.machine = store_->put(db::Machine{"", "box", t.hardware});
  m.host_state = store_->put(db::HostState{});
  m.median_ns = m.ci_low_ns = m.ci_high_ns = 100;
  m.stop_reason = "ci";
  m.samples_ns = {100};
  store_->finish({m.trial, "me", db::TrialState::kOk, "", "", m});
  return store_->measurements(m.trial).at(0).measurement.uuid;
}

KernelReport Tuned::compiled(const std::string& policy_class) {
  auto source = tuned::database_source(store_);
  CompileOptions options = options_of({"default"});
  options.tuned = source.get();
  options.policy_class = policy_class;
  CompileReport report;
  driver::compile(ir::infer_types(ir::parse_module(kDense)), options, &report);
  for (const KernelReport& k : report.kernels)
    if (k.workload == use_.workload.key) return k;
  ADD_FAILURE() << "no such kernel";
  return {};
}

}  // namespace nimble::driver::testing
