// Checks a memory plan: what lower-memory, update-in-place and plan-memory made of a module.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

struct PlanReport {
  std::vector<std::string> faults;  // "@f:%x (model.nir:3:7): P5: …"; empty: the plan is right
  int64_t proved_sizes = 0;         // tensors proved to fit their storage
  int64_t checked_sizes = 0;        // tensors that only the VM's check at run time can judge
};

// The rules P1 … P10 stand at the top of verify_plan.cpp. Shares no code with the planner. Works on
// lowered modules that plan-memory has seen, before or after lower-shapes.
PlanReport verify_plan(const ir::Module& m);

}  // namespace nimble::passes
