#include "db/store/tables.h"

#include "db/store/hash.h"
#include "db/store/queue.h"
#include "db/store/samples.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

[[noreturn]] void refuse(const char* table, const std::string& key, const std::string& problem) {
  throw Error(Status::kCorrupt, fmt::format("{} {}", table, printable(key)), problem,
              "the row was not written by nimble, or was changed since");
}

void expect_key(const char* table, const std::string& stored, const std::string& computed) {
  if (stored != computed)
    refuse(table, stored, fmt::format("its content has the key {}", computed));
}

void expect_uuid(const char* table, const Statement& row) {
  if (!is_uuid(row.text(0))) refuse(table, row.text(0), "its key is not a UUID");
}

// Text that must already be in its canonical form.
void expect_json(const char* table, const std::string& key, const std::string& json) {
  if (canonical_json(json, fmt::format("{} {}", table, printable(key))) != json)
    refuse(table, key, "its JSON is not in canonical form");
}

void expect_dims(const char* table, const std::string& key, const std::string& dims) {
  if (text_of(dims_from_text(dims)) != dims) refuse(table, key, "its shape is not canonical");
}

template <const char* kTable>
void only_uuid(const Statement& row) {
  expect_uuid(kTable, row);
}

void hardware(const Statement& row) {
  expect_key(
      "hardware", row.text(0),
      key_of(Hardware{row.text(1), row.integer(2), row.integer(3), row.integer(4), row.text(5),
                      row.text(6), row.text(7), row.text(8), row.integer(9) != 0}));
}

void toolchain(const Statement& row) {
  expect_key("toolchain", row.text(0),
             key_of(Toolchain{row.text(1), row.text(2), row.text(3), row.integer(4), row.text(5),
                              row.integer(6) != 0}));
}

void template_row(const Statement& row) {
  expect_key("template", row.text(0), key_of(Template{row.text(1), row.integer(2), row.text(3)}));
}

void workload(const Statement& row) {
  Workload w;
  w.canonical = row.text(1);
  expect_key("workload", row.text(0), key_of(w));
}

void shape(const Statement& row) {
  expect_dims("shape", row.text(0), row.text(2));
  expect_key("shape", row.text(0), key_of(Shape{row.text(1), dims_from_text(row.text(2)), 0, 0}));
}

void config(const Statement& row) {
  expect_json("config", row.text(0), row.text(2));
  expect_key("config", row.text(0), key_of(Config{row.text(1), row.text(2)}));
}

void artifact(const Statement& row) {
  expect_key("artifact", row.text(0),
             key_of(Artifact{row.text(1), row.text(2), row.text(3), row.text(4), 0, 0}));
}

void measure_policy(const Statement& row) {
  const std::optional<CacheMode> mode = cache_mode_from_name(row.text(1));
  if (!mode) refuse("measure_policy", row.text(0), "its mode is neither warm nor cold");
  expect_key("measure_policy", row.text(0),
             key_of(MeasurePolicy{*mode, row.integer(2), row.integer(3), row.text(4), row.text(5),
                                  row.text(6)}));
}

void campaign(const Statement& row) {
  expect_uuid("campaign", row);
  expect_json("campaign", row.text(0), row.text(4));
}

void trial(const Statement& row) {
  const std::optional<Role> role = role_from_name(row.text(5));
  if (!role) refuse("trial", row.text(0), "its role is unknown");
  expect_key("trial", row.text(0),
             uuid_of(TrialKey{row.text(1), row.text(2), row.text(3), row.text(4), *role,
                              row.integer(6), row.maybe_text(19), row.maybe_text(20)}));
}

void blob(const Statement& row) {
  if (!is_digest(row.text(0))) refuse("blob", row.text(0), "its key is not a digest");
  if (row.text(2) == "removed") return;
  unpack_blob(row.text(0), row.integer(1), row.text(2), row.blob(3));
}

void measure_case(const Statement& row) {
  expect_json("measure_case", row.text(0), row.text(5));
  expect_key("measure_case", row.text(0),
             key_of(MeasureCase{row.text(1), row.text(2), row.text(3), row.integer(4), row.text(5),
                                row.real(6), row.maybe_text(7)}));
}

void worker(const Statement& row) {
  expect_uuid("worker", row);
  expect_json("worker", row.text(0), row.text(5));
  expect_json("worker", row.text(0), row.text(6));
}

void task(const Statement& row) {
  expect_key("task", row.text(0), uuid_of_task(row.text(1), row.text(2)));
}

void job_report(const Statement& row) {
  expect_uuid("job_report", row);
  if (!is_uuid(row.text(1))) refuse("job_report", row.text(0), "its job is not a UUID");
}

