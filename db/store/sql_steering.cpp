// Tasks of a campaign, what people ask of it, and the feed of changes.
#include <algorithm>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::db {

std::map<WorkloadPlace, double> SqlStore::model_shares(int64_t campaigns) {
  Statement row = db_->prepare(
      "SELECT t.workload, c.hardware, coalesce(t.share, e.share) FROM (SELECT uuid, hardware, "
      "created_at FROM campaign ORDER BY created_at DESC, uuid DESC LIMIT ?) c "
      "JOIN task t ON t.campaign = c.uuid LEFT JOIN task_event e ON t.share IS NULL AND e.uuid = "
      "(SELECT uuid FROM task_event WHERE task = t.uuid ORDER BY created_at DESC, uuid DESC "
      "LIMIT 1) ORDER BY c.created_at DESC, c.uuid DESC");
  row.bind(campaigns);
  std::map<WorkloadPlace, double> all;
  while (row.step())
    if (const std::optional<double> share = row.maybe_real(2))
      all.emplace(WorkloadPlace{row.text(0), row.text(1)}, *share);
  return all;
}

void SqlStore::add_tasks(const std::vector<Task>& tasks) {
  Write write = begin_write();
  for (const Task& t : tasks) {
    const Uuid uuid = uuid_of_task(t.campaign, t.workload);
    db_->run(
        "INSERT INTO task (uuid, campaign, workload, label, share, calls, created_at) "
        "VALUES (?,?,?,?,?,?,?) ON CONFLICT (uuid) DO NOTHING",
        uuid, t.campaign, t.workload, t.label, t.share, t.calls, now());
    if (db_->changes() == 0) continue;
    for (const auto& [shape, weight] : t.weights)
      db_->run("INSERT INTO task_shape (task, shape, weight) VALUES (?,?,?)", uuid, shape, weight);
    note_event(topic::kTask, t.campaign, uuid, R"({"phase":""})");
  }
  write.commit();
}

std::vector<Task> SqlStore::tasks(const Uuid& campaign) {
  std::vector<Task> all;
  {
    Statement row = db_->prepare(
        "SELECT t.uuid, t.workload, t.label, coalesce(t.share, e.share), t.calls, t.created_at, "
        "e.phase, e.detail, e.created_at FROM task t LEFT JOIN task_event e ON e.uuid = (SELECT "
        "uuid FROM task_event "
        "WHERE task = t.uuid ORDER BY created_at DESC, uuid DESC LIMIT 1) "
        "WHERE t.campaign = ? ORDER BY t.label, t.uuid");
    row.bind(campaign);
    while (row.step()) {
      Task t;
      t.uuid = row.text(0);
      t.campaign = campaign;
      t.workload = row.text(1);
      t.label = row.text(2);
      t.share = row.maybe_real(3);
      t.calls = row.integer(4);
      t.created_at = row.integer(5);
      t.phase = row.text(6);
      t.detail = row.text(7);
      t.phase_since = row.integer(8);
      all.push_back(std::move(t));
    }
  }
  std::map<Uuid, std::map<Hash, double>> weights;
  Statement row = db_->prepare(
      "SELECT s.task, s.shape, s.weight FROM task_shape s JOIN task t ON t.uuid = s.task "
      "WHERE t.campaign = ?");
  row.bind(campaign);
  while (row.step()) weights[row.text(0)].emplace(row.text(1), row.real(2));
  for (Task& t : all) t.weights = std::move(weights[t.uuid]);
  std::ranges::stable_sort(all, [](const Task& a, const Task& b) {
    return a.share.value_or(-1) > b.share.value_or(-1);
  });
  return all;
}

void SqlStore::enter_phase(const Uuid& task, const std::string& phase, const std::string& detail,
                           std::optional<double> share) {
  std::string campaign;
  {
    Statement row = db_->prepare("SELECT campaign FROM task WHERE uuid = ?");
    if (!row.bind(task).step())
      throw Error(Status::kNotFound, path(), fmt::format("has no task {}", task),
                  "add it before it enters a phase");
    campaign = row.text(0);
  }
  if (phase.empty()) throw Error(Status::kInvalidArgument, "task", "a phase needs a name");
  if (share && !(*share >= 0 && *share <= 1))
    throw Error(Status::kInvalidArgument, "task", fmt::format("{} is no share", *share));
  Write write = begin_write();
  // Of two phases in one millisecond the later counts.
  int64_t t = now();
  {
    Statement last = db_->prepare("SELECT max(created_at) FROM task_event WHERE task = ?");
    if (last.bind(task).step() && !last.is_null(0) && last.integer(0) < INT64_MAX)
      t = std::max(t, last.integer(0) + 1);
  }
  db_->run(
      "INSERT INTO task_event (uuid, task, phase, detail, created_at, share) VALUES (?,?,?,?,?,?)",
      new_uuid(), task, phase, detail, t, share);
  note_event(topic::kTask, campaign, task, json_text(nlohmann::json{{"phase", phase}}, -1));
  write.commit();
}

std::vector<TaskPhase> SqlStore::phases(const Uuid& task) {
  std::vector<TaskPhase> all;
  Statement row = db_->prepare(
      "SELECT phase, detail, share, created_at FROM task_event WHERE task = ? "
      "ORDER BY created_at, uuid");
  row.bind(task);
  while (row.step()) all.push_back({row.text(0), row.text(1), row.maybe_real(2), row.integer(3)});
  return all;
}

