// Reading for programs that show: pages by key, in orders that have an index, so that a page costs
// the same wherever it lies and however much there is. Nothing here returns a whole table. Part of
// Store.
//
// A page begins behind (or ends before) a row's key, never at a number of rows: rows that come
// meanwhile shift nothing. landmarks() maps the numbers of a scroll bar to keys.
#pragma once

#include <limits>
#include <map>
#include <memory>

#include "db/store/canceller.h"
#include "db/store/queue.h"

namespace nimble::db {

enum class TrialOrder {
  kQueue,      // as enqueued; of one campaign only
  kFinished,   // by the time of day; those that are finished
  kTime,       // by median; those that have one
  kPredicted,  // by what the cost model foretold, where it did; of one campaign only
  kState,      // by the state's name; of one campaign only
};

// Where a row stands in its order. Made by the store; only compared for equality by others.
struct PageKey {
  int64_t integer = 0;  // position, or time of day
  double real = 0;      // median, or prediction
  Uuid uuid;
  std::string text = {};  // state
  friend bool operator==(const PageKey&, const PageKey&) = default;
};

// What is given must agree. Orders are served by an index for no filter, for `campaign`, and for
// `workload` with `hardware`; the others are looked at row by row within those.
struct TrialFilter {
  std::optional<Uuid> campaign;
  std::optional<Hash> workload, hardware;  // hardware: that it was measured on
  std::optional<Hash> shape, config;
  std::optional<Role> role;
  std::optional<TrialState> state;
  bool failed = false;  // wrong, crashed, timeout or compile_failed; served by an index of its own
  std::string error_class;  // empty: any
};

struct PageRequest {
  TrialFilter filter;
  TrialOrder order = TrialOrder::kFinished;
  bool descending = true;
  std::optional<PageKey> from;  // behind it; nothing: from the beginning
  bool backwards = false;       // the page before `from` instead (or the last one without); rows
                                // come in the order of the request all the same
  int64_t limit = 200;          // at most 10,000
};

struct TrialRow {
  Trial trial;
  Dims dims;
  std::string config_json, template_name;
  std::optional<double> median_ns;          // with which it was finished
  std::optional<Hash> measured_on;          // hardware
  int64_t created_at = 0, finished_at = 0;  // 0: not finished
  PageKey key;
};

struct Landmarks {
  int64_t rows = 0;
  int64_t step = 0;
  std::vector<PageKey> keys;  // of rows step, 2·step, … (counted from 1): a page `from` keys[i]
                              // begins with row (i+1)·step + 1
  bool more = false;          // the limit was reached: rows follow keys.back()
};

// A measurement without its samples, with the machine that took it.
struct MeasurementSummary {
  Measurement measurement;  // its samples and twins are empty
  int64_t n = 0;
  std::string hostname;
  Hash hardware;
  std::string code_hash;
  bool has_samples = true;  // false: retention removed them
};

struct CorrectnessRecord : Correctness {
  int64_t created_at = 0;
};

struct TwinRow {
  Uuid measurement, trial;
  double median_ns = 0, twin_median_ns = 0, ci_low_ns = 0, ci_high_ns = 0;
  int64_t created_at = 0;
};

struct DispatchChange {
  Uuid table;
  std::string status;  // "active" or "retired"
  std::string reason;
  int64_t created_at = 0;
};

// A workload on a kind of hardware.
struct WorkloadPlace {
  Hash workload, hardware;
  friend auto operator<=>(const WorkloadPlace&, const WorkloadPlace&) = default;
};

// A dispatch table at a glance, without its tree and entries.
struct TableSummary {
  Uuid uuid;
  WorkloadPlace of;
  Hash toolchain, policy;
  std::string policy_class;
  std::optional<Uuid> campaign;
  std::string command;  // of the campaign; empty without one
  bool active = false;
  int64_t version = 0, created_at = 0, entries = 0;
  std::optional<double> worst_regret;
  // Of its times over the default schedules', side by side, as compared last; of all shapes, and of
  // the worst one.
  std::optional<double> ratio, worst_ratio;
};

// The fastest time of a policy and code generator at a shape, with what it did.
struct BestResult {
  Result result;
  int64_t flops = 0, bytes = 0;
  Uuid machine;
};

// A time of a trial, with the session that it was taken in (its host state).
struct SessionTime {
  Uuid trial, host_state;
  double median_ns = 0;
};

// Records that people name by the beginning of their key.
enum class Kind {
  kCampaign,
  kTrial,
  kMeasurement,
  kTable,
  kMachine,
};
std::string_view name_of(Kind);  // "campaign"; for messages

class Reading {
 public:
  virtual ~Reading() = default;

