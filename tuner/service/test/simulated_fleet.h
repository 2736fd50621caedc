// A fleet of workers in virtual time, and workloads whose candidates have known times: what a plan
// is worth can be told without a machine.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tuner/service/plan.h"
#include "vm/base/hash.h"

namespace nimble::tuner::plan {

// The best on weighted average and the best at each size, at most six.
inline std::vector<db::Hash> usual_finalists(const TaskSpec& task, const CrossEvidence& e) {
  constexpr size_t kMostFinalists = 6;
  const auto best = [&](const std::function<double(const std::vector<double>&)>& cost) {
    const db::Hash* found = nullptr;
    double least = HUGE_VAL;
    for (const auto& [config, row] : e.ratios)
      if (const double x = cost(row); x < least) least = x, found = &config;
    return found;
  };
  std::vector<db::Hash> out;
  const auto add = [&](const db::Hash* config) {
    if (config && out.size() < kMostFinalists &&
        std::find(out.begin(), out.end(), *config) == out.end())
      out.push_back(*config);
  };
  add(best([&](const std::vector<double>& row) {
    double sum = 0;
    for (size_t i = 0; i < row.size(); ++i) sum += task.points[e.points[i]].weight * row[i];
    return sum;
  }));
  for (size_t i = 0; i < e.points.size(); ++i)
    add(best([&](const std::vector<double>& row) { return row[i]; }));
  return out;
}

inline CampaignPlan simulated_plan(const CampaignSpec& spec, Propose propose) {
  return {spec, std::move(propose), [spec](size_t task, const CrossEvidence& e) {
            return usual_finalists(spec.tasks[task], e);
          }};
}

// A space of kDims dimensions with kValues values each; "t/3.0.2.5.1". The time of a candidate is
// the default's times a smooth valley with some roughness; where it lies depends on task and point.
class SimulatedSpace {
 public:
  static constexpr int kDims = 5, kValues = 7;
  explicit SimulatedSpace(uint64_t seed) : seed_(seed) {}

  static std::string name(size_t task, const std::array<int, kDims>& at) {
    std::string out = std::to_string(task) + "/";
    for (int v : at) out += static_cast<char>('0' + v);
    return out;
  }
  static std::string default_of(size_t task) { return name(task, {0, 0, 0, 0, 0}); }

  // In ns; nothing: it fails.
  std::optional<double> time(size_t task, size_t point, const std::string& config) const {
    const std::string digits = config.substr(config.find('/') + 1);
    if (config != default_of(task) && unit(config) < 0.08) return std::nullopt;
    double cost = 0;
    for (int d = 0; d < kDims; ++d) {
      const double best = 1 + 5 * unit(task, 100 + static_cast<size_t>(d)) +
                          0.4 * static_cast<double>(point) * (unit(task, 200) - 0.5);
      const double away = (digits[static_cast<size_t>(d)] - '0') - best;
      cost += 0.03 * away * away;
    }
    cost += 0.1 * unit(config + std::to_string(point));
    return base_ns(task) * (1 + static_cast<double>(point)) * std::exp(cost - 1.2);
  }
  double base_ns(size_t task) const { return 2e4 * (1 + 9 * unit(task, 7)); }

  // Mutations of the best that is known, a fifth at random; of its arguments alone.
  Propose proposer() const {
    return [this](size_t task, size_t count, const SearchEvidence& known) {
      std::mt19937_64 random(seed_ + 7919 * task +
                             104729 *
                                 (known.sizes[0].ratios.size() + known.sizes[0].issued.size()));
      std::vector<std::pair<double, std::string>> elite;
      for (const auto& [config, ratio] : known.sizes[0].ratios)
        if (ratio) elite.emplace_back(*ratio, config);
      std::sort(elite.begin(), elite.end());
      if (elite.size() > 6) elite.resize(6);
      std::vector<std::string> out;
      std::set<std::string> seen;
      for (int tries = 0; out.size() < count && tries < 400; ++tries) {
        std::array<int, kDims> at;
        for (int& v : at) v = static_cast<int>(random() % kValues);
        if (!elite.empty() && random() % 5 != 0) {
          const std::string& from = elite[random() % elite.size()].second;
          for (size_t d = 0; d < kDims; ++d) {
            at[d] = from[from.find('/') + 1 + d] - '0';
            if (random() % 3 == 0)
              at[d] = std::clamp(at[d] + (random() % 2 ? 1 : -1), 0, kValues - 1);
          }
        }
        const std::string c = name(task, at);
        if (c == default_of(task) || known.sizes[0].ratios.contains(c) ||
            known.sizes[0].issued.contains(c))
          continue;
        if (seen.insert(c).second) out.push_back(c);
      }
      return out;
    };
  }

