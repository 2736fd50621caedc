// Keys and names of the records of db/store/queue.h.
#include "db/store/queue.h"

#include "db/store/hash.h"
#include "db/store/named.h"

namespace nimble::db {
namespace {

constexpr Named<WorkerState> kWorkerStates[] = {{WorkerState::kIdle, "idle"},
                                                {WorkerState::kMeasuring, "measuring"},
                                                {WorkerState::kStopping, "stopping"},
                                                {WorkerState::kStopped, "stopped"}};
constexpr Named<JobState> kJobStates[] = {{JobState::kQueued, "queued"},
                                          {JobState::kClaimed, "claimed"},
                                          {JobState::kDone, "done"},
                                          {JobState::kSplit, "split"},
                                          {JobState::kCancelled, "cancelled"}};
constexpr Named<ReportOutcome> kReportOutcomes[] = {{ReportOutcome::kStored, "stored"},
                                                    {ReportOutcome::kDuplicate, "duplicate"},
                                                    {ReportOutcome::kLate, "late"}};
constexpr Named<ControlRequest> kControlRequests[] = {{ControlRequest::kPause, "pause"},
                                                      {ControlRequest::kResume, "resume"},
                                                      {ControlRequest::kStop, "stop"},
                                                      {ControlRequest::kCancel, "cancel"}};

}  // namespace

std::string_view name_of(WorkerState v) {
  return name_in(kWorkerStates, v);
}
std::string_view name_of(JobState v) {
  return name_in(kJobStates, v);
}
std::string_view name_of(ReportOutcome v) {
  return name_in(kReportOutcomes, v);
}
std::string_view name_of(ControlRequest v) {
  return name_in(kControlRequests, v);
}
std::optional<WorkerState> worker_state_from_name(std::string_view n) {
  return value_in(kWorkerStates, n);
}
std::optional<JobState> job_state_from_name(std::string_view n) {
  return value_in(kJobStates, n);
}
std::optional<ControlRequest> control_request_from_name(std::string_view n) {
  return value_in(kControlRequests, n);
}

Hash key_of(const MeasureCase& c) {
  return hash_of_fields("measure_case", {c.workload, c.shape, c.policy, std::to_string(c.seed),
                                         canonical_json(c.fills, "fills of a case"),
                                         fmt::format("{}", c.tolerance), c.expected.value_or("")});
}

Uuid uuid_of(const NewJob& job) {
  std::string trials;
  for (const NewJobTrial& t : job.trials)
    trials += fmt::format("{} {} {} {};", uuid_of(t.trial.key), t.artifact,
                          t.candidate.value_or("-"), t.anchor ? 1 : 0);
  return uuid_from_hash(
      hash_of_fields("job", {job.campaign, job.measure_case, job.hardware, job.machine.value_or(""),
                             canonical_json(job.limits, "limits of a job"), trials}));
}

Uuid uuid_of_task(const Uuid& campaign, const Hash& workload) {
  return uuid_from_hash(hash_of_fields("task", {campaign, workload}));
}

}  // namespace nimble::db
