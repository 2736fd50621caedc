// What happened, and what follows at once; the phases stand in plan_phases.cpp.
#include "tuner/service/plan.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "vm/base/error.h"

namespace nimble::tuner::plan {
namespace {

// Cases in the queue beside those that workers hold, per worker: a worker that is done finds the
// next one built.
constexpr double kAhead = 0.5;
// A case that takes so many times as long as it should straggles.
constexpr double kStraggle = 3;
// Cases of a task whose default schedule failed, before it is given up.
constexpr int kDefaultFailures = 3;
// Times that an entry may come back without an answer.
constexpr int kUnanswered = 3;

const std::string& group_of(const WantedCase& w) {
  return w.first.empty() ? w.key : w.first;
}

}  // namespace

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kBaseline:
      return "baseline";
    case Phase::kSearch:
      return "search";
    case Phase::kCross:
      return "cross";
    case Phase::kVerify:
      return "verify";
    case Phase::kDone:
      return "done";
  }
  return "";
}

CampaignPlan::CampaignPlan(CampaignSpec spec, Propose propose, Finalists finalists)
    : spec_(std::move(spec)), propose_(std::move(propose)), finalists_(std::move(finalists)) {
  tasks_.resize(spec_.tasks.size());
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const TaskSpec& task = spec_.tasks[t];
    NIMBLE_CHECK(!task.searched.empty() && task.searched.size() <= task.points.size(),
                 "{} of {} sizes are searched at", task.searched.size(), task.points.size());
    tasks_[t].search.sizes.resize(task.searched.size());
  }
}

double CampaignPlan::raw_s(const WantedCase& w) const {
  const double entries = static_cast<double>(w.configs.size() + w.anchors.size());
  return entries * spec_.tasks[w.task].points[w.point].entry_s;
}

double CampaignPlan::price_s(size_t t, size_t point, size_t entries) const {
  return pace() * static_cast<double>(entries) * spec_.tasks[t].points[point].entry_s;
}

double CampaignPlan::open_s(size_t t, std::optional<Phase> phase) const {
  double sum = 0;
  for (const auto& [key, o] : open_)
    if (o.wanted.task == t && (!phase || o.wanted.phase == *phase)) sum += pace() * raw_s(o.wanted);
  return sum;
}

double CampaignPlan::free_s() const {
  double sum = 0;
  for (const auto& [key, o] : open_) sum += pace() * raw_s(o.wanted);
  return spec_.budget_s - spent_s_ - sum;
}

bool CampaignPlan::straggles(const Open& o, const Fleet& fleet) const {
  return o.begun_s && fleet.now_s - *o.begun_s > kStraggle * pace() * raw_s(o.wanted);
}

bool CampaignPlan::awaits(size_t t, Phase phase, const Fleet& fleet) const {
  return std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
    const Open& o = entry.second;
    if (o.wanted.task != t || o.wanted.phase != phase || closed_.contains(group_of(o.wanted)))
      return false;
    // What a search learns late is learnt all the same; a comparison needs all that it compares.
    return phase != Phase::kSearch || !straggles(o, fleet);
  });
}

std::vector<WantedCase> CampaignPlan::want(const Fleet& fleet) {
  alive_ = fleet.machines;
  const auto workers = static_cast<double>(fleet.workers);
  const auto most = static_cast<size_t>(std::ceil(workers * (1 + kAhead)));
  std::vector<WantedCase> out;
  while (open_.size() < most) {
    std::optional<WantedCase> next = want_one(fleet);
    if (!next) break;
    issued(*next);
    out.push_back(std::move(*next));
  }
  return out;
}

