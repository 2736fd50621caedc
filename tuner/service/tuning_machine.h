// Where the candidates of a target run, and under whose name their measurements go into a database:
// this machine's CPU, or its GPU; or those of a fleet's machines, which this one need not be like.
#pragma once

#include <string>

#include "compiler/kernels/target.h"
#include "db/store/store.h"

namespace nimble::tuner {

struct TuningMachine {
  kernels::TargetInfo target;
  db::Hardware hardware;
  db::Machine machine;
  db::Toolchain toolchain;  // that makes the code
};

// Error(kUnsupported) for a target whose code this machine cannot run, or cannot make.
TuningMachine tuning_machine(const std::string& target);

// The target with what such hardware has of it: `level` of Targets.def, or "native", the one whose
// code serves the hardware best. Error(kUnsupported) if it is a GPU's and the hardware is none that
// runs its code, or the other way around.
kernels::TargetInfo target_on(const std::string& level, const db::Hardware& hardware);
// For whose GPUs a fleet's campaign is, of which nobody says: this machine's if it runs the
// target's code, else the database's only kind that does. Error(kInvalidArgument) if there are
// several, kNotFound if there is none.
db::Hardware gpu_of_fleet(db::Store& store, const kernels::TargetInfo& target);

}  // namespace nimble::tuner
