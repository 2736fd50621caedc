// The Store over SQLite. Private to db/store; users include store.h.
//
// The methods stand by topic: sqlite_open.cpp, sqlite_dimensions.cpp, sqlite_campaigns.cpp,
// sqlite_trials.cpp, sqlite_measurements.cpp, sqlite_dispatch.cpp, sqlite_overrides.cpp,
// sqlite_lookup.cpp, sqlite_merge.cpp, sqlite_check.cpp.
#pragma once

#include "db/store/sqlite.h"
#include "db/store/store.h"

namespace nimble::db {

class SqliteStore final : public Store {
 public:
  SqliteStore(const std::string& path, const OpenOptions& options);

  const std::string& path() const override { return path_; }
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
  std::vector<Workload> workloads() override;
  std::vector<Hardware> hardware() override;
  std::vector<Toolchain> toolchains() override;

  Uuid create_campaign(const CampaignKey&, double budget_s, const std::string& command) override;
  std::optional<Campaign> find_campaign(const CampaignKey&) override;
  std::optional<Campaign> campaign(const Uuid&) override;
  std::vector<Campaign> campaigns() override;
  void record_consumed(const Uuid& campaign, double consumed_s) override;
  void set_campaign_state(const Uuid& campaign, CampaignState) override;
  void set_budget(const Uuid& campaign, double budget_s) override;
  CampaignProgress progress(const Uuid& campaign) override;

  int64_t enqueue(const std::vector<NewTrial>&) override;
  std::vector<Trial> claim(const ClaimRequest&) override;
  bool renew_lease(const Uuid& trial, const std::string& owner, int64_t lease_ms) override;
  int64_t release(const Uuid& campaign, const std::string& owner) override;
  std::vector<std::string> lease_owners(const Uuid& campaign) override;
  bool finish(const TrialResult&) override;
  std::optional<Trial> trial(const Uuid&) override;
  std::vector<TrialOutcome> outcomes(const Uuid& campaign,
                                     const std::optional<Hash>& workload) override;

  Uuid add(const Measurement&) override;
  Uuid add(const Correctness&) override;
  Uuid add(const CostModel&) override;
  std::optional<Measurement> measurement(const Uuid&) override;
  std::optional<CostModel> latest_cost_model(const Uuid& campaign, const Hash& workload) override;
  std::vector<MeasurePolicy> policies(const Hash& workload, const Hash& hardware) override;
  std::vector<Result> results(const ResultQuery&) override;

  Uuid create_table(const NewDispatchTable&) override;
  std::optional<DispatchTable> table(const Uuid&) override;
  std::vector<DispatchTable> tables(const std::optional<Hash>& workload,
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
  void record_miss(const Hash& workload, const Hash& hardware, const Dims&, int64_t count) override;
  std::vector<DispatchMiss> misses() override;

  void export_to(const std::string& file, bool overwrite) override;
  ImportReport import_from(const std::string& file) override;
  CheckReport check() override;

 private:
  // A transaction that nests: the outermost is BEGIN IMMEDIATE, inner ones are savepoints.
  class Write {
   public:
    explicit Write(SqliteStore& store);
    ~Write();
    void commit();

   private:
    SqliteStore& store_;
    int level_;
    bool open_ = true;
  };

  // Ends what transaction is open, without memory.
  void roll_back_now() noexcept;
  int64_t now() const { return options_.clock_ms(); }
  bool exists(std::string_view sql, const std::string& key);
  Uuid insert_measurement(const Measurement&);
  void add_dispatch_event(const Uuid& table, std::string_view status, const std::string& reason);
  DispatchTable require_table(const Uuid& table);
  std::vector<DispatchTable> read_tables(Statement& rows);
  LookupResult best_match(const LookupKey&, const std::vector<Uuid>& candidates);
  void check_campaign_exists(const Uuid& campaign);

  std::string path_;
  OpenOptions options_;
  std::unique_ptr<Connection> db_;
  std::optional<Statement> roll_back_;  // prepared early: it is needed when there is no memory
  int write_depth_ = 0;
  Uuid identity_;
  int64_t schema_version_ = 0;
};

// Opens a connection with the settings that every use of a tuning database shares.
std::unique_ptr<Connection> connect(const std::string& path, const OpenOptions& options);

// Throws Error(kInvalidArgument) unless `value` is a time: finite and above zero.
void require_time(double value, std::string_view what);

}  // namespace nimble::db