std::optional<WantedCase> CampaignPlan::want_one(const Fleet& fleet) {
  if (auto again = second_issue(fleet, false)) return again;
  // Tasks without a time first: it decides what part of the budget each gets. Then by how much of
  // its part each has used.
  std::vector<std::pair<double, size_t>> order;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const Task& task = tasks_[t];
    if (task.phase == Phase::kDone) continue;
    double used = -1;
    if (task.phase != Phase::kBaseline) {
      used = (task.spent_s + open_s(t)) / std::max(1e-9, task.allot_s);
      // Cases that follow on others are few and decide when the task ends.
      if (task.phase != Phase::kSearch) used -= 1;
    }
    order.emplace_back(used, t);
  }
  std::stable_sort(order.begin(), order.end());
  for (const auto& [used, t] : order) {
    advance(t, fleet);
    if (auto next = next_of(t, fleet)) return next;
    // A slice that comes to the end of the space may have nothing out whose end would settle it.
    if (tasks_[t].exhausted) settle();
  }
  if (auto next = another_slice(fleet)) return next;
  if (open_.size() < fleet.workers) return second_issue(fleet, true);
  return std::nullopt;
}

std::optional<WantedCase> CampaignPlan::second_issue(const Fleet& fleet, bool idle) {
  const Open* longest = nullptr;
  double most = 0;
  for (const auto& [key, o] : open_) {
    const WantedCase& w = o.wanted;
    if (o.doubled || !w.first.empty() || w.machine || closed_.contains(w.key)) continue;
    if (!straggles(o, fleet) || (!idle && w.phase == Phase::kSearch)) continue;
    const double late = (fleet.now_s - *o.begun_s) / raw_s(w);
    if (late > most) most = late, longest = &o;
  }
  if (!longest || fleet.machines.size() < 2) return std::nullopt;
  WantedCase again = longest->wanted;
  again.first = again.key;
  again.key += fmt::format(" again {}", longest->copies + 1);
  again.avoid = longest->machine;
  again.priority += 1;
  return again;
}

// Of those that have answered: whoever is bound to another campaign never will.
bool CampaignPlan::others_may_have_it() const {
  return std::ranges::any_of(machines_.status(), [&](const MachineStatus& m) {
    return alive_.contains(m.uuid) && !m.set_aside && !lacking_.contains(m.uuid);
  });
}

WantedCase CampaignPlan::make(size_t t, size_t point, std::vector<db::Hash> configs) const {
  const Task& task = tasks_[t];
  WantedCase w;
  w.key = fmt::format("{}/{}", t, task.cases);
  w.task = t;
  w.point = point;
  w.phase = task.phase;
  w.slice = task.slice;
  w.anchors = {spec_.tasks[t].default_config};
  if (task.anchor) w.anchors.push_back(*task.anchor);
  for (const db::Hash& a : w.anchors) std::erase(configs, a);
  w.configs = std::move(configs);
  // Once more, and elsewhere.
  if (const auto& vendor = spec_.tasks[t].vendor;
      vendor && task.absent_on && std::ranges::find(w.configs, *vendor) != w.configs.end() &&
      others_may_have_it())
    w.avoid = task.absent_on;
  w.priority = task.phase == Phase::kSearch ? 1 : task.phase == Phase::kCross ? 2 : 3;
  w.expected_s = pace() * raw_s(w);
  return w;
}

void CampaignPlan::issued(const WantedCase& w) {
  Task& task = tasks_.at(w.task);
  if (w.first.empty()) {
    // Of an earlier plan, too: cases that it gave up before anybody knew of them have numbers.
    const size_t number = w.key.find('/');
    if (number != std::string::npos)
      task.cases = std::max<int64_t>(task.cases, std::atoll(w.key.c_str() + number + 1));
    ++task.cases;
    // Of an earlier plan: it had passed these borders by then, from what was known then.
    while (task.slice < w.slice) enter_slice(w.task);
    if (task.phase == Phase::kSearch && (w.phase == Phase::kCross || w.phase == Phase::kVerify))
      enter_cross(w.task);
    if (w.phase == Phase::kVerify && (task.phase == Phase::kCross || task.judge != w.machine))
      enter_verify(w.task, w.machine, &w.configs);
    if (w.phase == Phase::kBaseline || w.phase == Phase::kSearch)
      task.search.sizes.at(w.point).issued.insert(w.configs.begin(), w.configs.end());
    if (w.phase == Phase::kCross)
      task.cross_issued[w.point].insert(w.configs.begin(), w.configs.end());
    if (w.phase == Phase::kVerify) task.verify_issued.insert(w.point);
  } else if (const auto it = open_.find(w.first); it != open_.end()) {
    it->second.doubled = true;
    ++it->second.copies;
  }
  open_[w.key].wanted = w;
}

