// The data-flow part of the verifier: rules R5, R6, R7, R14, R15, R21 and R24. Internal to
// verifier.cpp.
#pragma once

#include <memory>
#include <vector>

#include "vm/executable/control_flow.h"
#include "vm/executable/effects.h"
#include "vm/executable/verifier.h"

namespace nimble::exec {

// Space for one function after another, in which those of a file share a budget of steps.
class FlowVerifier {
 public:
  FlowVerifier(const Executable& executable, StepBudget* budget);
  ~FlowVerifier();

  // Appends at most `limit` violations of `function`, whose instructions already keep the rules
  // that they can be checked against one by one.
  void check(const BytecodeFunction& function, size_t limit, std::vector<Violation>* found);

 private:
  class Flow;
  std::unique_ptr<Flow> flow_;
};

}  // namespace nimble::exec
