// What is active is kept up to date beside the events; here it is compared with its definition, as
// schema 14 had it, on histories that no single program would write.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "db/store/hash.h"
#include "db/store/migrations.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

constexpr int kBefore = 14;  // the last schema that worked it out from all events

// The definition, in words that both engines take.
constexpr std::string_view kDefinition =
    "WITH last_event AS (SELECT * FROM (SELECT dispatch_table, status, created_at, uuid AS event, "
    "row_number() OVER (PARTITION BY dispatch_table ORDER BY created_at DESC, uuid) AS newest "
    "FROM dispatch_event e WHERE NOT EXISTS (SELECT 1 FROM dispatch_replaced r "
    "WHERE r.replaced = e.uuid)) AS numbered WHERE newest = 1), "
    "ranked AS (SELECT d.*, e.status AS said, e.created_at AS since, row_number() OVER ("
    "PARTITION BY d.workload, d.hardware, d.mode, d.policy_class, d.codegen_version, d.compiler, "
    "d.compiler_version, d.flags, CASE WHEN e.status = 'active' THEN 1 ELSE 0 END "
    "ORDER BY e.created_at DESC, e.event) AS place FROM dispatch_slot d "
    "LEFT JOIN last_event e ON e.dispatch_table = d.uuid) "
    "SELECT uuid, since, CASE WHEN said = 'active' AND place = 1 THEN 'active' WHEN EXISTS "
    "(SELECT 1 FROM dispatch_event h WHERE h.dispatch_table = ranked.uuid) THEN 'retired' "
    "ELSE 'draft' END FROM ranked ORDER BY uuid";
constexpr std::string_view kView = "SELECT uuid, since, status FROM dispatch_status ORDER BY uuid";

std::vector<std::string> told(Connection& db, std::string_view query) {
  std::vector<std::string> all;
  Statement row = db.prepare(query);
  while (row.step())
    all.push_back(fmt::format("{} {} {}", row.text(0),
                              row.is_null(1) ? "-" : std::to_string(row.integer(1)), row.text(2)));
  return all;
}

template <class T>
const T& any(std::mt19937& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

// Rows as programs of schema 14 have written them: tables of several slots.
std::vector<Uuid> write_tables(Connection& db, std::mt19937& random, int count) {
  std::vector<Hash> workloads, hardware, toolchains, policies;
  for (int i = 0; i < 2; ++i) {
    const Workload w{fmt::format("dense {}", i), "dense", "dense", "f32", "rows", "m", 2};
    workloads.push_back(key_of(w));
    db.run("INSERT INTO workload VALUES (?,?,?,?,?,?,?,?)", workloads.back(), w.canonical, w.anchor,
           w.op, w.dtype, w.layout, w.symbolic_dims, w.threads);
    const Hardware h{"v", 6, i, 1, "Xeon", "x86-64-v4", "L2", "2 cores", false};
    hardware.push_back(key_of(h));
    db.run("INSERT INTO hardware VALUES (?,?,?,?,?,?,?,?,?,?)", hardware.back(), h.vendor, h.family,
           h.model, h.stepping, h.model_name, h.isa, h.caches, h.topology, h.virtualised);
    const Toolchain t{"llvm", i == 0 ? "19" : "20", "-O2", 3, "abc", false};
    toolchains.push_back(key_of(t));
    db.run("INSERT INTO toolchain VALUES (?,?,?,?,?,?,?)", toolchains.back(), t.compiler, t.version,
           t.flags, t.codegen_version, t.revision, t.dirty);
  }
  for (const char* name : {"", "warm", "cached"}) {
    const MeasurePolicy p{CacheMode::kWarm, 3, 2, "clock", "ci<1%", name};
    policies.push_back(key_of(p));
    db.run(
        "INSERT INTO measure_policy (hash, mode, warm_up, threads, timer, stop_rule, class) "
        "VALUES (?,'warm',3,2,'clock','ci<1%',?)",
        policies.back(), name);
  }
  const Template dense{"dense", 2, "tile"};
  const Config config{key_of(dense), R"({"tile":8})"};
  db.run("INSERT INTO template VALUES (?,?,?,?)", key_of(dense), "dense", 2, "tile");
  db.run("INSERT INTO config VALUES (?,?,?)", key_of(config), key_of(dense), config.json);
  std::vector<Uuid> tables;
  for (int i = 0; i < count; ++i) {
    tables.push_back(new_uuid());
    db.run(
        "INSERT INTO dispatch_table (uuid, workload, hardware, toolchain, policy, version, "
        "objective, tree, created_at) VALUES (?,?,?,?,?,1,'mean','{\"leaf\":0}',7)",
        tables.back(), any(random, workloads), any(random, hardware), any(random, toolchains),
        any(random, policies));
    db.run(
        "INSERT INTO dispatch_entry (dispatch_table, ordinal, range, config, is_override, "
        "reason) VALUES (?,0,'{\"m\":[0,null]}',?,0,'')",
        tables.back(), key_of(config));
  }
  return tables;
}

// Events of databases that were merged: equal times, forged ones, words replaced by what came
// before them or in a circle.
void write_events(Connection& db, std::mt19937& random, const std::vector<Uuid>& tables,
                  int count) {
  const std::vector<int64_t> times{3, 4, 5, 5, 6, INT64_MAX, -2};
  std::vector<Uuid> events;
  for (int i = 0; i < count; ++i) {
    const Uuid& table = any(random, tables);
    events.push_back(new_uuid());
    db.run(
        "INSERT INTO dispatch_event (uuid, dispatch_table, status, reason, created_at) "
        "VALUES (?,?,?,'',?)",
        events.back(), table, random() % 3 == 0 ? "retired" : "active", any(random, times));
    if (random() % 3 == 0) continue;
    Uuid replaced = any(random, events), by = events.back();
    if (random() % 4 == 0) std::swap(replaced, by);
    if (replaced != by)
      db.run("INSERT INTO dispatch_replaced (replaced, event) VALUES (?,?)", replaced, by);
  }
}

}  // namespace

