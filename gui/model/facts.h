// What windows show of the database, as plain values: read in a worker thread, then never changed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "db/store/evidence.h"
#include "db/store/rank_correlations.h"
#include "db/store/reading.h"
#include "db/store/vendor_standing.h"
#include "gui/model/dispatch_tree.h"

namespace nimble::gui {

// ---- the whole database ------------------------------------------------------------------------

struct HardwareRow {
  db::Hash hash;
  db::Hardware hardware;
};

struct CampaignRow {
  db::Campaign campaign;
  db::CampaignProgress progress;
  std::optional<db::Control> request;  // the latest, answered or not
};

// A worker as it was heard of last.
struct MachineRow {
  db::LiveWorker worker;
  std::string hardware_name;
  std::optional<db::Campaign> campaign;       // of the job that it holds
  int64_t silent_ms = 0;                      // since its last sign of life
  std::optional<db::MachineVerdict> verdict;  // the latest of any campaign
};

// ---- what lies behind a figure ------------------------------------------------------------------

struct CodeText {
  std::string kind;  // "kernel-ir", "llvm-ir", "assembly", …
  std::string text;
};

// A trial of a search, and its time over the default schedule's where one session timed both:
// machines and hours differ, ratios within a session do not.
struct SearchedTrial {
  db::TrialOutcome outcome;
  std::optional<double> over_default;
};
struct SearchFacts {
  db::Uuid campaign;                  // empty: none measured the workload
  std::vector<SearchedTrial> trials;  // in the order queued, the default schedule's among them
  bool more = false;                  // there are others behind them
  // By shape, the median of what the default schedule took.
  std::map<std::string, double> default_ns;
  db::RankCorrelations ranked;  // how well its cost model ranked
  // The vendor's routine beside ours, in the cross-evaluation; nothing: not compared.
  std::optional<db::VendorStanding> vendor;
};

// A workload's best known time at a shape.
struct RooflinePoint {
  db::Hash workload;
  std::string op, dtype, shape;
  int64_t threads = 1, flops = 0, bytes = 0;
  db::Result result;
};
struct RooflineFacts {
  std::vector<RooflinePoint> points;  // those with known work
  std::string machine;                // whose ceilings they are: its name
  std::vector<db::Ceiling> ceilings;  // empty: never measured
};

// A workload on one kind of hardware: a line of the table of kernels. Whether a table's code is
// stale (docs/records.md) only a compiler can tell, which generates it anew.
enum class Standing {
  kNewest,         // of the active table: made by the newest toolchain that the database knows
  kOlderCompiler,  // by an older compiler: its code may be the same
  kOlderCodegen,   // by an older code generator of nimble: refused by the newest
  kDraft,          // tables exist, none is active
  kUntuned,        // measured, but no table
};
std::string_view name_of(Standing s);

struct WorkloadRow {
  db::Hash workload, hardware;
  db::Workload record;
  std::string hardware_name;
  Standing standing = Standing::kUntuned;
  std::optional<db::Uuid> table;  // as of deciding_table()
  int64_t version = 0;
  std::string policy_class;
  int64_t entries = 0, overrides = 0;
  std::optional<double> worst_regret;
  std::optional<double> speed_up;        // over the default schedules, side by side, weighted mean
  std::optional<double> worst_speed_up;  // of one shape
  int64_t created_at = 0;                // of the table
  std::optional<double> share;  // of its model's time, 0…1; of the newest campaign that knows it
  std::string command;          // of the campaign that made the table
};

// A workload on a kind of hardware, measured there or not.
struct CoverageRow {
  WorkloadRow row;
  bool measured = false;
  int64_t missed_shapes = 0, misses = 0;  // that runs saw without a table
};

struct Overview {
  std::string place;  // without a password
  db::Uuid identity;
  int64_t schema = 0;
  std::vector<HardwareRow> hardware;
  std::vector<WorkloadRow> workloads;
};

// ---- one workload on one kind of hardware
// --------------------------------------------------------

struct PolicyRow {
  db::Hash hash;
  db::MeasurePolicy policy;
};

struct ShapeFacts {
  std::string key;  // "s0=64"
  db::Dims dims;
  int64_t flops = 0, bytes = 0;
};

struct ConfigFacts {
  db::Hash hash;
  std::string template_name;
  int64_t template_version = 0;
  std::string json;
  bool is_default = false;  // measured in the role of the baseline, last of those that were
  bool is_vendor = false;
};

// The times that count at a shape and a configuration: those taken side by side (role verify)
// before those of the cross-evaluation, these before the search's. The heavier role counts.
int weight_of(db::Role role);
struct Cell {
  size_t config = 0, shape = 0;  // indices
  db::Result result;
};

struct WorkloadFacts {
  db::Hash workload, hardware;
  db::Workload record;
  db::Hardware machine;
  std::vector<PolicyRow> policies;
  db::Hash policy;  // the one that the times are of
  int64_t codegen_version = 0;
  std::vector<ShapeFacts> shapes;    // ascending by work
  std::vector<ConfigFacts> configs;  // best first: by the mean of log(time / best of the shape)
  std::vector<Cell> cells;
  std::vector<db::Result> results;        // every role's, fastest first
  std::vector<db::DispatchTable> tables;  // newest first
  std::map<db::Uuid, std::vector<db::Comparison>> comparisons;
  std::vector<db::Override> overrides;  // in force, the latest first
  // What other programs took for it, of the run that was recorded last: no other is compared.
  std::vector<db::PeerFigure> peers;
  std::vector<db::TwinRow> twins;  // A/A pairs timed in turn, of its measurements