void twin_samples(const Statement& row) {
  const std::string problem = problem_of_samples(
      row.blob(2), std::vector<uint8_t>(row.blob(2).size() / sizeof(double), 0), row.real(3));
  if (!problem.empty()) refuse("twin_samples", row.text(0), problem);
}

void cost_model(const Statement& row) {
  expect_uuid("cost_model", row);
  if (row.maybe_text(9) && row.text(9) != digest_of(row.blob(4)))
    refuse("cost_model", row.text(0), "its digest is of another model");
}

void peer_figure(const Statement& row) {
  expect_uuid("peer_figure", row);
  expect_json("peer_figure", row.text(0), row.text(4));
  expect_dims("peer_figure", row.text(0), row.text(7));
  if (row.integer(10) == 0) return;  // with an interval instead, as the schema says
  const std::string problem = problem_of_samples(
      row.blob(11), std::vector<uint8_t>(row.blob(11).size() / sizeof(double), 0), row.real(12));
  if (!problem.empty()) refuse("peer_figure", row.text(0), problem);
}

void shape_count(const Statement& row) {
  expect_uuid("shape_count", row);
  expect_dims("shape_count", row.text(0), row.text(3));
}

void dispatch_table(const Statement& row) {
  expect_uuid("dispatch_table", row);
  expect_json("dispatch_table", row.text(0), row.text(9));
}

void dispatch_entry(const Statement& row) {
  expect_json("dispatch_entry", fmt::format("{}/{}", row.text(0), row.integer(1)), row.text(2));
}

void dispatch_override(const Statement& row) {
  expect_uuid("dispatch_override", row);
  expect_json("dispatch_override", row.text(0), row.text(3));
  region_from_json(row.text(3), fmt::format("dispatch_override {}", printable(row.text(0))));
}

void only_references(const Statement&) {
  // What refers to other rows, which the foreign keys check, and numbers that the schema checks.
}

void dispatch_miss(const Statement& row) {
  expect_uuid("dispatch_miss", row);
  expect_dims("dispatch_miss", row.text(0), row.text(3));
}

// Whether they are worth anything, who relies on them checks; here, that they have the form.
void expect_digits(const char* table, const std::string& text) {
  if (!is_digest(text)) refuse(table, text, "its key is not 64 hex digits");
}

void signing_key(const Statement& row) {
  expect_digits("signing_key", row.text(0));
}

void key_revocation(const Statement& row) {
  expect_digits("key_revocation", row.text(0));
}

void signature(const Statement& row) {
  expect_digits("signature", row.text(0));
  expect_digits("signature", row.text(1));
}

constexpr char kMachine[] = "machine";
constexpr char kHostState[] = "host_state";
constexpr char kMeasurement[] = "measurement";
constexpr char kCorrectness[] = "correctness";
constexpr char kDispatchEvent[] = "dispatch_event";
constexpr char kDispatchComparison[] = "dispatch_comparison";
constexpr char kDispatchWithdrawal[] = "dispatch_withdrawal";
constexpr char kTaskEvent[] = "task_event";
constexpr char kFailureLog[] = "failure_log";
constexpr char kCeiling[] = "ceiling";
constexpr char kMachineVerdict[] = "machine_verdict";
constexpr char kControl[] = "control";

