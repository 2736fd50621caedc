// The phases of a task: when one is over, and what the next one wants.
#include <algorithm>
#include <tuple>

#include "tuner/service/plan.h"
#include "vm/base/error.h"
#include "vm/base/median.h"

namespace nimble::tuner::plan {
namespace {

constexpr double kSearchShare = 0.6;  // of a task's part of the budget
constexpr double kReserveShare = 0.01;
constexpr double kMostSlices = 4;  // that what is left over is shared by
constexpr size_t kFirst = 3;       // proposals beside the first default
constexpr size_t kLeastPerCase = 3;
// Results without a gain after which the other phases' turn comes.
constexpr int64_t kPatience = 96;
// Pruned candidates in a row after which a search is over. They cost the service their compiling,
// which no budget counts, and the workers next to nothing, so that the budget would not end it.
constexpr int64_t kBlindPatience = 1000;
constexpr double kUsable = 2;  // times the best: what is slower is rarely the best elsewhere
constexpr size_t kLeastCrossed = 3, kLeastSizes = 2;
constexpr size_t kLikelyFinalists = 6;  // the anchors among them

}  // namespace

// ---- parts of the budget --------------------------------------------------------------------

void CampaignPlan::allot() {
  // A task that has no time yet counts as if its work took what that of the others took.
  std::vector<double> rates, cost(tasks_.size(), 0);
  for (size_t t = 0; t < tasks_.size(); ++t)
    if (tasks_[t].default_ns)
      rates.push_back(*tasks_[t].default_ns / spec_.tasks[t].points[0].entry_s);
  if (rates.empty()) return;
  const double usual = median_of(rates);
  double total = 0;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    // Over all sizes: tasks are searched at different ones.
    const std::vector<PointSpec>& points = spec_.tasks[t].points;
    double weights = 0, entries = 0;
    for (const PointSpec& p : points) weights += p.weight, entries += p.weight * p.entry_s;
    const double entry_s = weights > 0 ? entries / weights : points[0].entry_s;
    const double rate = tasks_[t].default_ns ? *tasks_[t].default_ns / points[0].entry_s : usual;
    cost[t] = spec_.tasks[t].calls * rate * entry_s;
    total += cost[t];
  }
  std::vector<size_t> order(tasks_.size());
  for (size_t t = 0; t < order.size(); ++t) order[t] = t;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cost[a] > cost[b]; });
  const bool all_known = rates.size() == tasks_.size();
  // The hottest, as many as get enough for all phases.
  std::vector<size_t> hot;
  double covered = 0;
  for (size_t t : order) {
    tasks_[t].share = total > 0 ? cost[t] / total : 0;
    if (hot.empty() || covered < spec_.only_hot) hot.push_back(t);
    covered += tasks_[t].share;
  }
  const double budget = spec_.budget_s * (1 - kReserveShare);
  const auto part = [&](size_t t) {
    double sum = 0;
    for (size_t other : hot) sum += std::sqrt(tasks_[other].share);
    return sum > 0 ? budget * std::sqrt(tasks_[t].share) / sum : budget;
  };
  const auto least = [&](size_t t) {
    double sum = price_s(t, 0, kFirst + 1 + kLeastPerCase);
    for (size_t p = 0; p < std::min(kLeastSizes, spec_.tasks[t].points.size()); ++p)
      sum += price_s(t, p, kLeastCrossed + 2 + kLikelyFinalists);
    return sum;
  };
  if (all_known)
    while (hot.size() > 1 && part(hot.back()) < least(hot.back())) hot.pop_back();
  for (size_t t = 0; t < tasks_.size(); ++t) {
    Task& task = tasks_[t];
    const bool is_hot = std::find(hot.begin(), hot.end(), t) != hot.end();
    if (!is_hot && all_known && task.note.empty() && task.phase == Phase::kSearch &&
        task.searched <= static_cast<int64_t>(kFirst)) {
      task.note = "default schedule kept: not hot, or the budget is too small";
      task.phase = Phase::kDone;
    }
    if (task.slice > 0) continue;  // has had its part
    task.allot_s = is_hot ? part(t) : 0;
    task.search_allot_s = kSearchShare * task.allot_s;
    task.at_once = sizes_in_time(t);
  }
}

