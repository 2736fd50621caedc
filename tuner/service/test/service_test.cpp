// Campaigns that a service and workers of a fleet tune together, and services that are killed.
#include "tuner/service/test/service_fixture.h"

namespace nimble::tuner {
namespace {

using db::CampaignState;
using db::ControlRequest;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(ServiceTest, TunesACampaignToActiveTablesWithTwoWorkers) {
  const db::Uuid uuid = campaign(1.5);
  start_worker("a");
  start_worker("b");
  const ServiceTally tally = serve();
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_GT(tally.cases, 3);
  expect_tuned(uuid);
  // What the tables are made of can be read.
  const db::DispatchTable made = *store->table(tables(uuid)[0].uuid);
  for (const db::DispatchEntry& e : made.entries) {
    const auto texts = store->generated_code(e.code_hash);
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_EQ(texts[0].kind, "assembly");
  }
  // The default ran against itself where finalists were compared.
  EXPECT_THAT(made.objective, HasSubstr("A/A"));
  EXPECT_FALSE(store->twins(made.workload, made.hardware).empty());
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("noise"));
  // What cannot be compiled is known as such, what goes wrong, too.
  std::set<db::TrialState> states;
  for (const db::TrialOutcome& o : store->outcomes(uuid)) states.insert(o.trial.state);
  EXPECT_TRUE(states.contains(db::TrialState::kOk));
  EXPECT_FALSE(states.contains(db::TrialState::kClaimed));
  // A finished campaign is nobody's; with a larger budget it goes on.
  EXPECT_EQ(serve().finished, 0);
  EXPECT_EQ(campaign(2.5), uuid);
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_EQ(state(uuid), CampaignState::kFinished);
  expect_nothing_counted_twice(uuid);
}

// Its table holds the default schedule: a compiler finds a record, whose age it can tell.
TEST_F(ServiceTest, AWorkloadThatKeepsItsDefaultScheduleHasATable) {
  backend.others_fail = true;
  const db::Uuid uuid = campaign(0.8);
  start_worker("a");
  EXPECT_EQ(serve().finished, 1) << said;
  expect_tuned(uuid);
  const std::vector<db::DispatchTable> made = tables(uuid);
  ASSERT_EQ(made.size(), 1u);
  ASSERT_EQ(made[0].entries.size(), 1u);
  const db::DispatchEntry& only = made[0].entries[0];
  EXPECT_GT(only.expected_ns.value_or(0), 0);
  EXPECT_NE(only.evidence, std::nullopt);
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("nothing is faster"));

  const kernels::TargetInfo target = kernels::target_by_name("native");
  const Submission s = submission();
  const kernels::Workload& w = s.tasks.at(0).workload();
  const tuned::Lookup found =
      tuned::database_source(db::Store::open(serving.database))->find(w, target, s.policy.name);
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kTuned) << found.reason;
  ASSERT_TRUE(found.choice);
  EXPECT_THAT(found.choice->candidates, testing::ElementsAre(Space(w, target).default_candidate()));
}

TEST_F(ServiceTest, ASizeThatCannotBeIsLeftOut) {
  const db::Uuid uuid = campaign(1.2);
  backend.cannot_be = 16;  // where the search would run
  start_worker("a");
  EXPECT_EQ(serve().finished, 1);
  EXPECT_THAT(said, HasSubstr("cannot occur at 16"));
  expect_tuned(uuid);
}