constexpr TableSpec kTables[] = {
    {"hardware",
     "hash, vendor, family, model, stepping, model_name, isa, caches, topology, virtualised",
     "hash", hardware},
    {kMachine, "uuid, hostname, hardware", "uuid", only_uuid<kMachine>},
    {kHostState, "uuid, governor, turbo, smt, affinity, load, steal", "uuid",
     only_uuid<kHostState>},
    {"toolchain", "hash, compiler, version, flags, codegen_version, revision, dirty", "hash",
     toolchain},
    {"template", "hash, name, version, parameters", "hash", template_row},
    {"workload", "hash, canonical, anchor, op, dtype, layout, symbolic_dims, threads", "hash",
     workload},
    {"shape", "hash, workload, dims, flops, bytes", "hash", shape},
    {"config", "hash, template, json", "hash", config},
    {"artifact", "hash, code_hash, workload, config, toolchain, compile_ms, size", "hash",
     artifact},
    {"measure_policy", "hash, mode, warm_up, threads, timer, stop_rule, class", "hash",
     measure_policy},
    {"blob", "digest, size, encoding, bytes", "digest", blob},
    {"candidate", "artifact, digest, target, created_at", "artifact, digest", only_references},
    {"measure_case", "hash, workload, shape, policy, seed, fills, tolerance, expected", "hash",
     measure_case},
    {"worker", "uuid, machine, name, pid, version, capabilities, trusted_keys, started_at", "uuid",
     worker},
    {"campaign",
     "uuid, digest, hardware, seed, options, command, budget_s, consumed_s, state, created_at, "
     "updated_at",
     "uuid", campaign},
    {"consumption", "campaign, machine, consumed_s", "campaign, machine", only_references},
    {"task", "uuid, campaign, workload, label, share, calls, created_at", "uuid", task},
    {kTaskEvent, "uuid, task, phase, detail, created_at, share", "uuid", only_uuid<kTaskEvent>},
    {"task_shape", "task, shape, weight", "task, shape", only_references},
    {kControl, "uuid, campaign, request, requested_by, reason, created_at", "uuid",
     only_uuid<kControl>},
    {"control_answer", "control, accepted, message, created_at", "control", only_references},
    {"job_report",
     "uuid, job, campaign, measure_case, worker, host_state, attempt, consumed_s, results, late, "
     "created_at",
     "uuid", job_report},
    {kMachineVerdict,
     "uuid, campaign, machine, cases, apart, noise, slowness, set_aside, created_at", "uuid",
     only_uuid<kMachineVerdict>},
    {"cost_model",
     "uuid, campaign, workload, round, model, rank_correlation, created_at, feature_version, "
     "scale, "
     "digest",
     "uuid", cost_model},
    {"trial",
     "uuid, campaign, workload, config, shape, role, threads, round, priority, predicted_ns, "
     "state, attempt, lease_owner, lease_until, error_class, message, created_at, finished_at, "
     "position, hardware, policy, median_ns, measured_on",
     "uuid", trial},
    {kMeasurement,
     "uuid, trial, artifact, policy, machine, host_state, n, median_ns, mad_ns, ci_low_ns, "
     "ci_high_ns, stop_reason, created_at, runs_per_sample, drift",
     "uuid", only_uuid<kMeasurement>},
    {"tombstone", "table_name, row_key, reason, created_at", "table_name, row_key",
     only_references},
    // Their times are looked at with their median, by find_wrong_samples(): once.
    {"samples", "measurement, n, ns, outlier", "measurement", only_references},
    {"twin_samples", "measurement, n, ns, median_ns, created_at", "measurement", twin_samples},
    {"generated_code", "code_hash, kind, digest, created_at", "code_hash, kind", only_references},
    {kFailureLog, "uuid, trial, attempt, worker, error_class, message, output, command, created_at",
     "uuid", only_uuid<kFailureLog>},
    {kCeiling, "uuid, machine, dtype, threads, kind, value, created_at", "uuid",
     only_uuid<kCeiling>},
    {"peer_figure",
     "uuid, run, peer, version, settings, machine, subject, dims, dtype, threads, n, ns, "
     "median_ns, created_at, ci_low_ns, ci_high_ns",
     "uuid", peer_figure},
    {"shape_count", "replica, workload, hardware, dims, count", "replica, workload, hardware, dims",
     shape_count},
    {kCorrectness, "uuid, artifact, shape, max_error, tolerance, pass, created_at", "uuid",
     only_uuid<kCorrectness>},
    {"dispatch_table",
     "uuid, workload, hardware, toolchain, policy, campaign, parent, version, objective, tree, "
     "created_at",
     "uuid", dispatch_table},
    {"dispatch_entry",
     "dispatch_table, ordinal, range, config, evidence, expected_ns, regret, fallback, "
     "is_override, reason",
     "dispatch_table, ordinal", dispatch_entry},
    {kDispatchEvent, "uuid, dispatch_table, status, reason, created_at", "uuid",
     only_uuid<kDispatchEvent>},
    {"dispatch_replaced", "replaced, event", "replaced, event", only_references},
    {kDispatchComparison, "uuid, dispatch_table, rival, shapes, ratio, worst_ratio, created_at",
     "uuid", only_uuid<kDispatchComparison>},
    {"dispatch_override", "uuid, workload, hardware, region, config, evidence, reason, created_at",
     "uuid", dispatch_override},
    {kDispatchWithdrawal, "uuid, dispatch_override, reason, created_at", "uuid",
     only_uuid<kDispatchWithdrawal>},
    {"signing_key", "public_key, name, created_at", "public_key", signing_key},
    {"key_revocation", "public_key, reason, created_at", "public_key", key_revocation},
    {"signature", "subject, public_key, bytes, created_at", "subject, public_key, bytes",
     signature},
    {"dispatch_miss", "replica, workload, hardware, dims, count",
     "replica, workload, hardware, dims", dispatch_miss},
};

