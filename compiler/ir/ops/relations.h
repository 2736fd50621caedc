// What the type relations of all families share. Private to compiler/ir.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"

namespace nimble::ir {

using Dims = std::vector<Dim>;

inline const Dims& dims(const RelationContext& c, size_t i) {
  return c.inputs[i]->dims;
}
inline int64_t rank(const RelationContext& c, size_t i) {
  return static_cast<int64_t>(c.inputs[i]->dims.size());
}
inline DType dtype(const RelationContext& c, size_t i) {
  return c.inputs[i]->dtype;
}

// Integer attributes and operands that select axes: negative ones count from the end.
int64_t normalize_axis(const RelationContext& c, int64_t axis, int64_t rank);
// Sorted, without repetition (an error).
std::vector<int64_t> normalize_axes(const RelationContext& c, std::vector<int64_t> axes,
                                    int64_t rank);

void require_rank(const RelationContext& c, size_t input, int64_t rank);
void require_rank_at_least(const RelationContext& c, size_t input, int64_t rank);
void require_float(const RelationContext& c, size_t input);
void require_number(const RelationContext& c, size_t input);  // anything but a bool
void require_same_dtype(const RelationContext& c);            // of all inputs
void require_dtype(const RelationContext& c, size_t input, DType t);
// An integer scalar: an index or a counter.
void require_index(const RelationContext& c, size_t input);

// The attribute `layout`; where `kind` is given, of that kind.
Layout layout_of(const RelationContext& c, std::optional<Layout::Kind> kind = {});

// What a product promises of its packed weights, operand 1, if it does (`max_weight`).
void require_max_weight(const RelationContext& c);

// numpy broadcasting. A symbol against a constant d > 1 gives d, with a check that the symbol
// is 1 or d; two different symbols give broadcast(n, m), whose evaluation is the check.
Dim broadcast_dims(RelationContext& c, const Dim& a, const Dim& b, const std::string& what);
Dims broadcast_shapes(RelationContext& c, const Dims& a, const Dims& b);

// Whether contents of this dtype are tracked.
bool tracks_contents(DType t);
// Nothing if unknown, else a copy.
std::optional<Dims> contents_of(const RelationContext& c, size_t input);
// The elements of an integer operand that decides extents, read at run time where they are not
// known; `role` for messages.
Dims extents_of(RelationContext& c, size_t input, const std::string& role);
// Demands 0 <= d, which may be an element that the run reads.
void require_not_negative(RelationContext& c, const Dim& d, const std::string& what);
// 1 where d < 0, else 0.
Dim is_negative(const Dim& d);
// Contents longer than this are forgotten.
inline constexpr size_t kMaxContents = 64;

#define NIMBLE_OP(name, min_args, max_args, fusion, shape_mode, relation, attrs, summary, ...) \
  RelationResult relate_##relation(RelationContext& c);
#include "compiler/ir/Ops.def"
#undef NIMBLE_OP

}  // namespace nimble::ir
