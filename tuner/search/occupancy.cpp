// The rules leave out what loses for any data and any size, and are measured by the default
// schedule: what is no worse than it in this respect is measured, so that a workload whose default
// spills, or fills little of a multiprocessor, keeps its space.
//
// Spills. Registers beyond a thread's share are stored to local memory and loaded again. Some
// schedules that do so win all the same: a few registers that are put away ahead of a loop, or once
// in a tile's step of hundreds of instructions, stay in the first cache and cost less than the
// larger tile saves. So a few are measured; what moves more does so in many places, and waits in
// its inner loop.
//
// Occupancy. Each of a multiprocessor's schedulers issues for warps of its own. With fewer warps
// than schedulers, because no further block finds registers or shared memory, some of them idle
// whatever the launch: a neighbour in the space with smaller tiles, fewer stages or more threads
// has the same work for all of them. From one warp for each on it is for measurements to say:
// products with few warps and large tiles are among the fastest.
#include "tuner/search/occupancy.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::tuner {
namespace {

// Of a multiprocessor of 8.0, 9.0 and 10.0. Others, which run the code of compute_80 or sm_80, have
// fewer threads and blocks (8.6: 1536 and 16): to the cost model a scale that all candidates share,
// to the rules a reason to leave out less.
constexpr int64_t kBlocks = 32, kRegisters = 65536, kSchedulers = 4;
// A warp gets registers in such portions.
constexpr int64_t kRegisterPortion = 256;
// Eight registers of 32 bits, stored once and loaded once.
constexpr int64_t kFewSpilled = 64;

int64_t warps_of(const GpuCode& code) {
  return (code.threads + kir::kWarpLanes - 1) / kir::kWarpLanes;
}

std::string block_text(const GpuCode& code) {
  return fmt::format("blocks of {} threads, each with {} registers, and {} bytes of shared memory",
                     code.threads, code.registers, code.shared_bytes);
}

}  // namespace

int64_t blocks_at_once(const GpuCode& code, const kernels::TargetInfo& target) {
  int64_t out = std::min(kBlocks, kMultiprocessorThreads / std::max<int64_t>(1, code.threads));
  if (code.shared_bytes > 0) out = std::min(out, target.shared_bytes / code.shared_bytes);
  if (code.registers > 0) {
    const int64_t portions = (code.registers * kir::kWarpLanes + kRegisterPortion - 1) /
                             kRegisterPortion * kRegisterPortion;
    out = std::min(out, kRegisters / (portions * std::max<int64_t>(1, warps_of(code))));
  }
  return out;
}

std::optional<std::string> why_not_measured(const GpuCode& code, const GpuCode& usual,
                                            const kernels::TargetInfo& target) {
  if (code.registers == 0 || usual.registers == 0) return std::nullopt;
  const int64_t blocks = blocks_at_once(code, target);
  if (blocks == 0) return fmt::format("not one of its {} fits a multiprocessor", block_text(code));
  if (code.spill_bytes > std::max(kFewSpilled, usual.spill_bytes))
    return fmt::format("its code spills {} bytes of registers, the default schedule's {}",
                       code.spill_bytes, usual.spill_bytes);
  const int64_t warps = blocks * warps_of(code);
  const int64_t least = std::min(kSchedulers, blocks_at_once(usual, target) * warps_of(usual));
  if (warps < least)
    return fmt::format("of its {} a multiprocessor holds {}: {} warps for {} schedulers",
                       block_text(code), blocks, warps, kSchedulers);
  return std::nullopt;
}

}  // namespace nimble::tuner