  // Keys that begin so, in order, at most `limit`: a range of the primary key. None for what is no
  // beginning of one.
  virtual std::vector<std::string> find(Kind kind, const std::string& prefix,
                                        int64_t limit = 10) = 0;

  virtual std::shared_ptr<Canceller> canceller() = 0;

  // kInvalidArgument: an order that the filter has no index for (kQueue without a campaign), a
  // limit out of range.
  virtual std::vector<TrialRow> trials(const PageRequest&) = 0;
  // Reads an index once over all that the filter lets pass: for another thread than that of
  // windows, and to be cancelled. `step` rows lie between two keys.
  // Rows behind `from` alone, `limit` of them at most, a multiple of the step: who goes on counts
  // from the last key.
  virtual Landmarks landmarks(const TrialFilter&, TrialOrder, bool descending, int64_t step,
                              const std::optional<PageKey>& from = {},
                              int64_t limit = std::numeric_limits<int64_t>::max()) = 0;

  // The newest first.
  virtual std::vector<Campaign> campaigns(int64_t limit, const std::optional<Campaign>& after) = 0;
  // By canonical text, those that follow it.
  virtual std::vector<Workload> workloads(int64_t limit, const std::string& after) = 0;

  virtual std::optional<HostState> host_state(const Uuid&) = 0;
  // Of one trial, the newest first.
  virtual std::vector<MeasurementSummary> measurements(const Uuid& trial, int64_t limit = 100) = 0;
  virtual std::vector<CorrectnessRecord> correctness(const Hash& artifact,
                                                     const std::optional<Hash>& shape = {},
                                                     int64_t limit = 100) = 0;  // newest first
  // A/A pairs among the newest measurements of a workload on a kind of hardware, the newest first.
  virtual std::vector<TwinRow> twins(const Hash& workload, const Hash& hardware,
                                     int64_t limit = 1000) = 0;
  virtual std::vector<DispatchChange> history(const Hash& workload, const Hash& hardware,
                                              int64_t limit = 1000) = 0;  // newest first

  // What lists show of everything, one query each (sql_summaries.cpp).
  //
  // Of each workload on each kind of hardware that has a table the one that decides: of those that
  // are active the newest, else the newest. By workload and hardware, those that follow `after`.
  virtual std::vector<TableSummary> deciding_tables(int64_t limit,
                                                    const WorkloadPlace& after = {}) = 0;
  // Where anything was measured, by workload and hardware.
  virtual std::vector<WorkloadPlace> measured_places() = 0;
  // Shares of their model's time, 0…1, as the newest of so many campaigns that knows one.
  virtual std::map<WorkloadPlace, double> model_shares(int64_t campaigns = 1000) = 0;
  virtual std::map<WorkloadPlace, int64_t> override_counts() = 0;  // in force
  // By policy, the newest code generator first, then the fastest.
  virtual std::vector<BestResult> best_results(const WorkloadPlace& of) = 0;
  // Of at most 1,000 campaigns; of those that there are not, nothing.
  virtual std::map<Uuid, CampaignProgress> progress_of(const std::vector<Uuid>& campaigns) = 0;
  // The last request to each campaign that was ever asked anything.
  virtual std::map<Uuid, Control> last_requests() = 0;
  // What a campaign's search and its default schedules took of a workload, in the order measured.
  virtual std::vector<SessionTime> session_times(const Uuid& campaign, const Hash& workload,
                                                 int64_t limit = 100'000) = 0;
};

}  // namespace nimble::db