  CampaignSpec campaign(size_t tasks, size_t points, double budget_s) const {
    CampaignSpec spec;
    spec.budget_s = budget_s;
    spec.top_k = 24;
    spec.search_end = {1'000'000, 1'000'000};  // what is told is what a fleet makes of its time
    for (size_t t = 0; t < tasks; ++t) {
      TaskSpec task;
      task.label = "task " + std::to_string(t);
      task.default_config = default_of(t);
      for (size_t p = 0; p < points; ++p)
        task.points.push_back({1.0 / static_cast<double>(points), 0.05});
      spec.tasks.push_back(std::move(task));
    }
    return spec;
  }

 private:
  double unit(const std::string& what) const {
    return static_cast<double>(hash64(std::to_string(seed_) + what) >> 11) * 0x1p-53;
  }
  double unit(size_t a, size_t b) const {
    return unit(std::to_string(a) + "." + std::to_string(b));
  }
  uint64_t seed_;
};

struct SimulatedWorker {
  std::string machine;
  double slowness = 1;  // whatever it runs
  double bias = 1;      // of everything but the default schedule: it does not agree with the others
  double dies_at = HUGE_VAL;
  // State.
  std::string key;
  size_t campaign = 0;
  double until = 0, since = 0, busy = 0;
};

struct SimulatedCampaign {
  std::string uuid;
  CampaignPlan plan;
  const SimulatedSpace* space;
  double starts_at = 0, pause_from = HUGE_VAL, pause_until = HUGE_VAL;
  bool finished = false;
  double finished_at = 0;
  double consumed = 0;
  int64_t issued = 0, again = 0;
};

// Jobs in the queue, as the store hands them out: by priority, the oldest first, to workers in
// turn.
class SimulatedFleet {
 public:
  std::vector<SimulatedWorker> workers;
  std::vector<SimulatedCampaign> campaigns;
  double lease_s = 60;
  double noise = 0.01;
  // Whether a machine lacks what a configuration needs.
  std::function<bool(const SimulatedWorker&, const std::string&)> lacks;
  double disturbed = 0;  // share of cases in which the default schedule takes 30 times as long
  // Called before each plan is asked, with its number: a test may put a restarted one in its place.
  std::function<void(size_t)> before_want;
  std::function<void(size_t, const WantedCase&)> on_issue;
  std::function<void(size_t, const std::string&, const std::string&, double)> on_begin;
  std::function<void(size_t, const CaseOutcome&)> on_finish;
  std::function<void(size_t, const std::string&)> on_drop;
  double now = 0;

  // Until all campaigns are done, or `end_s`. False if it did not come to an end.
  bool run(double end_s = 1e7) {
    for (size_t c = 0; c < campaigns.size(); ++c) queue_.emplace_back();
    joined_.assign(campaigns.size(), false);
    while (now < end_s) {
      plan_all();
      claim_all();
      if (std::all_of(campaigns.begin(), campaigns.end(), [](const auto& c) { return c.finished; }))
        return true;
      double next = end_s;
      for (const SimulatedWorker& w : workers)
        if (!w.key.empty()) next = std::min(next, w.until);
      for (const SimulatedCampaign& c : campaigns)
        for (double at : {c.starts_at, c.pause_from, c.pause_until})
          if (at > now) next = std::min(next, at);
      // What straggles is noticed without anything happening.
      next = std::min(next, now + 0.5);
      now = next;
      for (SimulatedWorker& w : workers)
        if (!w.key.empty() && w.until <= now) finish(w);
    }
    return false;
  }

