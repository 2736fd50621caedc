// Export and import: idempotent, commutative, and closed to files that nimble did not write.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>

#include "db/store/migrations.h"
#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/everything.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

// Everything in a database that merging must agree on, as text.
std::string contents(const std::string& path) {
  SqliteConnection db(path, SQLITE_OPEN_READONLY, "", path);
  std::vector<std::string> lines;
  for (const char* table : {"hardware",
                            "machine",
                            "host_state",
                            "toolchain",
                            "template",
                            "workload",
                            "shape",
                            "config",
                            "artifact",
                            "measure_policy",
                            "campaign",
                            "cost_model",
                            "trial",
                            "measurement",
                            "samples",
                            "correctness",
                            "dispatch_table",
                            "dispatch_entry",
                            "dispatch_event",
                            "dispatch_replaced",
                            "dispatch_comparison",
                            "dispatch_override",
                            "dispatch_withdrawal",
                            "dispatch_miss",
                            "blob",
                            "candidate",
                            "measure_case",
                            "consumption",
                            "worker",
                            "job_report",
                            "task",
                            "task_event",
                            "task_shape",
                            "control",
                            "control_answer",
                            "twin_samples",
                            "generated_code",
                            "failure_log",
                            "ceiling",
                            "machine_verdict",
                            "peer_figure",
                            "shape_count",
                            "signing_key",
                            "key_revocation",
                            "signature"}) {
    Statement row = db.prepare(fmt::format("SELECT * FROM {}", table));
    while (row.step()) {
      std::string& line = lines.emplace_back(table);
      for (int i = 0; i < row.columns(); ++i) line += '|' + row.text(i);
    }
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

class MergeTest : public FileTest {
 protected:
  // A database with something in every table.
  void fill(const std::string& name, int tile) {
    auto store = open(name);
    store->transaction([&] { add_everything(*store, tile); });
  }
};

TEST_F(MergeTest, ImportingTwiceChangesNothing) {
  fill("a.db", 1);
  fill("b.db", 2);
  open("b.db")->export_to(file("b.export"));
  auto store = open("a.db");
  const ImportReport first = store->import_from(file("b.export"));
  EXPECT_GT(first.rows_added, 10);
  const std::string once = contents(file("a.db"));
  const ImportReport second = store->import_from(file("b.export"));
  EXPECT_EQ(second.rows_added, 0);
  EXPECT_EQ(second.rows_updated, 0);
  EXPECT_EQ(contents(file("a.db")), once);
  EXPECT_EQ(second.origin, open("b.db")->identity());
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  EXPECT_EQ(all_campaigns(*store).size(), 2u);
  EXPECT_EQ(all_workloads(*store).size(), 1u) << "the same content is the same row";
  SqliteConnection look(file("a.db"), SQLITE_OPEN_READONLY, "", "x");
  EXPECT_EQ(look.integer("SELECT count(*) FROM import_batch"), 1);
  EXPECT_EQ(look.integer("SELECT count(*) FROM dispatch_status WHERE status = 'active'"), 1);
}

TEST_F(MergeTest, TheOrderOfMergingDoesNotMatter) {
  fill("a.db", 1);
  fill("b.db", 2);
  open("a.db")->export_to(file("a.export"));
  open("b.db")->export_to(file("b.export"));
  auto ab = open("ab.db"), ba = open("ba.db");
  ab->import_from(file("a.export")), ab->import_from(file("b.export"));
  ba->import_from(file("b.export")), ba->import_from(file("a.export"));
  EXPECT_EQ(contents(file("ab.db")), contents(file("ba.db")));
}

TEST_F(MergeTest, WhatWentFurtherWins) {
  fill("a.db", 1);
  open("a.db")->export_to(file("early"));
  auto store = open("a.db");
  World world(*store);
  const Trial open_trial = store->claim({world.campaign, "worker"}).empty()
                               ? store->outcomes(world.campaign).back().trial
                               : Trial{};
  ASSERT_TRUE(store->finish({open_trial.uuid, "worker", TrialState::kTimeout, "timeout", "slow"}));
  store->record_consumed(world.campaign, 99);
  store->set_campaign_state(world.campaign, CampaignState::kFinished);
  store->tell_shapes(store->identity(),
                     {{world.workload_hash, world.hardware_hash, {{"m", 1}}, 7}});
  store->export_to(file("late"));

  auto other = open("other.db");
  other->import_from(file("early"));
  EXPECT_EQ(other->trial(open_trial.uuid)->state, TrialState::kQueued) << "leases don't travel";
  EXPECT_EQ(other->import_from(file("late")).rows_updated, 3);
  EXPECT_EQ(other->trial(open_trial.uuid)->message, "slow");
  EXPECT_EQ(all_campaigns(*other).at(0).state, CampaignState::kFinished);
  EXPECT_EQ(other->met_shapes().at(0).count, 7);
  const std::string before = contents(file("other.db"));
  EXPECT_EQ(other->import_from(file("early")).rows_updated, 0) << "and nothing goes back";
  EXPECT_EQ(contents(file("other.db")), before);
}

TEST_F(MergeTest, ALiveDatabaseAndAnOlderSchemaCanBeImported) {
  fill("a.db", 1);
  auto live = open("a.db");
  auto store = open("b.db");
  EXPECT_GT(store->import_from(file("a.db")).rows_added, 10);
  {
    SqliteConnection old(file("old.db"), SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "", "old");
    old.script("PRAGMA journal_mode = WAL");
    migrate(old, 2, [] { return int64_t{1}; });
    old.run("INSERT INTO template (hash, name, version, parameters) VALUES (?,?,?,?)",
            key_of(Template{"old", 1, "p"}), "old", 1, "p");
  }
  EXPECT_EQ(store->import_from(file("old.db")).rows_added, 1);
  EXPECT_EQ(SqliteConnection(file("old.db"), SQLITE_OPEN_READONLY, "", "x")
                .integer("PRAGMA user_version"),
            2)
      << "the imported file stays as it was";
}

// In a shared database anybody who measures may have written it, and nobody can take it back.
TEST_F(MergeTest, WhatIsWrongHereAlreadyIsNoFaultOfTheSource) {
  fill("a.db", 1);
  fill("b.db", 2);
  open("a.db")->export_to(file("out"));
  SqliteConnection(file("b.db"), SQLITE_OPEN_READWRITE, "", "b")
      .script(
          "INSERT INTO measurement (uuid, trial, artifact, policy, machine, host_state, n, "
          "median_ns, mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at) "
          "SELECT '00000000-0000-4000-8000-000000000000', trial, artifact, policy, machine, "
          "host_state, n, median_ns, mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at "
          "FROM measurement LIMIT 1");
  auto store = open("b.db");
  EXPECT_GT(store->import_from(file("out")).rows_added, 0);
  EXPECT_FALSE(store->check().sound()) << "it is told of all the same";
}

TEST_F(MergeTest, ExportRefusesWhatItWouldDestroy) {
  fill("a.db", 1);
  auto store = open("a.db");
  store->export_to(file("out"));
  EXPECT_EQ(error_of([&] { store->export_to(file("out")); }).status(), Status::kInvalidArgument);
  store->export_to(file("out"), true);
  EXPECT_EQ(error_of([&] { store->export_to(file("a.db"), true); }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store->export_to(file("no/out")); }).status(), Status::kNotFound);
  EXPECT_EQ(error_of([&] { store->import_from(file("a.db")); }).status(), Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store->import_from(file("none")); }).status(), Status::kNotFound);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    files += entry.path().string().find(".tmp-") != std::string::npos;
  EXPECT_EQ(files, 0) << "a temporary file was left behind";
}

