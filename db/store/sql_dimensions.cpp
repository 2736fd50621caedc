// Dimension rows: looked for first, since most puts find their row and then need no write lock.
#include <limits>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

Hardware read_hardware(const Statement& row) {
  return {row.text(0), row.integer(1), row.integer(2), row.integer(3),     row.text(4),
          row.text(5), row.text(6),    row.text(7),    row.integer(8) != 0};
}
constexpr std::string_view kHardwareColumns =
    "vendor, family, model, stepping, model_name, isa, caches, topology, virtualised";

Workload read_workload(const Statement& row) {
  return {row.text(0), row.text(1), row.text(2),   row.text(3),
          row.text(4), row.text(5), row.integer(6)};
}
constexpr std::string_view kWorkloadColumns =
    "canonical, anchor, op, dtype, layout, symbolic_dims, threads";

}  // namespace

bool SqlStore::exists(std::string_view sql, const std::string& key) {
  return db_->prepare(sql).bind(key).step();
}

Hash SqlStore::put(const Hardware& h) {
  const Hash key = key_of(h);
  if (exists("SELECT 1 FROM hardware WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO hardware (hash, vendor, family, model, stepping, model_name, isa, caches, "
      "topology, virtualised) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (hash) DO NOTHING",
      key, h.vendor, h.family, h.model, h.stepping, h.model_name, h.isa, h.caches, h.topology,
      h.virtualised);
  return key;
}

Uuid SqlStore::put(const Machine& m) {
  const Uuid uuid =
      m.uuid.empty() ? uuid_from_hash(hash_of_fields("machine", {m.hostname, m.hardware})) : m.uuid;
  if (exists("SELECT 1 FROM machine WHERE uuid = ?", uuid)) return uuid;
  db_->run(
      "INSERT INTO machine (uuid, hostname, hardware) VALUES (?,?,?) "
      "ON CONFLICT (uuid) DO NOTHING",
      uuid, m.hostname, m.hardware);
  return uuid;
}

Uuid SqlStore::put(const HostState& s) {
  const Uuid uuid = s.uuid.empty() ? new_uuid() : s.uuid;
  db_->run(
      "INSERT INTO host_state (uuid, governor, turbo, smt, affinity, load, steal) "
      "VALUES (?,?,?,?,?,?,?) ON CONFLICT (uuid) DO NOTHING",
      uuid, s.governor, s.turbo, s.smt, s.affinity, s.load, s.steal);
  return uuid;
}

Hash SqlStore::put(const Toolchain& t) {
  const Hash key = key_of(t);
  if (exists("SELECT 1 FROM toolchain WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO toolchain (hash, compiler, version, flags, codegen_version, revision, dirty) "
      "VALUES (?,?,?,?,?,?,?) ON CONFLICT (hash) DO NOTHING",
      key, t.compiler, t.version, t.flags, t.codegen_version, t.revision, t.dirty);
  return key;
}

Hash SqlStore::put(const Template& t) {
  const Hash key = key_of(t);
  if (exists("SELECT 1 FROM template WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO template (hash, name, version, parameters) VALUES (?,?,?,?) "
      "ON CONFLICT (hash) DO NOTHING",
      key, t.name, t.version, t.parameters);
  return key;
}

Hash SqlStore::put(const Workload& w) {
  const Hash key = key_of(w);
  if (exists("SELECT 1 FROM workload WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO workload (hash, canonical, anchor, op, dtype, layout, symbolic_dims, threads) "
      "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (hash) DO NOTHING",
      key, w.canonical, w.anchor, w.op, w.dtype, w.layout, w.symbolic_dims, w.threads);
  return key;
}

Hash SqlStore::put(const Shape& s) {
  const Hash key = key_of(s);
  if (exists("SELECT 1 FROM shape WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO shape (hash, workload, dims, flops, bytes) VALUES (?,?,?,?,?) "
      "ON CONFLICT (hash) DO NOTHING",
      key, s.workload, text_of(s.dims), s.flops, s.bytes);
  return key;
}

Hash SqlStore::put(const Config& c) {
  const Hash key = key_of(c);
  if (exists("SELECT 1 FROM config WHERE hash = ?", key)) return key;
  db_->run("INSERT INTO config (hash, template, json) VALUES (?,?,?) ON CONFLICT (hash) DO NOTHING",
           key, c.template_hash, canonical_json(c.json, "configuration"));
  return key;
}

Hash SqlStore::put(const Artifact& a) {
  const Hash key = key_of(a);
  if (exists("SELECT 1 FROM artifact WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO artifact (hash, code_hash, workload, config, toolchain, compile_ms, size) "
      "VALUES (?,?,?,?,?,?,?) ON CONFLICT (hash) DO NOTHING",
      key, a.code_hash, a.workload, a.config, a.toolchain, a.compile_ms, a.size);
  return key;
}

Hash SqlStore::put(const MeasurePolicy& p) {
  const Hash key = key_of(p);
  if (exists("SELECT 1 FROM measure_policy WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO measure_policy (hash, mode, warm_up, threads, timer, stop_rule, class) "
      "VALUES (?,?,?,?,?,?,?) ON CONFLICT (hash) DO NOTHING",
      key, name_of(p.mode), p.warm_up, p.threads, p.timer, p.stop_rule, p.policy_class);
  return key;
}

std::optional<Workload> SqlStore::workload(const Hash& hash) {
  Statement row =
      db_->prepare(fmt::format("SELECT {} FROM workload WHERE hash = ?", kWorkloadColumns));
  if (!row.bind(hash).step()) return std::nullopt;
  return read_workload(row);
}

std::optional<Hardware> SqlStore::hardware(const Hash& hash) {
  Statement row =
      db_->prepare(fmt::format("SELECT {} FROM hardware WHERE hash = ?", kHardwareColumns));
  if (!row.bind(hash).step()) return std::nullopt;
  return read_hardware(row);
}

std::optional<Shape> SqlStore::shape(const Hash& hash) {
  Statement row = db_->prepare("SELECT workload, dims, flops, bytes FROM shape WHERE hash = ?");
  if (!row.bind(hash).step()) return std::nullopt;
  return Shape{row.text(0), dims_from_text(row.text(1)), row.integer(2), row.integer(3)};
}

std::optional<ConfigInfo> SqlStore::config(const Hash& hash) {
  Statement row = db_->prepare(
      "SELECT t.name, t.version, c.json FROM config c JOIN template t ON t.hash = c.template "
      "WHERE c.hash = ?");
  if (!row.bind(hash).step()) return std::nullopt;
  return ConfigInfo{row.text(0), row.integer(1), row.text(2)};
}

// One step of an index for each.
std::vector<int64_t> SqlStore::thread_counts() {
  std::vector<int64_t> all;
  for (int64_t last = std::numeric_limits<int64_t>::min();; last = all.back()) {
    Statement row = db_->prepare("SELECT min(threads) FROM workload WHERE threads > ?");
    if (!row.bind(last).step() || row.is_null(0)) return all;
    all.push_back(row.integer(0));
  }
}

std::vector<Hardware> SqlStore::hardware() {
  std::vector<Hardware> all;
  Statement row = db_->prepare(
      fmt::format("SELECT {} FROM hardware ORDER BY model_name, hash", kHardwareColumns));
  while (row.step()) all.push_back(read_hardware(row));
  return all;
}

std::vector<Toolchain> SqlStore::toolchains() {
  std::vector<Toolchain> all;
  Statement row = db_->prepare(
      "SELECT compiler, version, flags, codegen_version, revision, dirty FROM toolchain "
      "ORDER BY codegen_version DESC, hash");
  while (row.step())
    all.push_back(
        {row.text(0), row.text(1), row.text(2), row.integer(3), row.text(4), row.integer(5) != 0});
  return all;
}

}  // namespace nimble::db
