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

// What makes the code that is measured for a target. Of assembly the driver makes machine code,
// which another one may make otherwise, so that the record names it: `driver` as in GpuFacts; 0:
// nobody knows which.
db::Toolchain toolchain_on(const kernels::TargetInfo& target, int64_t driver);

// The target with what such hardware has of it: `level` of Targets.def, or "native", the one whose
// code serves the hardware best. Error(kUnsupported) if it is a GPU's and the hardware is none that
// runs its code, or the other way around.
kernels::TargetInfo target_on(const std::string& level, const db::Hardware& hardware);
// For whose GPUs a fleet's campaign is, of which nobody says: this machine's if it runs the
// target's code, else the database's only kind that does. Error(kInvalidArgument) if there are
// several, kNotFound if there is none.
db::Hardware gpu_of_fleet(db::Store& store, const kernels::TargetInfo& target);
// The driver that is to make machine code of a fleet's campaign: the newest one of the workers that
// are alive on such hardware, or else this machine's, if it has such a GPU. 0 where the code is no
// assembly, or the hardware stands for many GPUs, which come later. Error(kNotFound) if nobody can
// tell.
int64_t driver_of_fleet(db::Store& store, const kernels::TargetInfo& target,
                        const db::Hash& hardware);

}  // namespace nimble::tuner
