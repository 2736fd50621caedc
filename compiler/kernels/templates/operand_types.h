// The types in which products multiply their operands: which fragment (fragments.h) takes what, of
// which target, and so in which types and groups rows and packed weights should be.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/fragments.h"
#include "compiler/kernels/target.h"
#include "vm/base/dtype.h"

namespace nimble::kernels {

// The fragment that multiplies operands of these types into such sums, or the first one for a
// right-hand side; nothing if there is none.
std::optional<kir::Fragment> fragment_of(DType lhs, DType rhs, DType sum);
std::optional<kir::Fragment> fragment_of(DType rhs);
// The fragment that multiplies operands of these types in groups of so many rows into such sums: as
// they are, or in types that have each of their values. Nothing if there is none; floats in groups
// of one are converted instead (is_converted).
std::optional<kir::Fragment> fragment_of_groups(DType lhs, DType rhs, DType sum, int64_t group);
// The fragments that may multiply what one does, into the same sums: itself, those of its types
// with a bound that weights keep of which none exceeds `most` in size (kU8S7Quads), then those of
// wider types that have each value of its own (widened_bytes.h).
std::vector<kir::Fragment> fragments_for(kir::Fragment own, int64_t most = kir::kAnyWeight);
// The first of these that a target has instructions for; nothing if it has none.
std::optional<kir::Fragment> multiplying_fragment(const TargetInfo& t, kir::Fragment own,
                                                  int64_t most = kir::kAnyWeight);
// The fragment that weights of a type are packed for: that by which a target multiplies what the
// first one for them does. Without instructions for any, this first one, or nothing if the target
// does not take it (kir::is_taken): such weights, f16, are packed one by one and converted.
std::optional<kir::Fragment> packing_fragment(const TargetInfo& t, DType weights,
                                              int64_t most = kir::kAnyWeight);
// The fragment by which a target multiplies operands as they lie for `own`: one for whose bound
// `call` promises something of its weights (max_weight), where it is faster; else `own`. It is up
// to the target, so that a file for several levels has each multiply the same weights its way.
kir::Fragment fragment_of_call(const TargetInfo& t, kir::Fragment own, const ir::Expr& call);
// The same where no weight exceeds `most` in size.
kir::Fragment fragment_within(const TargetInfo& t, kir::Fragment own, int64_t most);
// In how many neighbours the right-hand side should be packed for vectors of a target.
int group_for(const TargetInfo& t, DType lhs, DType rhs, DType sum, int64_t most = kir::kAnyWeight);
// How many elements a fragment takes of a row at a time; 1 without one.
int group_of(std::optional<kir::Fragment> fragment);
// Whether without a fragment operands of a type are multiplied in that of the sums: it is theirs,
// or they are converted as they are loaded.
bool is_converted(DType operand, DType sum);
// The type in which products with a right-hand side of a type are summed.
DType sum_of(DType rhs);
// The fragment of matrix registers (kernel_ir.h, kTiles) of the target that multiplies operands
// of these types into such sums, or the first one for a right-hand side; nothing if there is none.
std::optional<kir::TileFragment> tile_fragment_of(const TargetInfo& t, DType lhs, DType rhs,
                                                  DType sum);
std::optional<kir::TileFragment> tile_fragment_of(const TargetInfo& t, DType rhs);
// The element type that rows should have for products with packed weights of a type: what the
// weights' fragment takes, else that of the sums, even of weights that are converted as they are
// loaded. A row's elements are loaded one by one, each as often as there are panels. So it is of
// f16 where the target has no instruction that multiplies them, or the weights are not in groups.
DType rows_type(const TargetInfo& t, DType weights, bool in_groups = true);
// The bound of the fragment by which a target multiplies rows of a type with weights of a type only
// because none of them exceeds `most` in size: what packed_matmul and packed_conv2d are to promise
// of them (max_weight). 0 if it takes any.
int64_t weight_bound(const TargetInfo& t, DType rows, DType weights, int64_t most);

}  // namespace nimble::kernels