  const Cell* cell(size_t config, size_t shape) const {
    const int64_t at = index_[config * shapes.size() + shape];
    return at < 0 ? nullptr : &cells[static_cast<size_t>(at)];
  }
  std::optional<size_t> config_index(const db::Hash& hash) const;
  std::optional<size_t> shape_index(const std::string& key) const;
  // The fastest of a shape.
  const Cell* best_at(size_t shape) const;
  // The table of that UUID, else the newest active one of the policy, else the deciding one.
  const db::DispatchTable* table(const db::Uuid& uuid) const;

  std::vector<int64_t> index_;  // config × shape → cell, -1: not measured
};

// That decides where nothing else is asked for: of the active ones the newest, else the newest
// (db::Reading::deciding_tables says the same of all). `tables`: the newest first. Nothing without
// any.
const db::DispatchTable* deciding_table(const std::vector<db::DispatchTable>& tables);

// Sets cells, shapes and configurations out of `results`. `work_of_shape`: flops and bytes by key,
// where they are known.
void arrange(WorkloadFacts& facts, std::vector<db::Result> results,
             const std::map<std::string, std::pair<int64_t, int64_t>>& work_of_shape);

// "dense · rows 8 · unroll 4", short enough for a label; all knobs in `config.json`.
std::string knobs_text(const ConfigFacts& config);
// "packed_matmul (s0) · 2 threads · 644137…".
std::string title_of(const WorkloadFacts& facts);

// What a kernel of an executable file was decided for.
struct KernelPlace {
  db::Hash workload, hardware, policy;  // policy: empty if only an override decided
  db::Uuid table;                       // empty: the database has not the one that decided
};

// ---- one measurement
// -----------------------------------------------------------------------------

struct MeasurementFacts {
  db::Measurement measurement;
  std::optional<db::Trial> trial;
  std::string config_text, shape;
  int64_t samples = 0;           // that were taken
  bool samples_removed = false;  // by retention; what is derived of them stays
  std::optional<db::HostState> host;
  std::string hostname;                            // of the machine; empty: unknown
  std::vector<db::CorrectnessRecord> correctness;  // of its code at its shape, the newest first
};
// "governor performance, turbo off, SMT on, CPUs 0-1, load 0.3, steal 0.0 %"; what is unknown is
// left out.
std::string text_of(const db::HostState& host);

}  // namespace nimble::gui
