// Generated code, failures, ceilings, other programs' figures and counts of shapes.
#include <algorithm>
#include <cmath>

#include "db/store/hash.h"
#include "db/store/samples.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr size_t kMostOutput = 64 << 10;

}  // namespace

void SqlStore::put(const GeneratedCode& code) {
  if (code.code_hash.empty() || code.kind.empty())
    throw Error(Status::kInvalidArgument, "generated code", "needs a code hash and a kind");
  db_->run(
      "INSERT INTO generated_code (code_hash, kind, digest, created_at) VALUES (?,?,?,?) "
      "ON CONFLICT (code_hash, kind) DO NOTHING",
      code.code_hash, code.kind, code.digest, now());
}

std::vector<GeneratedCode> SqlStore::generated_code(const std::string& code_hash) {
  std::vector<GeneratedCode> all;
  Statement row = db_->prepare(
      "SELECT code_hash, kind, digest, created_at FROM generated_code WHERE code_hash = ? "
      "ORDER BY kind");
  row.bind(code_hash);
  while (row.step()) all.push_back({row.text(0), row.text(1), row.text(2), row.integer(3)});
  return all;
}

Uuid SqlStore::add(const FailureLog& log) {
  if (log.error_class.empty())
    throw Error(Status::kInvalidArgument, "failure", "needs a class", "for example segfault");
  const Uuid uuid = log.uuid.empty() ? new_uuid() : log.uuid;
  const std::string_view output =
      std::string_view(log.output)
          .substr(log.output.size() - std::min(log.output.size(), kMostOutput));
  db_->run(
      "INSERT INTO failure_log (uuid, trial, attempt, worker, error_class, message, output, "
      "command, created_at) VALUES (?,?,?,?,?,?,?,?,?)",
      uuid, log.trial, log.attempt, log.worker, log.error_class, log.message,
      std::span(reinterpret_cast<const uint8_t*>(output.data()), output.size()), log.command,
      now());
  return uuid;
}

std::vector<FailureLog> SqlStore::failures(const Uuid& trial) {
  std::vector<FailureLog> all;
  Statement row = db_->prepare(
      "SELECT uuid, trial, attempt, worker, error_class, message, output, command, created_at "
      "FROM failure_log WHERE trial = ? ORDER BY attempt DESC, created_at DESC, uuid");
  row.bind(trial);
  while (row.step()) {
    const std::span<const uint8_t> output = row.blob(6);
    all.push_back({row.text(0), row.text(1), row.integer(2), row.maybe_text(3), row.text(4),
                   row.text(5), std::string(output.begin(), output.end()), row.text(7),
                   row.integer(8)});
  }
  return all;
}

Uuid SqlStore::add(const Ceiling& c) {
  if (!(c.value > 0) || !std::isfinite(c.value))
    throw Error(Status::kInvalidArgument, "ceiling", fmt::format("{} is no rate", c.value));
  const Uuid uuid = c.uuid.empty() ? new_uuid() : c.uuid;
  db_->run(
      "INSERT INTO ceiling (uuid, machine, dtype, threads, kind, value, created_at) "
      "VALUES (?,?,?,?,?,?,?) ON CONFLICT (uuid) DO NOTHING",
      uuid, c.machine, c.dtype, c.threads, c.kind, c.value, now());
  return uuid;
}

std::vector<Ceiling> SqlStore::ceilings(const Uuid& machine) {
  std::vector<Ceiling> all;
  Statement row = db_->prepare(
      "SELECT uuid, machine, dtype, threads, kind, value, created_at FROM ("
      "SELECT *, row_number() OVER (PARTITION BY dtype, threads, kind "
      "ORDER BY created_at DESC, uuid) AS newest FROM ceiling WHERE machine = ?) AS numbered "
      "WHERE newest = 1 ORDER BY kind, dtype, threads");
  row.bind(machine);
  while (row.step())
    all.push_back({row.text(0), row.text(1), row.text(2), row.integer(3), row.text(4), row.real(5),
                   row.integer(6)});
  return all;
}

namespace {

constexpr char kVerdictColumns[] =
    "uuid, campaign, machine, cases, apart, noise, slowness, set_aside, created_at";

MachineVerdict verdict_of(const Statement& row) {
  return {row.text(0), row.text(1), row.text(2),         row.integer(3), row.real(4),
          row.real(5), row.real(6), row.integer(7) != 0, row.integer(8)};
}

}  // namespace

