// The tuning database as the tuner, the compiler and the tools see it.
//
// Every call that writes is one transaction, durable when it returns (write-ahead log, synchronous
// FULL; but see OpenOptions::durable): a process killed at any moment leaves either all of a call
// or nothing of it. Group calls with transaction(). Every call may throw nimble::Error:
// kInvalidArgument for a record that the schema refuses (a time that is zero, negative or NaN; an
// unknown key) or that the server's role may not do, kExhausted for a full disk or a database that
// stays locked, kIo, kCorrupt.
//
// One Store serves one thread at a time; open one per thread or process.
#pragma once

#include <functional>
#include <memory>

#include "db/store/evidence.h"
#include "db/store/measured.h"
#include "db/store/queue.h"
#include "db/store/reading.h"
#include "db/store/signing.h"

namespace nimble::db {

struct OpenOptions {
  bool create = true;      // make the file if it is missing (never the folder)
  bool read_only = false;  // no migration, no writes
  // Bring a server's database of an older schema up to date. Programs older than that refuse it
  // afterwards, so somebody decides it; a file of one's own is brought up to date in any case.
  bool migrate_shared = false;
  // Whether each call waits for the disk. Without, the next call of a connection that does takes
  // along all that was written before it, whoever wrote: they share one log. Until then a power
  // failure loses the last calls, each as a whole; a kill loses nothing.
  bool durable = true;
  int busy_timeout_ms = 10'000;
  std::function<int64_t()> clock_ms;  // the time of day; the system's by default (tests set it)
  // What passes though the time of day is set; the system's by default. A `clock_ms` without this
  // never jumps.
  std::function<int64_t()> elapsed_ms;
  std::string vfs;  // SQLite VFS to use; the default one when empty
};

class Store : public Queue, public Evidence, public Reading {
 public:
  using Evidence::add;
  using Evidence::put;
  using Queue::add;
  using Queue::put;

  // Opens the database at `place`: the path of a SQLite file, which is brought up to date unless
  // read-only, or the URL of one on a PostgreSQL server (db/store/place.h), of which see
  // OpenOptions::migrate_shared. Errors: kNotFound (folder, or file without `create`), kIo
  // (read-only file or folder, another failure of the file system), kUnsupported (network file
  // system), kExhausted (disk full, locked too long), kCorrupt (damaged, no database),
  // kInvalidArgument (a folder, another program's database), kIncompatible (newer schema, changed
  // migration; an older schema on a server), kUnsupported (a URL, and this program was built
  // without PostgreSQL).
  static std::unique_ptr<Store> open(const std::string& place, const OpenOptions& options = {});
  virtual const std::string& path() const = 0;  // or the URL, without passwords
  virtual const Uuid& identity() const = 0;
  virtual int64_t schema_version() const = 0;

  // Runs `body` as one transaction; rolls back if it throws. Calls may nest: the outermost counts.
  virtual void transaction(const std::function<void()>& body) = 0;

  // ---- dimensions: written if missing; the key is returned either way --------------------
  virtual Hash put(const Hardware&) = 0;
  virtual Uuid put(const Machine&) = 0;
  virtual Uuid put(const HostState&) = 0;
  virtual Hash put(const Toolchain&) = 0;
  virtual Hash put(const Template&) = 0;
  virtual Hash put(const Workload&) = 0;
  virtual Hash put(const Shape&) = 0;
  virtual Hash put(const Config&) = 0;
  virtual Hash put(const Artifact&) = 0;
  virtual Hash put(const MeasurePolicy&) = 0;
  virtual std::optional<Workload> workload(const Hash&) = 0;
  virtual std::optional<Hardware> hardware(const Hash&) = 0;
  virtual std::optional<Shape> shape(const Hash&) = 0;
  virtual std::optional<ConfigInfo> config(const Hash&) = 0;
  virtual std::vector<int64_t> thread_counts() = 0;  // of the workloads, ascending
  // Of which there are few.
  virtual std::vector<Hardware> hardware() = 0;
  virtual std::vector<Toolchain> toolchains() = 0;

