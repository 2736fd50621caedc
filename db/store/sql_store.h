// The Store over SQL, one for both engines. Private to db/store; users include store.h.
//
// The methods stand by topic in the files sql_*.cpp; how a database is opened, in open.cpp,
// sqlite_open.cpp and postgres/open.cpp.
#pragma once

#include "db/store/insert_rows.h"
#include "db/store/jump_watch.h"
#include "db/store/open.h"
#include "db/store/sql.h"
#include "db/store/store.h"

namespace nimble::db {

// What is from further ahead than this was written by a wrong clock, or by nobody's: it is no time
// of day to be ordered by.
constexpr int64_t kDayMs = 24 * 3600 * 1000;

class SqlStore final : public Store {
 public:
  // `db` has the latest schema. `options.clock_ms` may be empty.
  SqlStore(std::unique_ptr<Connection> db, const OpenOptions& options);

  const std::string& path() const override { return db_->name(); }
  const Uuid& identity() const override { return identity_; }
  int64_t schema_version() const override { return schema_version_; }
  void transaction(const std::function<void()>& body) override;

  Hash put(const Hardware&) override;
  Uuid put(const Machine&) override;
  Uuid put(const HostState&) override;
  Hash put(const Toolchain&) override;
  Hash put(const Template&) override;
  Hash put(const Workload&) override;
  Hash put(const Shape&) override;
  Hash put(const Config&) override;
  Hash put(const Artifact&) override;
  Hash put(const MeasurePolicy&) override;
  std::optional<Workload> workload(const Hash&) override;
  std::optional<Hardware> hardware(const Hash&) override;
  std::optional<Shape> shape(const Hash&) override;
  std::optional<ConfigInfo> config(const Hash&) override;
  std::vector<int64_t> thread_counts() override;
  std::vector<Hardware> hardware() override;
  std::vector<Toolchain> toolchains() override;

  Uuid create_campaign(const CampaignKey&, double budget_s, const std::string& command) override;
  OpenedCampaign open_campaign(const CampaignKey&, double budget_s,
                               const std::string& command) override;
  std::optional<Campaign> find_campaign(const CampaignKey&) override;
  std::optional<Campaign> campaign(const Uuid&) override;
  void record_consumed(const Uuid& campaign, double consumed_s) override;
  void set_campaign_state(const Uuid& campaign, CampaignState) override;
  void set_budget(const Uuid& campaign, double budget_s) override;
  CampaignProgress progress(const Uuid& campaign) override;
  bool hold(const Uuid& campaign) override { return db_->try_hold(campaign); }

  int64_t enqueue(const std::vector<NewTrial>&) override;
  std::vector<Trial> claim(const ClaimRequest&) override;
  int64_t release(const Uuid& campaign, const std::string& owner) override;
  int64_t give_back(const Uuid& campaign, const std::string& owner) override;
  std::vector<std::string> lease_owners(const Uuid& campaign) override;
  bool finish(const TrialResult&) override;
  std::optional<Trial> trial(const Uuid&) override;
  std::vector<TrialOutcome> outcomes(const Uuid& campaign, const std::optional<Hash>& workload,
                                     int64_t limit, const std::optional<Trial>& after) override;
  std::optional<TrialOutcome> outcome(const Uuid& trial) override;

  Uuid add(const Measurement&) override;
  Uuid add(const Correctness&) override;
  Uuid add(const CostModel&) override;
  std::optional<Measurement> measurement(const Uuid&) override;
  std::optional<CostModel> cost_model(const Uuid&) override;
  std::vector<CostModel> cost_models(const Hash& workload, const Hash& hardware, int64_t before,
                                     int64_t limit, const std::optional<CostModel>& after) override;
  std::vector<MeasurePolicy> policies(const Hash& workload, const Hash& hardware) override;
  std::vector<Result> results(const ResultQuery&) override;
  void measured(const MeasuredQuery&, const std::function<bool(const Measured&)>& visit) override;

  Uuid create_table(const NewDispatchTable&) override;
  std::optional<DispatchTable> table(const Uuid&) override;
  std::vector<DispatchTable> tables(const Hash& workload,
                                    const std::optional<Hash>& hardware) override;
  void activate(const Uuid& table, const std::string& reason) override;
  std::optional<Uuid> roll_back(const Uuid& table, const std::string& reason) override;
  std::optional<Uuid> active_in_slot(const NewDispatchTable&) override;
  Uuid add(const Comparison&) override;
  std::vector<Comparison> comparisons(const Uuid& table) override;
  std::vector<EntryTime> times(const Uuid& table) override;
  Uuid add(const NewOverride&) override;
  void withdraw(const Uuid& override_uuid, const std::string& reason) override;
  std::vector<Override> overrides(bool all, const std::optional<Hash>& workload,
                                  const std::optional<Hash>& hardware) override;
  LookupResult lookup(const LookupKey&) override;

