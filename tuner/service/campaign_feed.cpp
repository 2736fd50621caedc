// What happened to a campaign's cases, from the feed of events to its plan.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "db/store/topics.h"
#include "tuner/service/campaign_service.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr int64_t kEventsAtOnce = 1000;
// Whoever may report may report anything. Of times between these (a tenth of a nanosecond, and a
// day) all ratios are numbers that the cost model and the database take.
constexpr double kLeastNs = 0.1, kMostNs = 8.64e13;

// What an event tells, an object; anybody who writes to the database may have written it.
nlohmann::json detail_of(const db::Event& event) {
  nlohmann::json j = nlohmann::json::parse(event.detail, nullptr, false);
  return j.is_object() ? j : nlohmann::json::object();
}

std::string word_of(const db::Event& event, const char* name) {
  const nlohmann::json j = detail_of(event);
  const auto at = j.find(name);
  return at != j.end() && at->is_string() ? at->get<std::string>() : "";
}

bool says(const db::Event& event, const char* name) {
  const nlohmann::json j = detail_of(event);
  const auto at = j.find(name);
  return at != j.end() && *at == true;
}

// All that was open was taken back at once.
bool is_cancellation(const db::Event& event) {
  return event.kind == db::topic::kCampaign && detail_of(event).contains("cancelled_jobs");
}

bool is_new_job(const db::Event& event) {
  return event.kind == db::topic::kJob && word_of(event, "state") == "queued";
}

}  // namespace

// The whole past: cases that were issued come right behind the events that were known by then.
void CampaignService::replay() {
  struct Step {
    int64_t at = 0;
    std::optional<PlanRecord> issued;
    db::Event event;
  };
  std::vector<Step> steps;
  std::set<db::Uuid> known;
  for (int64_t after = 0;;) {
    const std::vector<db::Event> some = shared_.store.events(after, kEventsAtOnce, uuid());
    if (some.empty()) break;
    for (const db::Event& e : some) {
      after = e.number;
      if (is_new_job(e) && known.insert(e.subject).second) {
        const std::optional<db::Job> job = shared_.store.job(e.subject);
        if (job && !job->parent)
          if (std::optional<PlanRecord> record = plan_record_of(job->limits))
            steps.push_back({std::min(record->seen, e.number), std::move(record), e});
      }
      steps.push_back({e.number, std::nullopt, e});
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    // Of an event and a case that was wanted when it was known, the event.
    return std::pair(a.at, a.issued.has_value()) < std::pair(b.at, b.issued.has_value());
  });
  const auto first =
      std::find_if(steps.begin(), steps.end(), [](const Step& s) { return s.issued.has_value(); });
  make_plan(first == steps.end() ? shared_.campaign.budget_s : first->issued->budget_s);
  for (const Step& s : steps) {
    if (s.issued) {
      if (s.issued->budget_s > plan_->budget_s()) plan_->extend(s.issued->budget_s);
      take_issued(*s.issued, s.event.subject);
    } else {
      handle(s.event, true);
    }
    seen_ = std::max(seen_, s.event.number);
  }
  consumed_s_ = 0;
  for (const db::MachineVerdict& v : shared_.store.verdicts(uuid()))
    set_aside_[v.machine] = v.set_aside;
  tell_begun();
}

double CampaignService::follow() {
  bool news = false;
  for (;;) {
    const std::vector<db::Event> some = shared_.store.events(seen_, kEventsAtOnce, uuid());
    for (const db::Event& e : some) {
      handle(e, false);
      seen_ = e.number;
      news = true;
    }
    if (some.empty()) break;
  }
  tell_begun();
  for (const std::string& key : plan_->obsolete())
    if (const auto it = live_.find(key); it != live_.end())
      for (const db::Uuid& job : std::set(it->second.open)) shared_.store.cancel_job(job);
  if (news) {
    tell_phases();
    tell_machines();
    double sum = 0;
    for (const db::Consumption& c : shared_.store.consumption(uuid())) sum += c.consumed_s;
    if (sum > 0) shared_.store.record_consumed(uuid(), sum);
  }
  return std::exchange(consumed_s_, 0);
}