constexpr Invariant kInvariants[] = {
    {"a trial that ended ok has no measurement",
     "SELECT uuid FROM trial t WHERE state = 'ok' AND NOT EXISTS "
     "(SELECT 1 FROM measurement m WHERE m.trial = t.uuid)"},
    {"a measurement has not as many samples as it says",
     "SELECT m.uuid FROM measurement m LEFT JOIN samples s ON s.measurement = m.uuid "
     "WHERE s.n IS DISTINCT FROM m.n AND NOT (s.n IS NULL AND EXISTS (SELECT 1 FROM tombstone t "
     "WHERE t.table_name = 'samples' AND t.row_key = m.uuid))"},
    {"a trial's time is none of its measurements'",
     "SELECT t.uuid FROM trial t WHERE t.state = 'ok' AND NOT EXISTS (SELECT 1 FROM measurement m "
     "JOIN machine c ON c.uuid = m.machine WHERE m.trial = t.uuid AND m.median_ns = t.median_ns "
     "AND c.hardware = t.measured_on)"},
    {"a measurement's artifact is of another workload or configuration than its trial",
     "SELECT m.uuid FROM measurement m JOIN trial t ON t.uuid = m.trial "
     "JOIN artifact a ON a.hash = m.artifact "
     "WHERE a.workload <> t.workload OR a.config <> t.config"},
    {"a trial's shape is of another workload",
     "SELECT t.uuid FROM trial t JOIN shape s ON s.hash = t.shape WHERE s.workload <> t.workload"},
    {"a case's shape is of another workload",
     "SELECT c.hash FROM measure_case c JOIN shape s ON s.hash = c.shape "
     "WHERE s.workload <> c.workload"},
    {"a task weighs a shape of another workload",
     "SELECT w.task FROM task_shape w JOIN task t ON t.uuid = w.task "
     "JOIN shape s ON s.hash = w.shape WHERE s.workload <> t.workload"},
    {"a dispatch table has no entries",
     "SELECT uuid FROM dispatch_table d WHERE NOT EXISTS "
     "(SELECT 1 FROM dispatch_entry e WHERE e.dispatch_table = d.uuid)"},
    {"the entries of a dispatch table are not numbered 0, 1, 2, …",
     "SELECT dispatch_table FROM dispatch_entry GROUP BY dispatch_table "
     "HAVING max(ordinal) <> count(*) - 1"},
    {"a dispatch table's version does not follow its parent's",
     "SELECT d.uuid FROM dispatch_table d LEFT JOIN dispatch_table p ON p.uuid = d.parent "
     "WHERE d.version <> coalesce(p.version, 0) + 1"},
    {"a dispatch table's parent is of another workload or other hardware",
     "SELECT d.uuid FROM dispatch_table d JOIN dispatch_table p ON p.uuid = d.parent "
     "WHERE d.workload <> p.workload OR d.hardware <> p.hardware"},
    {"a dispatch entry's evidence is of another workload or configuration",
     "SELECT e.dispatch_table || '/' || e.ordinal FROM dispatch_entry e "
     "JOIN dispatch_table d ON d.uuid = e.dispatch_table "
     "JOIN measurement m ON m.uuid = e.evidence JOIN trial t ON t.uuid = m.trial "
     "WHERE t.workload <> d.workload OR t.config <> e.config"},
    {"an override's evidence is of another workload or configuration",
     "SELECT o.uuid FROM dispatch_override o JOIN measurement m ON m.uuid = o.evidence "
     "JOIN trial t ON t.uuid = m.trial "
     "WHERE t.workload <> o.workload OR t.config <> o.config"},
    {"a dispatch table is compared with one of another workload or other hardware",
     "SELECT c.uuid FROM dispatch_comparison c JOIN dispatch_table d ON d.uuid = c.dispatch_table "
     "JOIN dispatch_table r ON r.uuid = c.rival "
     "WHERE d.workload <> r.workload OR d.hardware <> r.hardware"},
};

}  // namespace

std::span<const TableSpec> exchanged_tables() {
  return kTables;
}
std::span<const Invariant> invariants() {
  return kInvariants;
}

void find_wrong_samples(Connection& db, const std::function<void(const std::string&)>& say) {
  // Whose measurement is not in this database are times all the same: one lies within their range.
  Statement row = db.prepare_streaming(
      "SELECT s.measurement, m.median_ns, s.ns, s.outlier FROM samples s "
      "LEFT JOIN measurement m ON m.uuid = s.measurement");
  while (row.step()) {
    double median = row.real(1);
    if (row.is_null(1)) {
      const std::vector<double> ns = decode_samples(row.blob(2));
      median = ns.empty() ? 0 : ns.front();
    }
    const std::string problem = problem_of_samples(row.blob(2), row.blob(3), median);
    if (!problem.empty()) say(fmt::format("measurement {}: {}", printable(row.text(0)), problem));
  }
}

}  // namespace nimble::db