  Digest put_blob(std::span<const uint8_t> bytes) override;
  std::optional<std::vector<uint8_t>> blob(const Digest&) override;
  bool has_blob(const Digest&) override;
  void put(const Candidate&) override;
  std::vector<Candidate> candidates(const Hash& artifact) override;
  std::optional<Artifact> artifact(const Hash&) override;
  Hash put(const MeasureCase&) override;
  std::optional<MeasureCase> measure_case(const Hash&) override;
  std::optional<MeasurePolicy> policy(const Hash&) override;
  std::optional<Machine> machine(const Uuid&) override;

  Uuid add(const Worker&) override;
  std::optional<Worker> worker(const Uuid&) override;
  bool heartbeat(const Heartbeat&, int64_t attempt, int64_t lease_ms) override;
  std::vector<LiveWorker> live_workers(int64_t within_ms) override;

  Uuid publish(const NewJob&) override;
  std::optional<Job> claim_job(const JobRequest&) override;
  bool release_job(const Uuid& job, const Uuid& worker, int64_t attempt) override;
  int64_t release_jobs(const Uuid& worker) override;
  int64_t cancel_jobs(const Uuid& campaign) override;
  bool cancel_job(const Uuid& job) override;
  ReportOutcome report(const JobReport&) override;
  std::optional<StoredReport> stored_report(const Uuid&) override;
  std::optional<Job> job(const Uuid&) override;
  std::optional<Job> job_of(const Uuid& trial) override;
  OpenJobs open_jobs(const Uuid& campaign) override;
  std::vector<Job> claimed_jobs(const std::optional<Uuid>& campaign) override;

  void add_consumed(const Uuid& campaign, const Uuid& machine, double seconds) override;
  std::vector<Consumption> consumption(const Uuid& campaign) override;

  void add_tasks(const std::vector<Task>&) override;
  std::vector<Task> tasks(const Uuid& campaign) override;
  void enter_phase(const Uuid& task, const std::string& phase, const std::string& detail,
                   std::optional<double> share) override;
  std::vector<TaskPhase> phases(const Uuid& task) override;

  Uuid request(const Control&) override;
  std::vector<Control> open_requests(const Uuid& campaign) override;
  bool is_at_home(const Uuid& campaign) override;
  bool answer(const Uuid& control, bool accepted, const std::string& message) override;
  std::vector<Control> requests(const Uuid& campaign, int64_t limit) override;

  std::vector<Event> events(int64_t after, int64_t limit,
                            const std::optional<Uuid>& campaign) override;
  int64_t last_event() override;

  void put(const SigningKey&) override;
  std::vector<SigningKey> signing_keys() override;
  bool revoke(const KeyRevocation&) override;
  std::vector<KeyRevocation> key_revocations() override;
  void add(const Signature&) override;
  std::vector<Signature> signatures(const std::string& subject) override;

  void put(const GeneratedCode&) override;
  std::vector<GeneratedCode> generated_code(const std::string& code_hash) override;
  Uuid add(const FailureLog&) override;
  std::vector<FailureLog> failures(const Uuid& trial) override;
  Uuid add(const Ceiling&) override;
  std::vector<Ceiling> ceilings(const Uuid& machine) override;
  Uuid add(const MachineVerdict&) override;
  std::vector<MachineVerdict> verdicts(const Uuid& campaign) override;
  std::optional<MachineVerdict> verdict(const Uuid& machine) override;
  Uuid add(const PeerFigure&) override;
  std::vector<PeerFigure> peer_figures(const std::string& subject, int64_t limit) override;
  std::vector<PeerRun> peer_runs(int64_t limit) override;
  std::vector<PeerFigure> peer_run(const Uuid& run) override;
  void tell_shapes(const Uuid& source, const std::vector<ShapeCount>&) override;
  std::vector<MetShape> met_shapes(const std::optional<Hash>& workload, bool only_missed,
                                   int64_t limit) override;
  std::vector<Misses> misses() override;
  RetentionReport remove_old(const RetentionRequest&) override;

  std::shared_ptr<Canceller> canceller() override { return db_->canceller(); }
  std::vector<std::string> find(Kind kind, const std::string& prefix, int64_t limit) override;
  std::vector<TrialRow> trials(const PageRequest&) override;
  Landmarks landmarks(const TrialFilter&, TrialOrder, bool descending, int64_t step,
                      const std::optional<PageKey>& from, int64_t limit) override;
  std::vector<Campaign> campaigns(int64_t limit, const std::optional<Campaign>& after) override;
  std::vector<Workload> workloads(int64_t limit, const std::string& after) override;
  std::optional<HostState> host_state(const Uuid&) override;
  std::vector<MeasurementSummary> measurements(const Uuid& trial, int64_t limit) override;
  std::vector<CorrectnessRecord> correctness(const Hash& artifact, const std::optional<Hash>& shape,
                                             int64_t limit) override;
  std::vector<TwinRow> twins(const Hash& workload, const Hash& hardware, int64_t limit) override;
  std::vector<DispatchChange> history(const Hash& workload, const Hash& hardware,
                                      int64_t limit) override;
  std::vector<TableSummary> deciding_tables(int64_t limit, const WorkloadPlace& after) override;
  std::vector<WorkloadPlace> measured_places() override;
  std::map<WorkloadPlace, double> model_shares(int64_t campaigns) override;
  std::map<WorkloadPlace, int64_t> override_counts() override;
  std::vector<BestResult> best_results(const WorkloadPlace& of) override;
  std::map<Uuid, CampaignProgress> progress_of(const std::vector<Uuid>& campaigns) override;
  std::map<Uuid, Control> last_requests() override;
  std::vector<SessionTime> session_times(const Uuid& campaign, const Hash& workload,
                                         int64_t limit) override;

