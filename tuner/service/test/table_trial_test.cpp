// Drafts that are timed beside what is active, with kernels whose speed is known.
#include "tuner/service/table_trial.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "compiler/tuned/tuned.h"
#include "tuner/service/campaign_lock.h"
#include "tuner/service/test/two_speeds.h"

namespace nimble::tuner {
namespace {

using testing::HasSubstr;

class TableTrialTest : public TwoSpeedsTest {
 protected:
  TableTrialTest() { options.campaign = campaign; }
  // Of the active table, with a configuration of the search in place of all of its own.
  void edit() {
    pool = tune();
    const auto store = db::Store::open(campaign.database);
    db::NewDispatchTable edited = table;
    edited.parent = table.uuid;
    edited.campaign.reset();
    for (const db::TrialOutcome& o : store->outcomes(*table.campaign))
      if (const std::string text = text_of_config(*store, o.trial.key.config);
          !pool.contains(text) && o.median_ns && o.trial.key.role == db::Role::kSearch) {
        config = o.trial.key.config;
        other = text;
      }
    ASSERT_NE(config, "");
    for (db::DispatchEntry& e : edited.entries) {
      e.config = config;
      e.evidence.reset();
      e.expected_ns.reset();
    }
    options.table = store->create_table(edited);
  }
  TableTrial trial() { return try_table(options, backend, kNever); }
  db::DispatchTable draft() const {
    return *db::Store::open(campaign.database)->table(options.table);
  }
  std::string refused(Status status) {
    return refusal_of([&] { trial(); }, status);
  }

  TableTrialOptions options;
  std::set<std::string> pool;  // of the active table, as candidates
  db::Hash config;             // of the draft
  std::string other;           // the same as a candidate
};

TEST_F(TableTrialTest, AFasterDraftBecomesActiveAndTellsWhatItWasComparedWith) {
  edit();
  backend.slow = pool;
  const TableTrial t = trial();
  EXPECT_TRUE(t.result.active) << t.result.reason;
  ASSERT_TRUE(t.result.comparison);
  EXPECT_LT(t.result.comparison->ratio, 0.5);
  EXPECT_EQ(t.result.comparison->rival, table.uuid);
  EXPECT_TRUE(t.noise);
  EXPECT_EQ(draft().status, db::TableStatus::kActive);
  const auto store = db::Store::open(campaign.database);
  EXPECT_EQ(store->table(table.uuid)->status, db::TableStatus::kRetired);
  const auto kept = store->comparisons(options.table);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].ratio, t.result.comparison->ratio);
  EXPECT_GT(kept[0].shapes, 5);
  // The measurements are there, too.
  std::set<db::Hash> timed;
  for (const db::TrialOutcome& o : store->outcomes(t.campaign))
    if (o.trial.key.role == db::Role::kVerify && o.median_ns) timed.insert(o.trial.key.config);
  EXPECT_TRUE(timed.contains(config));
  EXPECT_EQ(store->campaign(t.campaign)->state, db::CampaignState::kFinished);
  EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("is active already"));
}

TEST_F(TableTrialTest, ASlowerDraftStaysADraft) {
  edit();
  backend.slow = {other};
  const TableTrial t = trial();
  EXPECT_FALSE(t.result.active);
  ASSERT_TRUE(t.result.comparison);
  EXPECT_GT(t.result.comparison->ratio, 2);
  EXPECT_EQ(draft().status, db::TableStatus::kDraft);
  EXPECT_EQ(db::Store::open(campaign.database)->comparisons(options.table).size(), 1u);
}

TEST_F(TableTrialTest, ADraftThatIsWrongStaysADraftAndSaysWhichConfiguration) {
  edit();
  backend.wrong = {other};
  const TableTrial t = trial();
  EXPECT_FALSE(t.result.active);
  EXPECT_FALSE(t.result.comparison);
  EXPECT_THAT(t.result.reason, HasSubstr(config.substr(0, 8)));
  EXPECT_EQ(draft().status, db::TableStatus::kDraft);
}