// What is left goes to the hottest again, as long as there is something to try and time to make a
// table of it.
std::optional<size_t> CampaignPlan::next_slice() const {
  if (stopping_) return std::nullopt;
  std::optional<size_t> next;
  double most = 0;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const Task& task = tasks_[t];
    if (task.phase != Phase::kDone || search_is_over(t) || !task.note.empty() || !task.default_ns)
      continue;
    const double weight = std::sqrt(task.share) / (1 + task.dry_slices);
    if (weight > most) most = weight, next = t;
  }
  if (!next) return std::nullopt;
  double finish = 0;
  for (size_t p = 0; p < spec_.tasks[*next].points.size(); ++p)
    finish += price_s(*next, p, kLeastCrossed + 2 + kLikelyFinalists);
  const double part = slice_s();
  if ((1 - kSearchShare) * part < finish ||
      kSearchShare * part < price_s(*next, 0, kLeastPerCase + 2))
    return std::nullopt;
  return next;
}

std::optional<WantedCase> CampaignPlan::another_slice(const Fleet& fleet) {
  // One that has nothing left to propose is passed over.
  while (const std::optional<size_t> next = next_slice()) {
    const Task before = tasks_[*next];
    enter_slice(*next);
    if (std::optional<WantedCase> first = search_case(*next, fleet)) return first;
    const bool exhausted = tasks_[*next].exhausted;
    tasks_[*next] = before;
    tasks_[*next].exhausted = exhausted;
    if (!exhausted) break;
  }
  return std::nullopt;
}

// As large a part as there are tasks that may want another, less what others were promised.
double CampaignPlan::slice_s() const {
  double able = 0, promised = 0;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    able += !search_is_over(t) && tasks_[t].note.empty();
    if (tasks_[t].phase != Phase::kDone)
      promised += std::max(0.0, tasks_[t].allot_s - tasks_[t].spent_s - open_s(t));
  }
  return (free_s() - promised) / std::clamp(able, 1.0, kMostSlices);
}

void CampaignPlan::enter_slice(size_t t) {
  Task& task = tasks_[t];
  const double part = slice_s();
  ++task.slice;
  task.stale = 0;
  task.allot_s = task.spent_s + part;
  task.search_allot_s = task.search_s + kSearchShare * part;
  task.at_once = std::max(task.at_once, sizes_in_time(t));
  task.best_before = best_of(t);
  task.phase = Phase::kSearch;
}

// Whether this slice's search has found nothing that an earlier one had not: there is nothing to
// evaluate then.
bool CampaignPlan::dry(size_t t) const {
  const Task& task = tasks_[t];
  return task.slice > 0 && !gains(best_of(t), task.best_before);
}

// ---- search ---------------------------------------------------------------------------------

double CampaignPlan::ratio_of(size_t t, const std::vector<double>& by_size) const {
  if (by_size.empty()) return HUGE_VAL;
  const size_t sizes = tasks_[t].at_once;
  return searched_ratio(std::span(by_size).first(sizes),
                        std::span(spec_.tasks[t].searched).first(sizes));
}

size_t CampaignPlan::sizes_in_time(size_t t) const {
  std::vector<double> candidate_s;
  for (size_t s = 0; s < tasks_[t].search.sizes.size(); ++s)
    candidate_s.push_back(price_s(t, s, 1));
  return shapes_in_time(tasks_[t].search_allot_s, candidate_s);
}

bool CampaignPlan::search_is_over(size_t t) const {
  const Task& task = tasks_[t];
  return task.exhausted || task.since_gain >= spec_.search_end.patience ||
         task.searched >= spec_.search_end.max_trials || task.pruned_in_row >= kBlindPatience;
}

bool CampaignPlan::wants_search(size_t t) const {
  const Task& task = tasks_[t];
  if (stopping_ || search_is_over(t) || task.stale >= kPatience) return false;
  double dearest = 0;
  for (size_t s = 0; s < task.at_once; ++s)
    dearest = std::max(dearest, price_s(t, s, kLeastPerCase + 2));
  const double used = task.search_s + open_s(t, Phase::kSearch);
  return used + dearest <= task.search_allot_s && free_s() > 0;
}

std::optional<WantedCase> CampaignPlan::further_case(size_t t, size_t least) const {
  const Task& task = tasks_[t];
  for (size_t s = 1; s < task.at_once; ++s) {
    if (task.impossible.contains(s)) continue;
    const SizeEvidence& here = task.search.sizes[s];
    std::vector<std::pair<double, db::Hash>> missing;
    for (const auto& [config, ratio] : task.search.sizes[0].ratios) {
      if (!ratio || config == task.anchor || here.ratios.contains(config) ||
          here.issued.contains(config))
        continue;
      missing.emplace_back(*ratio, config);
    }
    if (missing.size() < std::max<size_t>(1, least)) continue;
    std::sort(missing.begin(), missing.end());
    std::vector<db::Hash> configs;
    for (const auto& [ratio, config] : missing)
      if (configs.size() < spec_.per_case) configs.push_back(config);
    return make(t, s, std::move(configs));
  }
  return std::nullopt;
}

