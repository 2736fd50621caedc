// How the template "recurrent" wants its weights.
#pragma once

#include <string>

#include "compiler/kernels/target.h"
#include "vm/base/dtype.h"

namespace nimble::kernels {

// The layout in which a cell's recurrent weights should be packed for `t`.
std::string recurrent_layout(const TargetInfo& t, DType dtype);

}  // namespace nimble::kernels
