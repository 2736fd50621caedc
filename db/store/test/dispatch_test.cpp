// Dispatch tables: versions, activation, overrides, and every outcome of a lookup.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include "db/store/hash.h"
#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;

TEST_F(StoreTest, ATableKeepsItsTreeEntriesAndConfigurations) {
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 100);
  NewDispatchTable t = world.draft(*store, 8);
  t.campaign = world.campaign;
  t.entries[0].evidence = store->add(world.measured(*store, *store->trial(trial), 100));
  const Uuid uuid = store->create_table(t);
  const DispatchTable read = store->table(uuid).value();
  EXPECT_EQ(read.status, TableStatus::kDraft);
  EXPECT_EQ(read.version, 1);
  EXPECT_EQ(read.tree, R"({"leaf":0})");
  EXPECT_EQ(read.entries.at(0).evidence, t.entries[0].evidence);
  EXPECT_EQ(read.entries.at(0).regret, 0.02);
  EXPECT_EQ(read.configs.at(t.entries[0].config).json, R"({"tile":8})");
  EXPECT_EQ(read.configs.at(t.entries[0].config).template_version, 2);
  EXPECT_FALSE(store->table("none"));
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);

  t.tree = "{";
  EXPECT_EQ(error_of([&] { store->create_table(t); }).status(), Status::kInvalidArgument);
  t = world.draft(*store, 8);
  t.entries.clear();
  EXPECT_EQ(error_of([&] { store->create_table(t); }).status(), Status::kInvalidArgument);
  t = world.draft(*store, 8);
  t.entries[0].config = std::string(32, '0');
  EXPECT_EQ(error_of([&] { store->create_table(t); }).status(), Status::kInvalidArgument);
}

TEST_F(StoreTest, OneTableIsActiveAndRollingBackGoesBackStepByStep) {
  auto store = open();
  World world(*store);
  std::vector<Uuid> v;
  for (int i = 0; i < 3; ++i) {
    NewDispatchTable t = world.draft(*store, i);
    if (i > 0) t.parent = v.back();
    v.push_back(store->create_table(t));
    store->activate(v.back(), "better");
  }
  auto status = [&](int i) { return store->table(v[i])->status; };
  EXPECT_EQ(store->table(v[2])->version, 3);
  EXPECT_EQ(status(0), TableStatus::kRetired);
  EXPECT_EQ(status(1), TableStatus::kRetired);
  EXPECT_EQ(status(2), TableStatus::kActive);
  EXPECT_EQ(error_of([&] { store->roll_back(v[0], "x"); }).status(), Status::kInvalidArgument);
  EXPECT_EQ(store->roll_back(v[2], "slower"), v[1]);
  EXPECT_EQ(status(1), TableStatus::kActive);
  EXPECT_EQ(status(2), TableStatus::kRetired);
  EXPECT_EQ(store->roll_back(v[1], "slower"), v[0]);
  EXPECT_EQ(store->roll_back(v[0], "slower"), std::nullopt);
  EXPECT_EQ(store->lookup(world.lookup_key()).outcome, LookupOutcome::kNone);
  store->activate(v[2], "again");
  EXPECT_EQ(status(2), TableStatus::kActive);
  clock -= 500'000;
  store->activate(v[0], "also when the clock was set back");
  EXPECT_EQ(status(0), TableStatus::kActive);
  EXPECT_EQ(status(2), TableStatus::kRetired);
  EXPECT_EQ(store->tables(world.workload_hash, world.hardware_hash).size(), 3u);
  EXPECT_TRUE(store->tables(std::string(32, '0')).empty());
}

TEST_F(FileTest, ATableWhoseStatusIsNoneIsNotTakenForRetired) {
  auto store = open();
  World world(*store);
  const Uuid uuid = store->create_table(world.draft(*store, 8));
  connection()->script(
      "DROP VIEW dispatch_status; CREATE VIEW dispatch_status AS "
      "SELECT d.*, NULL AS since, 'frozen' AS status FROM dispatch_slot d");
  store = open();
  const Error error = error_of([&] { store->table(uuid); });
  EXPECT_EQ(error.status(), Status::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr(uuid));
  EXPECT_THAT(error.what(), HasSubstr("\"frozen\""));
}

