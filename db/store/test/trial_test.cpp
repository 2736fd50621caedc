// Campaigns, leases, results, and two processes at once.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "db/store/migrations.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(StoreTest, FindsACampaignAgainAndItsBudgetOnlyGrows) {
  Uuid uuid;
  {
    auto store = open();
    World world(*store);
    uuid = world.campaign;
    store->record_consumed(uuid, 12.5);
    store->record_consumed(uuid, 3);
    store->set_campaign_state(uuid, CampaignState::kInterrupted);
  }
  auto store = open();
  World world(*store);
  CampaignKey key = world.key;
  key.options = R"({ "top_k" : 100 })";
  const std::optional<Campaign> found = store->find_campaign(key);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->uuid, uuid);
  EXPECT_EQ(found->consumed_s, 12.5);
  EXPECT_TRUE(found->resumable());
  store->set_campaign_state(uuid, CampaignState::kFinished);
  EXPECT_FALSE(store->campaign(uuid)->resumable());
  store->set_budget(uuid, 600);
  EXPECT_EQ(all_campaigns(*store).at(0).budget_s, 600);
  for (auto change :
       {+[](CampaignKey& k) { k.digest = "other"; }, +[](CampaignKey& k) { k.seed = 8; },
        +[](CampaignKey& k) { k.options = "{}"; }}) {
    CampaignKey other = key;
    change(other);
    EXPECT_FALSE(store->find_campaign(other));
  }
  EXPECT_EQ(error_of([&] { store->record_consumed("none", 1); }).status(), Status::kNotFound);
  EXPECT_EQ(error_of([&] { store->create_campaign(key, 0, ""); }).status(),
            Status::kInvalidArgument);
}

TEST_F(StoreTest, OfTwoWhoOpenACampaignAtOnceOneMakesIt) {
  const CampaignKey key = World(*open()).key;
  for (int64_t seed = 100; seed < 110; ++seed) {
    CampaignKey another = key;
    another.seed = seed;
    Store::OpenedCampaign opened[2];
    std::thread threads[2];
    for (int i = 0; i < 2; ++i)
      threads[i] = std::thread([&, i, store = std::shared_ptr<Store>(open())] {
        opened[i] = store->open_campaign(another, 60, "nimble tune");
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(opened[0].campaign.uuid, opened[1].campaign.uuid);
    EXPECT_NE(opened[0].is_new, opened[1].is_new);
  }
}

// A merged database may say so.
TEST_F(StoreTest, ATrialTriedAsOftenAsCanBeCountedIsStillClaimed) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 8, 64)}, {world.trial_key(*store, 9, 64)}});
  connection()->run("UPDATE trial SET attempt = ? WHERE position = 1", INT64_MAX);
  EXPECT_EQ(store->claim({world.campaign, "me", 60'000, 2}).size(), 2u);
}

TEST_F(StoreTest, ATrialIsEnqueuedOnceAndFinishedOnce) {
  auto store = open();
  World world(*store);
  const TrialKey key = world.trial_key(*store, 8, 64);
  EXPECT_EQ(store->enqueue({{key}, {key}}), 1);
  const Uuid uuid = world.trial_key(*store, 8, 64).config.empty() ? "" : uuid_of(key);
  const std::vector<Trial> claimed = store->claim({world.campaign, "me"});
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(claimed[0].uuid, uuid);
  EXPECT_EQ(claimed[0].attempt, 1);
  EXPECT_EQ(claimed[0].key.shape, key.shape);
  EXPECT_TRUE(store->claim({world.campaign, "other"}).empty());
  EXPECT_FALSE(store->finish({uuid, "other", TrialState::kWrong}));
  EXPECT_TRUE(store->finish({uuid, "me", TrialState::kWrong, "mismatch", "0.3 off"}));
  EXPECT_FALSE(store->finish({uuid, "me", TrialState::kCrashed}));
  EXPECT_EQ(store->enqueue({{key}}), 0) << "a finished trial never repeats";
  EXPECT_TRUE(store->claim({world.campaign, "me"}).empty());
  const Trial done = store->trial(uuid).value();
  EXPECT_EQ(done.state, TrialState::kWrong);
  EXPECT_EQ(done.message, "0.3 off");
  EXPECT_EQ(store->progress(world.campaign).failed, 1);
}

TEST_F(StoreTest, AnOkTrialNeedsItsMeasurement) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 8, 64)}});
  const Trial t = store->claim({world.campaign, "me"}).at(0);
  EXPECT_EQ(error_of([&] {
              store->finish({t.uuid, "me", TrialState::kOk});
            }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] {
              store->finish({t.uuid, "me", TrialState::kQueued});
            }).status(),
            Status::kInvalidArgument);
  // A measurement that is refused leaves the trial as it was.
  Measurement bad = world.measured(*store, t, 100);
  bad.samples_ns[0] = 0;
  error_of([&] { store->finish({t.uuid, "me", TrialState::kOk, "", "", bad}); });
  EXPECT_EQ(store->trial(t.uuid)->state, TrialState::kClaimed);
  EXPECT_TRUE(
      store->finish({t.uuid, "me", TrialState::kOk, "", "", world.measured(*store, t, 100)}));
}