void CampaignService::take_issued(const PlanRecord& record, const db::Uuid& job) {
  const plan::WantedCase& w = record.wanted;
  if (w.task >= tasks_.size() || w.point >= tasks_[w.task].points.size())
    throw Error(Status::kCorrupt, "job " + job, "is of a task or size that its campaign has not",
                "cancel the campaign and submit it again");
  const ServiceTask& task = tasks_[w.task];
  const bool searches = w.phase == plan::Phase::kBaseline || w.phase == plan::Phase::kSearch;
  if (searches && w.point >= task.searched.size())
    throw Error(Status::kCorrupt, "job " + job, "searches at a size that is not searched at",
                "cancel the campaign and submit it again");
  if (key_of_.contains(job)) return;
  key_of_[job] = w.key;
  Live& live = live_[w.key];
  const bool fresh = live.wanted.key.empty();
  live.open.insert(job);
  if (!fresh) return;
  live.wanted = w;
  for (const auto* list : {&w.anchors, &w.configs})
    for (const db::Hash& config : *list)
      live.trials[db::uuid_of(
          trial_key(uuid(), task.publisher->records(), w, config, task.points[w.point]))] = config;
  // A plan that wants it itself has issued it already.
  if (!issued_.insert(w.key).second) return;
  plan_->issued(w);
}

void CampaignService::handle(const db::Event& event, bool replaying) {
  if (event.kind == db::topic::kJob) return handle_job(event, word_of(event, "state"));
  if (event.kind == db::topic::kReport) {
    const auto key = key_of_.find(word_of(event, "job"));
    if (key == key_of_.end()) return;
    const auto live = live_.find(key->second);
    std::optional<db::StoredReport> report = shared_.store.stored_report(event.subject);
    if (!report) return;
    consumed_s_ += report->consumed_s;
    if (live != live_.end()) live->second.reports.push_back(std::move(*report));
  }
  if (event.kind == db::topic::kTrial && word_of(event, "state") == "crashed")
    for (auto& [key, live] : live_)
      if (const auto t = live.trials.find(event.subject); t != live.trials.end())
        live.given_up.insert(t->second);
  if (is_cancellation(event))
    while (!live_.empty()) {
      live_.begin()->second.cancelled = true;
      close(std::string(live_.begin()->first));
    }
  if (!replaying) return;
  // What this service does itself it knows.
  if (event.kind == db::topic::kCampaign && word_of(event, "state") == "finished")
    stopping_ = false;
  if (event.kind == db::topic::kControl && says(event, "accepted"))
    for (const db::Control& c : shared_.store.requests(uuid(), 1000))
      if (c.uuid == event.subject && c.request == db::ControlRequest::kStop) {
        stopping_ = true;
        plan_->stop();
      }
}

void CampaignService::handle_job(const db::Event& event, const std::string& state) {
  if (state == "queued") {
    if (const auto known = key_of_.find(event.subject); known != key_of_.end()) {
      if (const auto live = live_.find(known->second); live != live_.end())
        live->second.lost |= says(event, "lost");
      return;
    }
    const std::optional<db::Job> job = shared_.store.job(event.subject);
    if (!job || !job->parent) return;
    const auto parent = key_of_.find(*job->parent);
    if (parent == key_of_.end()) return;
    const std::string key = parent->second;
    key_of_[event.subject] = key;
    if (const auto live = live_.find(key); live != live_.end()) {
      live->second.open.insert(event.subject);
      live->second.lost = true;
    }
    return;
  }
  const auto key = key_of_.find(event.subject);
  if (key == key_of_.end()) return;
  const auto live = live_.find(key->second);
  if (live == live_.end()) return;
  live->second.open.erase(event.subject);
  if (state == "cancelled") live->second.cancelled = true;
  if (live->second.open.empty()) close(std::string(key->second));
}

void CampaignService::close(const std::string& key) {
  const Live live = std::move(live_.at(key));
  live_.erase(key);
  const bool silent = live.reports.empty() && live.given_up.empty();
  // Cancelled, or all of it was known by the time that it was claimed. One that took down worker
  // after worker is told as what it is: nobody's, and without a time.
  if (silent && (live.cancelled || !live.lost)) return plan_->dropped(key);
  const plan::CaseOutcome outcome = outcome_of(key, live);
  note_defaults(live, outcome);
  plan_->finished(outcome);
}

