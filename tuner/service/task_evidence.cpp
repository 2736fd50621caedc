// What a task knows of times: one for each configuration at each size, from trials that are
// finished.
#include <algorithm>

#include "tuner/service/task_run.h"

namespace nimble::tuner {

TableEvidence TaskRun::evidence(const std::set<db::Role>& roles) const {
  std::map<db::Hash, std::map<size_t, double>> times;
  for (const db::TrialOutcome& o : outcomes()) {
    if (!roles.contains(o.trial.key.role) || !db::is_final(o.trial.state)) continue;
    if (o.trial.error_class == kNotItsFault) continue;
    const std::optional<size_t> point = records_.point_of(o.trial.key.shape);
    if (!point || task_.points[*point].held_out) continue;
    // A size that not all configurations had time for compares none.
    if (roles.contains(db::Role::kCross) && cut_.contains(*point)) continue;
    // Later outcomes of a configuration at a size replace earlier ones.
    times[o.trial.key.config][*point] =
        o.trial.state == db::TrialState::kOk ? ns_of(o).value_or(kUnusable) : kUnusable;
  }
  return compared(times);
}

TableEvidence TaskRun::compared(const std::map<db::Hash, std::map<size_t, double>>& times) const {
  // Where the default was tried. Whoever was dropped on the way lacks the later of these sizes
  // and is out.
  TableEvidence out;
  const auto base = times.find(records_.default_config());
  for (size_t p = 0; p < task_.points.size(); ++p)
    if (base != times.end() && base->second.contains(p) && !task_.points[p].held_out)
      out.points.push_back(p);
  out.cross.symbols = task_.workload().contract.symbols;
  for (size_t p : out.points) {
    out.cross.shapes.push_back(task_.points[p].symbols);
    out.cross.weights.push_back(task_.points[p].weight);
    out.cross.exact.push_back(task_.points[p].exact);
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
  mark_exact_only(context_.store, out);
  return out;
}

std::map<size_t, double> TaskRun::fastest() const {
  const TableEvidence e = evidence({db::Role::kCross});
  std::map<size_t, double> out;
  const auto base =
      std::find(e.configs.begin(), e.configs.end(), records_.default_config()) - e.configs.begin();
  if (base == std::ssize(e.configs)) return out;
  for (size_t s = 0; s < e.points.size(); ++s)
    for (const auto& row : e.cross.times) {
      const double ratio = row[s] / e.cross.times[static_cast<size_t>(base)][s];
      const auto [at, fresh] = out.emplace(e.points[s], ratio);
      if (!fresh) at->second = std::min(at->second, ratio);
    }
  return out;
}

}  // namespace nimble::tuner
