// The database as windows ask it. One Reader serves one thread at a time; every call may throw
// nimble::Error, Error(kCancelled) once `cancel` is asked.
//
// An interface, so that tests can put a database of ten million rows behind a window without having
// one, and so that what the store answers in pages replaces what is put together here.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "db/store/compare.h"
#include "gui/model/cancel.h"
#include "gui/model/explained.h"
#include "gui/model/facts.h"

namespace nimble::gui {

struct DatabasePlace {
  std::string place;  // a file or a URL
  bool read_only = false;
};

// Rows of a campaign's trials, of one workload, shape or configuration where given.
enum class TrialOrder { kQueue, kTime, kPredicted, kState };
struct TrialQuery {
  db::Uuid campaign;
  db::Hash workload, config;
  std::string shape;
  bool failed_only = false;
  std::string text;  // in the error, the configuration or the shape
  TrialOrder order = TrialOrder::kQueue;
  bool descending = false;
  bool operator==(const TrialQuery&) const = default;
};

// How many rows a query has.
struct TrialCount {
  int64_t rows = 0;  // that are numbered
  bool more = false;
};

// What the rows of one query are numbered by: keys of every so manieth row where an index serves
// its order, else the rows themselves. Complete once nothing follows.
struct TrialNumbers {
  std::mutex mutex;
  bool begun = false, complete = false;
  db::TrialOrder by = db::TrialOrder::kQueue;  // in which rows are read
  bool sorted = false;                         // they are put in order once all are read
  std::optional<db::Landmarks> landmarks;
  std::optional<db::PageKey> from;        // where a scan goes on
  std::vector<db::TrialOutcome> scanned;  // in order once complete, or unless `sorted`
};

class Reader {
 public:
  virtual ~Reader() = default;
  // Opens the database for reading alone; a file of an older schema is brought up to date first,
  // unless `place` is read-only. Errors as of Store::open.
  static std::unique_ptr<Reader> open(const DatabasePlace& place);

  virtual Overview overview(const Cancel& cancel) = 0;
  virtual std::vector<CampaignRow> campaigns(const Cancel& cancel) = 0;  // newest first
  // Every workload on every kind of hardware.
  virtual std::vector<CoverageRow> coverage(const Cancel& cancel) = 0;
  // With the policy asked for, else the one with an active table, else any. Nothing if the workload
  // is unknown or was never measured on that hardware.
  virtual std::optional<WorkloadFacts> workload(const db::Hash& workload, const db::Hash& hardware,
                                                const db::Hash& policy, const Cancel& cancel) = 0;
  // Counts on, for a tenth of a second or so. `numbers` is of this query from the beginning, and
  // may be used from several threads.
  virtual TrialCount number_trials(const TrialQuery& query, TrialNumbers& numbers,
                                   const Cancel& cancel) = 0;
  // Rows `first`, … of the query, as they are numbered; counts on if they are not yet.
  virtual std::vector<db::TrialOutcome> trials(const TrialQuery& query, TrialNumbers& numbers,
                                               int64_t first, int64_t count,
                                               const Cancel& cancel) = 0;
  // The same without numbers that are kept.
  int64_t trial_count(const TrialQuery& query, const Cancel& cancel);
  std::vector<db::TrialOutcome> trials(const TrialQuery& query, int64_t first, int64_t count,
                                       const Cancel& cancel);
  // A campaign's search on a workload, of at most `most` trials of any role. Without a campaign, of
  // the one that last measured the workload on that kind of hardware.
  virtual SearchFacts search(const db::Hash& workload, const db::Hash& hardware,
                             const db::Uuid& campaign, int64_t most, const Cancel& cancel) = 0;
  virtual std::optional<MeasurementFacts> measurement(const db::Uuid& uuid,
                                                      const Cancel& cancel) = 0;
  // What a kernel of an executable file was decided for: by its table, else by the measurement or
  // the override. Nothing if the database has none of these.
  virtual std::optional<KernelPlace> place_of(const ExplainedKernel& kernel,
                                              const Cancel& cancel) = 0;
  // Changes when windows may be out of date: cheap enough to be asked every few seconds.
  virtual std::string version(const Cancel& cancel) = 0;
  // Every workload's best known times on a kind of hardware, and what its machines can do at most.
  virtual RooflineFacts roofline(const db::Hash& hardware, const Cancel& cancel) = 0;
  // The texts of a code hash, by kind.
  virtual std::vector<CodeText> code(const std::string& code_hash, const Cancel& cancel) = 0;
  // What a trial's failed attempts left, the latest first.
  virtual std::vector<db::FailureLog> failures(const db::Uuid& trial, const Cancel& cancel) = 0;
  // Workers that were heard of within a day, by name.
  virtual std::vector<MachineRow> machines(const Cancel& cancel) = 0;
  // Of `b` against `a`, over what both have; differences below `smallest` (0.02: 2 %) are none.
  virtual db::CampaignDiff diff(const db::Uuid& a, const db::Uuid& b, double smallest,
                                const Cancel& cancel) = 0;
  // Ends what runs in this reader, from any thread, also when nothing does: the call then throws
  // Error(kCancelled). Nothing: it cannot be ended.
  virtual std::function<void()> stopper() { return {}; }
};

}  // namespace nimble::gui
