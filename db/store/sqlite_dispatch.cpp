// Dispatch tables: immutable versions, and the events that make one of them active.
#include <cmath>

#include "db/store/hash.h"
#include "db/store/sqlite_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

TableStatus status_from(const std::string& name) {
  if (name == "active") return TableStatus::kActive;
  return name == "draft" ? TableStatus::kDraft : TableStatus::kRetired;
}

constexpr std::string_view kTableQuery =
    "SELECT d.uuid, d.workload, d.hardware, d.toolchain, d.policy, d.campaign, d.parent, "
    "d.version, d.objective, d.tree, d.created_at, s.status FROM dispatch_table d "
    "JOIN dispatch_status s ON s.uuid = d.uuid ";

}  // namespace

Uuid SqliteStore::create_table(const NewDispatchTable& t) {
  if (t.entries.empty())
    throw Error(Status::kInvalidArgument, "dispatch table", "has no entries",
                "give it at least the generic configuration");
  Write write(*this);
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
        "expected_ns, regret, fallback, is_override, reason) VALUES (?,?,?,?,?,?,?,?,?,?)",
        uuid, ordinal++, canonical_json(e.range, "range of a dispatch entry"), e.config, e.evidence,
        e.expected_ns, e.regret, e.fallback, e.is_override, e.reason);
  }
  write.commit();
  return uuid;
}

std::vector<DispatchTable> SqliteStore::read_tables(Statement& row) {
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
    t.status = status_from(row.text(11));
    Statement entry = db_->prepare(
        "SELECT range, config, evidence, expected_ns, regret, fallback, is_override, reason "
        "FROM dispatch_entry WHERE dispatch_table = ? ORDER BY ordinal");
    entry.bind(t.uuid);
    while (entry.step()) {
      t.entries.push_back({entry.text(0), entry.text(1), entry.maybe_text(2), entry.maybe_real(3),
                           entry.maybe_real(4), entry.maybe_text(5), entry.integer(6) != 0,
                           entry.text(7)});
      for (const std::optional<Hash>& hash :
           {std::optional(t.entries.back().config), t.entries.back().fallback})
        if (hash && !t.configs.contains(*hash))
          if (std::optional<ConfigInfo> info = config(*hash)) t.configs.emplace(*hash, *info);
    }
    all.push_back(std::move(t));
  }
  return all;
}

