// What each role of a shared database may do, tried on a server with the store's own calls.
#ifdef NIMBLE_POSTGRES
#include "db/store/roles.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <set>

#include "db/store/migrations.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"
#include "db/store/test/fleet.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;

class RolesTest : public PostgresTest {
 protected:
  // The database as somebody sees it who has this role alone.
  std::unique_ptr<Store> open_as(const std::string& role) {
    const std::string url = place();
    return Store::open(
        url + (url.find('?') == std::string::npos ? "?" : "&") + "options=-c%20role%3D" + role,
        options);
  }
  void grant() { connection()->script(roles_sql()); }
  // What makes the roles, and gives no rights: all of a server's databases share them.
  static std::string roles_of_the_server() {
    const std::string all = roles_sql();
    return all.substr(0, all.find("-- Nothing that somebody gave")) + "COMMIT;";
  }
  static void expect_denied(const std::string& what, const std::function<void()>& body) {
    const Error error = error_of(body);
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << what << ": " << error.what();
    EXPECT_THAT(error.what(), HasSubstr("your role may not do this")) << what;
  }
};

TEST_F(RolesTest, AReaderReadsAndWritesNothing) {
  auto owner = open();
  World world(*owner);
  world.tried(*owner, 8, 64, 100);
  grant();
  auto reader = open_as("nimble_reader");
  EXPECT_EQ(all_campaigns(*reader).size(), 1u);
  EXPECT_EQ(reader->outcomes(world.campaign).size(), 1u);
  EXPECT_EQ(reader->lookup(world.lookup_key()).outcome, LookupOutcome::kNone);
  expect_denied("put", [&] { reader->put(Template{"t", 1, ""}); });
  expect_denied("enqueue", [&] { reader->enqueue({{world.trial_key(*owner, 16, 64)}}); });
  expect_denied("state",
                [&] { reader->set_campaign_state(world.campaign, CampaignState::kFailed); });
}

