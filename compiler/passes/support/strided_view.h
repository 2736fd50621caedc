// Values as strided views of what they are made of: transpositions, reshapes, slices and single
// indices move elements, so a chain of them is an offset and a stride for each axis.
#pragma once

#include <optional>
#include <vector>

#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

// Some elements of `source` in some order, times `scale`. Counted in the source's own order the
// first is element `offset`.
struct StridedView {
  struct Step {
    ir::Dim extent, stride;
  };
  ir::Atom source;
  // Of each axis the steps that it is counted through by, the slowest first: two where a reshape
  // has joined axes that do not lie in each other. None of extent 1.
  std::vector<std::vector<Step>> axes;
  ir::Dim offset = 0;
  double scale = 1;

  // An axis as one step, if it is one; an axis of extent 1 has stride 0.
  std::optional<Step> axis(size_t i) const;
};

// What `a` is a view of: first itself, then what it is made of, further and further back.
std::vector<StridedView> views_of(const Definitions& d, const ir::Atom& a);

// Takes factors off: x * c and x / c for one-element constants, repeatedly.
ir::Atom strip_factors(const Definitions& d, ir::Atom a, double* scale);

}  // namespace nimble::passes
