#include "tuner/service/publisher.h"

#include <unistd.h>

#include <algorithm>

#include "tuner/fleet/case_record.h"
#include "tuner/service/gpu_code_record.h"
#include "tuner/service/jobs.h"
#include "tuner/trust/records.h"
#include "vm/base/error.h"
#include "vm/base/stage.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kLeaseMs = 60'000;  // of a trial, within one transaction

}  // namespace

db::TrialKey trial_key(const db::Uuid& campaign, const TaskRecords& records,
                       const plan::WantedCase& w, const db::Hash& config, size_t point) {
  db::Role role = db::Role::kSearch;
  if (w.phase == plan::Phase::kCross) role = db::Role::kCross;
  if (w.phase == plan::Phase::kVerify) role = db::Role::kVerify;
  if (role == db::Role::kSearch && config == records.default_config()) role = db::Role::kBaseline;
  return {campaign, records.workload(), config, records.shape(point), role, records.threads()};
}

Publisher::Publisher(Publishing& shared, const TuningTask& task, int64_t threads)
    : shared_(shared),
      task_(task),
      records_(shared.store, task, shared.target, threads, shared.policy),
      cache_(shared.cache,
             fmt::format("{} {} {}", records_.workload(), shared.toolchain, shared.target.level)) {
  records_.leave_out_vendor(shared.backend, "the service's machine");
}

// ---- candidates -----------------------------------------------------------------------------

std::optional<Publisher::Made> Publisher::recall(const db::Hash& config) {
  // One of a vendor's is of the version that its library had then, and made in no time.
  if (!records_.candidate(config).vendor.empty()) return std::nullopt;
  const std::optional<nlohmann::json> entry = cache_.get(cache_.key("published", config));
  if (!entry) return std::nullopt;
  Made made{entry->at("artifact").get<std::string>(), entry->at("candidate").get<std::string>(), "",
            gpu_code_from_json(*entry)};
  // The cache may have outlived a database that was restored.
  if (!shared_.store.has_blob(made.candidate) || !shared_.store.artifact(made.artifact))
    return std::nullopt;
  return made;
}

void Publisher::keep(const db::Hash& config, const Built& built) {
  const Stage stage("publish");
  Made made;
  if (!built.gpu_code.empty()) made.gpu_code = built.gpu_code[0];
  const db::Artifact artifact{built.code_hashes.at(0), records_.workload(), config,
                              shared_.toolchain,       built.compile_ms,    built.image_bytes};
  shared_.store.transaction([&] {
    made.artifact = shared_.store.put(artifact);
    made.candidate = shared_.store.put_blob(built.executable);
    shared_.store.put(db::Candidate{made.artifact, made.candidate, shared_.target.level});
  });
  nlohmann::json entry = {{"artifact", made.artifact}, {"candidate", made.candidate}};
  if (!built.gpu_code.empty()) entry["gpu_code"] = gpu_code_json(made.gpu_code);
  cache_.put(cache_.key("published", config), entry);
  made_[config] = std::move(made);
}

void Publisher::build(const std::vector<db::Hash>& configs) {
  const Stage stage("build");
  std::vector<db::Hash> missing;
  for (const db::Hash& config : configs) {
    if (made_.contains(config) ||
        std::find(missing.begin(), missing.end(), config) != missing.end())
      continue;
    if (std::optional<Made> made = recall(config))
      made_[config] = std::move(*made);
    else
      missing.push_back(config);
  }
  std::vector<Built> built(missing.size());
  std::vector<std::function<void()>> jobs;
  for (size_t i = 0; i < missing.size(); ++i)
    jobs.push_back([&, i, candidate = records_.candidate(missing[i])] {
      built[i] = shared_.backend.build(task_.workload(), {candidate}, shared_.target);
    });
  run_jobs(jobs, static_cast<size_t>(shared_.compile_threads));
  for (size_t i = 0; i < missing.size(); ++i) {
    if (built[i].error.empty())
      keep(missing[i], built[i]);
    else
      made_[missing[i]].fault = built[i].error;
  }
}

std::optional<std::string> Publisher::why_not_measured(const plan::WantedCase& w,
                                                       const db::Hash& config) const {
  // What other phases compare was found worth it.
  if (w.phase != plan::Phase::kBaseline && w.phase != plan::Phase::kSearch) return std::nullopt;
  if (anyway_.contains(config)) return std::nullopt;
  return tuner::why_not_measured(made_.at(config).gpu_code,
                                 made_.at(records_.default_config()).gpu_code, shared_.target);
}

void Publisher::end_unmeasured(const db::TrialKey& key, const std::string& error_class,
                               const std::string& why) {
  shared_.store.transaction([&] {
    // Whoever ends a trial holds it. As it is the most urgent one, a claim of one takes it.
    shared_.store.enqueue({{key, 0, 1e300, std::nullopt}});
    const std::optional<db::Trial> now = shared_.store.trial(db::uuid_of(key));
    if (!now || db::is_final(now->state)) return;
    const std::string owner = fmt::format("service:{}", ::getpid());
    db::ClaimRequest request{shared_.campaign.uuid, owner, kLeaseMs, 1};
    request.role = key.role;
    request.workload = key.workload;
    for (const db::Trial& t : shared_.store.claim(request))
      if (t.uuid == now->uuid)
        shared_.store.finish(
            {t.uuid, owner, db::TrialState::kCompileFailed, error_class, why, std::nullopt});
    shared_.store.give_back(shared_.campaign.uuid, owner);
  });
}

// ---- cases ----------------------------------------------------------------------------------