  void export_to(const std::string& file, bool overwrite) override;
  ImportReport import_from(const std::string& place) override;
  CheckReport check() override;

 private:
  static void count(CampaignProgress& progress, TrialState state, int64_t n);
  // A transaction that ends with the scope. What changed in it is told in the feed as the last
  // thing before the outermost commits: who has taken a number keeps all others waiting until then.
  class Write {
   public:
    Write(SqlStore& store, bool exclusive)
        : store_(store),
          events_(store.events_.size()),
          transaction_(*store.db_, store.write_depth_, exclusive) {}
    ~Write() {
      if (!committed_ && store_.events_.size() > events_)
        store_.events_.erase(store_.events_.begin() + static_cast<std::ptrdiff_t>(events_),
                             store_.events_.end());
    }
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;
    void commit() {
      if (store_.write_depth_ == 1 && !store_.events_.empty()) {
        transaction_.commit_after(store_.sql_of_events());
        store_.events_.clear();
      } else {
        transaction_.commit();
      }
      committed_ = true;
    }

   private:
    SqlStore& store_;
    size_t events_;
    Transaction transaction_;
    bool committed_ = false;
  };
  // What reads before it writes, of several rows that must agree, takes an exclusive one.
  Write begin_write(bool exclusive = false) { return Write(*this, exclusive); }
  // `detail`: JSON. Only inside a Write.
  void note_event(std::string kind, std::optional<Uuid> campaign, std::string subject,
                  std::string detail);
  // Whether who holds a lease has had the time to renew it since the time of day was set.
  bool leases_can_be_judged(int64_t now, int64_t lease_ms);
  std::string sql_of_events();  // writes what was noted
  int64_t now() { return options_.clock_ms ? options_.clock_ms() : db_->clock_ms(); }
  bool exists(std::string_view sql, const std::string& key);
  // What is inserted together; flush() writes it. `t`: now.
  struct Facts {
    explicit Facts(Connection& db);
    void flush();
    InsertRows measurements, samples, twins, correctness;
  };
  Uuid insert_measurement(const Measurement&, Facts&, int64_t t);
  Uuid insert_correctness(const Correctness&, Facts&, int64_t t);
  void finish_trials(const JobReport&, const Hash& hardware, bool holds, int64_t t);
  void add_dispatch_event(const Uuid& table, std::string_view status, const std::string& reason);
  DispatchTable require_table(const Uuid& table);
  std::vector<DispatchTable> read_tables(Statement& rows);
  LookupResult best_match(const LookupKey&, const std::vector<Uuid>& candidates);
  void check_campaign_exists(const Uuid& campaign);
  // Measurements from behind `latest` are refused.
  ImportReport add_records_of(Connection& source, int64_t latest);

  Worker require_worker(const Uuid& worker);
  std::vector<PeerFigure> read_peers(std::string_view condition, const std::string& key,
                                     int64_t limit);
  void remove_samples(const RetentionRequest&, int64_t before, RetentionReport& report);
  std::vector<Control> read_controls(std::string_view condition, const Uuid& campaign,
                                     int64_t limit);
  // A job's row as a statement of kJobColumns tells it, with its trials.
  void read_trials(Job& job, const std::optional<Uuid>& only = {});
  void insert_job(const NewJob& job, const Uuid& uuid, const std::optional<Uuid>& parent,
                  const std::optional<Uuid>& avoid);
  void settle_expired(int64_t now, int64_t max_losses);
  bool others_are_alive(const Machine&, int64_t now);
  bool may_be_its_candidates_fault(const Job& lost, const Worker& worker, int64_t now);
  void settle_lost(const Uuid& job, const Worker& worker, int64_t now, int64_t max_losses);
  std::vector<Uuid> campaigns_by_turn(const Hash& hardware);
  std::optional<Uuid> take_job(const JobRequest& request, const Uuid& campaign,
                               const Machine& machine, int64_t now);
  void end_job(const Uuid& job, JobState state, int64_t now);

  OpenOptions options_;
  std::unique_ptr<Connection> db_;
  int write_depth_ = 0;
  JumpWatch jumps_;
  std::vector<Event> events_;  // of the transaction that is open
  Uuid identity_;
  int64_t schema_version_ = 0;
};

// A blob's content as it was before it was packed; Error(kCorrupt) if it is not what `digest` says.
std::vector<uint8_t> unpack_blob(const std::string& digest, int64_t size, std::string_view encoding,
                                 std::span<const uint8_t> bytes);

// Throws Error(kInvalidArgument) for a time of zero, a negative one or NaN.
void require_time(double value, std::string_view what);

}  // namespace nimble::db