std::optional<WantedCase> CampaignPlan::search_case(size_t t, const Fleet& fleet) {
  if (!wants_search(t)) return std::nullopt;
  Task& task = tasks_[t];
  // Towards the end of a search cases get smaller: what is proposed late knows more.
  const double left = task.search_allot_s - task.search_s - open_s(t, Phase::kSearch);
  const double at_once = std::max(1.0, static_cast<double>(fleet.workers)) /
                         static_cast<double>(std::max<size_t>(1, tasks_.size()));
  double each = 0;
  for (size_t s = 0; s < task.at_once; ++s) each += price_s(t, s, 1);
  const double even = left / each / (4 * std::max(1.0, at_once));
  const size_t count =
      std::clamp(static_cast<size_t>(even), kLeastPerCase, std::max(kLeastPerCase, spec_.per_case));
  if (auto further = further_case(t, count)) return further;
  std::vector<db::Hash> configs = propose_(t, count, task.search);
  // What a machine lacked is asked of others alone, as long as nobody has a time for it.
  if (const std::optional<db::Hash>& vendor = spec_.tasks[t].vendor; vendor && task.absent_on) {
    const SizeEvidence& first = task.search.sizes[0];
    std::erase(configs, *vendor);
    if (others_may_have_it() && !first.ratios.contains(*vendor) && !first.issued.contains(*vendor))
      configs.push_back(*vendor);
  }
  if (configs.empty()) {
    if (auto further = further_case(t, 1)) return further;
    // What is out and comes back without an answer can be proposed again.
    task.exhausted = std::ranges::all_of(task.search.sizes,
                                         [](const SizeEvidence& s) { return s.issued.empty(); });
    return std::nullopt;
  }
  return make(t, 0, std::move(configs));
}

std::optional<WantedCase> CampaignPlan::next_of(size_t t, const Fleet& fleet) {
  switch (tasks_[t].phase) {
    case Phase::kBaseline: {
      for (const auto& [key, o] : open_)
        if (o.wanted.task == t) return std::nullopt;
      return make(t, 0, propose_(t, kFirst, tasks_[t].search));
    }
    case Phase::kSearch:
      return search_case(t, fleet);
    case Phase::kCross:
      return cross_case(t);
    case Phase::kVerify:
      return verify_case(t);
    case Phase::kDone:
      return std::nullopt;
  }
  return std::nullopt;
}

// ---- cross-evaluation -----------------------------------------------------------------------

// What a small budget drops: configurations, then sizes.
void CampaignPlan::enter_cross(size_t t) {
  Task& task = tasks_[t];
  const TaskSpec& spec = spec_.tasks[t];
  task.phase = Phase::kCross;
  // By the ratio over the best of its size, at the size where each does best.
  std::map<db::Hash, double> over_best;
  for (size_t s = 0; s < task.search.sizes.size(); ++s)
    for (const auto& [config, ratio] : task.search.sizes[s].ratios) {
      const double over = ratio ? *ratio / task.best[s] : HUGE_VAL;
      const auto [at, fresh] = over_best.emplace(config, over);
      // Wrong at one size is wrong.
      if (!ratio || !std::isfinite(at->second))
        at->second = HUGE_VAL;
      else if (!fresh)
        at->second = std::min(at->second, over);
    }
  std::vector<std::pair<double, db::Hash>> found;
  for (const auto& [config, over] : over_best)
    if (over <= kUsable && config != spec.default_config) found.emplace_back(over, config);
  std::stable_sort(found.begin(), found.end());
  const double left = task.allot_s - task.spent_s - open_s(t);
  size_t most = 0;
  for (task.sizes = spec.points.size(); task.sizes > 0; --task.sizes) {
    double fixed = 0, each = 0;
    for (size_t p = 0; p < task.sizes; ++p) {
      fixed += price_s(t, p, 2 + kLikelyFinalists);
      each += price_s(t, p, 1);
    }
    most = static_cast<size_t>(std::max(0.0, (left - fixed) / each));
    if (most >= kLeastCrossed || task.sizes <= kLeastSizes) break;
  }
  most = std::min(spec_.top_k, std::max(kLeastCrossed, most));
  // What was evaluated before stays: its times are there.
  std::vector<db::Hash> chosen;
  // The other side first, so that it runs beside the best of ours: who wins, and where, is told.
  if (spec.vendor)
    if (const auto at = over_best.find(*spec.vendor);
        at != over_best.end() && std::isfinite(at->second))
      chosen.push_back(*spec.vendor);
  const size_t theirs = chosen.size();
  const auto before = task.cross_issued.find(0);
  for (const auto& [ratio, config] : found)
    if (config != spec.vendor &&
        (chosen.size() < most + theirs ||
         (before != task.cross_issued.end() && before->second.contains(config))))
      chosen.push_back(config);
  task.chosen = std::move(chosen);
}

