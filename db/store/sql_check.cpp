// `nimble db check`: everything that must hold of a database, from its pages to its meaning.
#include "db/store/migrations.h"
#include "db/store/sql_store.h"
#include "db/store/tables.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr size_t kMostProblems = 100;  // a list that a person reads

// What is kept beside the facts, though it follows from them: of this database alone, so imports
// don't judge it.
constexpr Invariant kDerived[] = {
    {"an event of dispatch that nothing replaces does not stand",
     "SELECT e.uuid FROM dispatch_event e JOIN dispatch_table d ON d.uuid = e.dispatch_table "
     "WHERE NOT EXISTS (SELECT 1 FROM dispatch_replaced r WHERE r.replaced = e.uuid) "
     "AND NOT EXISTS (SELECT 1 FROM dispatch_standing s WHERE s.event = e.uuid "
     "AND s.dispatch_table = e.dispatch_table AND s.workload = d.workload "
     "AND s.hardware = d.hardware AND s.status = e.status AND s.created_at = e.created_at)"},
    {"an event of dispatch stands that another replaces",
     "SELECT s.event FROM dispatch_standing s "
     "JOIN dispatch_replaced r ON r.replaced = s.event GROUP BY s.event"},
    {"what stands in dispatch is no event",
     "SELECT s.event FROM dispatch_standing s "
     "WHERE NOT EXISTS (SELECT 1 FROM dispatch_event e WHERE e.uuid = s.event)"},
    {"the newest measurement of a configuration at a shape is not known as that",
     "SELECT v.measurement FROM current_measured v LEFT JOIN newest_measured r "
     "ON r.workload = v.workload AND r.hardware = v.hardware AND r.policy = v.policy "
     "AND r.codegen_version = v.codegen_version AND r.config = v.config AND r.shape = v.shape "
     "AND r.role = v.role AND r.threads = v.threads AND r.measurement = v.measurement "
     "AND r.trial = v.trial AND r.campaign = v.campaign AND r.artifact = v.artifact "
     "AND r.host_state = v.host_state AND r.round = v.round AND r.n = v.n "
     "AND r.median_ns = v.median_ns AND r.mad_ns = v.mad_ns AND r.ci_low_ns = v.ci_low_ns "
     "AND r.ci_high_ns = v.ci_high_ns AND r.stop_reason = v.stop_reason "
     "AND r.created_at = v.created_at WHERE r.measurement IS NULL"},
    {"a measurement is taken for the newest that is none",
     "SELECT r.measurement FROM newest_measured r LEFT JOIN current_measured v "
     "ON v.measurement = r.measurement WHERE v.measurement IS NULL"},
};

}  // namespace

CheckReport SqlStore::check() {
  CheckReport report;
  auto add = [&](std::string problem) {
    if (report.problems.size() < kMostProblems) report.problems.push_back(std::move(problem));
  };

  for (std::string& problem : db_->integrity_problems()) add(std::move(problem));
  if (!has_expected_schema(*db_, static_cast<int>(schema_version_)))
    add(fmt::format("the tables are not those of schema {}", schema_version_));

  for (const TableSpec& table : exchanged_tables()) {
    Statement row =
        db_->prepare_streaming(fmt::format("SELECT {} FROM {}", table.columns, table.name));
    while (row.step()) {
      try {
        table.validate(row);
      } catch (const Error& error) {
        add(error.what());
      }
    }
  }
  for (const std::span<const Invariant> all : {invariants(), std::span<const Invariant>(kDerived)})
    for (const Invariant& invariant : all) {
      Statement offender = db_->prepare(invariant.query);
      while (offender.step()) add(fmt::format("{}: {}", invariant.meaning, offender.text(0)));
    }
  find_wrong_samples(*db_, add);

  Statement stale = db_->prepare(
      "WITH newest AS (SELECT max(codegen_version) AS version FROM toolchain) "
      "SELECT s.uuid, w.canonical, s.codegen_version, n.version "
      "FROM dispatch_active s JOIN workload w ON w.hash = s.workload CROSS JOIN newest n "
      "WHERE s.codegen_version < n.version AND NOT EXISTS "
      "(SELECT 1 FROM dispatch_active t WHERE t.workload = s.workload "
      " AND t.hardware = s.hardware AND t.policy_class = s.policy_class "
      " AND t.codegen_version = n.version) "
      "ORDER BY w.canonical");
  while (stale.step())
    report.stale.push_back(
        fmt::format("{}: tuned with code generator {}, the newest here is {} ({})", stale.text(1),
                    stale.integer(2), stale.integer(3), stale.text(0)));
  return report;
}

}  // namespace nimble::db
