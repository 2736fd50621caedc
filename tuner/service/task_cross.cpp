// The cross-evaluation and the verification of what it found.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tuner/measure/statistics.h"
#include "tuner/service/task_run.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

constexpr double kUnusable = HUGE_VAL;
constexpr double kLeastCrossed = 3;  // configurations, the default among them
// What the cross-evaluation leaves time to verify at each size: finalists, and the default against
// itself.
constexpr double kLikelyFinalists = 5;
// Of the time that is left at most, while the price is a guess; and the sizes that are evaluated
// first, whatever they cost.
constexpr double kMostVerifying = 0.5;
constexpr size_t kLeastSizes = 2;
// A table may rest on a part of the sizes that were evaluated, if there is no time to verify more:
// the sizes come in an order that spreads them.
constexpr double kLeastVerified = 0.5;

double distance(const WorkloadPoint& a, const WorkloadPoint& b) {
  double sum = 0;
  for (size_t i = 0; i < a.symbols.size(); ++i)
    sum += std::fabs(std::log2(static_cast<double>(a.symbols[i] + 1)) -
                     std::log2(static_cast<double>(b.symbols[i] + 1)));
  return sum;
}

}  // namespace

std::vector<size_t> TaskRun::spread_order() const {
  const std::vector<WorkloadPoint>& points = task_.points;
  std::vector<size_t> left, order;
  double mass = 0;
  for (size_t p = 0; p < points.size(); ++p) {
    if (points[p].held_out) continue;
    left.push_back(p);
    mass += points[p].weight;
  }
  const double even = 1 / static_cast<double>(std::max<size_t>(1, left.size()));
  while (!left.empty()) {
    const auto use = [&](size_t p) {
      // The search's own size is the first: what was found there is known to be of use there.
      double away = p == task_.representative() ? HUGE_VAL : 1;
      for (size_t i = 0; i < order.size(); ++i) {
        const double d = distance(points[p], points[order[i]]);
        away = i == 0 ? d : std::min(away, d);
      }
      return (even + (mass > 0 ? points[p].weight / mass : 0)) * away;
    };
    const auto next = std::max_element(left.begin(), left.end(),
                                       [&](size_t a, size_t b) { return use(a) < use(b); });
    order.push_back(*next);
    left.erase(next);
  }
  return order;
}

