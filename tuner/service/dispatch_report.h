// What dispatch tables lose at shapes that nobody measured while they were made.
//
// At each such shape all known candidates run in one case: the configurations of the table, the
// best of earlier campaigns (a vendor's routine where one was among them) and the default schedule.
// The few that are fastest there run again, side by side with the table's and with the default
// twice, a fixed number of interleaved samples each. Three are then compared:
//
//   chosen   what the table's tree, or an override in force, sends the shape to
//   pool     the fastest of the table's configurations: chosen over pool is the tree's regret
//   oracle   the fastest of all: pool over oracle is the regret of the pool
//
// The fastest of many noisy medians is in part the luckiest, so every other sample says which is
// the fastest, and the samples between them say how fast each is. Such a regret may be negative.
// What two halves of the same schedule lie apart (the default against itself, chosen and timed the
// same way) is told beside it.
//
// Shapes come in a random order and workloads in turn: a report that its budget ends is of fewer
// shapes, not of others. Behind all of them comes, at those shapes that ask for it, a search from
// nothing (fresh_search.h): the best of it runs beside the others once more, and the shape's record
// is that of the second time.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "tuner/service/campaign.h"
#include "tuner/service/drawn_points.h"

namespace nimble::tuner {

struct DispatchReportOptions {
  // The model, the database, threads, target, policy, jobs, worker; its budget is the report's,
  // its top_k the candidates of earlier campaigns that run at every shape.
  CampaignOptions campaign;
  DrawOptions shapes;
  // Seconds that the first look at a shape may take, about: where running all candidates would take
  // longer, those that lose least elsewhere take part, and the table's. Others run a few times
  // more.
  double look_s = 60;
  size_t searches = 0;         // shapes of each workload at which a search from nothing is made
  size_t search_trials = 100;  // configurations of each
  // Where the report is kept while it is made, as JSON; one of the same question goes on from
  // there. Empty: nowhere.
  std::string file;
};

struct ShapeRegret {
  std::vector<int64_t> symbols;  // of the workload
  double chosen_ns = 0, pool_ns = 0, oracle_ns = 0, default_ns = 0;
  db::Hash chosen, pool, oracle;   // configurations
  size_t candidates = 0;           // that took part
  double noise = 0;                // of the default against itself, as a regret
  std::optional<double> foretold;  // the regret that the table claims where the shape falls
  // The regret before a search from nothing was made here; nothing: there was none.
  std::optional<double> unsearched;
  double tree_regret() const { return chosen_ns / pool_ns - 1; }
  double pool_regret() const { return pool_ns / oracle_ns - 1; }
  double regret() const { return chosen_ns / oracle_ns - 1; }
};

struct WorkloadRegret {
  db::Hash workload;
  std::string label;
  int64_t threads = 1;
  std::vector<std::string> symbols;
  db::Uuid table;  // empty: there is none, and the default schedule is what is chosen
  std::vector<db::Uuid> overrides;  // laid over it, the latest first
  size_t pool = 0, candidates = 0;
  std::vector<ShapeRegret> shapes;  // in the order measured
  // Of the shapes drawn: distinct for this workload, those that the database has times of already,
  // and those that cannot occur or at which something was wrong.
  size_t drawn = 0, known = 0, failed = 0;
  std::string note;  // why there are no shapes
};

struct DispatchReport {
  std::vector<WorkloadRegret> workloads;
  std::vector<std::string> skipped;
  double consumed_s = 0;  // in all processes that made it
  double searched_s = 0;  // of that, for searches from nothing
  bool interrupted = false, resumed = false;
  bool complete = true;  // false: the budget ended it
};

DispatchReport report_dispatch(const DispatchReportOptions& options, Backend& backend,
                               const std::atomic<bool>& cancel);

// Medians and the like over shapes; nothing for none.
struct RegretSummary {
  double median = 0, p95 = 0, worst = 0;
};
RegretSummary summary_of(const std::vector<ShapeRegret>& shapes, double (ShapeRegret::*of)() const);
RegretSummary summary_of(std::vector<double> values);

// The report as a file keeps it, and of it what a process goes on from. Error naming `place`:
// kCorrupt for what is none, kInvalidArgument for one of another question.
std::string text_of(const DispatchReport& report, const std::string& question);
DispatchReport report_from_text(const std::string& text, const std::string& question,
                                const std::string& place);

}  // namespace nimble::tuner