struct Attack {
  const char* name;
  const char* sql;
  const char* reason;
};

void PrintTo(const Attack& attack, std::ostream* out) {
  *out << attack.sql;
}

class ImportAttack : public MergeTest, public testing::WithParamInterface<Attack> {};

TEST_P(ImportAttack, IsRefusedWhole) {
  fill("a.db", 1);
  fill("victim.db", 2);
  open("a.db")->export_to(file("evil"));
  {
    SqliteConnection evil(file("evil"), SQLITE_OPEN_READWRITE, "", "evil");
    // The attacker lifts every guard, changes the data, and puts the guards back word for word.
    std::vector<std::string> guards;
    std::string drops;
    {
      Statement triggers =
          evil.prepare("SELECT sql, name FROM sqlite_schema WHERE type = 'trigger'");
      while (triggers.step()) {
        guards.push_back(triggers.text(0));
        drops += "DROP TRIGGER " + triggers.text(1) + ";";
      }
    }
    evil.script("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;" + drops);
    evil.script(GetParam().sql);
    for (const std::string& sql : guards) evil.script(sql);
  }
  auto store = open("victim.db");
  const std::string before = contents(file("victim.db"));
  const Error error = error_of([&] { store->import_from(file("evil")); });
  EXPECT_TRUE(error.status() == Status::kCorrupt || error.status() == Status::kInvalidArgument ||
              error.status() == Status::kIncompatible)
      << error.what();
  EXPECT_THAT(error.what(), HasSubstr(GetParam().reason));
  EXPECT_THAT(error.what(), HasSubstr("evil"));
  EXPECT_TRUE(contents(file("victim.db")) == before) << "all or nothing";
  EXPECT_TRUE(store->check().sound());
}

