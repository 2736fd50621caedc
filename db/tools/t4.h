// The T4 format of auto-tuning results (Open Autotuning Results Schema), which Kernel Tuner, KTT
// and the comparison of auto-tuners read: one JSON file for the trials of one search space.
//
// Of schema 1.1.0 (https://github.com/AutoTuningAssociation/autotuning_methodology,
// src/autotuning_methodology/schemas/T4.json), whose list of compute interfaces has no processor:
// that field is left out. All times are in nanoseconds. What nimble knows beyond the schema (shape,
// role, threads, identifiers, intervals) stands under "nimble" in each result.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "db/store/store.h"

namespace nimble::db {

struct T4Options {
  Uuid campaign;         // its beginning
  std::string workload;  // its hash, the hash's beginning, or part of its text
  std::string shape;     // "m=64"; empty: all shapes, each result says its own
};

// The finished trials of a campaign for one workload, in the order they were enqueued, each with
// every raw sample. Error(kNotFound, kInvalidArgument) if the options name none, or several.
nlohmann::ordered_json t4_of(Store&, const T4Options&);

// Adds the results of a T4 file, of any tuner, to a store without them: a finished campaign with a
// trial for each configuration, shape and role. `workload` names what was tuned; empty: the file
// says (nimble's do). Error(kInvalidArgument) names the result that is not of the schema, and
// nothing was added.
void import_t4(const std::string& file, const std::string& workload, Store& into);

}  // namespace nimble::db