void TaskRun::cross(size_t top_k, double until_s) {
  until_s_ = until_s;
  crossed_ = true;
  // What an earlier round had no time for is in the queue again.
  context_.store.release(context_.campaign, context_.owner);
  struct Found {
    db::Hash config;
    double ns;
  };
  std::vector<Found> found;
  std::set<db::Hash> before;
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_)) {
    if (o.trial.key.role == db::Role::kCross && o.median_ns) before.insert(o.trial.key.config);
    if (o.trial.key.role == db::Role::kSearch && o.median_ns)
      found.push_back({o.trial.key.config, *o.median_ns});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.ns < b.ns; });
  // Configurations that an earlier process began with come first: their trials are half done.
  std::vector<db::Hash> chosen(before.begin(), before.end());
  for (const Found& f : found) {
    // Twice the best at this size is rarely the best elsewhere, and the table has six entries.
    if (chosen.size() >= top_k || f.ns > 2 * found[0].ns) break;
    if (std::find(chosen.begin(), chosen.end(), f.config) == chosen.end())
      chosen.push_back(f.config);
  }
  // What a resumed campaign has to compile again, its cache being lost: for half of the time at
  // most.
  const double compile_s =
      std::max(0.5, (until_s - context_.meter.consumed_s()) / 2) * context_.compile_threads;
  size_t missing = 0;
  std::erase_if(chosen, [&](const db::Hash& config) {
    return !built_.contains(config) && !restore(config) &&
           static_cast<double>(++missing) * ms_per_candidate_ > compile_s * 1000;
  });
  if (std::find(chosen.begin(), chosen.end(), default_config_) == chosen.end())
    chosen.push_back(default_config_);
  if (found.size() > 0)
    usable_ = static_cast<double>(chosen.size()) / static_cast<double>(found.size());
  finishing_ = {};
  size_t sizes = 0;
  const auto pace = [&] { return (sizes < kLeastSizes ? context_.finishing : finishing_).ratio(); };
  // What a small budget drops here: fewer k, the configurations of most regret so far going first;
  // then sizes. What was evaluated wants to be verified, or it cannot become active.
  double verifying = 0;  // the sizes so far, in s before the pace
  for (size_t i = 0; i < order_.size(); ++i) {
    const double all = until_s - context_.meter.consumed_s(), left = all / pace();
    const double least = case_s(order_[i], kLeastCrossed);
    const double verify_this = case_s(order_[i], kLikelyFinalists);
    if (sizes >= kLeastSizes && least + verifying + verify_this > left) continue;
    double fixed = verifying, per_config = 0;  // of all sizes that are due
    for (size_t j = i; j < order_.size(); ++j) {
      fixed += case_s(order_[j], 0) + case_s(order_[j], kLikelyFinalists);
      per_config += case_s(order_[j], 1) - case_s(order_[j], 0);
    }
    const auto affordable =
        static_cast<size_t>(std::max(kLeastCrossed, (left - fixed) / per_config));
    until_s_ = until_s - std::min(kMostVerifying * all, (verifying + verify_this) * pace());
    crossing_ = chosen.size();
    sizes_left_ = order_.size() - i;
    progressed();
    const double begin = context_.meter.consumed_s();
    expect_ahead(i);
    if (!possible(order_[i])) continue;
    if (chosen.size() > affordable) drop_worst(chosen, affordable);
    if (report_.k == 0) report_.k = chosen.size();
    context_.meter.phase(
        fmt::format("cross-evaluation of {}, size {} of {}", chosen.size(), i + 1, order_.size()));
    const auto trials = [&] {
      std::vector<db::NewTrial> out;
      for (const db::Hash& config : chosen)
        out.push_back(
            {key(config, order_[i], db::Role::kCross), 0, -static_cast<double>(i), std::nullopt});
      return out;
    };
    run(trials, db::Role::kCross);
    ++sizes;
    verifying += verify_this;
    const double spent = context_.meter.consumed_s() - begin;
    for (Pace* p : {&finishing_, &context_.finishing}) {
      p->expected += case_s(order_[i], static_cast<double>(chosen.size()));
      p->spent += spent;
    }
  }
  crossing_ = 0;
  if (!impossible_.empty())
    context_.meter.note(fmt::format("{}: {} of {} sizes cannot occur: {}", task_.label,
                                    impossible_.size(), order_.size(),
                                    impossible_.begin()->second));
}

void TaskRun::drop_worst(std::vector<db::Hash>& configs, size_t keep) {
  const Evidence e = evidence({db::Role::kCross});
  std::map<db::Hash, double> regret;  // not measured yet: 0, in the order of the search
  if (!e.configs.empty()) {
    const auto r = regrets(e.cross);
    for (size_t c = 0; c < e.configs.size(); ++c)
      for (size_t p = 0; p < r[c].size(); ++p) regret[e.configs[c]] += e.cross.weights[p] * r[c][p];
  }
  regret[default_config_] = -1;  // stays: it is what everything is compared with
  std::stable_sort(configs.begin(), configs.end(),
                   [&](const db::Hash& a, const db::Hash& b) { return regret[a] < regret[b]; });
  configs.resize(std::min(configs.size(), keep));
}

TaskRun::Evidence TaskRun::evidence(const std::set<db::Role>& roles) const {
  std::map<db::Hash, std::map<size_t, double>> times;
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_)) {
    if (!roles.contains(o.trial.key.role) || !db::is_final(o.trial.state)) continue;
    if (o.trial.error_class == kNotItsFault) continue;
    const auto it = point_of_.find(o.trial.key.shape);
    if (it == point_of_.end() || task_.points[it->second].held_out) continue;
    // A size that not all configurations had time for compares none.
    if (roles.contains(db::Role::kCross) && cut_.contains(it->second)) continue;
    // Later outcomes of a configuration at a size replace earlier ones.
    times[o.trial.key.config][it->second] =
        o.trial.state == db::TrialState::kOk && o.median_ns ? *o.median_ns : kUnusable;
  }
  return compared(times);
}