  bool paused(const SimulatedCampaign& c) const {
    return now < c.starts_at || (now >= c.pause_from && now < c.pause_until);
  }
  // Of the time from the first claim to the last report of all campaigns.
  double busy_share(double until) const {
    double sum = 0;
    for (const SimulatedWorker& w : workers)
      sum += w.busy + (w.key.empty() ? 0 : std::min(until, w.until) - w.since);
    return sum / (until * static_cast<double>(workers.size()));
  }
  double last_useful = 0;  // the end of the last case

 private:
  Fleet fleet() const {
    Fleet f;
    f.now_s = now;
    f.workers = 0;
    for (const SimulatedWorker& w : workers)
      if (now < w.dies_at) {
        ++f.workers;
        f.machines.insert(w.machine);
      }
    return f;
  }

  void plan_all() {
    std::vector<size_t> active;
    for (size_t c = 0; c < campaigns.size(); ++c)
      if (!paused(campaigns[c]) && !campaigns[c].finished) active.push_back(c);
    for (size_t c : active) {
      SimulatedCampaign& campaign = campaigns[c];
      if (!joined_[c]) fair_.join(campaign.uuid), joined_[c] = true;
      if (before_want) before_want(c);
      for (const std::string& key : campaign.plan.obsolete()) drop(c, key);
      for (WantedCase& w : campaign.plan.want(fleet())) {
        ++campaign.issued;
        campaign.again += !w.first.empty();
        if (on_issue) on_issue(c, w);
        wanted_[c][w.key] = w;
        queue_[c].push_back(w.key);
      }
      if (campaign.plan.done()) {
        campaign.finished = true;
        campaign.finished_at = now;
        fair_.leave(campaign.uuid);
      }
    }
    for (size_t c = 0; c < campaigns.size(); ++c)
      if (joined_[c] && paused(campaigns[c])) fair_.leave(campaigns[c].uuid), joined_[c] = false;
  }

  void drop(size_t c, const std::string& key) {
    std::erase(queue_[c], key);
    for (SimulatedWorker& w : workers)
      if (w.key == key && w.campaign == c) {
        w.busy += now - w.since;
        w.key.clear();
      }
    if (on_drop) on_drop(c, key);
    campaigns[c].plan.dropped(key);
  }

  std::optional<std::string> take(size_t c, const SimulatedWorker& worker) {
    auto best = queue_[c].end();
    for (auto it = queue_[c].begin(); it != queue_[c].end(); ++it) {
      const WantedCase& w = wanted_[c].at(*it);
      if ((w.machine && *w.machine != worker.machine) || w.avoid == worker.machine) continue;
      if (best == queue_[c].end() || w.priority > wanted_[c].at(*best).priority) best = it;
    }
    if (best == queue_[c].end()) return std::nullopt;
    std::string key = *best;
    queue_[c].erase(best);
    return key;
  }

  void claim_all() {
    for (size_t n = 0; n < workers.size(); ++n) {
      SimulatedWorker& worker = workers[n];
      if (!worker.key.empty() || now >= worker.dies_at) continue;
      std::vector<std::string> wanting;
      for (size_t c = 0; c < campaigns.size(); ++c)
        if (!queue_[c].empty() && !paused(campaigns[c])) wanting.push_back(campaigns[c].uuid);
      while (!wanting.empty()) {
        const std::string turn = fair_.next(wanting).value_or(wanting[0]);
        const size_t c = index_of(turn);
        if (const auto key = take(c, worker)) {
          begin(worker, c, *key);
          break;
        }
        std::erase(wanting, turn);
      }
    }
  }

  size_t index_of(const std::string& uuid) const {
    for (size_t c = 0; c < campaigns.size(); ++c)
      if (campaigns[c].uuid == uuid) return c;
    return 0;
  }