TEST_F(StoreTest, ClaimsByPriorityRoleAndWorkload) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 1, 64), 0, 1.0},
                  {world.trial_key(*store, 2, 64), 0, 3.0},
                  {world.trial_key(*store, 3, 64, Role::kCross), 0, 9.0},
                  {world.trial_key(*store, 4, 64), 0, 2.0}});
  ClaimRequest request{world.campaign, "me"};
  request.limit = 2;
  request.role = Role::kSearch;
  std::vector<double> priorities;
  for (const Trial& t : store->claim(request)) priorities.push_back(t.priority);
  EXPECT_THAT(priorities, ElementsAre(3.0, 2.0));
  request.role.reset();
  request.workload = std::string(32, '0');
  EXPECT_TRUE(store->claim(request).empty());
  request.workload = world.workload_hash;
  EXPECT_EQ(store->claim(request).at(0).key.role, Role::kCross);
}

TEST_F(StoreTest, AnExpiredLeaseIsClaimedAgainAndAttemptsEnd) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 8, 64)}});
  ClaimRequest first{world.campaign, "first", 1000};
  const Uuid uuid = store->claim(first).at(0).uuid;
  ClaimRequest second{world.campaign, "second", 1000};
  clock += 999;
  EXPECT_TRUE(store->claim(second).empty());
  clock += 1;
  EXPECT_EQ(store->claim(second).at(0).attempt, 2);
  EXPECT_FALSE(store->finish({uuid, "first", TrialState::kTimeout})) << "its lease is another's";
  clock += 1000;
  EXPECT_EQ(store->claim({world.campaign, "third", 1000}).at(0).attempt, 3);
  clock += 1000;
  EXPECT_TRUE(store->claim(second).empty());
  const Trial t = store->trial(uuid).value();
  EXPECT_EQ(t.state, TrialState::kCrashed);
  EXPECT_EQ(t.error_class, "lease-expired");
  EXPECT_THAT(t.message, HasSubstr("third"));
}

TEST_F(StoreTest, WhoClaimsIsNotTakenForDead) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 8, 64)}});
  ClaimRequest request{world.campaign, "slow", 1000};
  request.max_attempts = 1;
  const Uuid uuid = store->claim(request).at(0).uuid;
  clock += 5000;
  EXPECT_TRUE(store->claim(request).empty()) << "it has it already";
  EXPECT_EQ(store->trial(uuid)->state, TrialState::kClaimed);
  EXPECT_EQ(store->trial(uuid)->attempt, 1);
  EXPECT_TRUE(store->finish({uuid, "slow", TrialState::kTimeout}));
}

TEST_F(StoreTest, WhatIsGivenBackWasNeverTried) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 1, 64)}, {world.trial_key(*store, 2, 64)}});
  ClaimRequest request{world.campaign, "late", 1000};
  request.limit = 2;
  for (int i = 0; i < 5; ++i) {
    const std::vector<Trial> claimed = store->claim(request);
    ASSERT_EQ(claimed.size(), 2u) << "at once, and however often";
    EXPECT_EQ(claimed[0].attempt, 1);
    EXPECT_EQ(store->give_back(world.campaign, "another"), 0);
    EXPECT_EQ(store->give_back(world.campaign, "late"), 2);
  }
}