TaskRun::Evidence TaskRun::compared(
    const std::map<db::Hash, std::map<size_t, double>>& times) const {
  // Where the default was tried. Whoever was dropped on the way lacks the later of these sizes
  // and is out.
  Evidence out;
  const auto base = times.find(default_config_);
  for (size_t p = 0; p < task_.points.size(); ++p)
    if (base != times.end() && base->second.contains(p) && !task_.points[p].held_out)
      out.points.push_back(p);
  out.cross.symbols = task_.workload().contract.symbols;
  for (size_t p : out.points) {
    out.cross.shapes.push_back(task_.points[p].symbols);
    out.cross.weights.push_back(task_.points[p].weight);
  }
  for (const auto& [config, row] : times) {
    std::vector<double> line;
    for (size_t p : out.points) {
      const auto it = row.find(p);
      if (it == row.end()) break;
      line.push_back(it->second);
    }
    if (line.size() != out.points.size() || line.empty()) continue;
    // Wrong at one size is wrong: it is not used at any.
    if (std::any_of(line.begin(), line.end(), [](double x) { return !std::isfinite(x); })) continue;
    out.configs.push_back(config);
    out.cross.times.push_back(std::move(line));
  }
  return out;
}

std::map<size_t, double> TaskRun::fastest() const {
  std::map<size_t, double> out;
  for (const db::TrialOutcome& o : context_.store.outcomes(context_.campaign, workload_)) {
    const auto it = point_of_.find(o.trial.key.shape);
    if (it == point_of_.end() || o.trial.state != db::TrialState::kOk || !o.median_ns) continue;
    const auto [at, fresh] = out.emplace(it->second, *o.median_ns);
    if (!fresh) at->second = std::min(at->second, *o.median_ns);
  }
  // A verified time stands for its configuration, and may be more than what it had before.
  return out;
}

std::set<db::Hash> TaskRun::active_configs() const {
  db::NewDispatchTable slot;
  slot.workload = workload_;
  slot.hardware = context_.hardware;
  slot.toolchain = context_.toolchain;
  slot.policy = policy_;
  std::set<db::Hash> out;
  const std::optional<db::Uuid> active = context_.store.active_in_slot(slot);
  if (!active) return out;
  const db::DispatchTable t = *context_.store.table(*active);
  for (const db::DispatchEntry& e : t.entries) {
    // One that this program cannot build any more competes no longer.
    try {
      const auto& info = t.configs.at(e.config);
      if (space_.contains(candidate_of(info.template_name, info.json))) out.insert(e.config);
    } catch (const Error&) {
      continue;
    }
  }
  return out;
}