TEST_F(StoreTest, LookupOutcomes) {
  auto store = open();
  World world(*store);
  const LookupKey key = world.lookup_key();
  EXPECT_EQ(store->lookup(key).outcome, LookupOutcome::kNone);
  const Uuid table = store->create_table(world.draft(*store, 8));
  EXPECT_EQ(store->lookup(key).outcome, LookupOutcome::kNone) << "a draft is not used";
  store->activate(table, "tuned");

  LookupResult r = store->lookup(key);
  EXPECT_EQ(r.outcome, LookupOutcome::kExact);
  EXPECT_EQ(r.table->uuid, table);
  EXPECT_EQ(r.reason, "");

  auto changed = [&](auto change) {
    LookupKey other = key;
    change(other);
    return store->lookup(other);
  };
  r = changed([](LookupKey& k) { k.toolchain.revision = "def", k.toolchain.dirty = true; });
  EXPECT_EQ(r.outcome, LookupOutcome::kExact) << "where it was built does not matter";
  r = changed([](LookupKey& k) { k.toolchain.version = "19.1.8"; });
  EXPECT_EQ(r.outcome, LookupOutcome::kSoftStale);
  EXPECT_TRUE(r.table);
  EXPECT_THAT(r.reason, HasSubstr("19.1.7"));
  // Whether another version or flag changes the code is for the code's hash to tell.
  r = changed([](LookupKey& k) { k.toolchain.version = "20.1.7", k.toolchain.flags = "-O3"; });
  EXPECT_EQ(r.outcome, LookupOutcome::kSoftStale);
  EXPECT_TRUE(r.table);
  EXPECT_THAT(r.reason, HasSubstr("llvm 19.1.7, this compiler uses 20.1.7"));
  EXPECT_THAT(r.reason, HasSubstr("flags '-O2', this compiler uses '-O3'"));

  auto refused = [&](auto change, const char* reason) {
    const LookupResult refusal = changed(change);
    EXPECT_EQ(refusal.outcome, LookupOutcome::kHardMismatch) << reason;
    EXPECT_FALSE(refusal.table) << reason;
    EXPECT_THAT(refusal.reason, HasSubstr(reason));
  };
  refused([](LookupKey& k) { k.toolchain.compiler = "gcc"; }, "llvm 19.1.7");
  refused([](LookupKey& k) { k.toolchain.codegen_version = 4; }, "code generator 3");
  refused([](LookupKey& k) { k.templates = {{"dense", 3}}; }, "version 2 of template 'dense'");
  refused([](LookupKey& k) { k.templates = {}; }, "which this compiler lacks");
  refused([](LookupKey& k) { k.hardware.isa = "x86-64-v3"; }, "ISA x86-64-v4");
  refused([](LookupKey& k) { k.hardware.model_name = "other"; }, "other hardware (Xeon)");

  r = changed([](LookupKey& k) { k.workload.canonical += " gelu"; });
  EXPECT_EQ(r.outcome, LookupOutcome::kNone) << "no silent fallback";
}

// Times of two classes are never ranked against each other, so neither displaces the other.
TEST_F(StoreTest, EachClassOfPolicyAndToolchainIsASlotOfItsOwn) {
  auto store = open();
  World world(*store);
  const Uuid warm = store->create_table(world.draft(*store, 8));
  store->activate(warm, "tuned");
  NewDispatchTable t = world.draft(*store, 16);
  t.policy = store->put(MeasurePolicy{CacheMode::kCold, 3, 2, "rdtsc", "ci<1%", "cold"});
  EXPECT_EQ(store->active_in_slot(t), std::nullopt);
  const Uuid cold = store->create_table(t);
  store->activate(cold, "tuned");
  EXPECT_EQ(store->table(warm)->status, TableStatus::kActive);
  EXPECT_EQ(store->table(cold)->status, TableStatus::kActive);
  EXPECT_EQ(store->active_in_slot(t), cold);
  EXPECT_EQ(store->active_in_slot(world.draft(*store, 8)), warm);
  // Another stop rule of one class is the same slot.
  t = world.draft(*store, 32);
  t.policy = store->put(MeasurePolicy{CacheMode::kWarm, 9, 2, "rdtsc", "ci<9%", "warm"});
  EXPECT_EQ(store->active_in_slot(t), warm);
  for (auto change :
       {+[](Toolchain& c) { c.version = "19.1.8"; }, +[](Toolchain& c) { c.flags = "-O3"; }}) {
    Toolchain other = world.toolchain;
    change(other);
    t = world.draft(*store, 32);
    t.toolchain = store->put(other);
    EXPECT_EQ(store->active_in_slot(t), std::nullopt);
    store->activate(store->create_table(t), "tuned");
    EXPECT_EQ(store->table(warm)->status, TableStatus::kActive);
    LookupKey key = world.lookup_key();
    EXPECT_EQ(store->lookup(key).table->uuid, warm) << "though it is older";
    key.toolchain = other;
    EXPECT_EQ(store->lookup(key).outcome, LookupOutcome::kExact);
    EXPECT_NE(store->lookup(key).table->uuid, warm);
  }
  LookupKey key = world.lookup_key();
  key.policy_classes = {"cold", "warm"};
  EXPECT_EQ(store->lookup(key).table->uuid, cold);
  key.policy_classes = {"cached", "cold", "warm"};
  LookupResult r = store->lookup(key);
  EXPECT_EQ(r.outcome, LookupOutcome::kFallback);
  EXPECT_EQ(r.table->uuid, cold);
  EXPECT_EQ(r.reason, "measured cold, not cached");
  key.policy_classes = {"unheard-of"};
  EXPECT_EQ(store->lookup(key).outcome, LookupOutcome::kFallback);
}

