// The kinds of an Event, each said once: whoever notes one and whoever waits for it name it by
// these. A new kind is a row here. `subject` is the key of what changed, `detail` an object of JSON
// with what each row tells.
#pragma once

namespace nimble::db::topic {

// state (a CampaignState), budget_s or cancelled_jobs
inline constexpr char kCampaign[] = "campaign";
inline constexpr char kTask[] = "task";            // phase, "" at first
inline constexpr char kJob[] = "job";              // state (a JobState); lost, if its lease ran out
inline constexpr char kReport[] = "report";        // its job, late, results: how many
inline constexpr char kTrial[] = "trial";          // state (a TrialState)
inline constexpr char kControl[] = "control";      // request, or accepted
inline constexpr char kWorker[] = "worker";        // state (a WorkerState), "registered" at first
inline constexpr char kDispatch[] = "dispatch";    // of a table: state (a TableStatus)
inline constexpr char kOverride[] = "override";    // state: "in force" or "withdrawn"
inline constexpr char kKey[] = "key";              // state: "revoked"
inline constexpr char kImport[] = "import";        // of the database of that identity: rows
inline constexpr char kRetention[] = "retention";  // of this database: samples, blobs

}  // namespace nimble::db::topic