// This machine need not have the GPU: what its CPU's default schedule computes of the same workload
// is checked before it stands for the result, as the GPU's would be.
std::optional<std::vector<uint8_t>> Publisher::own_default() {
  if (!shared_.target.is_gpu()) {
    const auto made = made_.find(records_.default_config());
    if (made == made_.end() || !made->second.fault.empty()) return std::nullopt;
    return shared_.store.blob(made->second.candidate);
  }
  if (cpu_default_) return cpu_default_;
  const kernels::TargetInfo host = kernels::detect_host();
  try {
    Built built = shared_.backend.build(task_.workload(),
                                        {Space(task_.workload(), host).default_candidate()}, host);
    if (built.error.empty()) cpu_default_ = std::move(built.executable);
  } catch (const Error& e) {
    if (e.status() != Status::kUnsupported) throw;  // else the CPU has no template for it
  }
  return cpu_default_;
}

std::optional<std::vector<std::vector<uint8_t>>> Publisher::default_result(size_t point) {
  std::optional<std::vector<uint8_t>> bytes = own_default();
  if (!bytes) return std::nullopt;
  Case c = records_.case_at(point, shared_.policy);
  const uint32_t id = shared_.runner.add(std::move(*bytes));
  c.entries = {{id, 0}};
  std::string why;
  auto out = shared_.runner.run(c, &why);
  shared_.runner.remove(id);
  if (!out)
    shared_.say(fmt::format("{}: the default schedule failed{}: {}", task_.label,
                            at_text(task_.points[point]), why));
  return out;
}

bool Publisher::possible(size_t point) {
  if (cases_.contains(point)) return true;
  if (impossible_.contains(point)) return false;
  const std::string place =
      cache_.key(fmt::format("case {} {}", kDataVersion, kFillsVersion), records_.shape(point));
  if (const std::optional<nlohmann::json> known = cache_.get(place)) {
    const auto hash = known->at("case").get<db::Hash>();
    if (shared_.store.measure_case(hash)) {
      cases_[point] = hash;
      return true;
    }
  }
  build({records_.default_config()});
  Case c = records_.case_at(point, shared_.policy);
  try {
    Expectation e = shared_.backend.expect(task_, task_.points[point], records_.default_candidate(),
                                           [&] { return default_result(point); });
    c.expected = std::move(e.outputs);
    c.tolerance = e.tolerance;
  } catch (const Error& e) {
    // As in Expectations::take.
    if (e.status() == Status::kInternal)
      shared_.say(e.what());
    else if (e.status() != Status::kFatal && e.status() != Status::kInvalidArgument)
      throw;
    impossible_[point] = e.what();
    return false;
  }
  shared_.store.transaction([&] {
    cases_[point] = shared_.store.put(case_record(c, records_.workload(), records_.shape(point),
                                                  shared_.store.put_blob(expected_bytes(c))));
  });
  cache_.put(place, {{"case", cases_[point]}});
  return true;
}

// ---- jobs -----------------------------------------------------------------------------------

std::optional<db::Uuid> Publisher::publish(const PlanRecord& record, size_t point, double case_s,
                                           const std::map<db::Hash, double>& predicted_ns) {
  return publish(record.wanted, point, limits_of(record, case_s), predicted_ns);
}

std::optional<db::Uuid> Publisher::publish(const plan::WantedCase& w, size_t point,
                                           const std::string& limits,
                                           const std::map<db::Hash, double>& predicted_ns) {
  std::vector<db::Hash> all = w.anchors;
  all.insert(all.end(), w.configs.begin(), w.configs.end());
  build(all);
  if (!made_.at(w.anchors.at(0)).fault.empty()) return std::nullopt;
  db::NewJob job;
  job.campaign = shared_.campaign.uuid;
  job.hardware = shared_.campaign.key.hardware;
  job.measure_case = cases_.at(point);
  job.machine = w.machine;
  job.avoid = w.avoid;
  job.limits = limits;
  job.priority = w.priority;
  std::optional<db::Uuid> out;
  const Stage stage("enqueue");
  shared_.store.transaction([&] {
    for (size_t i = 0; i < all.size(); ++i) {
      const db::TrialKey key = trial_key(shared_.campaign.uuid, records_, w, all[i], point);
      const Made& made = made_.at(all[i]);
      if (!made.fault.empty()) {
        end_unmeasured(key, "compiler", made.fault);
        continue;
      }
      // By the code alone, so that a case that is published again is the same job.
      const bool anchors = i < w.anchors.size();
      if (const auto why = anchors ? std::nullopt : why_not_measured(w, all[i])) {
        end_unmeasured(key, db::kPruned, *why);
        continue;
      }
      const std::optional<db::Trial> before = shared_.store.trial(db::uuid_of(key));
      db::NewJobTrial trial{
          {key, w.slice, w.priority, std::nullopt}, made.artifact, made.candidate};
      if (const auto p = predicted_ns.find(all[i]); p != predicted_ns.end())
        trial.trial.predicted_ns = p->second;
      // What is compared side by side is measured anew, whatever is known of it.
      trial.anchor = i < w.anchors.size() || w.phase == plan::Phase::kVerify ||
                     (before && db::is_final(before->state));
      job.trials.push_back(std::move(trial));
      trust::sign(shared_.store, shared_.key, shared_.key_name,
                  trust::claim_of(trust::Candidate{shared_.campaign.uuid, job.measure_case,
                                                   made.candidate, shared_.target.level, limits}));
    }
    out = shared_.store.publish(job);
  });
  return out;
}

}  // namespace nimble::tuner