Uuid SqlStore::add(const MachineVerdict& v) {
  const Uuid uuid = v.uuid.empty() ? new_uuid() : v.uuid;
  db_->run(fmt::format("INSERT INTO machine_verdict ({}) VALUES (?,?,?,?,?,?,?,?,?) "
                       "ON CONFLICT (uuid) DO NOTHING",
                       kVerdictColumns),
           uuid, v.campaign, v.machine, v.cases, v.apart, v.noise, v.slowness,
           static_cast<int64_t>(v.set_aside), now());
  return uuid;
}

std::vector<MachineVerdict> SqlStore::verdicts(const Uuid& campaign) {
  std::vector<MachineVerdict> all;
  Statement row =
      db_->prepare(fmt::format("SELECT {0} FROM (SELECT *, row_number() OVER (PARTITION BY machine "
                               "ORDER BY created_at DESC, uuid) AS newest FROM machine_verdict "
                               "WHERE campaign = ?) AS numbered WHERE newest = 1 ORDER BY machine",
                               kVerdictColumns));
  row.bind(campaign);
  while (row.step()) all.push_back(verdict_of(row));
  return all;
}

std::optional<MachineVerdict> SqlStore::verdict(const Uuid& machine) {
  Statement row =
      db_->prepare(fmt::format("SELECT {} FROM machine_verdict WHERE machine = ? "
                               "ORDER BY created_at DESC, uuid LIMIT 1",
                               kVerdictColumns));
  if (!row.bind(machine).step()) return std::nullopt;
  return verdict_of(row);
}

Uuid SqlStore::add(const PeerFigure& f) {
  const auto refuse = [](const std::string& problem, const std::string& remedy) {
    throw Error(Status::kInvalidArgument, "figure of a peer", problem, remedy);
  };
  require_time(f.median_ns, "median of a figure");
  if (f.ci_low_ns.has_value() != f.ci_high_ns.has_value() ||
      (f.ci_low_ns && !(*f.ci_low_ns <= f.median_ns && f.median_ns <= *f.ci_high_ns)))
    refuse("its median lies outside of its interval", "give both bounds or none");
  if (f.ci_low_ns) require_time(*f.ci_low_ns, "lower bound of a figure");
  if (f.ci_high_ns) require_time(*f.ci_high_ns, "upper bound of a figure");
  const std::vector<uint8_t> ns = encode_samples(f.samples_ns);
  if (f.samples_ns.empty() && !f.ci_low_ns)
    refuse("has neither samples nor an interval", "give one of them");
  if (!f.samples_ns.empty()) {
    const std::string problem =
        problem_of_samples(ns, std::vector<uint8_t>(f.samples_ns.size(), 0), f.median_ns);
    if (!problem.empty()) refuse(problem, "");
  }
  if (!is_uuid(f.run)) refuse("names no run", "figures of one run share a UUID");
  const int64_t t = now();
  if (f.created_at > t + kDayMs) refuse("was measured more than a day from now", "set the clock");
  const Uuid uuid = f.uuid.empty() ? new_uuid() : f.uuid;
  db_->run(
      "INSERT INTO peer_figure (uuid, run, peer, version, settings, machine, subject, dims, dtype, "
      "threads, n, ns, median_ns, created_at, ci_low_ns, ci_high_ns) "
      "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (uuid) DO NOTHING",
      uuid, f.run, f.peer, f.version, canonical_json(f.settings, "settings of a peer"), f.machine,
      f.subject, text_of(f.dims), f.dtype, f.threads, static_cast<int64_t>(f.samples_ns.size()),
      std::span<const uint8_t>(ns), f.median_ns, f.created_at > 0 ? f.created_at : t, f.ci_low_ns,
      f.ci_high_ns);
  return uuid;
}

std::vector<PeerFigure> SqlStore::read_peers(std::string_view condition, const std::string& key,
                                             int64_t limit) {
  std::vector<PeerFigure> all;
  Statement row = db_->prepare(fmt::format(
      "SELECT uuid, run, peer, version, settings, machine, subject, dims, dtype, threads, ns, "
      "median_ns, created_at, ci_low_ns, ci_high_ns FROM peer_figure WHERE {} = ? "
      "ORDER BY created_at DESC, run, uuid LIMIT ?",
      condition));
  row.bind(key, limit);
  while (row.step()) {
    PeerFigure f;
    f.uuid = row.text(0);
    f.run = row.text(1);
    f.peer = row.text(2);
    f.version = row.text(3);
    f.settings = row.text(4);
    f.machine = row.text(5);
    f.subject = row.text(6);
    f.dims = dims_from_text(row.text(7));
    f.dtype = row.text(8);
    f.threads = row.integer(9);
    f.samples_ns = decode_samples(row.blob(10));
    f.median_ns = row.real(11);
    f.created_at = row.integer(12);
    f.ci_low_ns = row.maybe_real(13);
    f.ci_high_ns = row.maybe_real(14);
    all.push_back(std::move(f));
  }
  return all;
}

