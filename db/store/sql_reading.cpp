// Pages by key.
//
// A page is one range of an index: the rows behind a key, in the index's order, up to the limit.
// Comparing rows, (a, b) > (?, ?), is what both engines turn into such a range.
#include <algorithm>
#include <limits>

#include "db/store/sql_rows.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr int64_t kMostRows = 10'000;

// The columns of an order, and the condition of its index.
struct Order {
  std::string_view column;
  std::string_view condition;
  ValueKind kind;
  bool of_campaign;  // its index is of one campaign
};

Order order_of(TrialOrder order) {
  switch (order) {
    case TrialOrder::kQueue:
      return {"trial.position", "", ValueKind::kInteger, true};
    case TrialOrder::kFinished:
      return {"trial.finished_at", " AND trial.finished_at IS NOT NULL", ValueKind::kInteger,
              false};
    case TrialOrder::kTime:
      return {"trial.median_ns", " AND trial.median_ns IS NOT NULL", ValueKind::kReal, false};
    case TrialOrder::kPredicted:
      return {"trial.predicted_ns", " AND trial.predicted_ns IS NOT NULL", ValueKind::kReal, true};
    case TrialOrder::kState:
      return {"trial.state", "", ValueKind::kText, true};
  }
  NIMBLE_UNREACHABLE("order {}", static_cast<int>(order));
}

void check_limit(int64_t limit) {
  if (limit < 1 || limit > kMostRows)
    throw Error(Status::kInvalidArgument, "page", fmt::format("of {} rows", limit),
                fmt::format("ask for 1 to {}", kMostRows));
}

// Conditions with ? in order, and what is bound to them.
struct Where {
  std::string sql;
  std::vector<std::string> values;
  void add(std::string_view column, const std::optional<std::string>& value) {
    if (!value) return;
    sql += fmt::format(" AND {} = ?", column);
    values.push_back(*value);
  }
};

Where where_of(const TrialFilter& f, TrialOrder order) {
  if (order_of(order).of_campaign && !f.campaign)
    throw Error(Status::kInvalidArgument, "page", "this order is of one campaign",
                "name a campaign, or ask for another order");
  Where where;
  where.add("trial.campaign", f.campaign);
  where.add("trial.workload", f.workload);
  where.add("trial.measured_on", f.hardware);
  where.add("trial.shape", f.shape);
  where.add("trial.config", f.config);
  if (f.role) where.add("trial.role", std::string(name_of(*f.role)));
  if (f.state) where.add("trial.state", std::string(name_of(*f.state)));
  if (!f.error_class.empty()) where.add("trial.error_class", f.error_class);
  if (f.failed)
    where.sql += " AND trial.state IN ('wrong', 'crashed', 'timeout', 'compile_failed')";
  where.sql += order_of(order).condition;
  return where;
}

int bind_values(Statement& statement, const std::vector<std::string>& values) {
  int index = 0;
  for (const std::string& value : values) statement.bind_at(++index, value);
  return index;
}

PageKey key_of_row(const Statement& row, int column, ValueKind kind, Uuid uuid) {
  PageKey key;
  key.uuid = std::move(uuid);
  if (kind == ValueKind::kInteger) key.integer = row.integer(column);
  if (kind == ValueKind::kReal) key.real = row.real(column);
  if (kind == ValueKind::kText) key.text = row.text(column);
  return key;
}

void bind_key(Statement& row, int& index, const Order& order, const PageKey& key) {
  if (order.kind == ValueKind::kReal)
    row.bind_at(++index, key.real);
  else if (order.kind == ValueKind::kText)
    row.bind_at(++index, key.text);
  else
    row.bind_at(++index, key.integer);
  row.bind_at(++index, key.uuid);
}

MeasurementSummary read_summary(const Statement& row) {
  MeasurementSummary s;
  Measurement& m = s.measurement;
  m.uuid = row.text(0);
  m.trial = row.text(1);
  m.artifact = row.text(2);
  m.policy = row.text(3);
  m.machine = row.text(4);
  m.host_state = row.text(5);
  m.median_ns = row.real(6);
  m.mad_ns = row.real(7);
  m.ci_low_ns = row.real(8);
  m.ci_high_ns = row.real(9);
  m.stop_reason = row.text(10);
  m.created_at = row.integer(11);
  if (!row.is_null(12)) m.runs_per_sample = row.integer(12);
  m.drift = row.maybe_real(13);
  s.n = row.integer(14);
  s.hostname = row.text(15);
  s.hardware = row.text(16);
  s.code_hash = row.text(17);
  s.has_samples = row.integer(18) != 0;
  return s;
}