TEST_F(StoreTest, TheStatusOfTablesOfAnOlderSchemaStays) {
  options.migrate_shared = true;
  if (!on_server()) std::ofstream{file()};
  std::vector<std::string> before;
  std::vector<Uuid> tables;
  std::mt19937 random(3);
  {
    const auto old = connection();
    migrate(*old, kBefore, [] { return int64_t{5}; });
    tables = write_tables(*old, random, 60);
    write_events(*old, random, tables, 90);
    before = told(*old, kView);
    EXPECT_EQ(before, told(*old, kDefinition)) << "the test knows the definition";
  }
  for (const char* status : {" active", " retired", " draft"})
    EXPECT_THAT(before, testing::Contains(testing::EndsWith(status)));
  auto store = open();
  EXPECT_EQ(told(*connection(), kView), before);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  int active = 0;
  for (const Uuid& uuid : tables) active += store->table(uuid)->status == TableStatus::kActive;
  EXPECT_EQ(active, std::count_if(before.begin(), before.end(), [](const std::string& line) {
              return line.ends_with(" active");
            }));
}

TEST_F(StoreTest, TheStatusOfTablesIsAsTheEventsSay) {
  std::mt19937 random(5);
  options.migrate_shared = true;
  auto store = open();
  std::vector<Uuid> tables;
  {
    const auto db = connection();
    tables = write_tables(*db, random, 30);
    write_events(*db, random, tables, 60);
  }
  const auto expect_as_defined = [&](const char* after) {
    const auto look = connection();
    EXPECT_EQ(told(*look, kView), told(*look, kDefinition)) << after;
    EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  };
  expect_as_defined("events");
  for (int i = 0; i < 12; ++i) {
    ++clock;
    const Uuid& table = any(random, tables);
    if (store->table(table)->status == TableStatus::kActive)
      store->roll_back(table, "worse");
    else
      store->activate(table, "better");
  }
  expect_as_defined("activating and rolling back");

  // A copy goes its own way, and comes back.
  store->export_to(file("copy.nimbledb"));
  OpenOptions local = options;
  auto copy = Store::open(file("copy.nimbledb"), local);
  for (int i = 0; i < 6; ++i) {
    ++clock;
    copy->activate(any(random, tables), "elsewhere");
    store->activate(any(random, tables), "here");
  }
  copy.reset();
  store->import_from(file("copy.nimbledb"));
  expect_as_defined("merging");
}

// Whoever writes past the store is found out.
TEST_F(StoreTest, AStandingThatDoesNotFollowFromTheEventsIsFound) {
  auto store = open();
  World world(*store);
  const Uuid first = store->create_table(world.draft(*store, 8));
  const Uuid second = store->create_table(world.draft(*store, 16));
  store->activate(first, "tuned");
  store->activate(second, "tuned");
  ASSERT_TRUE(store->check().sound());
  const auto raw = connection();
  raw->run("UPDATE dispatch_standing SET dispatch_table = ?", first);
  EXPECT_THAT(store->check().problems,
              testing::Contains(testing::HasSubstr("that nothing replaces does not stand")));
  raw->run("UPDATE dispatch_standing SET dispatch_table = ?", second);
  ASSERT_TRUE(store->check().sound());
  raw->run(
      "INSERT INTO dispatch_standing (event, dispatch_table, workload, hardware, status, "
      "created_at) SELECT r.replaced, s.dispatch_table, s.workload, s.hardware, s.status, 1 "
      "FROM dispatch_standing s JOIN dispatch_replaced r ON r.event = s.event");
  EXPECT_THAT(store->check().problems,
              testing::ElementsAre(testing::HasSubstr("stands that another replaces")));
}

}  // namespace nimble::db
