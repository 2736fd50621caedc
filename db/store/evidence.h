// What lies behind the figures: generated code, failures with what the process said, what a machine
// can do at most, what other programs took, how often production saw a shape; and retention, which
// keeps all of it but the raw samples. Part of Store.
#pragma once

#include "db/store/queue.h"

namespace nimble::db {

struct GeneratedCode {
  std::string code_hash;
  std::string kind;  // "kernel-ir", "llvm-ir", "assembly", "cuda", …
  Digest digest;     // of its text, a blob
  int64_t created_at = 0;
};

// A ceiling of one machine, in operations or bytes a second.
struct Ceiling {
  Uuid uuid;
  Uuid machine;
  std::string dtype;  // empty where it makes no difference
  int64_t threads = 1;
  std::string kind;  // "compute", "memory", "L2", …
  double value = 0;
  int64_t created_at = 0;  // set by the store
};

// What a campaign's service found of a machine whose times it compared with those of its kind.
struct MachineVerdict {
  Uuid uuid, campaign, machine;
  int64_t cases = 0;  // that it was judged by
  double apart = 0;   // its anchors' ratio from the others', relative
  double noise = 0;   // how far the others are apart among themselves
  double slowness = 1;
  bool set_aside = false;  // the campaign asks it for nothing any more
  int64_t created_at = 0;  // set by the store
};

// What a program took, of peers and of nimble beside them. Only figures of one `run` are compared.
struct PeerFigure {
  Uuid uuid;
  Uuid run;
  std::string peer, version;
  std::string settings = "{}";  // JSON; canonicalised
  Uuid machine;
  std::string subject;  // a model, or a workload's canonical text
  Dims dims;
  std::string dtype;
  int64_t threads = 1;
  std::vector<double> samples_ns;  // may be missing where there is an interval
  double median_ns = 0;
  std::optional<double> ci_low_ns = {}, ci_high_ns = {};  // at 95 %; nothing: not told
  int64_t created_at = 0;                                 // when it was measured; 0: now
};

// Figures that were measured in one run.
struct PeerRun {
  Uuid run;
  std::string subject;
  Uuid machine;
  int64_t figures = 0;
  int64_t created_at = 0;
};

struct ShapeCount {
  Hash workload, hardware;
  Dims dims;
  int64_t count = 0;
};

struct MetShape : ShapeCount {
  bool has_table = false;    // a dispatch table of the workload on the hardware is active
  bool is_measured = false;  // some configuration of it was measured at the shape
};

// Of one workload on one kind of hardware: what production met and no active table serves.
struct Misses {
  Hash workload, hardware;
  int64_t shapes = 0, count = 0;
};

// A measurement by its age.
struct RetentionKey {
  int64_t created_at = 0;
  Uuid measurement;
};

struct RetentionRequest {
  int64_t older_than_ms = 0;  // of measurements, by the time of day they were stored
  std::string reason;         // kept with what goes
  bool dry_run = false;       // only count; but for measurements, up to the limit
  int64_t limit = 10'000;     // rows of one call, so that others are not kept waiting
  // Behind it alone: the report of the call before says from where. Nothing: the first call.
  std::optional<RetentionKey> from = {};
};

struct RetentionReport {
  int64_t samples = 0;  // measurements whose raw samples went
  int64_t blobs = 0;    // candidates of campaigns that ended, whose bytes went
  int64_t jobs = 0;     // that ended
  int64_t events = 0;   // of the feed
  // Old measurements that this call met and left whole: an active table, an override, … needs them.
  int64_t kept = 0;
  std::optional<RetentionKey> next = {};  // the last measurement that was looked at
  bool more = false;                      // a limit was reached: call again, from `next`
};

class Evidence {
 public:
  virtual ~Evidence() = default;

  // The first text of a code hash and kind stays.
  virtual void put(const GeneratedCode&) = 0;
  virtual std::vector<GeneratedCode> generated_code(const std::string& code_hash) = 0;  // by kind

  virtual Uuid add(const FailureLog&) = 0;
  virtual std::vector<FailureLog> failures(const Uuid& trial) = 0;  // the latest attempt first

  virtual Uuid add(const Ceiling&) = 0;  // one whose UUID is there already is the same
  // The newest of each (dtype, threads, kind).
  virtual std::vector<Ceiling> ceilings(const Uuid& machine) = 0;

  virtual Uuid add(const MachineVerdict&) = 0;
  // The newest of each machine, by its UUID.
  virtual std::vector<MachineVerdict> verdicts(const Uuid& campaign) = 0;
  // The newest of any campaign.
  virtual std::optional<MachineVerdict> verdict(const Uuid& machine) = 0;

  virtual Uuid add(const PeerFigure&) = 0;  // one whose UUID is there already is the same
  virtual std::vector<PeerFigure> peer_figures(const std::string& subject,
                                               int64_t limit = 1000) = 0;  // the newest first
  virtual std::vector<PeerRun> peer_runs(int64_t limit = 1000) = 0;        // the newest first
  virtual std::vector<PeerFigure> peer_run(const Uuid& run) = 0;

  // What one source (a recorded file, say) has counted so far. Counts of a source only grow, so
  // telling the same again changes nothing.
  virtual void tell_shapes(const Uuid& source, const std::vector<ShapeCount>&) = 0;
  // Of all sources together, the most frequent first; of one workload, or those that no active
  // table serves alone.
  virtual std::vector<MetShape> met_shapes(const std::optional<Hash>& workload = {},
                                           bool only_missed = false, int64_t limit = 1000) = 0;
  virtual std::vector<Misses> misses() = 0;  // a row for each workload and hardware that has any

  // Removes what is old and only explains: raw samples of measurements (median, interval, host
  // state and the rest stay), bytes of candidates, ended jobs, old events. Never the samples of
  // what a dispatch table that is active or a draft, its comparisons, an override or a baseline
  // rests on. What went does not come back with an import.
  virtual RetentionReport remove_old(const RetentionRequest&) = 0;
};

}  // namespace nimble::db
