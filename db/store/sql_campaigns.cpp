// Campaigns: what a tuning run is, how far it got, and finding it again.
#include <algorithm>
#include <cmath>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "db/store/topics.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr std::string_view kColumns =
    "uuid, digest, hardware, seed, options, command, budget_s, consumed_s, state, created_at, "
    "updated_at";

Campaign read_campaign(const Statement& row) {
  Campaign c;
  c.uuid = row.text(0);
  c.key = {row.text(1), row.text(2), row.integer(3), row.text(4)};
  c.command = row.text(5);
  c.budget_s = row.real(6);
  c.consumed_s = row.real(7);
  c.state = campaign_state_from_name(row.text(8)).value();
  c.created_at = row.integer(9);
  c.updated_at = row.integer(10);
  return c;
}

void require_budget(double budget_s) {
  if (!(budget_s > 0) || !std::isfinite(budget_s))
    throw Error(Status::kInvalidArgument, "budget", fmt::format("{} s is not a budget", budget_s),
                "give a positive time, for example 5m");
}

}  // namespace

Uuid SqlStore::create_campaign(const CampaignKey& key, double budget_s,
                               const std::string& command) {
  require_budget(budget_s);
  const Uuid uuid = new_uuid();
  Write write = begin_write();
  db_->run(
      "INSERT INTO campaign (uuid, digest, hardware, seed, options, command, budget_s, created_at, "
      "updated_at) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?8)",
      uuid, key.digest, key.hardware, key.seed, canonical_json(key.options, "campaign options"),
      command, budget_s, now());
  note_event(topic::kCampaign, uuid, uuid, R"({"state":"running"})");
  write.commit();
  return uuid;
}

Store::OpenedCampaign SqlStore::open_campaign(const CampaignKey& key, double budget_s,
                                              const std::string& command) {
  Write write = begin_write(true);
  if (auto found = find_campaign(key)) return {*std::move(found), false};
  OpenedCampaign made{campaign(create_campaign(key, budget_s, command)).value(), true};
  write.commit();
  return made;
}

std::optional<Campaign> SqlStore::find_campaign(const CampaignKey& key) {
  Statement row = db_->prepare(fmt::format(
      "SELECT {} FROM campaign WHERE digest = ? AND hardware = ? AND seed = ? AND options = ? "
      "ORDER BY created_at DESC, uuid LIMIT 1",
      kColumns));
  row.bind(key.digest, key.hardware, key.seed, canonical_json(key.options, "campaign options"));
  if (!row.step()) return std::nullopt;
  return read_campaign(row);
}

std::optional<Campaign> SqlStore::campaign(const Uuid& uuid) {
  Statement row = db_->prepare(fmt::format("SELECT {} FROM campaign WHERE uuid = ?", kColumns));
  if (!row.bind(uuid).step()) return std::nullopt;
  return read_campaign(row);
}

std::vector<Campaign> SqlStore::campaigns(int64_t limit, const std::optional<Campaign>& after) {
  std::vector<Campaign> all;
  Statement row = db_->prepare(
      fmt::format("SELECT {} FROM campaign {} ORDER BY created_at DESC, uuid DESC LIMIT ?1",
                  kColumns, after ? "WHERE (created_at, uuid) < (?2, ?3)" : ""));
  row.bind_at(1, limit);
  if (after) {
    row.bind_at(2, after->created_at);
    row.bind_at(3, after->uuid);
  }
  while (row.step()) all.push_back(read_campaign(row));
  return all;
}

void SqlStore::check_campaign_exists(const Uuid& campaign) {
  if (!exists("SELECT 1 FROM campaign WHERE uuid = ?", campaign))
    throw Error(Status::kNotFound, path(), fmt::format("has no campaign {}", campaign),
                "list them: nimble db campaigns");
}

void SqlStore::record_consumed(const Uuid& campaign, double consumed_s) {
  check_campaign_exists(campaign);
  if (!(consumed_s >= 0) || !std::isfinite(consumed_s))
    throw Error(Status::kInvalidArgument, "consumed budget",
                fmt::format("{} s is not a duration", consumed_s));
  db_->run(
      "UPDATE campaign SET updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, "
      "consumed_s = CASE WHEN consumed_s < ?3 THEN ?3 ELSE consumed_s END WHERE uuid = ?1",
      campaign, now(), std::min(consumed_s, 999999999999.0));
}

void SqlStore::set_campaign_state(const Uuid& campaign, CampaignState state) {
  check_campaign_exists(campaign);
  Write write = begin_write();
  db_->run(
      "UPDATE campaign SET updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, "
      "state = ?3 WHERE uuid = ?1",
      campaign, now(), name_of(state));
  note_event(topic::kCampaign, campaign, campaign,
             fmt::format(R"({{"state":"{}"}})", name_of(state)));
  write.commit();
}

void SqlStore::set_budget(const Uuid& campaign, double budget_s) {
  require_budget(budget_s);
  check_campaign_exists(campaign);
  Write write = begin_write();
  db_->run(
      "UPDATE campaign SET updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, "
      "budget_s = ?3 WHERE uuid = ?1",
      campaign, now(), budget_s);
  note_event(topic::kCampaign, campaign, campaign, fmt::format(R"({{"budget_s":{}}})", budget_s));
  write.commit();
}

void SqlStore::count(CampaignProgress& progress, TrialState state, int64_t n) {
  progress.trials += n;
  (state == TrialState::kQueued    ? progress.queued
   : state == TrialState::kClaimed ? progress.claimed
   : state == TrialState::kOk      ? progress.ok
                                   : progress.failed) += n;
}

CampaignProgress SqlStore::progress(const Uuid& campaign) {
  check_campaign_exists(campaign);
  // The view campaign_progress says the same; this reads one index and no row of the table.
  CampaignProgress out;
  Statement row =
      db_->prepare("SELECT state, count(*) FROM trial WHERE campaign = ? GROUP BY state");
  row.bind(campaign);
  while (row.step()) {
    count(out, trial_state_from_name(row.text(0)).value(), row.integer(1));
  }
  return out;
}

}  // namespace nimble::db
