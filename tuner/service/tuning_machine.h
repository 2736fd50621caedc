// Where the candidates of a target run, and under whose name their measurements go into a database:
// this machine's CPU, or its GPU.
#pragma once

#include <string>

#include "compiler/kernels/target.h"
#include "db/store/records.h"

namespace nimble::tuner {

struct TuningMachine {
  kernels::TargetInfo target;
  db::Hardware hardware;
  db::Machine machine;
  db::Toolchain toolchain;  // that makes the code
};

// Error(kUnsupported) for a target whose code this machine cannot run, or cannot make.
TuningMachine tuning_machine(const std::string& target);

}  // namespace nimble::tuner