// A campaign that is told to stop compares what it has at a few sizes.
bool CampaignPlan::begins_size(size_t point) const {
  return !stopping_ || point < kLeastSizes;
}

bool CampaignPlan::wants_cross(size_t t) const {
  const Task& task = tasks_[t];
  for (size_t p = 0; p < task.sizes; ++p) {
    if (task.impossible.contains(p)) continue;
    const auto at = task.cross_issued.find(p);
    if (at == task.cross_issued.end()) {
      if (begins_size(p)) return true;
      continue;
    }
    for (const db::Hash& c : task.chosen)
      if (c != task.anchor && !at->second.contains(c)) return true;
  }
  return false;
}

std::optional<WantedCase> CampaignPlan::cross_case(size_t t) {
  Task& task = tasks_[t];
  for (size_t p = 0; p < task.sizes; ++p) {
    if (task.impossible.contains(p)) continue;
    const auto at = task.cross_issued.find(p);
    const bool begun = at != task.cross_issued.end();
    if (!begun && !begins_size(p)) continue;
    std::vector<db::Hash> configs;
    for (const db::Hash& c : task.chosen)
      if (configs.size() < spec_.per_case && c != task.anchor && !(begun && at->second.contains(c)))
        configs.push_back(c);
    // The second anchor is a candidate, too, and may be the only one.
    if (!configs.empty() || !begun) return make(t, p, std::move(configs));
  }
  return std::nullopt;
}

CrossEvidence CampaignPlan::complete(size_t t, const std::map<size_t, Times>& at) const {
  CrossEvidence out;
  const db::Hash& base = spec_.tasks[t].default_config;
  for (const auto& [p, times] : at)
    if (times.contains(base)) out.points.push_back(p);
  if (out.points.empty()) return out;
  for (const auto& [config, first] : at.at(out.points[0])) {
    std::vector<double> row;
    for (size_t p : out.points)
      if (const auto it = at.at(p).find(config); it != at.at(p).end() && it->second)
        row.push_back(*it->second);
    // Wrong at one size is wrong; not measured at one is not compared.
    if (row.size() == out.points.size()) out.ratios[config] = std::move(row);
  }
  return out;
}

std::vector<std::pair<size_t, db::BothSides>> CampaignPlan::both_sides(size_t t) const {
  std::vector<std::pair<size_t, db::BothSides>> out;
  const std::optional<db::Hash>& vendor = spec_.tasks[t].vendor;
  if (!vendor) return out;
  std::set<db::Hash> wrong;  // at one size is wrong
  for (const auto& [p, times] : tasks_[t].crossed)
    for (const auto& [config, ratio] : times)
      if (!ratio) wrong.insert(config);
  for (const auto& [p, times] : tasks_[t].crossed) {
    db::BothSides both;
    for (const auto& [config, ratio] : times) {
      if (config == *vendor) {
        both.vendor = ratio;
        both.vendor_failed = !ratio && !tasks_[t].gave_up_on.contains({p, config});
      } else if (ratio && !wrong.contains(config)) {
        both.ours = std::min(both.ours.value_or(HUGE_VAL), *ratio);
      }
    }
    out.emplace_back(p, std::move(both));
  }
  return out;
}

// ---- verification ---------------------------------------------------------------------------

// Whether the vendor's routine is among those that are verified, or would be now.
bool CampaignPlan::verifies_vendor(size_t t) {
  const std::optional<db::Hash>& vendor = spec_.tasks[t].vendor;
  if (!vendor) return false;
  const std::vector<db::Hash>& finalists =
      tasks_[t].phase == Phase::kVerify ? tasks_[t].finalists : finalists_of(t);
  return std::ranges::find(finalists, *vendor) != finalists.end();
}

// The machine that has least to verify; of several the fastest. Not one that lacks what a finalist
// needs, if there is another.
std::optional<db::Uuid> CampaignPlan::judge_among(size_t task, const Fleet& fleet) {
  const bool needs = verifies_vendor(task);
  std::map<db::Uuid, int> busy;
  for (const Task& t : tasks_)
    if (t.judge && t.phase == Phase::kVerify) ++busy[*t.judge];
  std::map<db::Uuid, double> slow;
  for (const MachineStatus& m : machines_.status()) slow[m.uuid] = m.slowness;
  std::optional<db::Uuid> out;
  std::tuple<bool, double, double> least{true, HUGE_VAL, HUGE_VAL};
  for (const db::Uuid& m : fleet.machines) {
    if (machines_.set_aside(m)) continue;
    const auto it = slow.find(m);
    const double slowness = it == slow.end() ? 1e3 : it->second;
    const std::tuple<bool, double, double> cost{needs && lacking_.contains(m),
                                                (busy[m] + 1) * slowness, slowness};
    if (cost < least) least = cost, out = m;
  }
  return out;
}