TEST_F(StoreTest, AnOverrideStandsUntilItIsWithdrawn) {
  auto store = open();
  World world(*store);
  const Hash other = world.config(*store, 16);
  NewOverride word{world.workload_hash, world.hardware_hash, {{"m", {17, 64}}}, other, ""};
  EXPECT_EQ(error_of([&] { store->add(word); }).status(), Status::kInvalidArgument);
  word.reason = "noisy neighbour";
  word.config = std::string(32, '0');
  EXPECT_EQ(error_of([&] { store->add(word); }).status(), Status::kNotFound);
  word.config = other;
  for (auto [first, last] : {std::pair{-1, 8}, std::pair{9, 8}}) {
    word.region = {{"m", {first, last}}};
    EXPECT_EQ(error_of([&] { store->add(word); }).status(), Status::kInvalidArgument);
  }
  word.region = {{"m", {17, 64}}};
  EXPECT_TRUE(store->overrides(true).empty()) << "a refused one leaves nothing";

  world.tried(*store, 16, 64, 100);
  const Uuid first = store->add(word);
  EXPECT_EQ(store->lookup(world.lookup_key()).overrides.size(), 1u) << "without any table";
  store->activate(store->create_table(world.draft(*store, 8)), "tuned");
  clock -= 900'000;
  word.region = {{"m", {32, std::nullopt}}};
  const Uuid second = store->add(word);
  store->activate(store->create_table(world.draft(*store, 9)), "tuned again");
  LookupResult r = store->lookup(world.lookup_key());
  EXPECT_EQ(r.outcome, LookupOutcome::kExact);
  ASSERT_EQ(r.overrides.size(), 2u) << "another active table does not lift them";
  EXPECT_EQ(r.overrides[0].uuid, second) << "the later first, whatever the clock";
  EXPECT_EQ(r.overrides[0].region, R"({"m":[32,null]})");
  EXPECT_EQ(r.overrides[1].uuid, first);
  EXPECT_EQ(r.overrides[1].info.json, R"({"tile":16})");
  EXPECT_EQ(r.overrides[1].reason, "noisy neighbour");
  EXPECT_EQ(r.overrides[1].code_hash, "code-" + other) << "by the newest measurement";

  EXPECT_EQ(error_of([&] { store->withdraw(first, ""); }).status(), Status::kInvalidArgument);
  store->withdraw(first, "it is quiet again");
  EXPECT_EQ(error_of([&] { store->withdraw(first, "x"); }).status(), Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store->withdraw("no such", "x"); }).status(), Status::kNotFound);
  EXPECT_EQ(store->lookup(world.lookup_key()).overrides.size(), 1u);
  ASSERT_EQ(store->overrides(true).size(), 2u);
  EXPECT_EQ(store->overrides(true)[1].withdrawn->reason, "it is quiet again");
  EXPECT_TRUE(store->overrides(false, std::string(32, '0')).empty());
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
}

// A time of day that cannot be, in a database that somebody handed over, holds no slot.
TEST_F(StoreTest, AForgedTimeDoesNotHoldASlot) {
  for (const char* status : {"active", "retired"}) {
    remove();
    auto store = open();
    World world(*store);
    const Uuid old = store->create_table(world.draft(*store, 8));
    const Uuid fresh = store->create_table(world.draft(*store, 16));
    store->activate(old, "tuned");
    for (const Uuid& table : {old, fresh})
      connection()->run(
          "INSERT INTO dispatch_event (uuid, dispatch_table, status, reason, created_at) "
          "VALUES (?,?,?,'forged',9223372036854775807)",
          new_uuid(), table, status);
    store->activate(fresh, "better");
    EXPECT_EQ(store->table(fresh)->status, TableStatus::kActive);
    EXPECT_EQ(store->table(old)->status, TableStatus::kRetired);
    store->activate(old, "no");
    EXPECT_EQ(store->table(old)->status, TableStatus::kActive);
    EXPECT_EQ(store->lookup(world.lookup_key()).table->uuid, old);
    store->activate(fresh, "yes");
    EXPECT_NO_THROW(store->roll_back(fresh, "back"));
    EXPECT_NE(store->table(fresh)->status, TableStatus::kActive);
    EXPECT_LT(connection()->integer(
                  "SELECT max(created_at) FROM dispatch_event WHERE reason <> 'forged'"),
              int64_t{1} << 40)
        << "the forged time does not spread";
  }
}

