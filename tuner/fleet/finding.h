// What became of a candidate in a case, as the database has it: from what the worker says to the
// end of a trial. One rule for tuning on one machine and for a fleet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "db/store/store.h"
#include "tuner/measure/protocol.h"
#include "tuner/measure/statistics.h"
#include "vm/base/host_state.h"

namespace nimble::tuner {

// The error class of a trial whose end says nothing about its candidate.
inline constexpr char kNotItsFault[] = "environment";

// What a case's results are filed under.
struct CaseKeys {
  db::Hash policy, shape;
  double tolerance = 0;
  StopRule rule;
};

struct Finding {
  db::TrialState state = db::TrialState::kOk;
  std::string error_class, message;
  std::optional<db::Measurement> measurement;  // without trial, machine and host state
  std::optional<db::Correctness> correctness;  // of results that were compared
};

// Nothing for an entry whose turn never came.
std::optional<Finding> finding_of(const EntryResult& result, const db::Hash& artifact,
                                  const CaseKeys& keys);
// What the worker that was lost, or refused the entry, left for whoever looks into it; nothing if
// the entry did not fail. `command` reproduces it, or is empty.
std::optional<db::FailureLog> log_of(const EntryResult& result, const Finding& finding,
                                     const std::string& command);
// How much a case's first entry had changed at its end: the median of the later half of its samples
// over that of the earlier half, less one. All entries were timed in turn with it. Nothing if it
// was not measured long enough to tell.
std::optional<double> drift_of(const std::vector<EntryResult>& results);
db::HostState host_record(const HostReading& reading);

}  // namespace nimble::tuner
