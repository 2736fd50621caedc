#include "tuner/service/campaign_service.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tuner/measure/statistics.h"
#include "tuner/service/model_keeper.h"
#include "tuner/service/task_run.h"
#include "tuner/service/warm_start.h"
#include "vm/base/error.h"
#include "vm/base/hash.h"
#include "vm/base/stage.h"

namespace nimble::tuner {
namespace {

constexpr double kAhead = 1.5;       // cases per worker that the plan wants out; see plan.cpp
constexpr double kOverheadS = 0.02;  // of a candidate, beside its runs
// Configurations that were foretold and timed, for their ranks to say anything.
constexpr size_t kLeastCorrelated = 8;
// A case's limit: so many times what it is thought to take, and this at least, in s.
constexpr double kPatience = 10, kLeastCaseS = 120;

// What timing one candidate takes, roughly, in s, on a machine of 5 GF/s and 5 GB/s: the plan asks
// for no more before cases were measured.
double entry_s(const WorkloadPoint& p, const Policy& policy) {
  const double ns = static_cast<double>(std::max(p.flops, p.bytes)) / 5;
  return kOverheadS +
         std::min(case_ms(ns, policy), static_cast<double>(policy.case_ns) / 1e6) / 1e3;
}

std::string cannot_occur(const ServiceTask& t, size_t point) {
  return fmt::format("{} cannot occur{}: {}", t.task->label, at_text(t.task->points[point]),
                     t.publisher->why_not(point));
}

}  // namespace

CampaignService::CampaignService(Publishing& shared, Submission submission)
    : shared_(shared), submission_(std::move(submission)) {
  open_tasks();
  replay();
}

CampaignService::~CampaignService() = default;

double CampaignService::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void CampaignService::open_tasks() {
  for (const TuningTask& task : submission_.tasks)
    for (const int64_t threads : submission_.threads) {
      try {
        open_task(task, threads);
      } catch (const Error& e) {
        // Such as an operator that the reference lacks: nothing could be checked.
        if (e.status() != Status::kUnsupported) throw;
        shared_.say(fmt::format("{} is left out: {}", task.label, e.what()));
      }
    }
  if (tasks_.empty())
    throw Error(Status::kUnsupported, "campaign " + uuid(), "none of its workloads can be measured",
                "submit it with sizes that the model meets");
  std::map<db::Uuid, db::Task> before;
  for (db::Task& known : shared_.store.tasks(uuid())) before[known.uuid] = std::move(known);
  std::vector<db::Task> missing;
  for (ServiceTask& t : tasks_) {
    if (const auto known = before.find(t.uuid); known != before.end()) {
      t.told_phase = known->second.phase;
      t.ranked = db::rank_correlations_of(known->second.detail);
      continue;
    }
    missing.push_back(t.publisher->records().task_record(uuid(), t.points));
  }
  shared_.store.add_tasks(missing);
}

void CampaignService::open_task(const TuningTask& task, int64_t threads) {
  ServiceTask t;
  t.task = &task;
  t.threads = threads;
  t.publisher = std::make_unique<Publisher>(shared_, task, threads);
  TaskRecords& records = t.publisher->records();
  if (const std::optional<tuned::Candidate> vendor = records.space().vendor_candidate())
    shared_.store.transaction([&] { t.vendor = records.put(*vendor); });
  t.no_vendor = records.space().no_vendor();
  t.uuid = db::uuid_of_task(uuid(), records.workload());
  // The search runs at the representative sizes that can be, or the first size that can.
  std::vector<Representative> searched = representatives_of(task);
  t.points = spread_order(task, searched);
  const auto cannot = [&](size_t point) {
    if (t.publisher->possible(point)) return false;
    shared_.say(cannot_occur(t, point));
    std::erase(t.points, point);
    return true;
  };
  std::erase_if(searched, [&](const Representative& r) { return cannot(r.point); });
  if (searched.empty()) {
    while (!t.points.empty() && cannot(t.points[0])) {
    }
    if (t.points.empty()) throw Error(Status::kUnsupported, task.label, "no size of it can occur");
    searched = {{t.points[0], 1}};
  }
  SearchOptions options;
  options.threads = static_cast<int>(threads);
  std::vector<size_t> possible;
  for (const Representative& r : searched) possible.push_back(r.point);
  // What the others stood for goes to the nearest of those that are left.
  const std::vector<Representative> left = representatives_of(task, possible);
  for (const size_t point : possible) {
    options.shapes.push_back(task.points[point].symbols);
    t.searched.push_back(std::ranges::find(left, point, &Representative::point)->share);
  }
  options.seeds =
      warm_start(shared_.store, records.space(), threads, shared_.campaign.key.hardware);
  shared_.store.transaction([&] {
    for (const tuned::Candidate& c : options.seeds) t.publisher->measure_anyway(records.put(c));
  });
  options.jobs = shared_.compile_threads;
  t.search = std::make_unique<Search>(records.space(), options);
  if (std::optional<CostModel> earlier =
          kept_model(shared_.store, {shared_.key, shared_.key_name}, shared_.campaign,
                     records.workload(), shared_.say)) {
    try {
      t.search->begin_with(std::move(*earlier));
    } catch (const Error& e) {
      if (e.status() != Status::kIncompatible) throw;
      shared_.say(fmt::format("{}: an earlier cost model is left alone: {}", task.label, e.what()));
    }
  }
  tasks_.push_back(std::move(t));
}

void CampaignService::make_plan(double budget_s) {
  plan::CampaignSpec spec;
  spec.budget_s = budget_s;
  spec.top_k = submission_.top_k;
  spec.only_hot = submission_.only_hot;
  spec.search_end = submission_.search_end;
  for (const ServiceTask& t : tasks_) {
    plan::TaskSpec task;
    task.label = t.task->label;
    task.default_config = t.publisher->records().default_config();
    task.calls = t.task->calls;
    task.searched = t.searched;
    task.vendor = t.vendor;
    for (const size_t p : t.points)
      task.points.push_back({t.task->points[p].weight, entry_s(t.task->points[p], shared_.policy)});
    spec.tasks.push_back(std::move(task));
  }
  plan_.emplace(
      std::move(spec),
      [this](size_t t, size_t n, const plan::SearchEvidence& e) { return propose(t, n, e); },
      [this](size_t t, const plan::CrossEvidence& e) { return finalists(t, e); });
}

// ---- what the plan asks ---------------------------------------------------------------------

std::vector<db::Hash> CampaignService::propose(size_t t, size_t count,
                                               const plan::SearchEvidence& known) {
  const Stage stage("learn");
  ServiceTask& task = tasks_[t];
  TaskRecords& records = task.publisher->records();
  const plan::SizeEvidence& first = known.sizes.at(0);
  const size_t told = first.ratios.size() + first.issued.size();
  task.search->begin_anew(
      hash64(fmt::format("{} {} {}", submission_.seed, records.workload(), told)));
  task.search->tell(records.default_candidate(), std::nullopt);
  double correlations = 0;
  size_t correlated = 0;
  for (size_t s = 0; s < known.sizes.size(); ++s) {
    std::vector<double> foretold, found;
    for (const auto& [config, ratio] : known.sizes[s].ratios) {
      task.search->tell(records.candidate(config), ratio, s);
      const auto it = task.foretold.find(config);
      if (it == task.foretold.end() || !it->second.at(s) || !ratio) continue;
      foretold.push_back(*it->second[s]);
      found.push_back(*ratio);
    }
    if (found.size() >= kLeastCorrelated)
      correlations += rank_correlation(foretold, found), ++correlated;
  }
  const auto known_times = static_cast<int64_t>(first.ratios.size());
  if (correlated > 0 && (task.ranked.empty() || task.ranked.back().first < known_times))
    task.ranked.emplace_back(known_times, correlations / static_cast<double>(correlated));
  for (const db::Hash& config : first.issued)
    task.search->tell(records.candidate(config), std::nullopt);
  task.search->learn();
  std::vector<db::Hash> out;
  shared_.store.transaction([&] {
    for (const Proposal& p : task.search->propose(count)) {
      out.push_back(records.put(p.candidate));
      if (!p.predicted_ns.empty()) task.foretold[out.back()] = p.predicted_ns;
    }
  });
  return out;
}

std::vector<db::Hash> CampaignService::finalists(size_t t, const plan::CrossEvidence& known) const {
  const ServiceTask& task = tasks_[t];
  if (known.ratios.empty()) return {};
  TableEvidence e;
  e.cross.symbols = task.task->workload().contract.symbols;
  for (const size_t p : known.points) {
    const WorkloadPoint& point = task.task->points[task.points[p]];
    e.cross.shapes.push_back(point.symbols);
    e.cross.weights.push_back(point.weight);
    e.cross.exact.push_back(point.exact);
  }
  // Over the default's: what is chosen is the same as by times, since only what is lost at a size
  // counts.
  for (const auto& [config, ratios] : known.ratios) {
    e.configs.push_back(config);
    e.cross.times.push_back(ratios);
  }
  mark_exact_only(shared_.store, e);
  std::vector<db::Hash> out = finalists_of(e);
  // What a new table would displace, side by side with what displaces it.
  const TableMaker maker(shared_.store, task.publisher->records(), shared_.target, uuid(),
                         shared_.campaign.key.hardware, shared_.toolchain);
  for (const db::Hash& config : maker.active_configs(maker.slot()))
    if (std::find(out.begin(), out.end(), config) == out.end()) out.push_back(config);
  return out;
}

bool CampaignService::may_want(const plan::Fleet& fleet) const {
  return !paused_ && fleet.workers > 0 && !plan_->done() &&
         static_cast<double>(plan_->outstanding()) <
             std::ceil(kAhead * static_cast<double>(fleet.workers));
}

std::vector<plan::WantedCase> CampaignService::want(plan::Fleet fleet) {
  fleet.now_s = now_s();
  std::vector<plan::WantedCase> all = plan_->want(fleet);
  for (const plan::WantedCase& w : all) issued_.insert(w.key);
  return all;
}

plan::Fleet CampaignService::fleet() const {
  plan::Fleet out;
  for (const db::LiveWorker& w : shared_.store.live_workers()) {
    if (w.hardware != shared_.campaign.key.hardware) continue;
    if (w.heartbeat && w.heartbeat->state != db::WorkerState::kIdle &&
        w.heartbeat->state != db::WorkerState::kMeasuring)
      continue;
    ++out.workers;
    out.machines.insert(w.worker.machine);
  }
  out.now_s = now_s();
  return out;
}

void CampaignService::publish(const plan::WantedCase& w) {
  ServiceTask& t = tasks_.at(w.task);
  const size_t point = t.points.at(w.point);
  if (!t.publisher->possible(point)) {
    shared_.say(cannot_occur(t, point));
    plan_->impossible(w.task, w.point);
    plan_->dropped(w.key);
    return;
  }
  const PlanRecord record{w, seen_, plan_->budget_s()};
  std::map<db::Hash, double> predicted_ns;
  const auto base = t.default_ns.find(t.publisher->records().shape(point));
  if (w.phase == plan::Phase::kSearch && base != t.default_ns.end())
    for (const db::Hash& config : w.configs)
      if (const auto p = t.foretold.find(config);
          p != t.foretold.end() && p->second.at(w.point).value_or(0) > 0)
        predicted_ns[config] = *p->second[w.point] * base->second;
  const std::optional<db::Uuid> job = t.publisher->publish(
      record, point, std::ceil(std::max(kLeastCaseS, kPatience * w.expected_s)), predicted_ns);
  if (!job) {
    // Without the default schedule nothing can be compared.
    plan_->finished({w.key, {}, 0, {}});
    return;
  }
  take_issued(record, *job);
}

// ---- steering -------------------------------------------------------------------------------

bool CampaignService::steer() {
  const std::optional<db::Campaign> now = shared_.store.campaign(uuid());
  if (!now || !now->resumable()) return true;
  paused_ = now->state == db::CampaignState::kPaused;
  if (now->budget_s > plan_->budget_s()) {
    plan_->extend(now->budget_s);
    stopping_ = false;
  }
  for (const db::Control& control : shared_.store.open_requests(uuid())) {
    answer(control);
    if (control.request == db::ControlRequest::kCancel) return true;
  }
  return false;
}

// What is done and that it was done are one transaction: a request is never forgotten, nor acted on
// twice.
void CampaignService::answer(const db::Control& control) {
  db::Store& store = shared_.store;
  store.transaction([&] {
    switch (control.request) {
      case db::ControlRequest::kPause:
        if (!paused_) store.set_campaign_state(uuid(), db::CampaignState::kPaused);
        store.answer(control.uuid, true,
                     paused_ ? "it is paused already"
                             : "no case is handed out any more; what workers hold they finish");
        break;
      case db::ControlRequest::kResume:
        if (paused_) store.set_campaign_state(uuid(), db::CampaignState::kRunning);
        store.answer(control.uuid, true, paused_ ? "it goes on" : "it runs already");
        break;
      case db::ControlRequest::kStop:
        // Verifying takes workers.
        if (paused_) store.set_campaign_state(uuid(), db::CampaignState::kRunning);
        store.answer(control.uuid, true,
                     "the search is over; what is known is verified and becomes tables");
        break;
      case db::ControlRequest::kCancel:
        store.cancel_jobs(uuid());
        store.set_campaign_state(uuid(), db::CampaignState::kFailed);
        store.answer(control.uuid, true, "it ended without tables; what was measured is kept");
        break;
    }
  });
  if (control.request == db::ControlRequest::kPause) paused_ = true;
  if (control.request == db::ControlRequest::kResume) paused_ = false;
  if (control.request == db::ControlRequest::kStop) {
    paused_ = false;
    stopping_ = true;
    plan_->stop();
  }
}

// ---- the end --------------------------------------------------------------------------------

bool CampaignService::left_alone(double patience_s) {
  if (!stopping_ || fleet().workers > 0) {
    alone_since_s_.reset();
    return false;
  }
  if (!alone_since_s_) alone_since_s_ = now_s();
  return now_s() - *alone_since_s_ >= patience_s;
}

bool CampaignService::finish(double patience_s) {
  const bool done = plan_->done() && live_.empty();
  if (!done && !left_alone(patience_s)) return false;
  if (!done)
    shared_.say(
        fmt::format("campaign {}: told to stop, and no worker is there: what nobody has "
                    "verified becomes no table",
                    uuid().substr(0, 8)));
  const Stage stage("activate");
  // All tables and the campaign's end are one: a kill leaves both or none.
  shared_.store.transaction([&] {
    tell_phases(!done);
    tell_machines(true);
    if (!done) shared_.store.cancel_jobs(uuid());
    for (size_t t = 0; t < tasks_.size(); ++t) make_table(t);
    for (const ServiceTask& t : tasks_)
      keep_model(shared_.store, {shared_.key, shared_.key_name}, uuid(),
                 t.publisher->records().workload(), t.search->model(),
                 static_cast<int64_t>(t.search->measured()),
                 t.ranked.empty() ? std::nullopt : std::optional(t.ranked.back().second));
    shared_.store.set_campaign_state(uuid(), db::CampaignState::kFinished);
  });
  return true;
}

void CampaignService::make_table(size_t t) {
  ServiceTask& task = tasks_[t];
  const plan::TaskStatus status = plan_->tasks()[t];
  const TaskRecords& records = task.publisher->records();
  TableOrder order;
  TableEvidence& e = order.evidence;
  for (const size_t p : status.verified.points) e.points.push_back(task.points[p]);
  e.cross.symbols = task.task->workload().contract.symbols;
  for (const size_t p : e.points) {
    e.cross.shapes.push_back(task.task->points[p].symbols);
    e.cross.weights.push_back(task.task->points[p].weight);
    e.cross.exact.push_back(task.task->points[p].exact);
  }
  for (const auto& [config, ratios] : status.verified.ratios) {
    std::vector<double> row;
    for (size_t i = 0; i < ratios.size(); ++i) {
      const size_t point = status.verified.points[i];
      const auto base = task.verified_default_ns.find(point);
      // Where nothing was faster than the default schedule, nothing was verified beside it.
      const auto once = task.default_ns.find(records.shape(task.points[point]));
      if (base != task.verified_default_ns.end())
        row.push_back(ratios[i] * base->second);
      else if (once != task.default_ns.end())
        row.push_back(ratios[i] * once->second);
    }
    if (row.size() != e.points.size() || row.empty()) continue;
    e.configs.push_back(config);
    e.cross.times.push_back(std::move(row));
  }
  if (e.configs.empty()) return;
  mark_exact_only(shared_.store, e);
  put_first(e, records.default_config());
  order.verified = task.verified;
  order.noise = task.noise();
  order.tried = static_cast<size_t>(std::max<int64_t>(0, status.searched));
  for (size_t s = 0; s < e.points.size(); ++s) {
    double least = HUGE_VAL;
    for (const auto& row : e.cross.times) least = std::min(least, row[s]);
    order.best.push_back(least);
  }
  const MadeTable made = TableMaker(shared_.store, records, shared_.target, uuid(),
                                    shared_.campaign.key.hardware, shared_.toolchain)
                             .make(order);
  task.table = made.uuid;
  shared_.say(fmt::format("{}, {} threads: {}", task.task->label, task.threads,
                          made.inactive.empty()
                              ? "table " + made.uuid.substr(0, 8) + " is active"
                              : made.inactive + how_to_activate(made.uuid, shared_.store.path())));
}

}  // namespace nimble::tuner