void CampaignPlan::begun(const std::string& key, const db::Uuid& machine, double now_s) {
  const auto it = open_.find(key);
  if (it == open_.end()) return;
  it->second.begun_s = now_s;
  it->second.machine = machine;
}

std::vector<std::string> CampaignPlan::obsolete() const {
  std::vector<std::string> out;
  for (const auto& [key, o] : open_)
    if (closed_.contains(group_of(o.wanted))) out.push_back(key);
  return out;
}

void CampaignPlan::dropped(const std::string& key) {
  drop(key);
  settle();
}

void CampaignPlan::drop(const std::string& key) {
  const auto it = open_.find(key);
  if (it == open_.end()) return;
  const WantedCase w = it->second.wanted;
  open_.erase(it);
  if (closed_.contains(group_of(w))) return;
  // The other issue may still answer.
  for (auto& [other, o] : open_)
    if (group_of(o.wanted) == group_of(w)) {
      o.doubled = false;
      return;
    }
  unlearn(w);
}

void CampaignPlan::unlearn(const WantedCase& w) {
  Task& task = tasks_[w.task];
  for (const db::Hash& c : w.configs) {
    if (w.phase == Phase::kBaseline || w.phase == Phase::kSearch)
      task.search.sizes.at(w.point).issued.erase(c);
    if (w.phase == Phase::kCross) task.cross_issued[w.point].erase(c);
  }
  if (w.phase == Phase::kCross && task.cross_issued[w.point].empty())
    task.cross_issued.erase(w.point);
  if (w.phase == Phase::kVerify && task.judge == w.machine) task.verify_issued.erase(w.point);
}

void CampaignPlan::finished(const CaseOutcome& outcome) {
  take(outcome);
  settle();
}

void CampaignPlan::take(const CaseOutcome& outcome) {
  const auto it = open_.find(outcome.key);
  if (it == open_.end() || !told_.insert(outcome.key).second) return;
  const WantedCase w = it->second.wanted;
  open_.erase(it);
  Task& task = tasks_[w.task];
  spent_s_ += outcome.consumed_s;
  expected_s_ += raw_s(w);
  task.spent_s += outcome.consumed_s;
  if (w.phase == Phase::kBaseline || w.phase == Phase::kSearch) task.search_s += outcome.consumed_s;
  const auto time_of = [&](size_t anchor) {
    if (anchor >= w.anchors.size()) return 0.0;
    const auto found = outcome.times_ns.find(w.anchors[anchor]);
    return found == outcome.times_ns.end() ? 0.0 : found->second.value_or(0);
  };
  const double default_ns = time_of(0);
  if (!outcome.machine.uuid.empty())
    machines_.saw(outcome.machine, fmt::format("{}/{}", w.task, w.point), default_ns, time_of(1),
                  outcome.consumed_s);
  for (const auto& [config, machine] : outcome.absent) {
    lacking_.insert(machine);
    task.absent_on = machine;
  }
  if (!closed_.insert(group_of(w)).second) return;
  const double second = time_of(1);
  Steadiness& steadiness = task.steadiness[{w.point, outcome.machine.uuid}];
  const bool disturbed =
      default_ns > 0 && second > 0 && steadiness.is_disturbed(second / default_ns);
  if (default_ns > 0 && !disturbed && !machines_.set_aside(outcome.machine.uuid)) {
    learn(task, w, outcome, default_ns);
    // The first case had one anchor; the second is among its candidates.
    if (const auto found = outcome.times_ns.find(task.anchor.value_or(""));
        found != outcome.times_ns.end() && found->second) {
      const double ratio = *found->second / default_ns;
      forget(task, w, steadiness.add(ratio, w.configs), ratio);
    }
    return;
  }
  // Without the default's time, disturbed, or from a machine that is not believed, it says nothing
  // of times.
  learn_failures(task, w, outcome);
  closed_.erase(group_of(w));
  if (std::none_of(open_.begin(), open_.end(),
                   [&](const auto& o) { return group_of(o.second.wanted) == group_of(w); }))
    unlearn(w);
  if (default_ns > 0 || ++task.default_failures < kDefaultFailures) return;
  task.note = "the default schedule fails";
  task.phase = Phase::kDone;
}

