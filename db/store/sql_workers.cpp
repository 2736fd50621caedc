// Workers, their signs of life, and the machine time that campaigns take.
#include <cmath>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr std::string_view kColumns =
    "w.uuid, w.machine, w.name, w.pid, w.version, w.capabilities, w.trusted_keys, w.started_at";
constexpr int kColumnCount = 8;

Worker read_worker(const Statement& row) {
  return {row.text(0), row.text(1), row.text(2), row.integer(3),
          row.text(4), row.text(5), row.text(6), row.integer(7)};
}

}  // namespace

Uuid SqlStore::add(const Worker& w) {
  const Uuid uuid = w.uuid.empty() ? new_uuid() : w.uuid;
  Write write = begin_write();
  db_->run(
      "INSERT INTO worker (uuid, machine, name, pid, version, capabilities, trusted_keys, "
      "started_at) VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (uuid) DO NOTHING",
      uuid, w.machine, w.name, w.pid, w.version,
      canonical_json(w.capabilities, "capabilities of a worker"),
      canonical_json(w.trusted_keys, "trusted keys of a worker"), now());
  if (db_->changes() == 1) note_event(topic::kWorker, {}, uuid, R"({"state":"registered"})");
  write.commit();
  return uuid;
}

std::optional<Worker> SqlStore::worker(const Uuid& uuid) {
  Statement row = db_->prepare(fmt::format("SELECT {} FROM worker w WHERE w.uuid = ?", kColumns));
  if (!row.bind(uuid).step()) return std::nullopt;
  return read_worker(row);
}

Worker SqlStore::require_worker(const Uuid& uuid) {
  std::optional<Worker> found = worker(uuid);
  if (!found)
    throw Error(Status::kNotFound, path(), fmt::format("has no worker {}", uuid),
                "register it before it works");
  return *found;
}

bool SqlStore::heartbeat(const Heartbeat& beat, int64_t attempt, int64_t lease_ms) {
  require_worker(beat.worker);
  if (!(beat.load >= 0) || !std::isfinite(beat.load))
    throw Error(Status::kInvalidArgument, "heartbeat", fmt::format("{} is no load", beat.load));
  if (lease_ms <= 0) throw Error(Status::kInvalidArgument, "heartbeat", "needs a positive lease");
  Write write = begin_write();
  const int64_t t = now();
  bool changed = true;
  {
    Statement before = db_->prepare("SELECT state, job FROM heartbeat WHERE worker = ?");
    if (before.bind(beat.worker).step())
      changed = before.text(0) != name_of(beat.state) || before.maybe_text(1) != beat.job;
  }
  db_->run(
      "INSERT INTO heartbeat (worker, at, state, job, load, message) VALUES (?,?,?,?,?,?) "
      "ON CONFLICT (worker) DO UPDATE SET at = excluded.at, state = excluded.state, "
      "job = excluded.job, load = excluded.load, message = excluded.message",
      beat.worker, t, name_of(beat.state), beat.job, beat.load, beat.message);
  bool holds = true;
  if (beat.job) {
    db_->run(
        "UPDATE job SET lease_until = ? WHERE uuid = ? AND state = 'claimed' AND worker = ? "
        "AND attempt = ?",
        t + lease_ms, *beat.job, beat.worker, attempt);
    holds = db_->changes() == 1;
  }
  if (changed)
    note_event(topic::kWorker, {}, beat.worker,
               fmt::format(R"({{"state":"{}"}})", name_of(beat.state)));
  write.commit();
  return holds;
}

std::vector<LiveWorker> SqlStore::live_workers(int64_t within_ms) {
  std::vector<LiveWorker> all;
  Statement row = db_->prepare(fmt::format(
      "SELECT {}, m.hostname, m.hardware, h.at, h.state, h.job, h.load, h.message "
      "FROM worker w JOIN machine m ON m.uuid = w.machine LEFT JOIN heartbeat h ON h.worker = "
      "w.uuid WHERE coalesce(h.at, w.started_at) > ? AND coalesce(h.at, w.started_at) < ? "
      "AND coalesce(h.state, '') <> 'stopped' "
      "ORDER BY w.name, w.uuid",
      kColumns));
  // What is of the future was not said now.
  const int64_t t = now();
  row.bind(t - within_ms, t + kDayMs);
  while (row.step()) {
    LiveWorker w{read_worker(row), row.text(kColumnCount), row.text(kColumnCount + 1), {}};
    if (!row.is_null(kColumnCount + 2))
      w.heartbeat = Heartbeat{w.worker.uuid,
                              worker_state_from_name(row.text(kColumnCount + 3)).value(),
                              row.maybe_text(kColumnCount + 4),
                              row.real(kColumnCount + 5),
                              row.text(kColumnCount + 6),
                              row.integer(kColumnCount + 2)};
    all.push_back(std::move(w));
  }
  return all;
}

void SqlStore::add_consumed(const Uuid& campaign, const Uuid& machine, double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds))
    throw Error(Status::kInvalidArgument, "consumed time",
                fmt::format("{} s is not a duration", seconds));
  db_->run(
      // Whatever somebody wrote there, who reports after it can.
      "INSERT INTO consumption (campaign, machine, consumed_s) VALUES (?,?,?) "
      "ON CONFLICT (campaign, machine) DO UPDATE SET consumed_s = CASE "
      "WHEN consumption.consumed_s + excluded.consumed_s < 999999999999 "
      "THEN consumption.consumed_s + excluded.consumed_s ELSE consumption.consumed_s END",
      campaign, machine, seconds);
}

std::vector<Consumption> SqlStore::consumption(const Uuid& campaign) {
  std::vector<Consumption> all;
  Statement row = db_->prepare(
      "SELECT c.machine, m.hostname, m.hardware, c.consumed_s FROM consumption c "
      "JOIN machine m ON m.uuid = c.machine WHERE c.campaign = ? ORDER BY m.hostname, m.uuid");
  row.bind(campaign);
  while (row.step()) all.push_back({row.text(0), row.text(1), row.text(2), row.real(3)});
  return all;
}

}  // namespace nimble::db