TEST_F(RolesTest, AWorkerMeasuresAndReports) {
  auto owner = open();
  Fleet fleet(*owner);
  owner->publish(fleet.job({8, 16}, 64));
  grant();
  auto store = open_as("nimble_worker");
  const Uuid machine = store->put(Machine{"", "box-of-the-worker", fleet.world.hardware_hash});
  const Uuid worker = store->add(Worker{"", machine, "w", 17, "0.1", "{}", "[]"});
  Heartbeat beat;
  beat.worker = worker;
  store->heartbeat(beat, 0, 60'000);
  JobRequest request;
  request.worker = worker;
  const std::optional<Job> job = store->claim_job(request);
  ASSERT_TRUE(job);
  beat.job = job->uuid;
  beat.state = WorkerState::kMeasuring;
  EXPECT_TRUE(store->heartbeat(beat, job->attempt, 60'000));
  JobReport told = fleet.report(*job, 100);
  told.results[0].measurement->twin_ns = told.results[0].measurement->samples_ns;
  told.results[1].state = TrialState::kCrashed;
  told.results[1].error_class = "SIGSEGV";
  told.results[1].measurement.reset();
  told.results[1].failure = FailureLog{};
  told.results[1].failure->error_class = "SIGSEGV";
  EXPECT_EQ(store->report(told), ReportOutcome::kStored);
  EXPECT_EQ(owner->progress(fleet.world.campaign).ok, 2);
  EXPECT_EQ(owner->failures(told.results[1].trial).size(), 1u);
  // A job that it gives back, and one whose lease ran out.
  owner->publish(fleet.job({24, 32}, 37));
  const std::optional<Job> second = store->claim_job(request);
  ASSERT_TRUE(second);
  EXPECT_TRUE(store->release_job(second->uuid, worker, second->attempt));
  request.lease_ms = 1;
  ASSERT_TRUE(store->claim_job(request));
  connection()->run("UPDATE nimble.job SET lease_until = 1 WHERE state = 'claimed'");
  EXPECT_NO_THROW(store->claim_job(request));
}

TEST_F(RolesTest, AWorkerPublishesNoTablesAndControlsNoCampaign) {
  auto owner = open();
  Fleet fleet(*owner);
  World& world = fleet.world;
  world.tried(*owner, 8, 64, 100);
  const NewDispatchTable draft = world.draft(*owner, 8);
  const Uuid table = owner->create_table(draft);
  grant();
  auto worker = open_as("nimble_worker");
  expect_denied("a table", [&] { worker->create_table(draft); });
  expect_denied("activation", [&] { worker->activate(table, "mine"); });
  NewOverride override_{world.workload_hash, world.hardware_hash, {}, world.config(*owner, 8), "r"};
  expect_denied("an override", [&] { worker->add(override_); });
  CampaignKey key = world.key;
  key.seed = 99;
  expect_denied("a campaign", [&] { worker->create_campaign(key, 1, "x"); });
  expect_denied("a budget", [&] { worker->set_budget(world.campaign, 1e6); });
  expect_denied("a state",
                [&] { worker->set_campaign_state(world.campaign, CampaignState::kFinished); });
  Control control;
  control.campaign = world.campaign;
  control.requested_by = "worker";
  expect_denied("a request", [&] { worker->request(control); });
  expect_denied("a trial", [&] { worker->enqueue({{world.trial_key(*owner, 99, 64)}}); });
  const std::vector<uint8_t> code = {1, 2, 3};
  expect_denied("a candidate's bytes", [&] { worker->put_blob(code); });
  expect_denied("a cost model", [&] {
    worker->add(CostModel{"", world.campaign, world.workload_hash, 1, {1}, {}});
  });
  expect_denied("a key", [&] { worker->put(SigningKey{std::string(64, 'a'), "x"}); });
  expect_denied("a signature", [&] {
    worker->add(Signature{std::string(64, '0'), std::string(64, 'a'), std::vector<uint8_t>(64)});
  });
  expect_denied("a revocation", [&] { worker->revoke({std::string(64, 'a'), "x"}); });
  expect_denied("code", [&] { worker->put(GeneratedCode{"c", "assembly", std::string(64, '0')}); });
  Ceiling ceiling;
  ceiling.machine = world.machine;
  ceiling.kind = "compute";
  ceiling.value = 1e30;
  expect_denied("a ceiling", [&] { worker->add(ceiling); });
  expect_denied("a verdict", [&] {
    worker->add(MachineVerdict{"", world.campaign, world.machine, 1});
  });
  PeerFigure figure;
  figure.run = table;
  figure.peer = "torch";
  figure.machine = world.machine;
  figure.subject = "model";
  figure.samples_ns = {1};
  figure.median_ns = 1;
  expect_denied("a peer's figure", [&] { worker->add(figure); });
  expect_denied("counts of shapes", [&] {
    worker->tell_shapes(new_uuid(), {{world.workload_hash, world.hardware_hash, {{"m", 8}}, 1}});
  });
  expect_denied("a task", [&] {
    worker->add_tasks({{"", world.campaign, world.workload_hash, "dense", 1, 1, {}}});
  });
  // Nor by SQL of its own.
  const auto raw = connection();
  raw->script("SET ROLE nimble_worker");
  for (const char* sql :
       {"UPDATE job SET limits = '{}'", "UPDATE job_trial SET candidate = NULL", "DELETE FROM job",
        "UPDATE campaign SET consumed_s = 1", "INSERT INTO import_batch SELECT * FROM import_batch",
        "ALTER TABLE trial DISABLE TRIGGER ALL", "DROP TABLE trial",
        "UPDATE migration SET version = 1", "TRUNCATE event",
        "INSERT INTO tombstone VALUES ('samples', 'x', 'mine', 0)", "DELETE FROM samples",
        "UPDATE dispatch_standing SET status = 'active'", "DELETE FROM newest_measured",
        "UPDATE newest_measured SET median_ns = 1", "DELETE FROM dispatch_standing",
        "UPDATE blob SET encoding = 'removed'", "DELETE FROM heartbeat"})
    EXPECT_THROW(raw->script(sql), Error) << sql;
}

// What a worker may write it may write as it likes: never so that others cannot write any more, nor
// so that other machines do what it says.
TEST_F(RolesTest, AWorkerStopsNobodyElse) {
  auto owner = open();
  Fleet fleet(*owner);
  const Uuid published = owner->publish(fleet.job({8, 16}, 64));
  const Uuid worker = fleet.worker("box");
  grant();
  const auto raw = connection();
  raw->script("SET ROLE nimble_worker");
  const std::string columns =
      "uuid, campaign, measure_case, hardware, limits, priority, position, created_at";
  const std::string other =
      "'00000000-0000-4000-8000-000000000000', campaign, measure_case, "
      "hardware, limits, ";
  for (const std::string& sql : std::vector<std::string>{
           "UPDATE event_counter SET last = 9223372036854775807",
           "UPDATE event_counter SET last = 0",
           "INSERT INTO event VALUES (9000000000000000000, 'job', NULL, 'x', '{}', 0)",
           "UPDATE event_counter SET last = last + 1; INSERT INTO event SELECT last, 'campaign', "
           "'" +
               fleet.world.campaign + "', 'x', '{}', 0 FROM event_counter",
           // One that nobody signed, ahead of all others: its campaign would be passed over.
           "INSERT INTO job (" + columns + ") SELECT " + other + "1e308, 7, 0 FROM job",
           "INSERT INTO job (" + columns + ", parent) SELECT " + other +
               "1e308, 7, 0, uuid FROM job",
           // One candidate's code under another's name.
           "INSERT INTO job (" + columns + ", parent) SELECT " + other +
               "priority, 7, 0, uuid FROM job; "
               "INSERT INTO job_trial SELECT '00000000-0000-4000-8000-000000000000', 0, a.trial, "
               "b.artifact, b.candidate, a.anchor FROM job_trial a, job_trial b "
               "WHERE a.ordinal = 1 AND b.ordinal = 2"})
    EXPECT_THROW(raw->script(sql), Error) << sql;
  // What it may do harms none.
  raw->script("UPDATE job SET attempt = 9223372036854775807");
  // Which a worker of an earlier version could have made.
  connection()->script("UPDATE job SET position = 9223372036854775807");
  raw->script("INSERT INTO consumption SELECT '" + fleet.world.campaign +
              "', uuid, 999999999998 FROM machine");
  JobRequest request;
  request.worker = worker;
  const std::optional<Job> job = owner->claim_job(request);
  ASSERT_TRUE(job && job->uuid == published);
  EXPECT_EQ(owner->report(fleet.report(*job, 100)), ReportOutcome::kStored);
  owner->record_consumed(fleet.world.campaign, 1e13);
  EXPECT_NO_THROW(owner->publish(fleet.job({24}, 64)));
  EXPECT_TRUE(owner->claim_job(request));
}

// Facts are for good, so one that no export or import takes would stop all of them for good.
TEST_F(RolesTest, AWorkerWritesNoFactsThatCannotBe) {
  auto owner = open();
  Fleet fleet(*owner);
  fleet.world.tried(*owner, 8, 64, 100);
  fleet.world.tried(*owner, 16, 64, 100);
  owner->publish(fleet.job({24}, 64));
  grant();
  const auto raw = connection();
  raw->script("SET ROLE nimble_worker");
  const std::string uuid = "'00000000-0000-4000-8000-000000000000'";
  const auto measurement = [&](const std::string& artifact, const std::string& at) {
    return "INSERT INTO measurement (uuid, trial, artifact, policy, machine, host_state, n, "
           "median_ns, mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at) SELECT " +
           uuid + ", m.trial, " + artifact +
           ", m.policy, m.machine, m.host_state, m.n, m.median_ns, m.mad_ns, m.ci_low_ns, "
           "m.ci_high_ns, m.stop_reason, " +
           at + " FROM measurement m LIMIT 1; ";
  };
  const std::string samples =
      "INSERT INTO samples SELECT " + uuid + ", n, ns, outlier FROM samples LIMIT 1";
  const std::string other = "(SELECT a.hash FROM artifact a WHERE a.hash <> m.artifact LIMIT 1)";
  for (const std::string& sql : std::vector<std::string>{
           "INSERT INTO host_state VALUES (" + uuid + ", '', NULL, NULL, '', 'NaN', 0)",
           "INSERT INTO host_state VALUES (" + uuid + ", '', NULL, NULL, '', 'Infinity', 0)",
           measurement("m.artifact", "m.created_at"), measurement(other, "m.created_at") + samples,
           measurement("m.artifact", "9223372036854775807") + samples,
           "UPDATE trial SET state = 'ok', finished_at = 1, median_ns = 1, measured_on = "
           "(SELECT hash FROM hardware LIMIT 1) WHERE state = 'queued'"})
    EXPECT_THROW(raw->script(sql), Error) << sql;
  // All of it as it should be.
  EXPECT_NO_THROW(raw->script(measurement("m.artifact", "m.created_at") + samples));
  EXPECT_NO_THROW(owner->export_to(file("out")));
  EXPECT_THAT(owner->check().problems, testing::IsEmpty());
}

TEST_F(RolesTest, APlannerDoesAllButChangeTheSchema) {
  auto owner = open();
  Fleet fleet(*owner);
  World& world = fleet.world;
  world.tried(*owner, 8, 64, 100);
  grant();
  auto planner = open_as("nimble_planner");
  planner->activate(planner->create_table(world.draft(*planner, 8)), "tuned");
  EXPECT_NO_THROW(planner->publish(fleet.job({16}, 64)));
  planner->set_campaign_state(world.campaign, CampaignState::kPaused);
  planner->put(SigningKey{std::string(64, 'a'), "x"});
  EXPECT_TRUE(planner->revoke({std::string(64, 'a'), "stolen"}));
  const auto raw = connection();
  raw->script("SET ROLE nimble_planner");
  for (const char* sql :
       {"DELETE FROM key_revocation", "UPDATE migration SET version = 1",
        "INSERT INTO migration VALUES (99, 'x', 0)", "DROP TABLE trial",
        "ALTER TABLE trial DISABLE TRIGGER ALL", "CREATE TABLE nimble.more (x bigint)"})
    EXPECT_THROW(raw->script(sql), Error) << sql;
}

// Roles are the server's: the owner of another database may make them at the same moment.
TEST_F(RolesTest, TwoDatabasesMayMakeTheRolesAtOnce) {
  std::string roles = roles_of_the_server();
  const std::string prefix = "of" + std::to_string(getpid()) + "_nimble_";
  for (size_t at = 0; (at = roles.find("nimble_", at)) != std::string::npos; at += prefix.size())
    roles.replace(at, 7, prefix);
  const auto first = connection();
  const auto watch = connection();
  first->script("BEGIN; CREATE ROLE " + prefix + "reader NOLOGIN");
  std::future<std::string> second = std::async(std::launch::async, [&]() -> std::string {
    try {
      connection("other.db")->script(roles);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  });
  while (watch->integer("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
                        "strpos(query, '" +
                        prefix + "') > 0 AND pid <> pg_backend_pid()") == 0 &&
         second.wait_for(std::chrono::milliseconds(10)) == std::future_status::timeout) {
  }
  first->script("COMMIT");
  EXPECT_EQ(second.get(), "");
  EXPECT_EQ(
      watch->integer("SELECT count(*) FROM pg_roles WHERE strpos(rolname, '" + prefix + "') = 1"),
      3);
  first->script("DROP ROLE " + prefix + "reader, " + prefix + "worker, " + prefix + "planner");
}

// Who makes a table decides who may write it: one that is in none of these lists fails here.
TEST_F(RolesTest, EachTableIsAWorkersToAddToOrNot) {
  { open(); }
  grant();
  const std::set<std::string> added_to{"hardware",     "machine",     "host_state",  "worker",
                                       "heartbeat",    "job_report",  "measurement", "samples",
                                       "correctness",  "consumption", "event",       "job",
                                       "twin_samples", "failure_log", "job_trial"};
  const std::set<std::string> changed_in{"job", "trial", "heartbeat", "consumption",
                                         "event_counter"};
  const std::set<std::string> neither{"artifact",
                                      "blob",
                                      "campaign",
                                      "candidate",
                                      "ceiling",
                                      "config",
                                      "machine_verdict",
                                      "control",
                                      "control_answer",
                                      "cost_model",
                                      "dispatch_entry",
                                      "dispatch_event",
                                      "dispatch_comparison",
                                      "dispatch_miss",
                                      "dispatch_table",
                                      "dispatch_override",
                                      "dispatch_replaced",
                                      "identity",
                                      "generated_code",
                                      "dispatch_standing",
                                      "dispatch_withdrawal",
                                      "import_batch",
                                      "key_revocation",
                                      "measure_case",
                                      "measure_policy",
                                      "migration",
                                      "newest_measured",
                                      "peer_figure",
                                      "shape",
                                      "shape_count",
                                      "signature",
                                      "signing_key",
                                      "task",
                                      "task_event",
                                      "task_shape",
                                      "template",
                                      "tombstone",
                                      "toolchain",
                                      "workload"};
  const auto raw = connection();
  Statement row = raw->prepare(
      "SELECT CAST(relname AS text), "
      "CAST(has_table_privilege('nimble_worker', oid, 'INSERT') AS int), "
      "CAST(has_any_column_privilege('nimble_worker', oid, 'UPDATE') AS int), "
      "CAST(has_table_privilege('nimble_worker', oid, 'DELETE, TRUNCATE') AS int), "
      "CAST(has_table_privilege('nimble_reader', oid, 'INSERT, UPDATE, DELETE, TRUNCATE') AS int) "
      "FROM pg_class WHERE relnamespace = CAST('nimble' AS regnamespace) AND relkind = 'r'");
  int tables = 0;
  while (row.step()) {
    ++tables;
    const std::string table = row.text(0);
    EXPECT_EQ(row.integer(1) != 0, added_to.contains(table)) << table;
    EXPECT_EQ(row.integer(2) != 0, changed_in.contains(table)) << table;
    EXPECT_EQ(row.integer(3), 0) << table;
    EXPECT_EQ(row.integer(4), 0) << table;
    EXPECT_TRUE(added_to.contains(table) || changed_in.contains(table) || neither.contains(table))
        << table << " is in no list: decide who may write it (db/store/roles.cpp)";
  }
  EXPECT_GT(tables, 40);
}

// What somebody gave by hand is taken back, and what is there is no fault.
TEST_F(RolesTest, GrantingAgainRestoresExactlyTheSame) {
  { open(); }
  grant();
  const auto raw = connection();
  const auto rights = [&] {
    std::string all;
    Statement row = raw->prepare(
        "SELECT CAST(relname AS text), coalesce(CAST(relacl AS text), '') FROM pg_class "
        "WHERE relnamespace = CAST('nimble' AS regnamespace) ORDER BY 1");
    while (row.step()) all += row.text(0) + row.text(1) + "\n";
    return all;
  };
  const std::string granted = rights();
  raw->script("GRANT INSERT ON nimble.dispatch_table TO nimble_worker");
  EXPECT_NE(rights(), granted);
  grant();
  EXPECT_EQ(rights(), granted);
  EXPECT_TRUE(open()->check().sound()) << "rights are no part of the schema";
}

// Whoever worked goes on working: nobody has to think of the roles after a migration.
TEST_F(RolesTest, AMigrationGivesTheRolesTheirRightsOnWhatIsNew) {
  const std::string url = place();
  const auto raw = connection();
  {
    migrate(*raw, 6, [] { return int64_t{5}; });
    // The roles of that version: rights in the schema, none on what came later.
    raw->script(roles_of_the_server());
    raw->script(
        "GRANT USAGE ON SCHEMA nimble TO nimble_reader, nimble_worker, nimble_planner; "
        "GRANT INSERT ON nimble.dispatch_table TO nimble_worker");
  }
  options.migrate_shared = true;
  auto owner = open();
  options.migrate_shared = false;
  Fleet fleet(*owner);
  owner->publish(fleet.job({8, 16}, 64));
  auto worker = open_as("nimble_worker");
  JobRequest request;
  request.worker = worker->add(Worker{"", fleet.world.machine, "w", 17, "0.1", "{}", "[]"});
  const std::optional<Job> job = worker->claim_job(request);
  ASSERT_TRUE(job);
  EXPECT_EQ(worker->report(fleet.report(*job, 100)), ReportOutcome::kStored);
  expect_denied("a table", [&] { worker->create_table(fleet.world.draft(*worker, 8)); });
  EXPECT_EQ(open_as("nimble_reader")->events(0, 100).size(), owner->events(0, 100).size());
}

TEST_F(RolesTest, AMigrationGivesNoRightsWhereTheOwnerGaveNone) {
  const auto raw = connection();
  migrate(*raw, 6, [] { return int64_t{5}; });
  raw->script(roles_of_the_server());
  options.migrate_shared = true;
  { open(); }
  options.migrate_shared = false;
  for (const char* role : {"nimble_reader", "nimble_worker", "nimble_planner"})
    EXPECT_THROW(open_as(role), Error) << role;
}

}  // namespace
}  // namespace nimble::db
#endif