std::vector<PeerFigure> SqlStore::peer_figures(const std::string& subject, int64_t limit) {
  return read_peers("subject", subject, limit);
}

std::vector<PeerRun> SqlStore::peer_runs(int64_t limit) {
  std::vector<PeerRun> all;
  Statement row = db_->prepare(
      "SELECT run, subject, machine, count(*), max(created_at) FROM peer_figure "
      "GROUP BY run, subject, machine ORDER BY 5 DESC, run, subject, machine LIMIT ?");
  row.bind(limit);
  while (row.step())
    all.push_back({row.text(0), row.text(1), row.text(2), row.integer(3), row.integer(4)});
  return all;
}

std::vector<PeerFigure> SqlStore::peer_run(const Uuid& run) {
  return read_peers("run", run, 100'000);
}

void SqlStore::tell_shapes(const Uuid& source, const std::vector<ShapeCount>& counts) {
  if (!is_uuid(source))
    throw Error(Status::kInvalidArgument, "counts of shapes", "name no source",
                "counts of one source share a UUID");
  Write write = begin_write();
  for (const ShapeCount& c : counts) {
    if (c.count <= 0)
      throw Error(Status::kInvalidArgument, "count of a shape", fmt::format("{} is none", c.count));
    db_->run(
        "INSERT INTO shape_count (replica, workload, hardware, dims, count) VALUES (?,?,?,?,?) "
        "ON CONFLICT (replica, workload, hardware, dims) DO UPDATE SET count = excluded.count "
        "WHERE shape_count.count < excluded.count",
        source, c.workload, c.hardware, text_of(c.dims), c.count);
  }
  write.commit();
}

namespace {

// sum() of integers fails beyond 64 bits, and one merged row could hide all others. Reals are exact
// up to 2^53.
constexpr char kSummed[] = "sum(CAST(c.count AS double precision))";

int64_t whole(double sum) {
  constexpr double kTooMany = 9223372036854775808.0;  // 2^63
  return sum < kTooMany ? static_cast<int64_t>(sum) : INT64_MAX;
}

// That an active table serves what `c` is of.
constexpr char kHasTable[] =
    "EXISTS (SELECT 1 FROM dispatch_active a WHERE a.workload = c.workload "
    "AND a.hardware = c.hardware)";

}  // namespace

std::vector<MetShape> SqlStore::met_shapes(const std::optional<Hash>& workload, bool only_missed,
                                           int64_t limit) {
  std::vector<MetShape> all;
  Statement row = db_->prepare(fmt::format(
      "WITH met AS (SELECT c.workload, c.hardware, c.dims, {0} AS times FROM shape_count c "
      "WHERE (?1 IS NULL OR c.workload = ?1) {1} GROUP BY c.workload, c.hardware, c.dims "
      "ORDER BY times DESC, c.workload, c.hardware, c.dims LIMIT ?2) "
      "SELECT c.workload, c.hardware, c.dims, c.times, CAST({2} AS int), "
      "CAST(EXISTS (SELECT 1 FROM shape s JOIN newest_measured m ON m.workload = s.workload "
      "AND m.hardware = c.hardware AND m.shape = s.hash "
      "WHERE s.workload = c.workload AND s.dims = c.dims) AS int) "
      "FROM met c ORDER BY c.times DESC, c.workload, c.hardware, c.dims",
      kSummed, only_missed ? fmt::format("AND NOT {}", kHasTable) : "", kHasTable));
  row.bind(workload, limit);
  while (row.step()) {
    MetShape m;
    m.workload = row.text(0);
    m.hardware = row.text(1);
    m.dims = dims_from_text(row.text(2));
    m.count = whole(row.real(3));
    m.has_table = row.integer(4) != 0;
    m.is_measured = row.integer(5) != 0;
    all.push_back(std::move(m));
  }
  return all;
}

std::vector<Misses> SqlStore::misses() {
  std::vector<Misses> all;
  Statement row = db_->prepare(fmt::format(
      "SELECT c.workload, c.hardware, count(DISTINCT c.dims), {} AS times FROM shape_count c "
      "WHERE NOT {} GROUP BY c.workload, c.hardware ORDER BY times DESC, c.workload, c.hardware",
      kSummed, kHasTable));
  while (row.step()) all.push_back({row.text(0), row.text(1), row.integer(2), whole(row.real(3))});
  return all;
}

}  // namespace nimble::db