// At every look a second plan is made from the database alone.
TEST_F(ServiceTest, ARestartAtAnyMomentKnowsWhatWasKnown) {
  const db::Uuid uuid = campaign(1.2);
  start_worker("a");
  start_worker("b");
  RunnerOptions runner_options;
  runner_options.program = NIMBLE_FAULT_WORKER;
  Runner runner(runner_options);
  const kernels::TargetInfo target = kernels::target_by_name("native");
  const auto publishing = [&](db::Store& s) {
    const Submission its = load_submission(s, uuid);
    return Publishing{s,
                      backend,
                      runner,
                      key,
                      "planner",
                      target,
                      its.policy,
                      *s.campaign(uuid),
                      s.put(tuned::toolchain_record()),
                      nullptr,
                      1,
                      [](const std::string&) {}};
  };
  Publishing own = publishing(*store);
  CampaignService service(own, load_submission(*store, uuid));
  int compared = 0;
  for (;;) {
    ASSERT_FALSE(service.steer());
    // Workers tell more at any moment: until both have seen the same.
    bool alike = false;
    for (int tries = 0; !alike && tries < 5; ++tries) {
      service.follow();
      const auto other = db::Store::open(serving.database);
      Publishing its = publishing(*other);
      const CampaignService anew(its, load_submission(*other, uuid));
      alike = anew.seen() == service.seen();
      if (alike) {
        ++compared;
        EXPECT_EQ(anew.plan().outstanding(), service.plan().outstanding());
        EXPECT_EQ(anew.plan().spent_s(), service.plan().spent_s());
        const auto a = anew.plan().tasks(), b = service.plan().tasks();
        for (size_t t = 0; t < a.size(); ++t) {
          EXPECT_EQ(plan::name_of(a[t].phase), std::string(plan::name_of(b[t].phase)));
          EXPECT_EQ(a[t].trials, b[t].trials);
          EXPECT_EQ(a[t].failed, b[t].failed);
          EXPECT_EQ(a[t].best_ratio, b[t].best_ratio);
          EXPECT_EQ(a[t].verified.ratios, b[t].verified.ratios);
        }
      }
    }
    if (service.finish()) break;
    const plan::Fleet fleet = service.fleet();
    if (service.may_want(fleet))
      for (const plan::WantedCase& w : service.want(fleet)) service.publish(w);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(compared, 0);
  expect_tuned(uuid);
}

// NIMBLE_KILLS: how many.
TEST_F(ServiceTest, KilledAgainAndAgainItComesToTheSameEnd) {
  const char* asked = std::getenv("NIMBLE_KILLS");
  const int kills = asked ? std::max(1, std::atoi(asked)) : 20;
  const db::Uuid uuid = campaign(2);
  start_worker("a");
  start_worker("b");
  std::mt19937_64 random(11);
  int killed = 0;
  for (; killed < kills && state(uuid) == CampaignState::kRunning; ++killed) {
    Child service([&] { serve(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 120));
    service.end(SIGKILL);
  }
  EXPECT_GT(killed, 0);
  serve();
  expect_tuned(uuid);
}

TEST_F(ServiceTest, IsPausedAndGoesOn) {
  const db::Uuid uuid = campaign(1.2);
  ask(uuid, ControlRequest::kPause);
  start_worker("a");
  std::atomic<bool> cancel{false};
  int looks = 0;
  serving.looked = [&] {
    ++looks;
    if (looks < 20) {
      EXPECT_EQ(state(uuid), CampaignState::kPaused);
      EXPECT_EQ(jobs_of(uuid), 0);
    }
    if (looks == 20) ask(uuid, ControlRequest::kResume);
  };
  EXPECT_EQ(serve(cancel).finished, 1);
  expect_tuned(uuid);
  for (const db::Control& c : store->requests(uuid)) EXPECT_EQ(c.accepted, true);
}

TEST_F(ServiceTest, ToldToStopItVerifiesWhatIsKnown) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  bool asked = false;
  serving.looked = [&] {
    if (asked || jobs_of(uuid) < 4) return;
    asked = true;
    ask(uuid, ControlRequest::kStop);
  };
  EXPECT_EQ(serve().finished, 1);
  EXPECT_TRUE(asked);
  expect_tuned(uuid);
}

TEST_F(ServiceTest, ToldToStopWithoutAWorkerItEndsAfterAWhile) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  serving.stop_patience_s = 0.3;
  int looks = 0;
  serving.looked = [&] {
    if (jobs_of(uuid) < 3 || looks++ > 0) return;
    workers.clear();
    // Who was killed says no goodbye: it counts as alive until its heartbeat is old.
    for (const db::LiveWorker& w : store->live_workers()) {
      db::Heartbeat gone = *w.heartbeat;
      gone.state = db::WorkerState::kStopped;
      store->heartbeat(gone);
    }
    ask(uuid, ControlRequest::kStop);
  };
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_THAT(said, HasSubstr("no worker is there"));
  EXPECT_EQ(state(uuid), CampaignState::kFinished);
  EXPECT_THAT(tables(uuid), IsEmpty()) << "what nobody has verified";
  EXPECT_THAT(store->tasks(uuid).at(0).detail, HasSubstr("ended without a worker"));
  const db::OpenJobs open = store->open_jobs(uuid);
  EXPECT_EQ(open.queued + open.claimed, 0);
  // With a larger budget and a worker it goes on, and makes tables.
  campaign(1e6 + 1);
  start_worker("b");
  serving.looked = [&, asked = false]() mutable {
    if (asked) return;
    asked = true;
    ask(uuid, ControlRequest::kStop);
  };
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_EQ(tables(uuid).size(), 1u);
  EXPECT_THAT(store->tasks(uuid).at(0).detail, Not(HasSubstr("ended without a worker")));
}