  // ---- campaigns ---------------------------------------------------------------------------
  virtual Uuid create_campaign(const CampaignKey&, double budget_s, const std::string& command) = 0;
  // The newest campaign of a key, or a new one if there is none: of two processes that ask at once
  // one makes it.
  struct OpenedCampaign {
    Campaign campaign;
    bool is_new = false;
  };
  virtual OpenedCampaign open_campaign(const CampaignKey&, double budget_s,
                                       const std::string& command) = 0;
  // The newest campaign of that key in any state; ask resumable() whether it goes on.
  virtual std::optional<Campaign> find_campaign(const CampaignKey&) = 0;
  virtual std::optional<Campaign> campaign(const Uuid&) = 0;
  // To be called at least every two seconds while a campaign runs. Never lowers the stored value.
  virtual void record_consumed(const Uuid& campaign, double consumed_s) = 0;
  virtual void set_campaign_state(const Uuid& campaign, CampaignState) = 0;
  virtual void set_budget(const Uuid& campaign, double budget_s) = 0;
  virtual CampaignProgress progress(const Uuid& campaign) = 0;
  // Takes the campaign for this process until the store is closed; false if another has it. Of a
  // file anybody gets it: who share one are of one machine and lock a file beside it.
  virtual bool hold(const Uuid& campaign) = 0;

  // ---- trials ------------------------------------------------------------------------------
  // Adds those whose key is new and returns how many were.
  virtual int64_t enqueue(const std::vector<NewTrial>&) = 0;
  // Takes queued trials, and claimed ones whose lease ran out, in order of priority, in one
  // statement. Each claim counts as an attempt. What the same owner holds is left alone, whatever
  // its lease: it lives.
  virtual std::vector<Trial> claim(const ClaimRequest&) = 0;
  // Puts what `owner` still holds back into the queue, without waiting for the leases; for the
  // trials of a process known to be dead. Returns how many.
  virtual int64_t release(const Uuid& campaign, const std::string& owner) = 0;
  // The same by the owner itself, of what it did not come to: no attempt counts.
  virtual int64_t give_back(const Uuid& campaign, const std::string& owner) = 0;
  virtual std::vector<std::string> lease_owners(const Uuid& campaign) = 0;
  // Stores state, error and measurement together. False, and nothing stored, if the owner's lease
  // passed to another or the trial is finished already: a finished trial never repeats.
  virtual bool finish(const TrialResult&) = 0;
  virtual std::optional<Trial> trial(const Uuid&) = 0;
  // Trials of the campaign, of one workload if given, in the order enqueued: `limit` of them at
  // most, those that follow `after`.
  virtual std::vector<TrialOutcome> outcomes(const Uuid& campaign,
                                             const std::optional<Hash>& workload = {},
                                             int64_t limit = std::numeric_limits<int64_t>::max(),
                                             const std::optional<Trial>& after = {}) = 0;
  virtual std::optional<TrialOutcome> outcome(const Uuid& trial) = 0;

  // ---- measurements ------------------------------------------------------------------------
  // A further measurement of a trial already finished (a re-measurement in pairs, an A/A run).
  virtual Uuid add(const Measurement&) = 0;
  virtual Uuid add(const Correctness&) = 0;
  virtual Uuid add(const CostModel&) = 0;
  virtual std::optional<Measurement> measurement(const Uuid&) = 0;  // with its samples
  virtual std::optional<CostModel> cost_model(const Uuid&) = 0;
  // Of campaigns of that hardware, stored before a time of day in ms, the newest first, without
  // their bytes; `limit` of them at most, those that follow `after`.
  virtual std::vector<CostModel> cost_models(const Hash& workload, const Hash& hardware,
                                             int64_t before, int64_t limit,
                                             const std::optional<CostModel>& after = {}) = 0;
  virtual std::vector<MeasurePolicy> policies(const Hash& workload, const Hash& hardware) = 0;
  // The newest measurement of each (configuration, shape, role), fastest first: top-k of a shape
  // with `shape` and `limit`, the whole cross-evaluation without.
  virtual std::vector<Result> results(const ResultQuery&) = 0;
  // Shows each measurement of trials that ended ok, in no order, until `visit` returns false. The
  // store takes no other call meanwhile.
  virtual void measured(const MeasuredQuery&,
                        const std::function<bool(const Measured&)>& visit) = 0;

