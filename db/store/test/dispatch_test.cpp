// Dispatch tables: versions, activation, overrides, and every outcome of a lookup.
#include <gmock/gmock.h>

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
  t.entries[0].fallback = world.config(*store, 1);
  t.entries[0].evidence = store->add(world.measured(*store, *store->trial(trial), 100));
  const Uuid uuid = store->create_table(t);
  const DispatchTable read = store->table(uuid).value();
  EXPECT_EQ(read.status, TableStatus::kDraft);
  EXPECT_EQ(read.version, 1);
  EXPECT_EQ(read.tree, R"({"leaf":0})");
  EXPECT_EQ(read.entries.at(0).evidence, t.entries[0].evidence);
  EXPECT_EQ(read.entries.at(0).regret, 0.02);
  EXPECT_EQ(read.configs.at(t.entries[0].config).json, R"({"tile":8})");
  EXPECT_EQ(read.configs.at(*t.entries[0].fallback).template_version, 2);
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

TEST_F(StoreTest, AnOverrideIsANewVersionWithAReason) {
  auto store = open();
  World world(*store);
  const Uuid old = store->create_table(world.draft(*store, 8));
  store->activate(old, "tuned");
  const Hash other = world.config(*store, 16);
  EXPECT_EQ(error_of([&] { store->override_entry(old, 0, other, ""); }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(store->table(old)->status, TableStatus::kActive)
      << "a refused override changes nothing";
  EXPECT_EQ(error_of([&] { store->override_entry(old, 1, other, "r"); }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store->override_entry(old, 0, std::string(32, '0'), "r"); }).status(),
            Status::kNotFound);
  const DispatchTable made = store->table(store->override_entry(old, 0, other, "noisy")).value();
  EXPECT_EQ(made.status, TableStatus::kActive);
  EXPECT_EQ(made.parent, old);
  EXPECT_EQ(made.version, 2);
  EXPECT_TRUE(made.entries[0].is_override);
  EXPECT_EQ(made.entries[0].config, other);
  EXPECT_EQ(made.entries[0].fallback, world.config(*store, 8));
  EXPECT_EQ(made.entries[0].reason, "noisy");
  EXPECT_EQ(store->lookup(world.lookup_key()).table->uuid, made.uuid);
  EXPECT_EQ(store->roll_back(made.uuid, "it was not"), old);
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

  auto refused = [&](auto change, const char* reason) {
    const LookupResult refusal = changed(change);
    EXPECT_EQ(refusal.outcome, LookupOutcome::kHardMismatch) << reason;
    EXPECT_FALSE(refusal.table) << reason;
    EXPECT_THAT(refusal.reason, HasSubstr(reason));
  };
  refused([](LookupKey& k) { k.toolchain.version = "20.1.7"; }, "llvm 19.1.7");
  refused([](LookupKey& k) { k.toolchain.flags = "-O3"; }, "flags '-O2'");
  refused([](LookupKey& k) { k.toolchain.codegen_version = 4; }, "code generator 3");
  refused([](LookupKey& k) { k.templates = {{"dense", 3}}; }, "version 2 of template 'dense'");
  refused([](LookupKey& k) { k.templates = {}; }, "which this compiler lacks");
  refused([](LookupKey& k) { k.hardware.isa = "x86-64-v3"; }, "ISA x86-64-v4");
  refused([](LookupKey& k) { k.hardware.model_name = "other"; }, "other hardware (Xeon)");

  r = changed([](LookupKey& k) { k.workload.canonical += " gelu"; });
  EXPECT_EQ(r.outcome, LookupOutcome::kNone) << "no silent fallback";
}

TEST_F(StoreTest, FallbacksAreCallsOfTheirOwn) {
  auto store = open();
  World world(*store);
  store->activate(store->create_table(world.draft(*store, 8)), "tuned");
  LookupKey key = world.lookup_key();
  EXPECT_EQ(store->lookup_by_anchor(key).outcome, LookupOutcome::kNone)
      << "itself is not a fallback";
  key.workload.canonical = "dense f32 (m,768)x(768,768)+gelu threads=2";
  LookupResult r = store->lookup_by_anchor(key);
  EXPECT_EQ(r.outcome, LookupOutcome::kExact);
  EXPECT_EQ(r.matched_workload, world.workload.canonical);
  key.workload.threads = 1;
  EXPECT_EQ(store->lookup_by_anchor(key).outcome, LookupOutcome::kNone);

  key = world.lookup_key();
  EXPECT_EQ(store->lookup_same_isa(key).outcome, LookupOutcome::kNone);
  key.hardware.model_name = "other";
  EXPECT_EQ(store->lookup_same_isa(key).outcome, LookupOutcome::kExact);
  key.toolchain.codegen_version = 9;
  EXPECT_EQ(store->lookup_same_isa(key).outcome, LookupOutcome::kHardMismatch);
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

TEST_F(StoreTest, MissesAreCounted) {
  auto store = open();
  World world(*store);
  store->record_miss(world.workload_hash, world.hardware_hash, {{"m", 37}});
  store->record_miss(world.workload_hash, world.hardware_hash, {{"m", 53}}, 5);
  store->record_miss(world.workload_hash, world.hardware_hash, {{"m", 37}}, 2);
  const std::vector<DispatchMiss> misses = store->misses();
  ASSERT_EQ(misses.size(), 2u);
  EXPECT_EQ(misses[0].count, 5);
  EXPECT_EQ(misses[1].count, 3);
  EXPECT_EQ(misses[1].dims, (Dims{{"m", 37}}));
}

}  // namespace
}  // namespace nimble::db