// Events that replace each other in a circle are nobody's word; the next one counts.
TEST_F(StoreTest, EventsInACircleAreReplacedByTheNext) {
  auto store = open();
  World world(*store);
  const Uuid a = store->create_table(world.draft(*store, 8));
  const Uuid b = store->create_table(world.draft(*store, 16));
  store->activate(a, "tuned");
  store->activate(b, "tuned");
  connection()->script(
      "INSERT INTO dispatch_replaced (replaced, event) "
      "SELECT event, replaced FROM dispatch_replaced");
  EXPECT_EQ(store->lookup(world.lookup_key()).outcome, LookupOutcome::kNone);
  store->activate(a, "again");
  EXPECT_EQ(store->table(a)->status, TableStatus::kActive);
  EXPECT_EQ(store->table(b)->status, TableStatus::kRetired);
}

TEST_F(StoreTest, ProcessesThatActivateAtOnceLeaveOneActive) {
  std::vector<Uuid> tables;
  {
    auto store = open();
    World world(*store);
    for (int i = 0; i < 4; ++i) tables.push_back(store->create_table(world.draft(*store, i)));
  }
  std::vector<pid_t> children;
  for (const Uuid& table : tables) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    int code = 0;
    try {
      auto store = open();
      for (int i = 0; i < 10; ++i) store->activate(table, "mine");
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      code = 1;
    }
    _exit(code);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  auto store = open();
  int active = 0;
  for (const DispatchTable& t : all_tables(*store)) active += t.status == TableStatus::kActive;
  EXPECT_EQ(active, 1);
  EXPECT_TRUE(store->check().sound());
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM dispatch_event e WHERE NOT EXISTS "
                                  "(SELECT 1 FROM dispatch_replaced r WHERE r.replaced = e.uuid)"),
            1);
}

TEST_F(StoreTest, ATableTellsItsTimesAndComparisons) {
  auto store = open();
  World world(*store);
  world.tried(*store, 8, 64, 100);
  world.tried(*store, 8, 64, 90, Role::kVerify);
  world.tried(*store, 8, 32, 50, Role::kCross);
  world.tried(*store, 9, 32, 10, Role::kCross);
  NewDispatchTable t = world.draft(*store, 8);
  t.entries[0].evidence =
      store->add(world.measured(*store, store->outcomes(world.campaign)[1].trial, 95));
  const Uuid uuid = store->create_table(t);
  EXPECT_EQ(store->table(uuid)->entries[0].code_hash, "code-" + t.entries[0].config);
  EXPECT_EQ(store->table(uuid)->policy_class, "warm");
  const std::vector<EntryTime> times = store->times(uuid);
  ASSERT_EQ(times.size(), 2u) << "of its own configuration alone";
  EXPECT_EQ(times[0].dims, (Dims{{"m", 32}}));
  EXPECT_EQ(times[0].median_ns, 50);
  EXPECT_GE(times[1].median_ns, 90) << "verified before searched";
  EXPECT_LE(times[1].median_ns, 95);

  const Uuid rival = store->create_table(world.draft(*store, 9));
  store->add(Comparison{"", uuid, rival, 2, 0.9, 1.1});
  clock += 5;
  store->add(Comparison{"", uuid, std::nullopt, 2, 0.8, 0.9});
  const std::vector<Comparison> found = store->comparisons(uuid);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_FALSE(found[0].rival);
  EXPECT_EQ(found[1].rival, rival);
  EXPECT_EQ(found[1].worst_ratio, 1.1);
  EXPECT_EQ(error_of([&] {
              store->add(Comparison{"", uuid, uuid, 2, 0.8, 0.9});
            }).status(),
            Status::kInvalidArgument);
}