void TaskRun::verify(double until_s) {
  until_s_ = until_s;
  verified_.clear();
  const Evidence e = evidence({db::Role::kCross});
  if (e.configs.empty()) return;
  std::set<db::Hash> few = {default_config_};
  few.insert(e.configs[choose_single(e.cross).entries[0].configuration]);
  // What a new table would displace, in the same session: of an earlier campaign, perhaps.
  for (const db::Hash& config : active_configs()) few.insert(config);
  std::set<db::Hash> finalists = few;
  for (const TableEntry& t : choose(e.cross).entries) finalists.insert(e.configs[t.configuration]);
  // The default runs twice.
  const Pace& pace = finishing_.expected > 0 ? finishing_ : context_.finishing;
  const auto price = [&](size_t p) {
    return pace.ratio() * case_s(p, static_cast<double>(finalists.size() + 1));
  };
  double all = 0;
  for (size_t p : e.points) all += price(p);
  if (all > seconds_left()) finalists = few;  // better one configuration with evidence than none
  context_.meter.phase(fmt::format("verifying {} finalists", finalists.size()));
  // A size that not all finalists had time for compares none.
  size_t sizes = 0;
  verifying_ = task_.points.size();
  for (size_t p : order_) {
    if (std::find(e.points.begin(), e.points.end(), p) == e.points.end()) continue;
    if (seconds_left() < price(p)) continue;
    progressed();
    --verifying_;
    if (!verify_at(p, finalists)) {
      for (auto& [config, times] : verified_) times.erase(p);
      break;
    }
    ++sizes;
  }
  verifying_ = 0;
  if (static_cast<double>(sizes) < kLeastVerified * static_cast<double>(e.points.size())) {
    verified_.clear();
    context_.meter.note(fmt::format("{}: time to verify {} finalists at {} of {} sizes only",
                                    task_.label, finalists.size(), sizes, e.points.size()));
    return;
  }
  // Sizes that no choice saw: what the choice is worth there.
  for (size_t p = 0; p < task_.points.size(); ++p) {
    if (!task_.points[p].held_out || seconds_left() <= 0) continue;
    if (possible(p) && !verify_at(p, finalists))
      for (auto& [config, times] : verified_) times.erase(p);
  }
  // The baseline again, at the end: what drifted in between is not a candidate's merit.
  const auto& own = verified_.at(default_config_);
  if (const auto it = own.find(representative_); it != own.end() && opening_ns_ > 0)
    report_.drift = it->second / opening_ns_ - 1;
  std::vector<double> apart;
  for (double ratio : same_) apart.push_back(std::fabs(ratio - 1));
  if (!apart.empty()) report_.noise = median_of(apart);
}

// Finalists are compared with each other alone, so all of them run in one case, whatever was
// measured before: times of another session, or of a campaign that this one extends, are another
// hour's. False if there was no time for all.
bool TaskRun::verify_at(size_t point, const std::set<db::Hash>& finalists) {
  if (!possible(point)) return true;
  const std::string place = cache_key("verified", shapes_[point]);
  // A process that was killed since has measured just these side by side.
  if (const auto known = recall(place);
      known && known->at("finalists").get<std::set<db::Hash>>() == finalists) {
    for (const auto& [config, ns] : known->at("times").items())
      verified_[config][point] = ns.get<double>();
    return true;
  }
  std::vector<db::NewTrial> wanted;
  for (const db::Hash& config : finalists)
    wanted.push_back({key(config, point, db::Role::kVerify), 0, 0, std::nullopt});
  std::vector<db::Trial> trials;
  {
    const Account::Span storing(context_.account, Activity::kStore);
    context_.store.transaction([&] {
      context_.store.enqueue(wanted);
      db::ClaimRequest request{context_.campaign, context_.owner, kLeaseMs, 1 << 20};
      request.role = db::Role::kVerify;
      request.workload = workload_;
      context_.store.claim(request);
      for (const db::NewTrial& t : wanted) {
        std::optional<db::Trial> now = context_.store.trial(db::uuid_of(t.key));
        // Held by a process that died: whoever takes over has its time, the trial stays as it is.
        if (now) trials.push_back(std::move(*now));
      }
    });
  }
  compile(trials);  // what can be compiled no longer is out
  const bool paired = built_.contains(default_config_);
  const std::vector<EntryResult> results = measure(point, trials, paired);
  nlohmann::json times = nlohmann::json::object();
  bool whole = true;
  for (const db::Hash& config : finalists) verified_[config][point] = kUnusable;
  for (size_t i = 0; i < trials.size(); ++i) {
    const EntryResult& r = results[i];
    const db::Hash& config = trials[i].key.config;
    whole &= r.state != EntryState::kLate;
    const double ns = r.state == EntryState::kOk ? median_of(r.samples_ns) : kUnusable;
    verified_[config][point] = ns;
    if (std::isfinite(ns)) times[config] = ns;
    // The default competes with itself: how far its two medians lie apart is what a difference
    // must exceed to count.
    if (paired && config == default_config_ && r.state == EntryState::kOk &&
        results.back().state == EntryState::kOk)
      same_.push_back(median_of(results.back().samples_ns) / ns);
  }
  if (whole && times.size() == finalists.size())
    remember(place, {{"finalists", finalists}, {"times", times}});
  return whole;
}

}  // namespace nimble::tuner
