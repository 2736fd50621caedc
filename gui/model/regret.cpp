#include "gui/model/regret.h"

#include <algorithm>
#include <cmath>

namespace nimble::gui {
namespace {

std::optional<double> over(const Cell* cell, const Cell* best) {
  if (!cell || !best) return std::nullopt;
  return std::max(0.0, cell->result.median_ns / best->result.median_ns - 1);
}

}  // namespace

std::optional<double> RegretPoint::regret() const {
  return over(chosen, best);
}
std::optional<double> RegretPoint::standard_regret() const {
  return over(standard, best);
}

std::vector<RegretPoint> regret_of(const WorkloadFacts& f, const db::DispatchTable* table,
                                   Serving::Overrides overrides) {
  const Serving serving(f, table, overrides);
  std::vector<RegretPoint> points;
  for (size_t s = 0; s < f.shapes.size(); ++s) {
    RegretPoint p{s, serving.at(f.shapes[s].dims)};
    p.chosen = cell_of(f, p.served, s);
    p.side_by_side = p.chosen && p.chosen->result.role == db::Role::kVerify;
    for (size_t c = 0; c < f.configs.size(); ++c) {
      const Cell* cell = f.cell(c, s);
      if (!cell || (p.side_by_side && cell->result.role != db::Role::kVerify)) continue;
      if (!p.best || cell->result.median_ns < p.best->result.median_ns) p.best = cell;
      if (f.configs[c].is_default) p.standard = cell;
    }
    points.push_back(p);
  }
  return points;
}

RegretSummary summary_of(const std::vector<RegretPoint>& points) {
  RegretSummary sum;
  double logs = 0;
  for (const RegretPoint& p : points) {
    if (const auto regret = p.regret()) {
      sum.mean += *regret;
      if (*regret >= sum.worst) {
        sum.worst = *regret;
        sum.worst_shape = p.shape;
      }
      ++sum.shapes;
    }
    if (p.chosen && p.standard) {
      logs += std::log(p.standard->result.median_ns / p.chosen->result.median_ns);
      ++sum.compared;
    }
  }
  if (sum.shapes) sum.mean /= static_cast<double>(sum.shapes);
  if (sum.compared) sum.speed_up = std::exp(logs / static_cast<double>(sum.compared));
  return sum;
}

}  // namespace nimble::gui
