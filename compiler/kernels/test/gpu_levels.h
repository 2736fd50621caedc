// The GPUs of the table of targets, for tests that ask the same of each: a new row is tested as
// those before it.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernels/targets.h"
#include "vm/base/gpu_target.h"

namespace nimble::kernels::testing {

// In the table's order.
inline std::vector<std::string> gpu_levels() {
  std::vector<std::string> out;
  for (const TargetRow& row : all_targets())
    if (row.info.is_gpu()) out.push_back(row.info.level);
  return out;
}

// Those whose code is a machine's, not assembly that a driver compiles.
inline std::vector<std::string> gpu_machine_levels() {
  std::vector<std::string> out;
  for (std::string& level : gpu_levels())
    if (!gpu_target(level)->assembly) out.push_back(std::move(level));
  return out;
}

}  // namespace nimble::kernels::testing