TEST_F(ServiceTest, StoppedAndKilledItStillStops) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  ask(uuid, ControlRequest::kStop);
  {
    Child service([&] { serve(); });
    while (!store->open_requests(uuid).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    service.end(SIGKILL);
  }
  serve();
  EXPECT_EQ(state(uuid), CampaignState::kFinished);
}

TEST_F(ServiceTest, ACancelledCampaignEndsWithoutTables) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  bool asked = false;
  serving.looked = [&] {
    if (asked || jobs_of(uuid) < 3) return;
    asked = true;
    ask(uuid, ControlRequest::kCancel);
  };
  EXPECT_EQ(serve().finished, 0);
  EXPECT_EQ(state(uuid), CampaignState::kFailed);
  EXPECT_THAT(tables(uuid), IsEmpty());
  const db::OpenJobs open = store->open_jobs(uuid);
  EXPECT_EQ(open.queued + open.claimed, 0);
}

TEST_F(ServiceTest, TwoCampaignsShareTheWorkers) {
  const db::Uuid first = campaign(1.2, 1), second = campaign(1.2, 2);
  ASSERT_NE(first, second);
  start_worker("a");
  start_worker("b");
  EXPECT_EQ(serve().finished, 2) << said;
  // Neither waited for the other's end.
  std::map<db::Uuid, int64_t> begun, ended;
  for (const db::Uuid& uuid : {first, second}) {
    EXPECT_EQ(state(uuid), CampaignState::kFinished);
    expect_nothing_counted_twice(uuid);
    for (const db::Event& e : store->events(0, 1 << 20, uuid)) {
      if (e.kind == "report") begun.emplace(uuid, e.number);
      if (e.kind == "campaign") ended[uuid] = e.number;
    }
  }
  EXPECT_LT(begun[first], ended[second]);
  EXPECT_LT(begun[second], ended[first]);
}

TEST_F(ServiceTest, OfTwoServicesOneServesAndTheOtherTakesOver) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  std::optional<Child> other;
  other.emplace([&] { serve(); });
  while (jobs_of(uuid) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  int looks = 0;
  serving.looked = [&] {
    if (++looks < 5) {
      EXPECT_THAT(said, HasSubstr("another service has it"));
    } else if (looks == 5) {
      other.reset();
    } else if (looks == 10) {
      ask(uuid, ControlRequest::kStop);
    }
  };
  const ServiceTally tally = serve();
  EXPECT_THAT(said, HasSubstr("another service has it"));
  EXPECT_EQ(tally.finished, 1);
  expect_tuned(uuid);
}

TEST_F(ServiceTest, TwoServicesAndTwoCampaignsComeToOneEndEach) {
  const db::Uuid first = campaign(1.2, 1), second = campaign(1.2, 2);
  start_worker("a");
  start_worker("b");
  Child other([&] { serve(); });
  serve();
  while (state(first) != CampaignState::kFinished || state(second) != CampaignState::kFinished)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (const db::Uuid& uuid : {first, second}) {
    EXPECT_EQ(tables(uuid).size(), 1u);
    expect_nothing_counted_twice(uuid);
  }
}

TEST_F(ServiceTest, AskedToEndItLeavesTheCampaignAsItIs) {
  const db::Uuid uuid = campaign(1e6);
  start_worker("a");
  std::atomic<bool> cancel{false};
  serving.looked = [&] { cancel = jobs_of(uuid) > 2; };
  EXPECT_EQ(serve(cancel).finished, 0);
  EXPECT_EQ(state(uuid), CampaignState::kRunning);
}

TEST_F(ServiceTest, ACampaignThatCannotBeServedIsToldOfAndLeftAlone) {
  const db::Uuid good = campaign(1.2);
  db::CampaignKey bad;
  bad.digest = "x";
  bad.hardware = store->put(db::host_hardware());
  bad.options =
      R"({"submission":"0000000000000000000000000000000000000000000000000000000000000000"})";
  const db::Uuid uuid = store->create_campaign(bad, 10, "test");
  start_worker("a");
  const ServiceTally tally = serve();
  EXPECT_EQ(tally.refused, 1);
  EXPECT_EQ(tally.finished, 1);
  EXPECT_THAT(said, HasSubstr("cannot be served"));
  EXPECT_EQ(state(uuid), CampaignState::kRunning);
  EXPECT_EQ(state(good), CampaignState::kFinished);
}

