// The product of a warp's matrices, as Fragments.def says.
#pragma once

#include <array>

#include "compiler/kernels/interpreter_code.h"

namespace nimble::kir {

// Each lane's registers of an operand, one after the other.
using WarpLanes = std::array<std::array<Lane*, 8>, kWarpLanes>;

// sum += a b
void warp_product(const WarpFragmentRow& row, const WarpLanes& sum, const WarpLanes& a,
                  const WarpLanes& b);

}  // namespace nimble::kir
