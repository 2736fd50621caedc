// Two versions of a dispatch table side by side: what each chooses at every measured shape, and how
// the times compare. A ratio has an interval from those of both medians; one that reaches over 1
// tells no difference.
#pragma once

#include <optional>
#include <vector>

#include "gui/model/facts.h"

namespace nimble::gui {

struct ComparedShape {
  size_t shape = 0;
  int64_t left_entry = 0, right_entry = 0;
  const Cell *left = nullptr, *right = nullptr;  // nothing: not measured there
  bool same_config = false;
  // Right over left: below 1, the right one is faster. Widest that both intervals allow.
  std::optional<double> ratio, low, high;
  bool differs() const { return ratio && !same_config && (*low > 1 || *high < 1); }
};

// Pointers are into `facts`. Throws Error(kCorrupt) for a tree that cannot be read.
std::vector<ComparedShape> compare(const WorkloadFacts& facts, const db::DispatchTable& left,
                                   const db::DispatchTable& right);

struct ComparisonSummary {
  size_t shapes = 0, changed = 0, faster = 0, slower = 0;
  double ratio = 1;  // geometric mean over the shapes that both have a time at
};
ComparisonSummary summary_of(const std::vector<ComparedShape>& shapes);

}  // namespace nimble::gui