// Goes wrong once, in a way that trying again does not mend.
class BrokenOnce : public CopyBackend {
 public:
  Built build(const kernels::Workload& w, const std::vector<tuned::Candidate>& candidates,
              const kernels::TargetInfo& target) override {
    // Not while it begins: the default schedule is built then.
    const bool begins = text_of(candidates[0]) == text_of(Space(w, target).default_candidate());
    if (!begins && std::exchange(whole_, false))
      throw Error(Status::kCorrupt, "backend", "is broken");
    return CopyBackend::build(w, candidates, target);
  }

 private:
  bool whole_ = true;
};

TEST_F(ServiceTest, WhatGoesWrongWithOneCampaignEndsNoOther) {
  const db::Uuid a = campaign(1.2), b = campaign(1.2, 1);
  start_worker("a");
  BrokenOnce broken;
  const ServiceTally tally =
      serve_campaigns(serving, broken, key, load_submission, kNever,
                      [this](const std::string& text) { said += text + "\n"; });
  EXPECT_EQ(tally.refused, 1) << said;
  EXPECT_EQ(tally.finished, 1) << said;
  EXPECT_THAT(said, HasSubstr("cannot be served: backend: is broken"));
  const bool a_ended = state(a) == CampaignState::kFinished;
  EXPECT_EQ(state(a_ended ? b : a), CampaignState::kRunning);
  expect_tuned(a_ended ? a : b);
}

// Importing makes nobody work: a merged campaign would have this service build and sign what
// somebody else chose.
TEST_F(ServiceTest, ACampaignThatWasMergedIsNotServedUntilSomebodyHereResumesIt) {
  serving.database = place("other.db");
  store = db::Store::open(serving.database);
  const db::Uuid uuid = campaign(2);
  store->export_to(folder + "/records");
  serving.database = place();
  store = db::Store::open(serving.database);
  store->import_from(folder + "/records");
  start_worker("box");
  EXPECT_EQ(serve().cases, 0) << said;
  EXPECT_EQ(jobs_of(uuid), 0);
  EXPECT_TRUE(tables(uuid).empty());
  store->set_campaign_state(uuid, CampaignState::kRunning);
  serve();
  EXPECT_EQ(state(uuid), CampaignState::kFinished) << said;
}

TEST_F(ServiceTest, WhatAMergedDatabaseAsksForIsNotDone) {
  const db::Uuid uuid = campaign(2);
  store->export_to(folder + "/copy.db");
  {
    const auto copy = db::Store::open(folder + "/copy.db");
    db::Control c;
    c.campaign = uuid;
    c.request = ControlRequest::kCancel;
    copy->request(c);
    copy->record_consumed(uuid, 1e6);
    copy->set_campaign_state(uuid, CampaignState::kFailed);
  }
  store->import_from(folder + "/copy.db");
  EXPECT_THAT(store->open_requests(uuid), IsEmpty());
  EXPECT_EQ(state(uuid), CampaignState::kRunning);
  EXPECT_EQ(store->campaign(uuid)->consumed_s, 0);
  start_worker("box");
  serve();
  expect_tuned(uuid);
}

TEST(PlanRecord, SaysWhatTheCaseSays) {
  PlanRecord r;
  r.wanted.key = "0/3 again 1";
  r.wanted.task = 1;
  r.wanted.point = 2;
  r.wanted.phase = plan::Phase::kCross;
  r.wanted.slice = 2;
  r.wanted.configs = {"a", "b"};
  r.wanted.anchors = {"c"};
  r.wanted.avoid = "m";
  r.wanted.first = "0/3";
  r.seen = 17;
  r.budget_s = 2.5;
  const PlanRecord back = *plan_record_of(limits_of(r, 20));
  EXPECT_EQ(limits_of(back, 20), limits_of(r, 20));
  EXPECT_FALSE(plan_record_of(R"({"case_s":20})"));
  for (const char* text : {"", "[", R"({"plan":3})", R"({"plan":{"key":"0/1"}})"})
    EXPECT_THROW(plan_record_of(text), Error) << text;
}

}  // namespace
}  // namespace nimble::tuner
