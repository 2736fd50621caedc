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

}  // namespace nimble::kernels
