#include "tuner/fleet/finding.h"

namespace nimble::tuner {
namespace {

db::TrialState state_of(EntryState s) {
  switch (s) {
    case EntryState::kOk:
      return db::TrialState::kOk;
    case EntryState::kWrong:
      return db::TrialState::kWrong;
    case EntryState::kTimeout:
      return db::TrialState::kTimeout;
    case EntryState::kCrashed:
    case EntryState::kFailed:
    case EntryState::kLost:
    case EntryState::kLate:
      return db::TrialState::kCrashed;
  }
  return db::TrialState::kCrashed;
}

std::string error_class_of(const EntryResult& r) {
  switch (r.state) {
    case EntryState::kOk:
      return "";
    case EntryState::kWrong:
      return "mismatch";
    case EntryState::kTimeout:
      return "hang";
    case EntryState::kCrashed:
      return r.message.starts_with("SIG") ? r.message : "crash";
    case EntryState::kFailed:
      return "refused";
    case EntryState::kLost:
    case EntryState::kLate:
      return kNotItsFault;
  }
  return "";
}

}  // namespace

std::optional<Finding> finding_of(const EntryResult& result, const db::Hash& artifact,
                                  const CaseKeys& keys) {
  if (result.state == EntryState::kLate) return std::nullopt;
  Finding out{state_of(result.state), error_class_of(result), result.message, {}, {}};
  if (result.state == EntryState::kOk) {
    const Summary s = summarise(result.samples_ns, keys.rule);
    db::Measurement m;
    m.artifact = artifact;
    m.policy = keys.policy;
    m.median_ns = s.median;
    m.mad_ns = s.mad;
    m.ci_low_ns = s.ci_low;
    m.ci_high_ns = s.ci_high;
    m.stop_reason = result.stop_reason;
    m.samples_ns = result.samples_ns;
    m.outliers = s.outliers;
    out.measurement = std::move(m);
  }
  if (result.state == EntryState::kOk || result.state == EntryState::kWrong)
    out.correctness = db::Correctness{"",
                                      artifact,
                                      keys.shape,
                                      result.max_error,
                                      keys.tolerance,
                                      result.state == EntryState::kOk};
  return out;
}

db::HostState host_record(const HostReading& r) {
  return {"", r.governor, r.turbo, r.smt, r.affinity, r.load, r.steal};
}

}  // namespace nimble::tuner