INSTANTIATE_TEST_SUITE_P(
    All, ImportAttack,
    testing::Values(
        Attack{"ZeroTime", "UPDATE measurement SET median_ns = 0", "median_ns > 0"},
        Attack{"NullTime", "UPDATE samples SET ns = zeroblob(24)", "sample 0 is not a time"},
        Attack{"NullTimeOfNoMeasurement",
               "INSERT INTO samples SELECT '00000000-0000-0000-0000-000000000000', n, "
               "zeroblob(8 * n), outlier FROM samples LIMIT 1",
               "sample 0 is not a time"},
        Attack{"ShortBlob", "UPDATE samples SET n = 9", "CHECK"},
        Attack{"MedianOutside", "UPDATE measurement SET n = 2", "not as many samples"},
        Attack{"ForgedKey", "UPDATE config SET json = '{\"tile\":777}'", "its content has the key"},
        Attack{"ForgedHardware", "UPDATE hardware SET isa = 'sm_90'", "its content has the key"},
        Attack{"ForgedTrial", "UPDATE trial SET threads = 64", "its content has the key"},
        Attack{"NoUuid", "UPDATE dispatch_event SET uuid = rowid || uuid", "not a UUID"},
        Attack{"BadJson", "UPDATE dispatch_table SET tree = '{'", "not valid JSON"},
        Attack{"NoReason", "UPDATE dispatch_override SET reason = ''", "CHECK"},
        Attack{"NoReasonToWithdraw", "UPDATE dispatch_withdrawal SET reason = ''", "CHECK"},
        Attack{"NegativeRegion", "UPDATE dispatch_override SET region = '{\"m\":[-5,8]}'",
               "reaches from -5"},
        Attack{"EmptyRegion", "UPDATE dispatch_override SET region = '{\"m\":[9,8]}'",
               "reaches from 9 to 8"},
        Attack{"NoRegion", "UPDATE dispatch_override SET region = '[1,2]'",
               "not an object of ranges"},
        Attack{"NullRegion", "UPDATE dispatch_override SET region = '{\"m\":[null,null]}'",
               "no first and last"},
        Attack{"HugeRegion",
               "UPDATE dispatch_override SET region = '{\"' || hex(zeroblob(100000)) || "
               "'\":[1,2]}'",
               "characters"},
        Attack{"ForeignOverride",
               "UPDATE dispatch_override SET config = (SELECT hash FROM config WHERE hash NOT IN "
               "(SELECT config FROM dispatch_override) LIMIT 1)",
               "override's evidence"},
        Attack{"WithdrawsNothing",
               "UPDATE dispatch_withdrawal SET dispatch_override = "
               "'00000000-0000-0000-0000-000000000000'",
               "FOREIGN KEY"},
        Attack{"ReplacesItself", "UPDATE dispatch_replaced SET event = replaced", "CHECK"},
        Attack{"NoRatio", "UPDATE dispatch_comparison SET ratio = 0", "CHECK"},
        Attack{"ForgedClass", "UPDATE measure_policy SET class = 'cold'",
               "its content has the key"},
        Attack{"Dangling", "DELETE FROM config", "FOREIGN KEY"},
        Attack{"DanglingParent",
               "UPDATE dispatch_table SET parent = '00000000-0000-0000-0000-000000000000', version "
               "= 1 "
               "WHERE parent IS NOT NULL",
               "FOREIGN KEY"},
        Attack{"NoSamples", "DELETE FROM samples", "not as many samples"},
        Attack{"AnotherMedian",
               "UPDATE measurement SET median_ns = 1e9, ci_low_ns = 1e9, ci_high_ns = 1e9",
               "lies outside the samples"},
        Attack{"FromTheFuture", "UPDATE measurement SET created_at = 9223372036854775807",
               "from the future"},
        Attack{"ForeignEvidence",
               "UPDATE dispatch_entry SET config = (SELECT hash FROM config WHERE hash NOT IN "
               "(SELECT config FROM dispatch_entry) LIMIT 1)",
               "evidence"},
        Attack{"ExtraTrigger",
               "CREATE TRIGGER boo AFTER INSERT ON trial BEGIN DELETE FROM trial; END",
               "its tables are not those"},
        Attack{"HiddenTrigger",
               "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('trigger', "
               "'sqlite_boo', 'trial', 0, 'CREATE TRIGGER sqlite_boo AFTER INSERT ON trial BEGIN "
               "DELETE FROM trial; END')",
               "its tables are not those"},
        Attack{"OtherView", "DROP VIEW total_miss; CREATE VIEW total_miss AS SELECT random()",
               "its tables are not those"},
        Attack{"NewerSchema", "PRAGMA user_version = 77", "newer"},
        Attack{"OtherProgram", "PRAGMA application_id = 5", "another program"}),
    [](const testing::TestParamInfo<Attack>& info) { return info.param.name; });

TEST_F(MergeTest, DamageAnywhereInAFileIsRefusedOrHarmless) {
  fill("a.db", 1);
  open("a.db")->export_to(file("good"));
  auto store = open("victim.db");
  const std::string empty = contents(file("victim.db"));
  std::ifstream in(file("good"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); at += 4099) {
    std::string damaged = bytes;
    for (size_t i = at; i < std::min(at + 64, damaged.size()); ++i) damaged[i] ^= 0x55;
    std::ofstream(file("bad"), std::ios::binary).write(damaged.data(), damaged.size());
    try {
      store->import_from(file("bad"));
    } catch (const Error&) {
      ++refused;
      ASSERT_EQ(contents(file("victim.db")), empty) << "at byte " << at;
      continue;
    }
    // Bytes that no row uses, or an event's own text, may change; what came in must be sound.
    ASSERT_TRUE(store->check().sound()) << "at byte " << at;
    store.reset();
    fs::remove(file("victim.db"));
    store = open("victim.db");
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace nimble::db