constexpr std::string_view kSummaryQuery =
    "SELECT m.uuid, m.trial, m.artifact, m.policy, m.machine, m.host_state, m.median_ns, m.mad_ns, "
    "m.ci_low_ns, m.ci_high_ns, m.stop_reason, m.created_at, m.runs_per_sample, m.drift, m.n, "
    "c.hostname, c.hardware, a.code_hash, CASE WHEN EXISTS (SELECT 1 FROM samples s "
    "WHERE s.measurement = m.uuid) THEN 1 ELSE 0 END FROM measurement m "
    "JOIN machine c ON c.uuid = m.machine JOIN artifact a ON a.hash = m.artifact";

}  // namespace

std::vector<TrialRow> SqlStore::trials(const PageRequest& request) {
  check_limit(request.limit);
  const Order order = order_of(request.order);
  Where where = where_of(request.filter, request.order);
  const bool up = request.descending == request.backwards;
  if (request.from)
    where.sql += fmt::format(" AND ({}, trial.uuid) {} (?, ?)", order.column, up ? ">" : "<");
  const std::string_view way = up ? "ASC" : "DESC";
  // The page is chosen before anything is joined to it: the planner then sees one range of an
  // index.
  Statement row = db_->prepare(fmt::format(
      "SELECT {0}, s.dims, c.json, t.name, trial.median_ns, trial.measured_on, trial.created_at, "
      "trial.finished_at, {1} FROM (SELECT * FROM trial WHERE 1 = 1{2} "
      "ORDER BY {1} {3}, trial.uuid {3} LIMIT ?) AS trial "
      "JOIN shape s ON s.hash = trial.shape JOIN config c ON c.hash = trial.config "
      "JOIN template t ON t.hash = c.template ORDER BY {1} {3}, trial.uuid {3}",
      kTrialColumns, order.column, where.sql, way));
  int index = bind_values(row, where.values);
  if (request.from) bind_key(row, index, order, *request.from);
  row.bind_at(++index, request.limit);
  std::vector<TrialRow> all;
  while (row.step()) {
    TrialRow r;
    r.trial = read_trial(row);
    int column = kTrialColumnCount;
    r.dims = dims_from_text(row.text(column++));
    r.config_json = row.text(column++);
    r.template_name = row.text(column++);
    r.median_ns = row.maybe_real(column++);
    r.measured_on = row.maybe_text(column++);
    r.created_at = row.integer(column++);
    r.finished_at = row.integer(column++);
    r.key = key_of_row(row, column, order.kind, r.trial.uuid);
    all.push_back(std::move(r));
  }
  if (request.backwards) std::reverse(all.begin(), all.end());
  return all;
}

Landmarks SqlStore::landmarks(const TrialFilter& filter, TrialOrder by, bool descending,
                              int64_t step, const std::optional<PageKey>& from, int64_t limit) {
  if (step < 1) throw Error(Status::kInvalidArgument, "landmarks", "need a step of at least 1");
  if (limit < step || (limit % step != 0 && limit != std::numeric_limits<int64_t>::max()))
    throw Error(Status::kInvalidArgument, "landmarks", "the limit is no multiple of the step");
  const Order order = order_of(by);
  Where where = where_of(filter, by);
  if (from)
    where.sql +=
        fmt::format(" AND ({}, trial.uuid) {} (?, ?)", order.column, descending ? "<" : ">");
  Landmarks all;
  all.step = step;
  Statement row = db_->prepare_streaming(fmt::format(
      "SELECT {0}, trial.uuid FROM trial WHERE 1 = 1{1} ORDER BY {0} {2}, uuid {2} LIMIT ?",
      order.column, where.sql, descending ? "DESC" : "ASC"));
  int index = bind_values(row, where.values);
  if (from) bind_key(row, index, order, *from);
  row.bind_at(++index, limit);
  while (row.step())
    if (++all.rows % step == 0) all.keys.push_back(key_of_row(row, 0, order.kind, row.text(1)));
  all.more = all.rows == limit;
  return all;
}

