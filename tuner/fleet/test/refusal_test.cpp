// Jobs that a worker must not do: each goes back unblamed, and its campaign is passed over with the
// reason. Those of signatures are in permission_test.cpp.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tuner/fleet/test/fleet_fixture.h"
#include "vm/base/cpu_list.h"
#include "vm/base/host_state.h"

namespace nimble::tuner {
namespace {

using db::TrialState;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class RefusalTest : public FleetTest {
 protected:
  // A job whose case is that of job(), changed.
  db::NewJob job_of(const std::function<void(db::MeasureCase&)>& change) {
    db::NewJob j = job({"test.copy"});
    db::MeasureCase record = *store->measure_case(j.measure_case);
    change(record);
    j.measure_case = store->put(record);
    return j;
  }
  db::NewJob job_with_fills(const std::function<void(json&)>& change) {
    return job_of([&](db::MeasureCase& record) {
      json fills = json::parse(record.fills);
      change(fills);
      record.fills = fills.dump();
    });
  }
  // That the worker passes it over for that reason, and blames nobody.
  void expect_refused(const db::NewJob& j, const std::string& reason) {
    store->publish(j);
    expect_published_refused(j, reason);
  }
  void expect_published_refused(const db::NewJob& j, const std::string& reason) {
    const FleetTally tally = work();
    EXPECT_EQ(tally.jobs, 0) << reason;
    ASSERT_EQ(tally.passed_over.count(j.campaign), 1u) << reason << said;
    EXPECT_THAT(tally.passed_over.at(j.campaign), HasSubstr(reason));
    for (size_t i = 0; i < j.trials.size(); ++i)
      EXPECT_EQ(trial(j, i).state, TrialState::kQueued) << reason;
    const db::Job kept = *store->job(db::uuid_of(j));
    EXPECT_EQ(kept.state, db::JobState::kQueued) << reason;
    EXPECT_EQ(kept.lost, 0) << reason;
    store->cancel_jobs(j.campaign);
  }
  FleetTally work() {
    work_options.max_idle_s = 0;
    return FleetTest::work();
  }
};

TEST_F(RefusalTest, ACaseOfOtherThreadsThanItsPolicySays) {
  expect_refused(job_with_fills([](json& fills) { fills["threads"] = 2; }),
                 "it is measured otherwise than its policy says");
}

TEST_F(RefusalTest, ACaseOfAnotherPolicyThanItsKeySays) {
  expect_refused(job_with_fills([](json& fills) { fills["policy"]["max_samples"] = 999; }),
                 "it is measured otherwise than its policy says");
}

TEST_F(RefusalTest, ACaseOfAnotherVersionsData) {
  expect_refused(job_with_fills([](json& fills) { fills["data"] = 99; }),
                 "its test data is of another version of nimble");
}

TEST_F(RefusalTest, ACaseThatIsNone) {
  expect_refused(job_with_fills([](json& fills) { fills = json::object(); }), "key 'data'");
  expect_refused(job_with_fills([](json& fills) { fills["symbols"] = "many"; }),
                 "symbols is no list");
  expect_refused(job_with_fills([](json& fills) { fills["threads"] = 1e99; }),
                 "threads is no whole number");
}

TEST_F(RefusalTest, ACaseThatTheMeasuringProcessWouldRefuse) {
  expect_refused(job_with_fills([](json& fills) { fills["stepping"] = {7, 7, 7, 7, 7, 7}; }),
                 "boolean is 7");
}

TEST_F(RefusalTest, ACaseWithoutAnExpectedResult) {
  expect_refused(job_of([](db::MeasureCase& record) { record.expected.reset(); }),
                 "its case has no expected result");
}

TEST_F(RefusalTest, AnExpectedResultThatIsNone) {
  const std::vector<uint8_t> noise(64, 0xa5);
  const db::Digest digest = store->put_blob(noise);
  expect_refused(job_of([&](db::MeasureCase& record) { record.expected = digest; }), "");
}

TEST_F(RefusalTest, MoreThreadsThanTheWorkerIsBoundTo) {
  work_options.cpus = {cpu_list_from_text(HostWatch().read().affinity, "here")[0]};
  Case c = copy_case(0, 0, 64);
  c.policy.batch_ns = 10'000;
  c.policy.max_samples = 6;
  c.threads = 2;
  store->put(policy_record(c.policy, c.threads));
  db::NewJob j = job({"test.copy"});
  j.measure_case =
      store->put(case_record(c, fleet->world.workload_hash, fleet->world.shape(*store, 64),
                             store->put_blob(expected_bytes(c))));
  for (db::NewJobTrial& t : j.trials) t.trial.key.threads = 2;
  expect_refused(j, "is for 2 threads, and this worker has 1");
}

TEST_F(RefusalTest, LimitsThatAreNone) {
  for (const auto& [limits, reason] : std::vector<std::pair<const char*, const char*>>{
           {R"({"case_s":-1})", "its time limit is out of range"},
           {R"({"case_s":1e9})", "its time limit is out of range"},
           {R"({"case_s":"long"})", "must be number"},
           {R"({"paired":1})", "must be boolean"},
           {R"({"memory":1})", "has a limit \"memory\" that this program does not know"},
           {R"([1])", "has a limit"}}) {
    db::NewJob j = job({"test.copy"});
    j.limits = limits;
    expect_refused(j, reason);
  }
}

// Somebody who can write to the database changes what was signed.
class TamperTest : public RefusalTest {
 protected:
  db::NewJob published() {
    db::NewJob j = job({"test.copy"});
    store->publish(j);
    return j;
  }
  // Past what keeps records as they are.
  void change(const std::string& table, const std::string& sql) {
    const auto database = connection();
    if (on_server()) {
      database->script("ALTER TABLE " + table + " DISABLE TRIGGER USER; " + sql);
      return;
    }
    std::vector<std::string> triggers;
    {
      db::Statement rows = database->prepare(
          "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?");
      rows.bind(table);
      while (rows.step()) triggers.push_back(rows.text(0));
    }
    for (const std::string& name : triggers) database->script("DROP TRIGGER " + name);
    database->script(sql);
  }
};

TEST_F(TamperTest, ACaseThatIsNotWhatItsKeySays) {
  const db::NewJob j = published();
  change("measure_case",
         "UPDATE measure_case SET seed = seed + 1 WHERE hash = '" + j.measure_case + "'");
  expect_published_refused(j, "its case is not what its key says");
}

TEST_F(TamperTest, AToleranceThatLetsWrongResultsPass) {
  const db::NewJob j = published();
  change("measure_case",
         "UPDATE measure_case SET tolerance = 1e9 WHERE hash = '" + j.measure_case + "'");
  expect_published_refused(j, "its case is not what its key says");
}

TEST_F(TamperTest, CodeThatIsNotWhatItsDigestSays) {
  const db::NewJob j = published();
  const db::Digest other = store->put_blob(fault_executable({"test.wrong"}));
  std::string set;
  for (const char* column : {"bytes", "size", "encoding"})
    set += fmt::format("{}{} = (SELECT {} FROM blob WHERE digest = '{}')", set.empty() ? "" : ", ",
                       column, column, other);
  change("blob",
         fmt::format("UPDATE blob SET {} WHERE digest = '{}'", set, *j.trials[1].candidate));
  expect_published_refused(j, "blob");
}

}  // namespace
}  // namespace nimble::tuner
