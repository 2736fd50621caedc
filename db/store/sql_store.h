// The Store over SQL, one for both engines. Private to db/store; users include store.h.
//
// The methods stand by topic in sql_dimensions.cpp, sql_campaigns.cpp, sql_trials.cpp,
// sql_measurements.cpp, sql_dispatch.cpp, sql_overrides.cpp, sql_lookup.cpp, sql_merge.cpp and
// sql_check.cpp; how a database is opened, in open.cpp, sqlite_open.cpp and postgres_open.cpp.
#pragma once

#include "db/store/open.h"
#include "db/store/sql.h"
#include "db/store/store.h"

namespace nimble::db {

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
  bool hold(const Uuid& campaign) override { return db_->try_hold(campaign); }

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
  ImportReport import_from(const std::string& place) override;
  CheckReport check() override;

 private:
  // What reads before it writes, of several rows that must agree, takes an exclusive one.
  Transaction begin_write(bool exclusive = false) {
    return Transaction(*db_, write_depth_, exclusive);
  }
  int64_t now() { return options_.clock_ms ? options_.clock_ms() : db_->clock_ms(); }
  bool exists(std::string_view sql, const std::string& key);
  Uuid insert_measurement(const Measurement&);
  void add_dispatch_event(const Uuid& table, std::string_view status, const std::string& reason);
  DispatchTable require_table(const Uuid& table);
  std::vector<DispatchTable> read_tables(Statement& rows);
  LookupResult best_match(const LookupKey&, const std::vector<Uuid>& candidates);
  void check_campaign_exists(const Uuid& campaign);
  ImportReport add_records_of(Connection& source);

  OpenOptions options_;
  std::unique_ptr<Connection> db_;
  int write_depth_ = 0;
  Uuid identity_;
  int64_t schema_version_ = 0;
};

// Throws Error(kInvalidArgument) for a time of zero, a negative one or NaN.
void require_time(double value, std::string_view what);

}  // namespace nimble::db