TEST_F(TableTrialTest, ItMayOnlyTellAndBeAskedAgain) {
  edit();
  backend.slow = pool;
  options.activate = false;
  const TableTrial told = trial();
  EXPECT_FALSE(told.result.active);
  EXPECT_LT(told.result.comparison->ratio, 0.5);
  EXPECT_EQ(draft().status, db::TableStatus::kDraft);
  backend.slow = {other};  // measured anew
  options.activate = true;
  EXPECT_GT(trial().result.comparison->ratio, 2);
}

TEST_F(TableTrialTest, WithoutTimeNothingIsDecided) {
  edit();
  options.campaign.budget_s = 1e-9;
  const TableTrial t = trial();
  EXPECT_FALSE(t.result.active || t.result.comparison);
  EXPECT_THAT(t.result.reason, HasSubstr("no time to verify"));
}

TEST_F(TableTrialTest, AnInterruptedTrialLeavesTheTableAsItWas) {
  edit();
  const std::atomic<bool> at_once{true};
  const TableTrial t = try_table(options, backend, at_once);
  EXPECT_TRUE(t.interrupted);
  EXPECT_EQ(draft().status, db::TableStatus::kDraft);
  EXPECT_EQ(db::Store::open(campaign.database)->campaign(t.campaign)->state,
            db::CampaignState::kInterrupted);
}

// Another process may have it though the machine's lock is free: in another container, say.
TEST_F(TableTrialTest, ACampaignThatAnotherProcessHasStaysAsItIs) {
  tune();
  const CampaignFiles files(campaign.database, *db::Store::open(campaign.database),
                            *table.campaign);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t other = ::fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    const int fd = ::open(files.lock.c_str(), O_CREAT | O_RDWR, 0644);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    if (fd < 0 || ::fcntl(fd, F_SETLK, &lock) != 0 || ::write(ready[1], "!", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(ready[1]);
  char word = 0;
  EXPECT_EQ(::read(ready[0], &word, 1), 1) << "the other process has no lock";
  ::close(ready[0]);
  const double budget_s = std::exchange(campaign.budget_s, 2 * campaign.budget_s);
  EXPECT_THAT(
      refusal_of([&] { run_campaign(campaign, backend, kNever); }, Status::kInvalidArgument),
      HasSubstr("running already, in another process"));
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  const auto known = db::Store::open(campaign.database)->campaign(*table.campaign);
  EXPECT_EQ(known->state, db::CampaignState::kFinished);
  EXPECT_EQ(known->budget_s, budget_s);
}

// A finished campaign tells the table that a compiler would use, which another toolchain's is not,
// or that its own is not used.
TEST_F(TableTrialTest, AFinishedCampaignTellsNoTableOfAnotherToolchain) {
  tune();
  copy_of_another_toolchain(*db::Store::open(campaign.database));
  const CampaignReport told = run_campaign(campaign, backend, kNever);
  ASSERT_TRUE(told.nothing_to_do);
  EXPECT_EQ(told.tasks.at(0).table, table.uuid);
  EXPECT_EQ(told.tasks[0].remark(), "");
  db::Store::open(campaign.database)->roll_back(table.uuid, "slower in use");
  const CampaignReport back = run_campaign(campaign, backend, kNever);
  ASSERT_TRUE(back.nothing_to_do);
  EXPECT_EQ(back.tasks.at(0).table, table.uuid);
  EXPECT_EQ(back.tasks[0].remark(), "table " + table.uuid.substr(0, 8) + " is stored, not active");
}

TEST_F(TableTrialTest, WhatCannotBeTriedIsRefused) {
  edit();
  std::ofstream(campaign.model)
      << "fn @main(%x: Tensor[(n), f32]) -> Tensor[(n), f32] { let %y = tanh(%x); %y }";
  EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("has no workload"));
  const db::Uuid own = options.table;
  options.table = "00000000-0000-4000-8000-000000000000";
  EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("is not in the database"));
  options.table = own;
  const auto store = db::Store::open(campaign.database);
  db::NewDispatchTable there = draft();
  there.parent.reset();
  db::Hardware elsewhere = *store->hardware(there.hardware);
  elsewhere.model_name += " of another make";
  there.hardware = store->put(elsewhere);
  options.table = store->create_table(there);
  EXPECT_THAT(refused(Status::kIncompatible), HasSubstr("other hardware"));
  options.campaign.database = folder + "/none.db";
  refused(Status::kNotFound);
}

}  // namespace
}  // namespace nimble::tuner