std::vector<Workload> SqlStore::workloads(int64_t limit, const std::string& after) {
  check_limit(limit);
  std::vector<Workload> all;
  Statement row = db_->prepare(
      "SELECT canonical, anchor, op, dtype, layout, symbolic_dims, threads FROM workload "
      "WHERE canonical > ? ORDER BY canonical, hash LIMIT ?");
  row.bind(after, limit);
  while (row.step())
    all.push_back({row.text(0), row.text(1), row.text(2), row.text(3), row.text(4), row.text(5),
                   row.integer(6)});
  return all;
}

std::optional<HostState> SqlStore::host_state(const Uuid& uuid) {
  Statement row = db_->prepare(
      "SELECT governor, turbo, smt, affinity, load, steal FROM host_state WHERE uuid = ?");
  if (!row.bind(uuid).step()) return std::nullopt;
  HostState s;
  s.uuid = uuid;
  s.governor = row.text(0);
  if (!row.is_null(1)) s.turbo = row.integer(1) != 0;
  if (!row.is_null(2)) s.smt = row.integer(2) != 0;
  s.affinity = row.text(3);
  s.load = row.real(4);
  s.steal = row.real(5);
  return s;
}

std::vector<MeasurementSummary> SqlStore::measurements(const Uuid& trial, int64_t limit) {
  check_limit(limit);
  std::vector<MeasurementSummary> all;
  Statement row = db_->prepare(fmt::format(
      "{} WHERE m.trial = ? ORDER BY m.created_at DESC, m.uuid LIMIT ?", kSummaryQuery));
  row.bind(trial, limit);
  while (row.step()) all.push_back(read_summary(row));
  return all;
}

std::vector<CorrectnessRecord> SqlStore::correctness(const Hash& artifact,
                                                     const std::optional<Hash>& shape,
                                                     int64_t limit) {
  check_limit(limit);
  std::vector<CorrectnessRecord> all;
  Statement row = db_->prepare(fmt::format(
      "SELECT uuid, artifact, shape, max_error, tolerance, pass, created_at FROM correctness "
      "WHERE artifact = ?1 {} ORDER BY created_at DESC, uuid LIMIT ?2",
      shape ? "AND shape = ?3" : ""));
  row.bind(artifact, limit);
  if (shape) row.bind_at(3, *shape);
  while (row.step()) {
    CorrectnessRecord c;
    c.uuid = row.text(0);
    c.artifact = row.text(1);
    c.shape = row.text(2);
    c.max_error = row.is_null(3) ? std::numeric_limits<double>::quiet_NaN() : row.real(3);
    c.tolerance = row.real(4);
    c.pass = row.integer(5) != 0;
    c.created_at = row.integer(6);
    all.push_back(std::move(c));
  }
  return all;
}

std::vector<TwinRow> SqlStore::twins(const Hash& workload, const Hash& hardware, int64_t limit) {
  check_limit(limit);
  Statement row = db_->prepare(
      "SELECT w.measurement, r.trial, r.median_ns, w.median_ns, r.ci_low_ns, r.ci_high_ns, "
      "w.created_at FROM newest_measured r JOIN twin_samples w ON w.measurement = r.measurement "
      "WHERE r.workload = ? AND r.hardware = ? "
      "ORDER BY w.created_at DESC, w.measurement DESC LIMIT ?");
  row.bind(workload, hardware, limit);
  std::vector<TwinRow> all;
  while (row.step())
    all.push_back({row.text(0), row.text(1), row.real(2), row.real(3), row.real(4), row.real(5),
                   row.integer(6)});
  return all;
}

std::vector<DispatchChange> SqlStore::history(const Hash& workload, const Hash& hardware,
                                              int64_t limit) {
  check_limit(limit);
  std::vector<DispatchChange> all;
  Statement row = db_->prepare(
      "SELECT e.dispatch_table, e.status, e.reason, e.created_at FROM dispatch_table d "
      "JOIN dispatch_event e ON e.dispatch_table = d.uuid WHERE d.workload = ? AND d.hardware = ? "
      "ORDER BY e.created_at DESC, e.uuid LIMIT ?");
  row.bind(workload, hardware, limit);
  while (row.step()) all.push_back({row.text(0), row.text(1), row.text(2), row.integer(3)});
  return all;
}

}  // namespace nimble::db