Uuid SqlStore::request(const Control& c) {
  check_campaign_exists(c.campaign);
  const Uuid uuid = c.uuid.empty() ? new_uuid() : c.uuid;
  Write write = begin_write();
  db_->run(
      "INSERT INTO control (uuid, campaign, request, requested_by, reason, created_at) "
      "VALUES (?,?,?,?,?,?) ON CONFLICT (uuid) DO NOTHING",
      uuid, c.campaign, name_of(c.request), c.requested_by, c.reason, now());
  if (db_->changes() == 1)
    note_event(topic::kControl, c.campaign, uuid,
               fmt::format(R"({{"request":"{}"}})", name_of(c.request)));
  write.commit();
  return uuid;
}

namespace {

constexpr std::string_view kControlQuery =
    "SELECT c.uuid, c.request, c.requested_by, c.reason, c.created_at, a.accepted, a.message, "
    "c.campaign FROM control c LEFT JOIN control_answer a ON a.control = c.uuid WHERE ";

Control read_control(const Statement& row) {
  Control c{row.text(0), row.text(7), control_request_from_name(row.text(1)).value(),
            row.text(2), row.text(3), row.integer(4),
            {},          row.text(6)};
  if (!row.is_null(5)) c.accepted = row.integer(5) != 0;
  return c;
}

}  // namespace

std::map<Uuid, Control> SqlStore::last_requests() {
  Statement row = db_->prepare(
      fmt::format("{} c.uuid = (SELECT l.uuid FROM control l WHERE l.campaign = c.campaign "
                  "ORDER BY l.created_at DESC, l.uuid DESC LIMIT 1)",
                  kControlQuery));
  std::map<Uuid, Control> all;
  while (row.step()) all.emplace(row.text(7), read_control(row));
  return all;
}

std::vector<Control> SqlStore::read_controls(std::string_view condition, const Uuid& campaign,
                                             int64_t limit) {
  std::vector<Control> all;
  Statement row =
      db_->prepare(fmt::format("{} c.campaign = ?1 {} LIMIT ?2", kControlQuery, condition));
  row.bind(campaign, limit);
  while (row.step()) all.push_back(read_control(row));
  return all;
}

std::vector<Control> SqlStore::open_requests(const Uuid& campaign) {
  return read_controls("AND a.control IS NULL ORDER BY c.created_at, c.uuid", campaign, 1000);
}

std::vector<Control> SqlStore::requests(const Uuid& campaign, int64_t limit) {
  return read_controls("ORDER BY c.created_at DESC, c.uuid DESC", campaign, limit);
}

bool SqlStore::is_at_home(const Uuid& campaign) {
  return exists("SELECT 1 FROM event WHERE campaign = ? AND kind IN ('campaign', 'control')",
                campaign);
}

bool SqlStore::answer(const Uuid& control, bool accepted, const std::string& message) {
  std::string campaign;
  {
    Statement row = db_->prepare("SELECT campaign FROM control WHERE uuid = ?");
    if (!row.bind(control).step())
      throw Error(Status::kNotFound, path(), fmt::format("has no request {}", control),
                  "name one that was made");
    campaign = row.text(0);
  }
  Write write = begin_write();
  db_->run(
      "INSERT INTO control_answer (control, accepted, message, created_at) VALUES (?,?,?,?) "
      "ON CONFLICT (control) DO NOTHING",
      control, accepted, message, now());
  const bool is_new = db_->changes() == 1;
  if (is_new)
    note_event(topic::kControl, campaign, control,
               fmt::format(R"({{"accepted":{}}})", accepted ? "true" : "false"));
  write.commit();
  return is_new;
}

void SqlStore::note_event(std::string kind, std::optional<Uuid> campaign, std::string subject,
                          std::string detail) {
  NIMBLE_CHECK(write_depth_ > 0, "an event belongs to the transaction of what it tells");
  events_.push_back(
      {0, std::move(kind), std::move(campaign), std::move(subject), std::move(detail), 0});
}

// All writers meet at the counter, which one of them holds until its transaction has ended: so this
// goes with the commit.
std::string SqlStore::sql_of_events() {
  const int64_t t = now();
  const size_t n = events_.size();
  std::string sql = fmt::format(
      "UPDATE event_counter SET last = last + {}; INSERT INTO event "
      "(number, kind, campaign, subject, detail, created_at) VALUES ",
      n);
  for (size_t i = 0; i < n; ++i) {
    const Event& e = events_[i];
    sql += fmt::format("{}((SELECT last FROM event_counter) - {}, {}, {}, {}, {}, {})",
                       i ? ", " : "", n - 1 - i, db_->literal(e.kind),
                       e.campaign ? db_->literal(*e.campaign) : "NULL", db_->literal(e.subject),
                       db_->literal(e.detail), t);
  }
  return sql;
}

std::vector<Event> SqlStore::events(int64_t after, int64_t limit,
                                    const std::optional<Uuid>& campaign) {
  std::vector<Event> all;
  Statement row = db_->prepare(fmt::format(
      "SELECT number, kind, campaign, subject, detail, created_at FROM event WHERE number > ?1 {} "
      "ORDER BY number LIMIT ?2",
      campaign ? "AND campaign = ?3" : ""));
  row.bind(after, limit);
  if (campaign) row.bind_at(3, *campaign);
  while (row.step())
    all.push_back(
        {row.integer(0), row.text(1), row.maybe_text(2), row.text(3), row.text(4), row.integer(5)});
  return all;
}

int64_t SqlStore::last_event() {
  return db_->integer("SELECT last FROM event_counter");
}

}  // namespace nimble::db