plan::CaseOutcome CampaignService::outcome_of(const std::string& key, const Live& live) const {
  const auto is_time = [](double ns) { return ns >= kLeastNs && ns <= kMostNs; };
  plan::CaseOutcome out;
  out.key = key;
  const db::Hash& base = live.wanted.anchors.at(0);
  const auto default_of = [&](const db::StoredReport& r) {
    for (const db::StoredReport::Result& x : r.results)
      if (x.config == base && x.median_ns && is_time(*x.median_ns)) return *x.median_ns;
    return 0.0;
  };
  double first_ns = 0;
  for (const db::StoredReport& r : live.reports) {
    out.consumed_s += r.consumed_s;
    const double default_ns = default_of(r);
    if (out.machine.uuid.empty() || (first_ns == 0 && default_ns > 0))
      out.machine = {r.machine, r.hardware};
    if (first_ns == 0) first_ns = default_ns;
    for (const db::StoredReport::Result& x : r.results) {
      if (x.median_ns && default_ns == 0) continue;
      const double ns = x.median_ns ? *x.median_ns * first_ns / default_ns : 0;
      out.times_ns.emplace(x.config, is_time(ns) ? std::optional(ns) : std::nullopt);
    }
    for (const auto& [config, why] : r.absent) out.absent[config] = r.machine;
  }
  for (const db::Hash& config : live.given_up) out.times_ns.emplace(config, std::nullopt);
  // Those that could not be compiled, and those that are not to be measured, are in no job.
  for (const auto& [trial, config] : live.trials)
    if (!out.times_ns.contains(config)) {
      const std::optional<db::Trial> t = shared_.store.trial(trial);
      if (!t || t->state != db::TrialState::kCompileFailed) continue;
      out.times_ns.emplace(config, std::nullopt);
      if (t->error_class == db::kPruned) out.pruned.insert(config);
    }
  return out;
}

void CampaignService::note_defaults(const Live& live, const plan::CaseOutcome& outcome) {
  const plan::WantedCase& w = live.wanted;
  ServiceTask& task = tasks_[w.task];
  for (const db::StoredReport& r : live.reports)
    for (const auto& [config, why] : r.absent)
      if (config == task.vendor) {
        const std::optional<db::Machine> machine = shared_.store.machine(r.machine);
        task.no_vendor = fmt::format("{}: {}", machine ? machine->hostname : r.machine, why);
      }
  const auto base = outcome.times_ns.find(w.anchors.at(0));
  if (base == outcome.times_ns.end() || !base->second) return;
  task.default_ns[task.publisher->records().shape(task.points[w.point])] = *base->second;
  if (w.phase != plan::Phase::kVerify) return;
  task.verified_default_ns[w.point] = *base->second;
  // What the machine lacked something for was not measured beside the others.
  for (const auto* list : {&w.anchors, &w.configs})
    for (const db::Hash& config : *list)
      if (!outcome.absent.contains(config) || outcome.times_ns.contains(config))
        task.verified.insert(config);
  for (const db::StoredReport& r : live.reports)
    for (const db::StoredReport::Result& x : r.results)
      if (x.config == w.anchors.at(0) && x.median_ns && x.twin_ns)
        task.apart[w.point] = std::fabs(*x.twin_ns / *x.median_ns - 1);
}

// Claims are no events. When one began is known as well as this service watches.
void CampaignService::tell_begun() {
  for (const db::Job& job : shared_.store.claimed_jobs(uuid())) {
    const auto key = key_of_.find(job.uuid);
    if (key == key_of_.end() || !job.worker || begun_[job.uuid] == job.attempt) continue;
    const std::optional<db::Worker> worker = shared_.store.worker(*job.worker);
    if (!worker) continue;
    begun_[job.uuid] = job.attempt;
    plan_->begun(key->second, worker->machine, now_s());
  }
}

}  // namespace nimble::tuner