TEST_F(StoreTest, TheTrialsOfADeadOwnerAreReleased) {
  auto store = open();
  World world(*store);
  store->enqueue({{world.trial_key(*store, 1, 64)}, {world.trial_key(*store, 2, 64)}});
  ClaimRequest request{world.campaign, "dead"};
  request.limit = 2;
  store->claim(request);
  EXPECT_THAT(store->lease_owners(world.campaign), ElementsAre("dead"));
  EXPECT_EQ(store->release(world.campaign, "dead"), 2);
  EXPECT_EQ(store->claim({world.campaign, "alive"}).size(), 1u);
}

TEST_F(StoreTest, KeepsEverySampleAndRanksTheNewest) {
  auto store = open();
  World world(*store);
  const Uuid slow = world.tried(*store, 1, 64, 300);
  world.tried(*store, 2, 64, 200);
  world.tried(*store, 3, 64, 250, Role::kCross);
  world.tried(*store, 3, 37, 150, Role::kCross);
  ResultQuery query{world.workload_hash, world.hardware_hash, world.policy, 3};
  auto medians = [&] {
    std::vector<double> all;
    for (const Result& r : store->results(query)) all.push_back(r.median_ns);
    return all;
  };
  EXPECT_THAT(medians(), ElementsAre(150, 200, 250, 300));
  query.roles = {Role::kSearch};
  EXPECT_THAT(medians(), ElementsAre(200, 300));
  clock += 5;
  Measurement again = world.measured(*store, *store->trial(slow), 100);
  const Uuid uuid = store->add(again);
  EXPECT_THAT(medians(), ElementsAre(100, 200)) << "the newest stands, the old one is kept";
  query.limit = 1;
  query.shape = world.shape(*store, 64);
  const Result best = store->results(query).at(0);
  EXPECT_EQ(best.measurement, uuid);
  EXPECT_EQ(best.config_json, R"({"tile":1})");
  EXPECT_EQ(best.template_name, "dense");
  EXPECT_EQ(best.dims, (Dims{{"m", 64}}));
  const Measurement m = store->measurement(uuid).value();
  EXPECT_EQ(m.samples_ns, again.samples_ns);
  EXPECT_EQ(m.outliers, again.outliers);
  query.codegen_version = 4;
  EXPECT_TRUE(store->results(query).empty()) << "code generators are never ranked together";
  query.codegen_version = 3;
  query.policy = store->put(MeasurePolicy{CacheMode::kCold, 3, 2, "rdtsc", "ci<1%"});
  EXPECT_TRUE(store->results(query).empty()) << "policies are never ranked together";
  EXPECT_EQ(store->policies(world.workload_hash, world.hardware_hash).size(), 1u);
  const std::vector<TrialOutcome> outcomes = store->outcomes(world.campaign);
  ASSERT_EQ(outcomes.size(), 4u);
  EXPECT_EQ(outcomes[0].median_ns, 100);
  EXPECT_EQ(outcomes[3].dims, (Dims{{"m", 37}}));
  EXPECT_TRUE(store->outcomes(world.campaign, std::string(32, 'f')).empty());
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

TEST_F(StoreTest, OutcomesComeInPagesInTheOrderEnqueued) {
  auto store = open();
  World world(*store);
  std::vector<Uuid> enqueued;
  for (int tile = 0; tile < 5; ++tile)
    enqueued.push_back(world.tried(*store, tile, 64, 100 + tile));
  std::vector<Uuid> met;
  std::optional<Trial> last;
  for (;;) {
    const auto page = store->outcomes(world.campaign, world.workload_hash, 2, last);
    for (const TrialOutcome& o : page) met.push_back(o.trial.uuid);
    if (page.size() < 2) break;
    last = page.back().trial;
  }
  EXPECT_EQ(met, enqueued);
  met.clear();
  each_outcome(*store, world.campaign, {}, [&](const TrialOutcome& o) {
    EXPECT_TRUE(store->trial(o.trial.uuid)) << "the store may be asked meanwhile";
    met.push_back(o.trial.uuid);
  });
  EXPECT_EQ(met, enqueued);
  EXPECT_EQ(store->outcome(enqueued[3])->median_ns, 103);
  EXPECT_FALSE(store->outcome(new_uuid()));
}

TEST_F(StoreTest, CostModelsComeInPagesTheNewestFirst) {
  auto store = open();
  World world(*store);
  for (int round = 0; round < 5; ++round) {
    clock += round % 2;  // some at the same moment
    store->add(CostModel{"", world.campaign, world.workload_hash, round, {1, 2}, {}});
  }
  std::vector<int64_t> times;
  std::set<Uuid> met;
  std::optional<CostModel> last;
  for (;;) {
    const auto page =
        store->cost_models(world.workload_hash, world.hardware_hash, INT64_MAX, 2, last);
    for (const CostModel& m : page) {
      EXPECT_TRUE(m.model.empty()) << "bytes are read one by one";
      times.push_back(m.created_at);
      met.insert(m.uuid);
    }
    if (page.size() < 2) break;
    last = page.back();
  }
  EXPECT_EQ(met.size(), 5u);
  EXPECT_TRUE(std::is_sorted(times.rbegin(), times.rend()));
  const auto before = store->cost_models(world.workload_hash, world.hardware_hash, clock, 9);
  EXPECT_LT(before.size(), 5u);
  EXPECT_TRUE(store->cost_models(std::string(32, '0'), world.hardware_hash, INT64_MAX, 9).empty());
  EXPECT_TRUE(store->cost_models(world.workload_hash, std::string(32, '0'), INT64_MAX, 9).empty());
}

TEST_F(StoreTest, ATransactionIsAllOrNothing) {
  auto store = open();
  EXPECT_THROW(store->transaction([&] {
    store->put(Template{"a", 1, ""});
    store->transaction([&] { store->put(Template{"b", 1, ""}); });
    throw std::runtime_error("no");
  }),
               std::runtime_error);
  store->transaction([&] {
    store->put(Template{"c", 1, ""});
    EXPECT_THROW(store->transaction([&] {
      store->put(Template{"d", 1, ""});
      throw std::runtime_error("inner");
    }),
                 std::runtime_error);
  });
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM template"), 1);
  EXPECT_EQ(connection()->text("SELECT name FROM template"), "c");
}

// Forks a child that runs `body` and exits; a throw makes it exit with 1.
template <class Body>
pid_t spawn(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      body();
      code = 0;
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
    }
    _exit(code);
  }
  return child;
}

