#include "tuner/service/representatives.h"

#include <algorithm>
#include <cmath>

#include "tuner/dispatch/pool.h"

namespace nimble::tuner {
namespace {

double octaves(int64_t a, int64_t b) {
  const auto log_of = [](int64_t x) {
    return std::log2(static_cast<double>(std::max<int64_t>(1, x)));
  };
  return std::fabs(log_of(a) - log_of(b));
}

// Of the points that a choice may rest on: which they are, and their shares of the weight.
struct Shares {
  std::vector<size_t> points;
  std::vector<double> share;
};

Shares shares_of(const TuningTask& task) {
  Shares out;
  double mass = 0;
  for (size_t p = 0; p < task.points.size(); ++p) {
    if (task.points[p].held_out) continue;
    out.points.push_back(p);
    mass += task.points[p].weight;
  }
  for (const size_t p : out.points)
    out.share.push_back(mass > 0 ? task.points[p].weight / mass
                                 : 1 / static_cast<double>(out.points.size()));
  return out;
}

}  // namespace

double roofline_distance(const WorkloadPoint& a, const WorkloadPoint& b) {
  return (octaves(a.flops, b.flops) + octaves(a.bytes, b.bytes)) / 2;
}

double work_of(const WorkloadPoint& p) {
  return std::max(1.0, static_cast<double>(p.flops) + static_cast<double>(p.bytes));
}

double mean_work(const TuningTask& task) {
  const Shares all = shares_of(task);
  double sum = 0;
  for (size_t i = 0; i < all.points.size(); ++i)
    sum += all.share[i] * work_of(task.points[all.points[i]]);
  return std::max(1.0, sum);
}

void choose_representatives(TuningTask& task, size_t most) {
  const Shares all = shares_of(task);
  if (most == 0 || all.points.empty()) return;
  CostMatrix cost;
  for (const size_t medoid : all.points) {
    cost.emplace_back();
    for (size_t i = 0; i < all.points.size(); ++i)
      cost.back().push_back(all.share[i] *
                            roofline_distance(task.points[medoid], task.points[all.points[i]]));
  }
  std::vector<size_t> chosen = choose_pool(cost, 1);
  while (chosen.size() < most) {
    std::vector<size_t> more = choose_pool(cost, chosen.size() + 1);
    if (pool_cost(cost, chosen) - pool_cost(cost, more) < kWorthOctaves) break;
    chosen = std::move(more);
  }
  for (WorkloadPoint& p : task.points) p.representative = false;
  for (const size_t i : chosen) task.points[all.points[i]].representative = true;
}

std::vector<Representative> representatives_of(const TuningTask& task) {
  std::vector<size_t> marked;
  for (size_t p = 0; p < task.points.size(); ++p)
    if (task.points[p].representative) marked.push_back(p);
  if (marked.empty()) {
    const auto first = std::ranges::find_if(task.points, [](const auto& p) { return !p.held_out; });
    marked.push_back(first == task.points.end() ? 0
                                                : static_cast<size_t>(first - task.points.begin()));
  }
  return representatives_of(task, std::move(marked));
}

std::vector<Representative> representatives_of(const TuningTask& task, std::vector<size_t> among) {
  std::vector<Representative> out;
  for (const size_t p : among) out.push_back({p, 0});
  const Shares all = shares_of(task);
  for (size_t i = 0; i < all.points.size(); ++i) {
    const auto away = [&](const Representative& r) {
      return roofline_distance(task.points[r.point], task.points[all.points[i]]);
    };
    std::min_element(out.begin(), out.end(), [&](const auto& a, const auto& b) {
      return away(a) < away(b);
    })->share += all.share[i];
  }
  if (all.points.empty())
    for (Representative& r : out) r.share = 1 / static_cast<double>(out.size());
  if (out.size() == 1) out[0].share = 1;
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.share > b.share; });
  return out;
}

}  // namespace nimble::tuner