  // ---- dispatch ----------------------------------------------------------------------------
  // Stores a draft. Its version is its parent's plus one, or one.
  virtual Uuid create_table(const NewDispatchTable&) = 0;
  virtual std::optional<DispatchTable> table(const Uuid&) = 0;
  // The versions of a workload's table, newest first.
  virtual std::vector<DispatchTable> tables(const Hash& workload,
                                            const std::optional<Hash>& hardware = {}) = 0;
  // Makes it the active one of its slot: workload, hardware, class of policy, code generator,
  // compiler, its version and flags. The former is retired.
  virtual void activate(const Uuid& table, const std::string& reason) = 0;
  // What is active in the slot that a table would have.
  virtual std::optional<Uuid> active_in_slot(const NewDispatchTable&) = 0;
  // Retires `table` and activates what was active before `table` first was; with nothing before it
  // the slot is left empty. Returns what is active now. kInvalidArgument if `table` is not active.
  virtual std::optional<Uuid> roll_back(const Uuid& table, const std::string& reason) = 0;
  virtual Uuid add(const Comparison&) = 0;
  virtual std::vector<Comparison> comparisons(const Uuid& table) = 0;  // newest first
  // The newest time of each of the table's configurations, and of those that overrides lay over it,
  // at each shape, under the table's policy; side by side with others (role verify) before alone.
  virtual std::vector<EntryTime> times(const Uuid& table) = 0;
  // In force at once. A reason is due.
  virtual Uuid add(const NewOverride&) = 0;
  virtual void withdraw(const Uuid& override_uuid, const std::string& reason) = 0;
  // The latest first; withdrawn ones only if `all`.
  virtual std::vector<Override> overrides(bool all = false,
                                          const std::optional<Hash>& workload = {},
                                          const std::optional<Hash>& hardware = {}) = 0;
  // By the full key; a table of another slot than the key's stands in only as LookupOutcome says.
  virtual LookupResult lookup(const LookupKey&) = 0;

  // ---- signatures: what they are worth, tuner/trust decides --------------------------------
  // Adds what is not there: the first name of a key stays, and the first reason of a revocation,
  // which nothing takes back.
  virtual void put(const SigningKey&) = 0;
  virtual std::vector<SigningKey> signing_keys() = 0;  // by name
  virtual bool revoke(const KeyRevocation&) = 0;       // false: it was revoked already
  virtual std::vector<KeyRevocation> key_revocations() = 0;
  virtual void add(const Signature&) = 0;
  virtual std::vector<Signature> signatures(const std::string& subject) = 0;  // at most 100

  // ---- merge, check ------------------------------------------------------------------------
  // Writes a consistent copy to `file`: one SQLite file without leases. Refuses an existing file
  // unless `overwrite`; replaces it in one step.
  virtual void export_to(const std::string& file, bool overwrite = false) = 0;
  // Adds what `place` (an export, or any nimble database of this schema or an older one) has and
  // this database lacks: all or nothing. Importing again changes nothing. A file whose schema,
  // keys or numbers are not what nimble writes is refused (kCorrupt, kInvalidArgument); so is one
  // with measurements that are not here and from more than a day ahead (kInvalidArgument).
  virtual ImportReport import_from(const std::string& place) = 0;
  // Integrity of the file, foreign keys, and the invariants that SQL cannot state.
  virtual CheckReport check() = 0;
};

}  // namespace nimble::db
