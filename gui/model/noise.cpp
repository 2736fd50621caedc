#include "gui/model/noise.h"

#include <algorithm>
#include <cmath>

#include "vm/base/median.h"

namespace nimble::gui {
namespace {

// 0 of nothing.
double middle_of(std::vector<double> values) {
  return values.empty() ? 0 : median_of(std::move(values));
}

}  // namespace

std::vector<NoiseAtShape> noise_of(const WorkloadFacts& f) {
  struct Times {
    std::vector<double> halves;
    std::map<db::Hash, const db::Result*> first, second;  // cross-evaluation, side by side
  };
  std::map<std::string, Times> by_shape;
  for (const db::Result& r : f.results) {
    Times& t = by_shape[db::text_of(r.dims)];
    t.halves.push_back((r.ci_high_ns - r.ci_low_ns) / 2 / r.median_ns);
    if (r.role == db::Role::kCross) t.first[r.config] = &r;
    if (r.role == db::Role::kVerify) t.second[r.config] = &r;
  }
  std::map<db::Uuid, std::string> shape_of;  // of a measurement
  for (const db::Result& r : f.results) shape_of[r.measurement] = db::text_of(r.dims);
  std::map<std::string, std::vector<const db::TwinRow*>> twins;
  for (const db::TwinRow& t : f.twins)
    if (const auto it = shape_of.find(t.measurement); it != shape_of.end())
      twins[it->second].push_back(&t);
  std::vector<NoiseAtShape> all;
  for (size_t s = 0; s < f.shapes.size(); ++s) {
    NoiseAtShape n;
    n.shape = s;
    const Times& t = by_shape[f.shapes[s].key];
    n.measurements = static_cast<int64_t>(t.halves.size());
    n.half_interval = middle_of(t.halves);
    for (const auto& [config, first] : t.first) {
      const auto again = t.second.find(config);
      if (again == t.second.end()) continue;
      const db::Result* second = again->second;
      ++n.pairs;
      n.false_positives +=
          first->ci_low_ns > second->ci_high_ns || first->ci_high_ns < second->ci_low_ns;
      // Winners among those that both have timed.
      if (!n.first_winner || first->median_ns < n.first_winner->median_ns) n.first_winner = first;
      if (!n.second_winner || second->median_ns < n.second_winner->median_ns)
        n.second_winner = second;
    }
    std::vector<double> apart;
    for (const db::TwinRow* twin : twins[f.shapes[s].key]) {
      ++n.twins;
      n.twin_false_positives +=
          twin->twin_median_ns < twin->ci_low_ns || twin->twin_median_ns > twin->ci_high_ns;
      apart.push_back(std::abs(twin->twin_median_ns - twin->median_ns) / twin->median_ns);
    }
    n.twin_spread = middle_of(std::move(apart));
    if (n.pairs > 1)
      n.flip_cost = t.second.at(n.first_winner->config)->median_ns / n.second_winner->median_ns - 1;
    all.push_back(n);
  }
  return all;
}

NoiseSummary summary_of(const std::vector<NoiseAtShape>& shapes) {
  NoiseSummary sum;
  std::vector<double> halves;
  for (const NoiseAtShape& n : shapes) {
    if (n.measurements) halves.push_back(n.half_interval);
    sum.pairs += n.pairs;
    sum.false_positives += n.false_positives;
    sum.twins += n.twins;
    sum.twin_false_positives += n.twin_false_positives;
    if (!n.flip_cost) continue;
    ++sum.judged;
    sum.flips += *n.flip_cost > 0;
    sum.flip_cost += *n.flip_cost;
  }
  sum.half_interval = middle_of(std::move(halves));
  if (sum.judged) sum.flip_cost /= static_cast<double>(sum.judged);
  return sum;
}

}  // namespace nimble::gui