std::optional<DispatchTable> SqliteStore::table(const Uuid& uuid) {
  Statement row = db_->prepare(fmt::format("{} WHERE d.uuid = ?", kTableQuery));
  std::vector<DispatchTable> found = read_tables(row.bind(uuid));
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

DispatchTable SqliteStore::require_table(const Uuid& uuid) {
  std::optional<DispatchTable> found = table(uuid);
  if (!found)
    throw Error(Status::kNotFound, path_, fmt::format("has no dispatch table {}", uuid),
                "list them: nimble db show dispatch");
  return std::move(*found);
}

std::vector<DispatchTable> SqliteStore::tables(const std::optional<Hash>& workload,
                                               const std::optional<Hash>& hardware) {
  Statement row = db_->prepare(
      fmt::format("{} WHERE (?1 IS NULL OR d.workload = ?1) AND (?2 IS NULL OR d.hardware = ?2) "
                  "ORDER BY d.workload, d.created_at DESC, d.version DESC, d.uuid",
                  kTableQuery));
  return read_tables(row.bind(workload, hardware));
}

void SqliteStore::add_dispatch_event(const Uuid& table, std::string_view status,
                                     const std::string& reason) {
  // Events are ordered by their time, so a new one is always later than all that are there, also
  // when the clock was set back.
  db_->run(
      "INSERT INTO dispatch_event (uuid, dispatch_table, status, reason, created_at) VALUES "
      "(?,?,?,?, max(?, (SELECT coalesce(max(created_at), 0) + 1 FROM dispatch_event)))",
      new_uuid(), table, status, reason, now());
}

void SqliteStore::activate(const Uuid& uuid, const std::string& reason) {
  Write write(*this);
  const DispatchTable target = require_table(uuid);
  Statement rival = db_->prepare(
      "SELECT b.uuid FROM dispatch_status a JOIN dispatch_status b ON b.workload = a.workload "
      "AND b.hardware = a.hardware AND b.codegen_version = a.codegen_version "
      "WHERE a.uuid = ? AND b.uuid <> a.uuid AND b.status = 'active'");
  rival.bind(uuid);
  std::vector<Uuid> rivals;
  while (rival.step()) rivals.push_back(rival.text(0));
  for (const Uuid& other : rivals)
    add_dispatch_event(other, "retired", fmt::format("replaced by {}", uuid));
  if (target.status != TableStatus::kActive) add_dispatch_event(uuid, "active", reason);
  write.commit();
}

std::optional<Uuid> SqliteStore::roll_back(const Uuid& uuid, const std::string& reason) {
  Write write(*this);
  const DispatchTable present = require_table(uuid);
  if (present.status != TableStatus::kActive)
    throw Error(Status::kInvalidArgument, fmt::format("dispatch table {}", uuid),
                fmt::format("is {}, not active", name_of(present.status)),
                "roll back the active version");
  std::optional<Uuid> former;
  {
    // By first activations, so that rolling back again goes further back, not forth.
    Statement row = db_->prepare(
        "SELECT b.uuid FROM dispatch_status a "
        "JOIN dispatch_status b ON b.workload = a.workload AND b.hardware = a.hardware "
        "AND b.codegen_version = a.codegen_version AND b.uuid <> a.uuid "
        "JOIN dispatch_event e ON e.dispatch_table = b.uuid AND e.status = 'active' "
        "WHERE a.uuid = ?1 AND e.created_at < (SELECT min(created_at) FROM dispatch_event "
        "WHERE dispatch_table = ?1 AND status = 'active') ORDER BY e.created_at DESC LIMIT 1");
    if (row.bind(uuid).step()) former = row.text(0);
  }
  add_dispatch_event(uuid, "retired", reason);
  if (former) add_dispatch_event(*former, "active", reason);
  write.commit();
  return former;
}

Uuid SqliteStore::override_entry(const Uuid& uuid, int64_t ordinal, const Hash& config_hash,
                                 const std::string& reason) {
  Write write(*this);
  const DispatchTable old = require_table(uuid);
  if (ordinal < 0 || ordinal >= static_cast<int64_t>(old.entries.size()))
    throw Error(Status::kInvalidArgument, fmt::format("dispatch table {}", uuid),
                fmt::format("has no entry {} (it has {})", ordinal, old.entries.size()),
                "list them: nimble dispatch show");
  if (!config(config_hash))
    throw Error(Status::kNotFound, path_, fmt::format("has no configuration {}", config_hash),
                "list them: nimble db top");
  NewDispatchTable next = old;
  next.parent = uuid;
  next.objective = old.objective;
  DispatchEntry& entry = next.entries[static_cast<size_t>(ordinal)];
  entry.fallback = entry.config;  // what evidence had chosen stays at hand
  entry.config = config_hash;
  entry.evidence = std::nullopt;
  entry.expected_ns = std::nullopt;
  entry.regret = std::nullopt;
  entry.is_override = true;
  entry.reason = reason;
  const Uuid made = create_table(next);
  activate(made, fmt::format("override of entry {}: {}", ordinal, reason));
  write.commit();
  return made;
}

void SqliteStore::record_miss(const Hash& workload, const Hash& hardware, const Dims& dims,
                              int64_t count) {
  db_->run(
      "INSERT INTO dispatch_miss (replica, workload, hardware, dims, count) VALUES (?,?,?,?,?) "
      "ON CONFLICT (replica, workload, hardware, dims) DO UPDATE SET count = count + "
      "excluded.count",
      identity_, workload, hardware, text_of(dims), count);
}

std::vector<DispatchMiss> SqliteStore::misses() {
  std::vector<DispatchMiss> all;
  Statement row = db_->prepare(
      "SELECT workload, hardware, dims, count FROM total_miss ORDER BY count DESC, workload, dims");
  while (row.step())
    all.push_back({row.text(0), row.text(1), dims_from_text(row.text(2)), row.integer(3)});
  return all;
}

}  // namespace nimble::db
