// A dot (kernel_ir.h) in other operations, for machines without an instruction for its fragment.
#pragma once

#include <cstdint>
#include <limits>

#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::kir {

// The bound of weights that nobody has looked at, or that keep none.
inline constexpr int64_t kAnyWeight = std::numeric_limits<int64_t>::max();

// Whether weights, elements of b, of which none exceeds `most` in size keep a row's bound.
inline bool keep_bound(const FragmentRow& row, int64_t most) {
  return row.within == 0 || most <= row.within;
}
// Whether a target has the row's own instruction, or its own few.
bool has_instruction(const FragmentRow& row, const kernels::TargetInfo& target);
// Whether it has others for the row (NIMBLE_FRAGMENT_OTHERWISE).
bool has_otherwise(const FragmentRow& row, const kernels::TargetInfo& target);
// Whether it has either.
bool multiplies(const FragmentRow& row, const kernels::TargetInfo& target);
// Whether weights for vectors of the target should be packed for the row; else elements are
// converted as they are loaded.
bool is_taken(const FragmentRow& row, const kernels::TargetInfo& target);

// What a kDot computes, in the order of its row, with a multiply-add for every factor. How far it
// may differ from the row stands in Fragments.def.
ValueRef expand_dot(const Value& dot);

}  // namespace nimble::kir