const std::vector<db::Hash>& CampaignPlan::finalists_of(size_t t) {
  std::optional<std::vector<db::Hash>>& likely = tasks_[t].likely;
  if (!likely) {
    likely = finalists_(t, complete(t, tasks_[t].crossed));
    std::erase(*likely, spec_.tasks[t].default_config);
  }
  return *likely;
}

void CampaignPlan::enter_verify(size_t t, const std::optional<db::Uuid>& judge,
                                const std::vector<db::Hash>* finalists) {
  Task& task = tasks_[t];
  if (task.phase != Phase::kVerify) {
    task.likely.reset();  // what would be displaced may be another by now
    task.finalists = finalists ? *finalists : finalists_of(t);
  }
  task.phase = Phase::kVerify;
  // Side by side, or not at all: another machine begins from the start.
  task.judge = judge;
  task.verify_issued.clear();
  task.verified.clear();
}

std::optional<WantedCase> CampaignPlan::verify_case(size_t t) {
  Task& task = tasks_[t];
  if (!task.judge) return std::nullopt;
  for (const auto& [p, times] : task.crossed) {
    if (task.verify_issued.contains(p)) continue;
    WantedCase w = make(t, p, task.finalists);
    w.machine = task.judge;
    w.avoid.reset();
    return w;
  }
  return std::nullopt;
}

void CampaignPlan::finish_task(size_t t) {
  Task& task = tasks_[t];
  task.phase = Phase::kDone;
  if (!task.verified.empty()) task.result = complete(t, task.verified);
  task.dry_slices = dry(t) ? task.dry_slices + 1 : 0;
}

// Every case of the cross-evaluation holds the default schedule, so that it needs no case more to
// be compared with itself.
CrossEvidence CampaignPlan::default_alone(size_t t) const {
  const db::Hash& base = spec_.tasks[t].default_config;
  CrossEvidence out = complete(t, tasks_[t].crossed);
  std::erase_if(out.ratios, [&](const auto& row) { return row.first != base; });
  return out;
}

void CampaignPlan::settle() {
  for (size_t t = 0; t < tasks_.size(); ++t) {
    Task& task = tasks_[t];
    if (task.phase != Phase::kSearch && task.phase != Phase::kCross) continue;
    if (open_s(t) > 0) continue;
    if (task.phase == Phase::kSearch && dry(t) && !wants_search(t)) finish_task(t);
    if (task.phase == Phase::kCross && !wants_cross(t) && finalists_of(t).empty()) {
      if (task.result.ratios.empty()) {
        task.note = "default schedule kept: nothing is faster";
        task.result = default_alone(t);
      }
      finish_task(t);
    }
  }
}

// A border is passed when the task's turn has come, and a case of the next phase goes out at once:
// so the case tells a plan made anew when that was.
void CampaignPlan::advance(size_t t, const Fleet& fleet) {
  Task& task = tasks_[t];
  if (task.phase == Phase::kBaseline && stopping_ && open_s(t) == 0) {
    task.note = "default schedule kept: stopped before it was measured";
    task.phase = Phase::kDone;
  }
  if (task.phase == Phase::kSearch && !dry(t) && !wants_search(t) &&
      !awaits(t, Phase::kSearch, fleet))
    enter_cross(t);
  if (task.phase == Phase::kCross && !wants_cross(t) && !awaits(t, Phase::kCross, fleet))
    if (const std::optional<db::Uuid> judge = judge_among(t, fleet)) enter_verify(t, judge);
  if (task.phase == Phase::kVerify &&
      (!fleet.machines.contains(*task.judge) || machines_.set_aside(*task.judge)))
    if (const std::optional<db::Uuid> judge = judge_among(t, fleet)) enter_verify(t, judge);
  // A judge that turns out to lack the vendor's library: another one, if it may have it.
  if (task.phase == Phase::kVerify && lacking_.contains(*task.judge) && verifies_vendor(t))
    if (const std::optional<db::Uuid> judge = judge_among(t, fleet);
        judge && !lacking_.contains(*judge))
      enter_verify(t, judge);
}

}  // namespace nimble::tuner::plan