// Of a case that says nothing else. What failed is not measured again, so it must not be wanted.
void CampaignPlan::learn_failures(Task& task, const WantedCase& w, const CaseOutcome& outcome) {
  for (const db::Hash& config : w.configs) {
    const auto found = outcome.times_ns.find(config);
    if (found == outcome.times_ns.end() || found->second) continue;
    ++task.trials;
    ++task.failed;
    task.pruned += static_cast<int64_t>(outcome.pruned.count(config));
    if (w.phase == Phase::kCross) std::erase(task.chosen, config);
    if (w.phase == Phase::kBaseline || w.phase == Phase::kSearch)
      task.search.sizes.at(w.point).ratios[config] = std::nullopt;
  }
}

// What was found beside a default schedule that was disturbed is wanted again; of the second
// anchor every case tells.
void CampaignPlan::forget(Task& task, const WantedCase& w, const std::vector<db::Hash>& configs,
                          double anchor_ratio) {
  if (configs.empty()) return;
  if (w.phase == Phase::kCross) {
    task.likely.reset();
    for (const db::Hash& c : configs) {
      task.crossed[w.point].erase(c);
      task.cross_issued[w.point].erase(c);
    }
  }
  if (w.phase != Phase::kBaseline && w.phase != Phase::kSearch) return;
  SizeEvidence& here = task.search.sizes.at(w.point);
  for (const db::Hash& c : configs) here.ratios.erase(c);
  if (const auto anchor = std::ranges::find(configs, task.anchor); anchor != configs.end())
    here.ratios[*anchor] = anchor_ratio;
  double& best = task.best.at(w.point);
  best = 1;
  for (const auto& [config, ratio] : here.ratios)
    if (ratio) best = std::min(best, *ratio);
  task.gained.at(w.point) = std::max(task.gained.at(w.point), best);
}

void CampaignPlan::impossible(size_t task, size_t point) {
  tasks_.at(task).impossible.insert(point);
}

