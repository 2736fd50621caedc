// A tuning campaign: all hot workloads of a model, within a budget, resumable.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/passes/precision.h"
#include "tuner/service/task_run.h"

namespace nimble::tuner {

struct CampaignOptions {
  std::string model, database;
  frontend::ImportOptions import;
  std::string target = "native";
  passes::Precision precision = {};
  int64_t winograd = 0;  // tiles of convolutions, as of passes::PassContext
  // A GPU's target: what is tuned are the kernels that a file for it leaves to the CPU, which are
  // not those of a file for the CPU alone. Empty: all that run on `target`.
  std::string beside;
  std::string trace;  // "file.tsv:column,column"
  std::vector<std::string> trace_symbols;
  std::map<std::string, int64_t> fixed;  // symbols with one value
  double budget_s = 300;
  size_t top_k = 100;
  double only_hot = 1;           // share of the model's time that is tuned
  std::vector<int64_t> threads;  // empty: all that may be used
  int64_t seed = 0;
  bool random_search = false;  // SearchOptions::random, and nothing of earlier campaigns goes first
  int64_t representative = 64;  // the size that the line of sizes has for sure
  // Shapes that each workload is searched at, at most: medoids of what it meets; 0: the
  // representative size alone.
  size_t search_shapes = kMostRepresentatives;
  SearchEnd search_end;
  int compile_threads = 2;
  bool quiet = false;
  std::string worker;      // program; empty: nimble-worker beside the program
  int64_t hang_ms = 4000;  // without progress for so long, a candidate hangs
  std::string command;     // for the record
  // A name of policy_class.h. Empty: what the model implies on a machine whose last cache holds so
  // many bytes.
  std::string policy_class;
  int64_t last_cache_bytes = 0;  // 0: what it is measured on has
  Policy policy;                 // how times are taken; its class is replaced
};

// What became of the budget, in one process of a campaign.
struct Spending {
  double wall_s = 0;                      // import included
  std::map<std::string, double> seconds;  // by activity (account.h); they sum to the wall time
  int64_t candidates = 0;                 // distinct ones that were compiled
  std::vector<double> told_errors;        // of the time left, at each third: ProgressMeter
  double working_share() const;           // of the wall time that compiles or times candidates
  double candidates_per_minute() const;
};

struct CampaignReport {
  db::Uuid campaign;
  std::vector<TaskReport> tasks;     // hottest first
  std::vector<std::string> skipped;  // workloads left out, with the reason
  size_t cpu_kernels = 0;            // of a GPU's campaign: those that it leaves to the CPU's
  double budget_s = 0, consumed_s = 0;
  Spending spending;
  bool interrupted = false;
  std::string ended;           // why it ended before its budget; empty: it did not
  bool nothing_to_do = false;  // it was finished before
  bool resumed = false;
};

// The rule by which a budget is spent, for --help.
extern const char kBudgetRule[];

// Runs or continues the campaign. `cancel` may be set at any time, from a signal handler too: what
// is known by then becomes dispatch tables and the report says `interrupted`.
CampaignReport run_campaign(const CampaignOptions& options, Backend& backend,
                            const std::atomic<bool>& cancel);

// "5m", "90s", "1.5h", "300" (seconds) → seconds. Error(kInvalidArgument).
double parse_duration(const std::string& text);
// "90%" or "0.9" → 0.9.
double parse_share(const std::string& text);

}  // namespace nimble::tuner
