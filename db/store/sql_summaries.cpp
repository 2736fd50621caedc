// What lists show of everything: one query each, whose rows are as many as the list has lines.
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr size_t kMostCampaigns = 1000;

}  // namespace

std::vector<TableSummary> SqlStore::deciding_tables(int64_t limit, const WorkloadPlace& after) {
  constexpr std::string_view kNewest = "ORDER BY n.created_at DESC, n.version DESC, n.uuid LIMIT 1";
  Statement row = db_->prepare(fmt::format(
      "SELECT d.uuid, d.workload, d.hardware, d.toolchain, d.policy, p.class, d.campaign, "
      "k.command, o.active, d.version, d.created_at, "
      "(SELECT count(*) FROM dispatch_entry e WHERE e.dispatch_table = d.uuid), "
      "(SELECT max(e.regret) FROM dispatch_entry e WHERE e.dispatch_table = d.uuid), "
      "c.ratio, c.worst_ratio "
      "FROM (SELECT q.workload, q.hardware, "
      "(SELECT n.uuid FROM dispatch_active a JOIN dispatch_table n ON n.uuid = a.uuid "
      "WHERE a.workload = q.workload AND a.hardware = q.hardware {0}) AS active, "
      "(SELECT n.uuid FROM dispatch_table n "
      "WHERE n.workload = q.workload AND n.hardware = q.hardware {0}) AS newest "
      "FROM (SELECT DISTINCT workload, hardware FROM dispatch_table "
      "WHERE (workload, hardware) > (?, ?) ORDER BY workload, hardware LIMIT ?) q) o "
      "JOIN dispatch_table d ON d.uuid = coalesce(o.active, o.newest) "
      "JOIN measure_policy p ON p.hash = d.policy LEFT JOIN campaign k ON k.uuid = d.campaign "
      "LEFT JOIN dispatch_comparison c ON c.uuid = (SELECT x.uuid FROM dispatch_comparison x "
      "WHERE x.dispatch_table = d.uuid AND x.rival IS NULL ORDER BY x.created_at DESC, x.uuid "
      "LIMIT 1) ORDER BY d.workload, d.hardware",
      kNewest));
  row.bind(after.workload, after.hardware, limit);
  std::vector<TableSummary> all;
  while (row.step())
    all.push_back({row.text(0),
                   {row.text(1), row.text(2)},
                   row.text(3),
                   row.text(4),
                   row.text(5),
                   row.maybe_text(6),
                   row.text(7),
                   !row.is_null(8),
                   row.integer(9),
                   row.integer(10),
                   row.integer(11),
                   row.maybe_real(12),
                   row.maybe_real(13),
                   row.maybe_real(14)});
  return all;
}

std::vector<WorkloadPlace> SqlStore::measured_places() {
  // A probe of the key for each pair, instead of all rows that begin with it.
  Statement row = db_->prepare(
      "SELECT w.hash, h.hash FROM workload w CROSS JOIN hardware h WHERE EXISTS "
      "(SELECT 1 FROM newest_measured r WHERE r.workload = w.hash AND r.hardware = h.hash) "
      "ORDER BY w.hash, h.hash");
  std::vector<WorkloadPlace> all;
  while (row.step()) all.push_back({row.text(0), row.text(1)});
  return all;
}

std::map<WorkloadPlace, int64_t> SqlStore::override_counts() {
  Statement row = db_->prepare(
      "SELECT o.workload, o.hardware, count(*) FROM dispatch_override o WHERE NOT EXISTS "
      "(SELECT 1 FROM dispatch_withdrawal w WHERE w.dispatch_override = o.uuid) "
      "GROUP BY o.workload, o.hardware");
  std::map<WorkloadPlace, int64_t> all;
  while (row.step()) all[{row.text(0), row.text(1)}] = row.integer(2);
  return all;
}

std::map<Uuid, CampaignProgress> SqlStore::progress_of(const std::vector<Uuid>& campaigns) {
  if (campaigns.size() > kMostCampaigns)
    throw Error(Status::kInvalidArgument, "campaigns", fmt::format("{} of them", campaigns.size()),
                fmt::format("ask for {} at a time", kMostCampaigns));
  std::map<Uuid, CampaignProgress> all;
  if (campaigns.empty()) return all;
  std::string places = "?";
  for (size_t i = 1; i < campaigns.size(); ++i) places += ",?";
  Statement known =
      db_->prepare(fmt::format("SELECT uuid FROM campaign WHERE uuid IN ({})", places));
  Statement row =
      db_->prepare(fmt::format("SELECT campaign, state, count(*) FROM trial WHERE campaign IN ({}) "
                               "GROUP BY campaign, state",
                               places));
  int index = 0;
  for (const Uuid& uuid : campaigns) {
    known.bind_at(++index, uuid);
    row.bind_at(index, uuid);
  }
  while (known.step()) all[known.text(0)];
  while (row.step())
    count(all[row.text(0)], trial_state_from_name(row.text(1)).value(), row.integer(2));
  return all;
}

std::vector<SessionTime> SqlStore::session_times(const Uuid& campaign, const Hash& workload,
                                                 int64_t limit) {
  Statement row = db_->prepare(
      "SELECT m.trial, m.host_state, m.median_ns FROM trial t "
      "JOIN measurement m ON m.trial = t.uuid WHERE t.campaign = ? AND t.workload = ? "
      "AND t.role IN ('search', 'baseline') ORDER BY m.created_at, m.uuid LIMIT ?");
  row.bind(campaign, workload, limit);
  std::vector<SessionTime> all;
  while (row.step()) all.push_back({row.text(0), row.text(1), row.real(2)});
  return all;
}

}  // namespace nimble::db