void CampaignPlan::learn(Task& task, const WantedCase& w, const CaseOutcome& outcome,
                         double default_ns) {
  const bool search = w.phase == Phase::kBaseline || w.phase == Phase::kSearch;
  if (w.phase == Phase::kBaseline) {
    task.default_ns = default_ns;
    task.phase = Phase::kSearch;
  }
  // With the baseline; a case of the search that comes before it, as anybody may have written one,
  // is learnt all the same.
  if (search && task.best.empty()) {
    task.best.assign(task.search.sizes.size(), 1);
    task.gained = task.best;
    for (SizeEvidence& size : task.search.sizes) size.ratios[w.anchors[0]] = 1.0;
  }
  Times ratios;
  for (const db::Hash& config : w.configs) {
    const auto found = outcome.times_ns.find(config);
    if (found == outcome.times_ns.end()) {
      const int times = ++task.unanswered[{w.point, config}];
      if (search) task.search.sizes.at(w.point).issued.erase(config);
      if (w.phase == Phase::kCross && times < kUnanswered) task.cross_issued[w.point].erase(config);
      if (times >= kUnanswered) {
        ratios[config] = std::nullopt;
        task.gave_up_on.insert({w.point, config});
      }
      continue;
    }
    ++task.trials;
    task.failed += !found->second;
    task.pruned += static_cast<int64_t>(outcome.pruned.count(config));
    ratios[config] = found->second ? std::optional(*found->second / default_ns) : std::nullopt;
  }
  for (size_t a = 0; a < w.anchors.size(); ++a)
    if (const auto found = outcome.times_ns.find(w.anchors[a]);
        found != outcome.times_ns.end() && found->second)
      ratios[w.anchors[a]] = *found->second / default_ns;
  if (search) {
    SizeEvidence& here = task.search.sizes.at(w.point);
    for (const db::Hash& config : w.configs) {
      const auto it = ratios.find(config);
      if (it == ratios.end()) continue;
      here.issued.erase(config);
      here.ratios[config] = it->second;
      // A trial is a configuration, at however many sizes.
      if (w.point > 0) continue;
      if (outcome.pruned.contains(config))
        ++task.pruned_in_row;
      else
        ++task.searched, ++task.stale, ++task.since_gain, task.pruned_in_row = 0;
    }
    // At further sizes the second anchor is no candidate, and is known by standing in their cases.
    std::vector<db::Hash> news = w.configs;
    if (w.point > 0 && task.anchor && ratios.contains(*task.anchor) &&
        here.ratios.emplace(*task.anchor, ratios.at(*task.anchor)).second)
      news.push_back(*task.anchor);
    for (const db::Hash& config : news)
      if (const auto it = ratios.find(config); it != ratios.end() && it->second)
        task.best[w.point] = std::min(task.best[w.point], *it->second);
    if (gains(best_of(w.task), ratio_of(w.task, task.gained))) {
      task.gained = task.best;
      task.stale = task.since_gain = 0;
    }
  }
  if (w.phase == Phase::kBaseline) {
    // The fastest of the first proposals: the less time an anchor takes of each case the better.
    for (const db::Hash& config : w.configs)
      if (const auto it = ratios.find(config);
          config != spec_.tasks[w.task].vendor && it != ratios.end() && it->second &&
          (!task.anchor || *it->second < *ratios[*task.anchor]))
        task.anchor = config;
    allot();
  }
  // What is compared at a size comes from several cases: of anchors the first time counts.
  if (w.phase == Phase::kCross) {
    task.crossed[w.point].insert(ratios.begin(), ratios.end());
    task.likely.reset();
  }
  if (w.phase != Phase::kVerify || task.judge != w.machine) return;
  task.verified[w.point] = ratios;
  if (task.verified.size() >= task.crossed.size()) finish_task(w.task);
}

void CampaignPlan::extend(double budget_s) {
  if (budget_s > spec_.budget_s) stopping_ = false;
  spec_.budget_s = std::max(spec_.budget_s, budget_s);
  allot();
}

bool CampaignPlan::done() const {
  const bool all = std::all_of(tasks_.begin(), tasks_.end(),
                               [](const Task& t) { return t.phase == Phase::kDone; });
  return all && open_.empty() && !next_slice();
}

std::vector<TaskStatus> CampaignPlan::tasks() const {
  std::vector<TaskStatus> out;
  for (const Task& t : tasks_)
    out.push_back({t.phase, t.share, t.allot_s, t.spent_s, t.trials, t.failed, t.searched,
                   std::min(1.0, best_of(out.size())), t.at_once, t.judge, t.result, t.note,
                   both_sides(out.size()), t.pruned});
  return out;
}

void FairShare::join(const db::Uuid& campaign, double weight) {
  if (used_.contains(campaign)) return;
  double least = HUGE_VAL;
  for (const auto& [uuid, u] : used_) least = std::min(least, u.virtual_s);
  used_[campaign] = {weight, std::isfinite(least) ? least : 0};
}

void FairShare::charge(const db::Uuid& campaign, double machine_s) {
  if (const auto it = used_.find(campaign); it != used_.end())
    it->second.virtual_s += machine_s / it->second.weight;
}

std::optional<db::Uuid> FairShare::next(const std::vector<db::Uuid>& wanting) const {
  const db::Uuid* best = nullptr;
  double least = HUGE_VAL;
  for (const db::Uuid& campaign : wanting)
    if (const auto it = used_.find(campaign); it != used_.end() && it->second.virtual_s < least)
      least = it->second.virtual_s, best = &it->first;
  if (!best) return std::nullopt;
  return *best;
}

}  // namespace nimble::tuner::plan
