// How the template "dense" wants its weights.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/kernels/target.h"
#include "vm/base/dtype.h"

namespace nimble::kernels {

// The layout (compiler/ir/layout.h) in which a constant (k, n) matrix of a type should be packed
// for `t`; narrow ones in groups of rows.
std::string dense_layout(const TargetInfo& t, DType dtype, int64_t n);

}  // namespace nimble::kernels