TEST_F(StoreTest, ANewCodeGeneratorDoesNotDisplaceTheOldOnesTable) {
  auto store = open();
  World world(*store);
  const Uuid old = store->create_table(world.draft(*store, 8));
  store->activate(old, "tuned");
  EXPECT_TRUE(store->check().stale.empty());
  Toolchain newer = world.toolchain;
  newer.codegen_version = 4;
  NewDispatchTable t = world.draft(*store, 16);
  t.toolchain = store->put(newer);
  t.parent = old;
  const Uuid fresh = store->create_table(t);
  EXPECT_EQ(store->check().stale.size(), 1u);
  store->activate(fresh, "tuned again");
  EXPECT_TRUE(store->check().stale.empty());
  LookupKey key = world.lookup_key();
  EXPECT_EQ(store->lookup(key).table->uuid, old);
  key.toolchain = newer;
  EXPECT_EQ(store->lookup(key).table->uuid, fresh);
  // A patch release only: the exact table is preferred to a stale one of a later date.
  Toolchain patched = world.toolchain;
  patched.version = "19.1.9";
  key.toolchain = patched;
  EXPECT_EQ(store->lookup(key).outcome, LookupOutcome::kSoftStale);
}

TEST_F(StoreTest, WhatProductionMeetsWithoutATableIsMissed) {
  auto store = open();
  World world(*store);
  world.tried(*store, 8, 64, 100);
  const auto met = [&](int64_t m, int64_t count) {
    return ShapeCount{world.workload_hash, world.hardware_hash, {{"m", m}}, count};
  };
  const Uuid first = new_uuid(), second = new_uuid();
  store->tell_shapes(first, {met(37, 3), met(53, 5)});
  store->tell_shapes(first, {met(37, 4), met(53, 5)});  // the file has grown meanwhile
  store->tell_shapes(first, {met(37, 1)});              // an earlier copy of it
  store->tell_shapes(second, {met(37, 10), met(64, 1)});
  const std::vector<MetShape> all = store->met_shapes();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].dims, (Dims{{"m", 37}}));
  EXPECT_EQ(all[0].count, 14);
  EXPECT_FALSE(all[0].is_measured);
  EXPECT_EQ(all[2].dims, (Dims{{"m", 64}}));
  EXPECT_TRUE(all[2].is_measured);
  std::vector<Misses> misses = store->misses();
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_EQ(misses[0].shapes, 3);
  EXPECT_EQ(misses[0].count, 20);
  EXPECT_EQ(store->met_shapes(world.workload_hash, true, 2).size(), 2u);
  EXPECT_TRUE(store->met_shapes(std::string(32, '0')).empty());
  EXPECT_EQ(error_of([&] { store->tell_shapes(first, {met(37, 0)}); }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store->tell_shapes("me", {met(37, 1)}); }).status(),
            Status::kInvalidArgument);

  store->create_table(world.draft(*store, 8));
  EXPECT_EQ(store->misses().size(), 1u) << "a draft serves nothing";
  store->activate(store->create_table(world.draft(*store, 8)), "tuned");
  EXPECT_TRUE(store->misses().empty());
  EXPECT_TRUE(store->met_shapes({}, true).empty());
  EXPECT_TRUE(store->met_shapes().at(0).has_table);
}

// What a merged database may hold: counts that no addition stands.
TEST_F(StoreTest, CountsThatExceed64BitsAreStillCounted) {
  auto store = open();
  World world(*store);
  for (int i = 0; i < 2; ++i)
    store->tell_shapes(new_uuid(),
                       {{world.workload_hash, world.hardware_hash, {{"m", 37}}, INT64_MAX},
                        {world.workload_hash, world.hardware_hash, {{"m", 53}}, 1}});
  EXPECT_EQ(store->met_shapes().at(0).count, INT64_MAX);
  EXPECT_EQ(store->met_shapes().at(1).count, 2);
  EXPECT_EQ(store->misses().at(0).count, INT64_MAX);
}

TEST_F(StoreTest, AnOverrideFromTheFarFutureIsLaidUnderLaterOnes) {
  auto store = open();
  World world(*store);
  NewOverride word{world.workload_hash,
                   world.hardware_hash,
                   {{"m", {1, 64}}},
                   world.config(*store, 16),
                   "forged"};
  const int64_t today = clock;
  clock = INT64_MAX / 2;
  store->add(word);
  clock = today;
  word.reason = "a person's";
  store->add(word);
  const LookupResult r = store->lookup(world.lookup_key());
  ASSERT_EQ(r.overrides.size(), 2u);
  EXPECT_EQ(r.overrides[0].reason, "a person's");
}

}  // namespace
}  // namespace nimble::db
