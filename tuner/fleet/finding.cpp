#include "tuner/fleet/finding.h"

#include <cmath>

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
    case EntryState::kUnavailable:
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
      // Without the worker's last words: few classes, not one for each text.
      return r.message.starts_with("SIG") ? r.message.substr(0, r.message.find(':')) : "crash";
    case EntryState::kFailed:
      return "refused";
    case EntryState::kLost:
    case EntryState::kLate:
      return kNotItsFault;
    case EntryState::kUnavailable:
      return db::kNotAvailable;
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
    if (result.runs_per_sample > 0) m.runs_per_sample = result.runs_per_sample;
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

std::optional<db::FailureLog> log_of(const EntryResult& result, const Finding& finding,
                                     const std::string& command) {
  if (finding.state == db::TrialState::kOk) return std::nullopt;
  db::FailureLog log;
  log.error_class = finding.error_class;
  log.message = finding.message;
  log.output = result.output;
  log.command = command;
  return log;
}

std::optional<double> drift_of(const std::vector<EntryResult>& results) {
  constexpr size_t kLeastSamples = 6;
  if (results.empty() || results[0].state != EntryState::kOk) return std::nullopt;
  const std::vector<double>& all = results[0].samples_ns;
  if (all.size() < kLeastSamples) return std::nullopt;
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  const double drift =
      median_of({all.end() - half, all.end()}) / median_of({all.begin(), all.begin() + half}) - 1;
  if (!std::isfinite(drift)) return std::nullopt;
  return drift;
}

db::HostState host_record(const HostReading& r) {
  return {"", r.governor, r.turbo, r.smt, r.affinity, r.load, r.steal};
}

}  // namespace nimble::tuner
