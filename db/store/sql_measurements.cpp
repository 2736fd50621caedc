// Measurements, their samples, correctness and cost models; and the queries that rank them.
#include <algorithm>
#include <cmath>

#include "db/store/hash.h"
#include "db/store/samples.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"
#include "vm/base/median.h"

namespace nimble::db {

SqlStore::Facts::Facts(Connection& db)
    : measurements(db, "measurement",
                   "uuid, trial, artifact, policy, machine, host_state, n, median_ns, mad_ns, "
                   "ci_low_ns, ci_high_ns, stop_reason, created_at, runs_per_sample, drift"),
      samples(db, "samples", "measurement, n, ns, outlier", &measurements),
      twins(db, "twin_samples", "measurement, n, ns, median_ns, created_at", &measurements),
      correctness(db, "correctness",
                  "uuid, artifact, shape, max_error, tolerance, pass, created_at") {}

void SqlStore::Facts::flush() {
  for (InsertRows* rows : {&measurements, &samples, &twins, &correctness}) rows->flush();
}

Uuid SqlStore::insert_measurement(const Measurement& m, Facts& facts, int64_t t) {
  if (m.samples_ns.empty())
    throw Error(Status::kInvalidArgument, "measurement", "has no samples", "keep every raw sample");
  if (!m.outliers.empty() && m.outliers.size() != m.samples_ns.size())
    throw Error(
        Status::kInvalidArgument, "measurement",
        fmt::format("has {} samples but {} outlier flags", m.samples_ns.size(), m.outliers.size()));
  require_time(m.median_ns, "median of a measurement");
  require_time(m.ci_low_ns, "lower confidence bound of a measurement");
  require_time(m.ci_high_ns, "upper confidence bound of a measurement");
  for (double sample : m.samples_ns) require_time(sample, "sample of a measurement");
  if (!(m.mad_ns >= 0) || !std::isfinite(m.mad_ns))
    throw Error(Status::kInvalidArgument, "measurement",
                fmt::format("median absolute deviation {} is not a duration", m.mad_ns));

  const std::vector<uint8_t> ns = encode_samples(m.samples_ns);
  const std::vector<uint8_t> flags =
      m.outliers.empty() ? std::vector<uint8_t>(m.samples_ns.size(), 0) : encode_flags(m.outliers);
  const std::string problem = problem_of_samples(ns, flags, m.median_ns);
  if (!problem.empty()) throw Error(Status::kInvalidArgument, "measurement", problem);

  const Uuid uuid = m.uuid.empty() ? new_uuid() : m.uuid;
  const auto n = static_cast<int64_t>(m.samples_ns.size());
  facts.measurements.add(uuid, m.trial, m.artifact, m.policy, m.machine, m.host_state, n,
                         m.median_ns, m.mad_ns, m.ci_low_ns, m.ci_high_ns, m.stop_reason, t,
                         m.runs_per_sample, m.drift);
  facts.samples.add(uuid, n, ns, flags);
  if (m.twin_ns.empty()) return uuid;
  const double twin_median = median_of(m.twin_ns);
  const std::vector<uint8_t> twin = encode_samples(m.twin_ns);
  const std::string fault =
      problem_of_samples(twin, std::vector<uint8_t>(m.twin_ns.size(), 0), twin_median);
  if (!fault.empty()) throw Error(Status::kInvalidArgument, "twin of a measurement", fault);
  facts.twins.add(uuid, static_cast<int64_t>(m.twin_ns.size()), twin, twin_median, t);
  return uuid;
}

Uuid SqlStore::add(const Measurement& m) {
  Write write = begin_write();
  Facts facts(*db_);
  const Uuid uuid = insert_measurement(m, facts, now());
  facts.flush();
  write.commit();
  return uuid;
}

Uuid SqlStore::insert_correctness(const Correctness& c, Facts& facts, int64_t t) {
  if (c.pass && !(c.max_error <= c.tolerance))
    throw Error(
        Status::kInvalidArgument, "correctness",
        fmt::format("an error of {} does not pass a tolerance of {}", c.max_error, c.tolerance));
  const Uuid uuid = c.uuid.empty() ? new_uuid() : c.uuid;
  std::optional<double> error;  // none: NaN where a number was due
  if (!std::isnan(c.max_error)) error = c.max_error;
  facts.correctness.add(uuid, c.artifact, c.shape, error, c.tolerance, c.pass, t);
  return uuid;
}

Uuid SqlStore::add(const Correctness& c) {
  Facts facts(*db_);
  const Uuid uuid = insert_correctness(c, facts, now());
  facts.flush();
  return uuid;
}

Uuid SqlStore::add(const CostModel& m) {
  const Uuid uuid = m.uuid.empty() ? new_uuid() : m.uuid;
  db_->run(
      "INSERT INTO cost_model (uuid, campaign, workload, round, model, rank_correlation, "
      "created_at, feature_version, digest) VALUES (?,?,?,?,?,?,?,?,?)",
      uuid, m.campaign, m.workload, m.round, std::span<const uint8_t>(m.model), m.rank_correlation,
      now(), m.feature_version, digest_of(m.model));
  return uuid;
}

std::optional<Measurement> SqlStore::measurement(const Uuid& uuid) {
  Statement row = db_->prepare(
      "SELECT m.trial, m.artifact, m.policy, m.machine, m.host_state, m.median_ns, m.mad_ns, "
      "m.ci_low_ns, m.ci_high_ns, m.stop_reason, m.created_at, s.ns, s.outlier, "
      "m.runs_per_sample, m.drift, w.ns "
      "FROM measurement m LEFT JOIN samples s ON s.measurement = m.uuid "
      "LEFT JOIN twin_samples w ON w.measurement = m.uuid WHERE m.uuid = ?");
  if (!row.bind(uuid).step()) return std::nullopt;
  Measurement m;
  m.uuid = uuid;
  m.trial = row.text(0);
  m.artifact = row.text(1);
  m.policy = row.text(2);
  m.machine = row.text(3);
  m.host_state = row.text(4);
  m.median_ns = row.real(5);
  m.mad_ns = row.real(6);
  m.ci_low_ns = row.real(7);
  m.ci_high_ns = row.real(8);
  m.stop_reason = row.text(9);
  m.created_at = row.integer(10);
  m.samples_ns = decode_samples(row.blob(11));
  m.outliers = decode_flags(row.blob(12));
  if (!row.is_null(13)) m.runs_per_sample = row.integer(13);
  m.drift = row.maybe_real(14);
  m.twin_ns = decode_samples(row.blob(15));
  return m;
}

namespace {

constexpr char kModelColumns[] =
    "m.uuid, m.campaign, m.workload, m.round, m.rank_correlation, m.feature_version, m.digest, "
    "m.created_at";

CostModel model_of(const Statement& row) {
  CostModel m{row.text(0), row.text(1), row.text(2), row.integer(3), {}, row.maybe_real(4)};
  if (!row.is_null(5)) m.feature_version = row.integer(5);
  m.digest = row.text(6);
  m.created_at = row.integer(7);
  return m;
}

}  // namespace

std::optional<CostModel> SqlStore::cost_model(const Uuid& uuid) {
  Statement row = db_->prepare(
      fmt::format("SELECT {}, m.model FROM cost_model m WHERE m.uuid = ?", kModelColumns));
  if (!row.bind(uuid).step()) return std::nullopt;
  CostModel m = model_of(row);
  const std::span<const uint8_t> bytes = row.blob(8);
  m.model.assign(bytes.begin(), bytes.end());
  return m;
}

std::vector<CostModel> SqlStore::cost_models(const Hash& workload, const Hash& hardware,
                                             int64_t before, int64_t limit,
                                             const std::optional<CostModel>& after) {
  Statement row = db_->prepare(
      fmt::format("SELECT {} FROM cost_model m JOIN campaign c ON c.uuid = m.campaign "
                  "WHERE m.workload = ?1 AND c.hardware = ?2 AND m.created_at < ?3 {} "
                  "ORDER BY m.created_at DESC, m.uuid DESC LIMIT ?4",
                  kModelColumns, after ? "AND (m.created_at, m.uuid) < (?5, ?6)" : ""));
  row.bind(workload, hardware, before, limit);
  if (after) {
    row.bind_at(5, after->created_at);
    row.bind_at(6, after->uuid);
  }
  std::vector<CostModel> all;
  while (row.step()) all.push_back(model_of(row));
  return all;
}

std::vector<MeasurePolicy> SqlStore::policies(const Hash& workload, const Hash& hardware) {
  std::vector<MeasurePolicy> all;
  Statement row = db_->prepare(
      "SELECT mode, warm_up, threads, timer, stop_rule, class FROM measure_policy p WHERE EXISTS "
      "(SELECT 1 FROM newest_measured r WHERE r.workload = ? AND r.hardware = ? "
      "AND r.policy = p.hash) ORDER BY hash");
  row.bind(workload, hardware);
  while (row.step())
    all.push_back({cache_mode_from_name(row.text(0)).value(), row.integer(1), row.integer(2),
                   row.text(3), row.text(4), row.text(5)});
  return all;
}

namespace {

constexpr std::string_view kResultColumns =
    "r.measurement, r.trial, r.campaign, r.shape, r.config, r.artifact, a.toolchain, a.code_hash, "
    "s.dims, c.json, t.name, t.version, r.role, r.threads, r.round, r.n, r.median_ns, r.mad_ns, "
    "r.ci_low_ns, r.ci_high_ns, r.stop_reason, r.host_state, r.workload, r.policy, "
    "r.codegen_version, r.created_at";
constexpr int kResultColumnCount = 26;
constexpr std::string_view kResultJoins =
    "JOIN shape s ON s.hash = r.shape JOIN config c ON c.hash = r.config "
    "JOIN template t ON t.hash = c.template JOIN artifact a ON a.hash = r.artifact";

Result read_result(const Statement& row) {
  Result r;
  r.measurement = row.text(0);
  r.trial = row.text(1);
  r.campaign = row.text(2);
  r.shape = row.text(3);
  r.config = row.text(4);
  r.artifact = row.text(5);
  r.toolchain = row.text(6);
  r.code_hash = row.text(7);
  r.dims = dims_from_text(row.text(8));
  r.config_json = row.text(9);
  r.template_name = row.text(10);
  r.template_version = row.integer(11);
  r.role = role_from_name(row.text(12)).value();
  r.threads = row.integer(13);
  r.round = row.integer(14);
  r.n = row.integer(15);
  r.median_ns = row.real(16);
  r.mad_ns = row.real(17);
  r.ci_low_ns = row.real(18);
  r.ci_high_ns = row.real(19);
  r.stop_reason = row.text(20);
  r.host_state = row.text(21);
  r.workload = row.text(22);
  r.policy = row.text(23);
  r.codegen_version = row.integer(24);
  r.created_at = row.integer(25);
  return r;
}

}  // namespace

std::vector<Result> SqlStore::results(const ResultQuery& query) {
  std::string roles;  // names out of our own table: nothing to escape
  for (Role role : query.roles)
    roles += fmt::format("{}'{}'", roles.empty() ? "" : ",", name_of(role));
  // The rows are chosen before anything is joined to them: the planner then sees one range of keys.
  Statement row = db_->prepare(fmt::format(
      "SELECT {} FROM (SELECT * FROM newest_measured WHERE workload = ? AND hardware = ? "
      "AND policy = ? AND codegen_version = ? {}{} ORDER BY median_ns, measurement{}) AS r {} "
      "ORDER BY r.median_ns, r.measurement",
      kResultColumns, roles.empty() ? "" : fmt::format("AND role IN ({}) ", roles),
      query.shape ? "AND shape = ?" : "",
      query.limit < 0 ? "" : fmt::format(" LIMIT {}", query.limit), kResultJoins));
  row.bind(query.workload, query.hardware, query.policy, query.codegen_version);
  if (query.shape) row.bind_at(5, *query.shape);
  std::vector<Result> all;
  while (row.step()) all.push_back(read_result(row));
  return all;
}

std::vector<BestResult> SqlStore::best_results(const WorkloadPlace& of) {
  Statement row = db_->prepare(fmt::format(
      "SELECT {}, s.flops, s.bytes, m.machine FROM (SELECT n.*, row_number() OVER (PARTITION BY "
      "n.policy, n.codegen_version, n.shape ORDER BY n.median_ns, n.measurement) AS place "
      "FROM newest_measured n WHERE n.workload = ? AND n.hardware = ?) AS r {} "
      "JOIN measurement m ON m.uuid = r.measurement WHERE r.place = 1 "
      "ORDER BY r.policy, r.codegen_version DESC, r.median_ns, r.measurement",
      kResultColumns, kResultJoins));
  row.bind(of.workload, of.hardware);
  std::vector<BestResult> all;
  while (row.step())
    all.push_back({read_result(row), row.integer(kResultColumnCount),
                   row.integer(kResultColumnCount + 1), row.text(kResultColumnCount + 2)});
  return all;
}

}  // namespace nimble::db
