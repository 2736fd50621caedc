// Dispatch tables: immutable versions, and the events that make one of them active.
//
// Events are ordered by what they knew: a new one replaces all that stood in its slot when it was
// written, and is itself replaced by the next. Only events of two databases that knew nothing of
// each other are compared by the time of day. So a clock that was set back or a forged time cannot
// hold a slot: whoever comes later knows of it.
#include <algorithm>
#include <cmath>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"
#include "vm/base/stage.h"

namespace nimble::db {
namespace {

constexpr std::string_view kTableQuery =
    "SELECT d.uuid, d.workload, d.hardware, d.toolchain, d.policy, d.campaign, d.parent, "
    "d.version, d.objective, d.tree, d.created_at, s.status, s.policy_class FROM dispatch_table d "
    "JOIN dispatch_status s ON s.uuid = d.uuid ";

// That two rows of dispatch_slot or dispatch_status are of one slot.
constexpr std::string_view kSameSlot =
    "a.workload = b.workload AND a.hardware = b.hardware AND a.mode = b.mode "
    "AND a.policy_class = b.policy_class AND a.codegen_version = b.codegen_version "
    "AND a.compiler = b.compiler AND a.compiler_version = b.compiler_version "
    "AND a.flags = b.flags";

}  // namespace

Uuid SqlStore::create_table(const NewDispatchTable& t) {
  if (t.entries.empty())
    throw Error(Status::kInvalidArgument, "dispatch table", "has no entries",
                "give it at least the generic configuration");
  Write write = begin_write();
  int64_t version = 1;
  if (t.parent) {
    const DispatchTable parent = require_table(*t.parent);
    if (parent.workload != t.workload || parent.hardware != t.hardware)
      throw Error(Status::kInvalidArgument, "dispatch table",
                  "its parent is of another workload or other hardware");
    version = parent.version + 1;
  }
  const Uuid uuid = new_uuid();
  db_->run(
      "INSERT INTO dispatch_table (uuid, workload, hardware, toolchain, policy, campaign, parent, "
      "version, objective, tree, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
      uuid, t.workload, t.hardware, t.toolchain, t.policy, t.campaign, t.parent, version,
      t.objective, canonical_json(t.tree, "tree of a dispatch table"), now());
  int64_t ordinal = 0;
  for (const DispatchEntry& e : t.entries) {
    if (e.expected_ns) require_time(*e.expected_ns, "expected time of a dispatch entry");
    if (e.regret && !(*e.regret >= 0 && std::isfinite(*e.regret)))
      throw Error(Status::kInvalidArgument, "dispatch entry",
                  fmt::format("a regret of {} is impossible", *e.regret));
    if (e.is_override && e.reason.empty())
      throw Error(Status::kInvalidArgument, "dispatch entry", "an override needs a reason",
                  "give --reason");
    db_->run(
        "INSERT INTO dispatch_entry (dispatch_table, ordinal, range, config, evidence, "
        "expected_ns, regret, is_override, reason) VALUES (?,?,?,?,?,?,?,?,?)",
        uuid, ordinal++, canonical_json(e.range, "range of a dispatch entry"), e.config, e.evidence,
        e.expected_ns, e.regret, e.is_override, e.reason);
  }
  note_event(topic::kDispatch, t.campaign, uuid, R"({"state":"draft"})");
  write.commit();
  return uuid;
}

std::vector<DispatchTable> SqlStore::read_tables(Statement& row) {
  std::vector<DispatchTable> all;
  while (row.step()) {
    DispatchTable t;
    t.uuid = row.text(0);
    t.workload = row.text(1);
    t.hardware = row.text(2);
    t.toolchain = row.text(3);
    t.policy = row.text(4);
    t.campaign = row.maybe_text(5);
    t.parent = row.maybe_text(6);
    t.version = row.integer(7);
    t.objective = row.text(8);
    t.tree = row.text(9);
    t.created_at = row.integer(10);
    const std::optional<TableStatus> status = table_status_from_name(row.text(11));
    if (!status)
      throw Error(Status::kCorrupt, path(),
                  fmt::format("dispatch table {} has the status \"{}\", which is none", t.uuid,
                              row.text(11)),
                  "look for what else was changed: nimble db check");
    t.status = *status;
    t.policy_class = row.text(12);
    Statement entry = db_->prepare(
        "SELECT e.range, e.config, e.evidence, e.expected_ns, e.regret, e.is_override, e.reason, "
        "a.code_hash FROM dispatch_entry e "
        "LEFT JOIN measurement m ON m.uuid = e.evidence LEFT JOIN artifact a ON a.hash = "
        "m.artifact "
        "WHERE e.dispatch_table = ? ORDER BY e.ordinal");
    entry.bind(t.uuid);
    while (entry.step()) {
      t.entries.push_back({entry.text(0), entry.text(1), entry.maybe_text(2), entry.maybe_real(3),
                           entry.maybe_real(4), entry.integer(5) != 0, entry.text(6),
                           entry.text(7)});
      const Hash& hash = t.entries.back().config;
      if (!t.configs.contains(hash))
        if (std::optional<ConfigInfo> info = config(hash)) t.configs.emplace(hash, *info);
    }
    all.push_back(std::move(t));
  }
  return all;
}

std::optional<DispatchTable> SqlStore::table(const Uuid& uuid) {
  Statement row = db_->prepare(fmt::format("{} WHERE d.uuid = ?", kTableQuery));
  std::vector<DispatchTable> found = read_tables(row.bind(uuid));
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

DispatchTable SqlStore::require_table(const Uuid& uuid) {
  std::optional<DispatchTable> found = table(uuid);
  if (!found)
    throw Error(Status::kNotFound, path(), fmt::format("has no dispatch table {}", uuid),
                "list them: nimble db show dispatch");
  return std::move(*found);
}

std::vector<DispatchTable> SqlStore::tables(const Hash& workload,
                                            const std::optional<Hash>& hardware) {
  Statement row =
      db_->prepare(fmt::format("{} WHERE d.workload = ?1 AND (?2 IS NULL OR d.hardware = ?2) "
                               "ORDER BY d.created_at DESC, d.version DESC, d.uuid",
                               kTableQuery));
  return read_tables(row.bind(workload, hardware));
}

void SqlStore::add_dispatch_event(const Uuid& table, std::string_view status,
                                  const std::string& reason) {
  const Uuid event = new_uuid();
  // Times of day ascend where they can, for those who read them.
  const int64_t t = now();
  Statement last =
      db_->prepare("SELECT coalesce(max(created_at), 0) FROM dispatch_event WHERE created_at < ?");
  last.bind(t + kDayMs).step();
  db_->run(
      "INSERT INTO dispatch_event (uuid, dispatch_table, status, reason, created_at) "
      "VALUES (?,?,?,?,?)",
      event, table, status, reason, std::max(t, last.integer(0) + 1));
  db_->run(fmt::format("INSERT INTO dispatch_replaced (replaced, event) "
                       "SELECT e.event, ?1 FROM dispatch_slot a JOIN dispatch_standing e "
                       "ON e.workload = a.workload AND e.hardware = a.hardware "
                       "JOIN dispatch_slot b ON b.uuid = e.dispatch_table AND {} "
                       "WHERE a.uuid = ?2 AND e.event <> ?1",
                       kSameSlot),
           event, table);
  note_event(topic::kDispatch, {}, table, fmt::format(R"({{"state":"{}"}})", status));
}

void SqlStore::activate(const Uuid& uuid, const std::string& reason) {
  const Stage stage("activate");
  Write write = begin_write(true);
  if (require_table(uuid).status != TableStatus::kActive)
    add_dispatch_event(uuid, "active", reason);
  write.commit();
}

std::optional<Uuid> SqlStore::active_in_slot(const NewDispatchTable& t) {
  Statement row = db_->prepare(
      "SELECT s.uuid FROM dispatch_active s JOIN toolchain c ON c.hash = ?3 "
      "JOIN measure_policy p ON p.hash = ?4 WHERE s.workload = ?1 AND s.hardware = ?2 "
      "AND s.mode = p.mode AND s.policy_class = p.class "
      "AND s.codegen_version = c.codegen_version AND s.compiler = c.compiler "
      "AND s.compiler_version = c.version AND s.flags = c.flags");
  if (!row.bind(t.workload, t.hardware, t.toolchain, t.policy).step()) return std::nullopt;
  return row.text(0);
}

std::optional<Uuid> SqlStore::roll_back(const Uuid& uuid, const std::string& reason) {
  Write write = begin_write(true);
  const DispatchTable present = require_table(uuid);
  if (present.status != TableStatus::kActive)
    throw Error(Status::kInvalidArgument, fmt::format("dispatch table {}", uuid),
                fmt::format("is {}, not active", name_of(present.status)),
                "roll back the active version");
  std::optional<Uuid> former;
  {
    // By first activations, so that rolling back again goes further back, not forth. Times that
    // cannot be are the earliest.
    Statement row = db_->prepare(fmt::format(
        "WITH begun AS (SELECT b.uuid, "
        "min(CASE WHEN e.created_at < ?2 THEN e.created_at ELSE 0 END) AS at "
        "FROM dispatch_slot a JOIN dispatch_slot b ON {} JOIN dispatch_event e "
        "ON e.dispatch_table = b.uuid AND e.status = 'active' WHERE a.uuid = ?1 GROUP BY b.uuid) "
        "SELECT y.uuid FROM begun x JOIN begun y ON y.uuid <> x.uuid "
        "WHERE x.uuid = ?1 AND y.at < x.at ORDER BY y.at DESC, y.uuid LIMIT 1",
        kSameSlot));
    if (row.bind(uuid, now() + kDayMs).step()) former = row.text(0);
  }
  add_dispatch_event(uuid, "retired", reason);
  if (former) add_dispatch_event(*former, "active", reason);
  write.commit();
  return former;
}

Uuid SqlStore::add(const Comparison& c) {
  const Uuid uuid = c.uuid.empty() ? new_uuid() : c.uuid;
  db_->run(
      "INSERT INTO dispatch_comparison (uuid, dispatch_table, rival, shapes, ratio, worst_ratio, "
      "created_at) VALUES (?,?,?,?,?,?,?)",
      uuid, c.table, c.rival, c.shapes, c.ratio, c.worst_ratio, now());
  return uuid;
}

std::vector<Comparison> SqlStore::comparisons(const Uuid& table) {
  std::vector<Comparison> all;
  Statement row = db_->prepare(
      "SELECT uuid, rival, shapes, ratio, worst_ratio, created_at FROM dispatch_comparison "
      "WHERE dispatch_table = ? ORDER BY created_at DESC, uuid");
  row.bind(table);
  while (row.step())
    all.push_back({row.text(0), table, row.maybe_text(1), row.integer(2), row.real(3), row.real(4),
                   row.integer(5)});
  return all;
}

std::vector<EntryTime> SqlStore::times(const Uuid& table) {
  // Rows of one configuration and shape come with the best last, which stays.
  Statement row = db_->prepare(
      "SELECT r.config, s.dims, r.median_ns FROM dispatch_slot d JOIN newest_measured r "
      "ON r.workload = d.workload AND r.hardware = d.hardware AND r.policy = d.policy "
      "AND r.codegen_version = d.codegen_version JOIN shape s ON s.hash = r.shape "
      "WHERE d.uuid = ?1 AND r.config IN "
      "(SELECT config FROM dispatch_entry WHERE dispatch_table = ?1 UNION "
      "SELECT o.config FROM dispatch_override o WHERE o.workload = d.workload "
      "AND o.hardware = d.hardware) "
      "ORDER BY r.config, s.dims, r.role = 'verify', r.created_at, r.measurement DESC");
  row.bind(table);
  std::vector<EntryTime> all;
  while (row.step()) {
    EntryTime t{row.text(0), dims_from_text(row.text(1)), row.real(2)};
    if (!all.empty() && all.back().config == t.config && all.back().dims == t.dims)
      all.back() = std::move(t);
    else
      all.push_back(std::move(t));
  }
  return all;
}

}  // namespace nimble::db
