// How the template "dense" wants its weights.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/target.h"
#include "vm/base/dtype.h"

namespace nimble::kernels {

// The layout (compiler/ir/layout.h) in which a constant (k, n) matrix of a type should be packed
// for `t`, where the other operand has rows of a type, if nothing is said of rows_type(t, weights);
// narrow ones in groups of rows, bytes in pairs where i16 alone are multiplied (widened_bytes.h).
// `most`: the size that no weight exceeds; bytes that keep a fragment's bound (weight_bound) are
// multiplied as bytes there, too.
std::string dense_layout(const TargetInfo& t, DType rows, DType weights, int64_t n,
                         int64_t most = kir::kAnyWeight);
std::string dense_layout(const TargetInfo& t, DType weights, int64_t n);
// The same for the bytes of a product that rounds its rows (packed_groupwise_matmul): where no
// instruction takes bytes, in groups of two rows, which are multiplied as i16. Other products'
// bytes stay in groups of four where none takes pairs of i16 either (plain aarch64, portable): rows
// that come as bytes would have to be widened for pairs, which rounded rows need not be, for they
// are made in either type. `most` is that of bytes beside which full rows have sums as large as
// theirs (Groupwise::most_beside_bytes).
std::string groupwise_layout(const TargetInfo& t, int64_t n, int64_t most = kir::kAnyWeight);
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