  void begin(SimulatedWorker& worker, size_t c, const std::string& key) {
    const WantedCase& w = wanted_[c].at(key);
    double s = 0.02;  // of a case by itself
    for (const auto* list : {&w.anchors, &w.configs})
      for (const std::string& config : *list)
        s += 0.01 + 30e-6 * 1e-3 * campaigns[c].space->time(w.task, w.point, config).value_or(1e5);
    worker.key = key;
    worker.campaign = c;
    worker.since = now;
    worker.until = now + s * worker.slowness;
    // Whoever dies holds its case until the lease is over.
    if (worker.until > worker.dies_at) worker.until = worker.dies_at + lease_s;
    fair_.charge(campaigns[c].uuid, s * worker.slowness);
    if (on_begin) on_begin(c, key, worker.machine, now);
    campaigns[c].plan.begun(key, worker.machine, now);
  }

  void finish(SimulatedWorker& worker) {
    const size_t c = worker.campaign;
    const std::string key = std::exchange(worker.key, "");
    if (worker.until > worker.dies_at) {
      queue_[c].push_back(key);
      return;
    }
    worker.busy += now - worker.since;
    last_useful = now;
    const WantedCase& w = wanted_[c].at(key);
    CaseOutcome out;
    out.key = key;
    out.machine = {worker.machine, "kind"};
    out.consumed_s = now - worker.since;
    campaigns[c].consumed += out.consumed_s;
    std::mt19937_64 random(hash64(key + worker.machine) + c);
    std::normal_distribution<double> spread(0, noise);
    const double drift = std::exp(5 * spread(random));  // the hour; the same for the whole case
    const bool disturbs =
        static_cast<double>(hash64("disturbed" + key) >> 11) * 0x1p-53 < disturbed;
    for (const auto* list : {&w.anchors, &w.configs})
      for (const std::string& config : *list) {
        if (lacks && lacks(worker, config)) {
          out.absent[config] = worker.machine;
          continue;
        }
        std::optional<double> ns = campaigns[c].space->time(w.task, w.point, config);
        if (ns && disturbs && config == SimulatedSpace::default_of(w.task)) *ns *= 30;
        if (ns)
          *ns *= worker.slowness * drift * std::exp(spread(random)) *
                 (config == SimulatedSpace::default_of(w.task) ? 1 : worker.bias);
        out.times_ns[config] = ns;
      }
    if (on_finish) on_finish(c, out);
    campaigns[c].plan.finished(out);
  }

  FairShare fair_;
  std::vector<bool> joined_;
  std::vector<std::vector<std::string>> queue_;
  std::map<size_t, std::map<std::string, WantedCase>> wanted_;
};

inline std::vector<SimulatedWorker> workers(size_t count, size_t slow = 0, double slowness = 10) {
  std::vector<SimulatedWorker> out;
  for (size_t i = 0; i < count; ++i) {
    SimulatedWorker w;
    w.machine = "machine " + std::to_string(i);
    if (i < slow) w.slowness = slowness;
    out.push_back(w);
  }
  return out;
}

// What the finalists are really worth: each task's best at each size, over the default's time;
// geometric mean.
inline double worth(const SimulatedSpace& space, const CampaignPlan& plan) {
  double sum = 0;
  int64_t n = 0;
  const std::vector<TaskStatus> tasks = plan.tasks();
  for (size_t t = 0; t < tasks.size(); ++t)
    for (size_t p = 0; p < plan.spec().tasks[t].points.size(); ++p) {
      const CrossEvidence& e = tasks[t].verified;
      const double base = *space.time(t, p, SimulatedSpace::default_of(t));
      double best = 1, least = HUGE_VAL;
      for (size_t i = 0; i < e.points.size(); ++i)
        if (e.points[i] == p)
          for (const auto& [config, row] : e.ratios)
            if (row[i] < least) least = row[i], best = *space.time(t, p, config) / base;
      sum += std::log(best);
      ++n;
    }
  return std::exp(sum / static_cast<double>(std::max<int64_t>(1, n)));
}

}  // namespace nimble::tuner::plan
