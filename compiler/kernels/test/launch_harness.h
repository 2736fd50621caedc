// What tests of launches share: the places of threads, and how a launch ends in the emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir::testing {

inline const Dim thread = Dim::symbol("thread"), block_x = Dim::symbol("block_x");
inline const Dim warp = ir::floordiv(thread, kWarpLanes), lane = ir::mod(thread, kWarpLanes);

Condition ne(const Dim& a, const Dim& b);

enum class Launches { kOne, kAlsoOneAStep };

// "status 0", or the fault, of the first of several runs on the same memory: in each order of
// blocks and warps, and with kAlsoOneAStep in a launch for each step, too. Which threads an order
// shows a fault in differs; whether it does must not.
std::string outcome(const Function& f, const std::vector<std::span<std::byte>>& buffers,
                    const std::vector<int64_t>& symbols = {}, Launches launches = Launches::kOne);

}  // namespace nimble::kir::testing
