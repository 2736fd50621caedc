// What serves each shape costs over the best that was measured there.
//
// Times of different sessions are not compared where that can be helped: if the chosen
// configuration was timed side by side with others (role verify), the best is sought among those,
// else among all that the shape has.
#pragma once

#include <optional>
#include <vector>

#include "gui/model/serving.h"

namespace nimble::gui {

struct RegretPoint {
  size_t shape = 0;
  Served served;
  const Cell* chosen = nullptr;  // nothing: what serves was not measured here
  const Cell* best = nullptr;
  const Cell* standard = nullptr;  // the default schedule's
  bool side_by_side = false;
  std::optional<double> regret() const;           // chosen over best, less 1; never below 0
  std::optional<double> standard_regret() const;  // default schedule over best, less 1
};

// Pointers are into `facts`; `table` as of Serving, which throws.
std::vector<RegretPoint> regret_of(const WorkloadFacts& facts, const db::DispatchTable* table,
                                   Serving::Overrides overrides);

struct RegretSummary {
  size_t shapes = 0;  // that count: measured
  double mean = 0, worst = 0;
  size_t worst_shape = 0;
  double speed_up = 1;  // geometric mean of default over chosen, where both are known
  size_t compared = 0;
};
RegretSummary summary_of(const std::vector<RegretPoint>& points);

}  // namespace nimble::gui