TEST_F(StoreTest, TwoProcessesNeverClaimTheSameTrial) {
  constexpr int kTrials = 60;
  Uuid campaign;
  {
    auto store = open();
    World world(*store);
    campaign = world.campaign;
    std::vector<NewTrial> trials;
    store->transaction([&] {
      for (int i = 0; i < kTrials; ++i) trials.push_back({world.trial_key(*store, i, 64)});
      EXPECT_EQ(store->enqueue(trials), kTrials);
    });
  }
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i)
    children.push_back(spawn([&] {
      auto store = open();
      const std::string owner = std::to_string(getpid());
      for (;;) {
        const std::vector<Trial> claimed = store->claim({campaign, owner});
        if (claimed.empty()) break;
        if (claimed[0].attempt != 1 ||
            !store->finish({claimed[0].uuid, owner, TrialState::kTimeout, "timeout", owner}))
          throw std::runtime_error("a trial was given twice");
      }
    }));
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto store = open();
  EXPECT_EQ(store->progress(campaign).failed, kTrials);
}

TEST_F(StoreTest, SeveralProcessesMayCreateOneDatabase) {
  std::vector<pid_t> children;
  place();
  for (int i = 0; i < 4; ++i) children.push_back(spawn([&] { World world(*open()); }));
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(open()->check().sound());
}

TEST_F(StoreTest, KilledInTheMiddleNothingIsHalfWritten) {
  { World world(*open()); }
  options.clock_ms = nullptr;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = spawn([&] {
      auto store = open();
      World world(*store);
      for (int tile = 0;; ++tile) {
        const int unique = round * 100'000 + tile;
        store->enqueue({{world.trial_key(*store, unique, 64)}});
        const Trial t = store->claim({world.campaign, "child", 1}).at(0);
        store->finish({t.uuid, "child", TrialState::kOk, "", "", world.measured(*store, t, 100)});
        store->record_consumed(world.campaign, round + tile * 1e-6);
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds((on_server() ? 200 : 10) + 7 * round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    auto store = open();
    const CheckReport report = store->check();
    ASSERT_TRUE(report.sound()) << testing::PrintToString(report.problems);
  }
  auto store = open();
  World world(*store);
  EXPECT_GT(store->progress(world.campaign).ok, 0);
}

}  // namespace
}  // namespace nimble::db
