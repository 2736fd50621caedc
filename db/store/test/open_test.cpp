// Every way in which opening fails, the migrations, and what SQL refuses.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "db/store/filesystem.h"
#include "db/store/hash.h"
#include "db/store/migrations.h"
#include "db/store/open_existing.h"
#include "db/store/samples.h"
#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;
constexpr int kReadWrite = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;

void write_bytes(const std::string& path, std::string_view bytes, long offset = 0) {
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  if (!out) out.open(path, std::ios::binary | std::ios::out);
  out.seekp(offset);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good());
}

TEST_F(FileTest, OpensANewFileAndAgain) {
  Uuid identity;
  {
    auto store = open();
    identity = store->identity();
    EXPECT_EQ(store->schema_version(), latest_schema_version());
    EXPECT_TRUE(store->check().sound());
  }
  auto store = open();
  EXPECT_TRUE(is_uuid(identity));
  EXPECT_EQ(store->identity(), identity);
}

TEST_F(FileTest, RunsInWriteAheadLogWithForeignKeys) {
  auto store = open();
  SqliteConnection other(file(), SQLITE_OPEN_READONLY, "", "other");
  EXPECT_EQ(other.text("PRAGMA journal_mode"), "wal");
  EXPECT_EQ(other.integer("PRAGMA application_id"), kApplicationId);
  const Error error = error_of([&] { store->put(Machine{"", "box", std::string(32, '0')}); });
  EXPECT_THAT(error.what(), HasSubstr("FOREIGN KEY"));
}

TEST_F(FileTest, MissingFolder) {
  const Error error = error_of([&] { open("nowhere/tuning.db"); });
  EXPECT_EQ(error.status(), Status::kNotFound);
  EXPECT_THAT(error.what(), HasSubstr("nowhere' does not exist; create it"));
}

TEST_F(FileTest, MissingFileWithoutCreate) {
  options.create = false;
  EXPECT_EQ(error_of([&] { open(); }).status(), Status::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(FileTest, WhatExistsIsOpenedToReadOrToWrite) {
  for (const auto opened : {open_to_read, open_to_write}) {
    EXPECT_EQ(error_of([&] { opened(file()); }).status(), Status::kNotFound);
    EXPECT_FALSE(std::filesystem::exists(file()));
  }
  { open(); }
  const Template row{"t", 1, ""};
  EXPECT_EQ(error_of([&] { open_to_read(file())->put(row); }).status(), Status::kIo);
  EXPECT_NO_THROW(open_to_write(file())->put(row));
}

TEST_F(FileTest, AFolderIsNoDatabase) {
  EXPECT_EQ(error_of([&] { Store::open(folder, options); }).status(), Status::kInvalidArgument);
}

TEST_F(FileTest, NotADatabase) {
  write_bytes(file(), std::string(5000, 'x'));
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.status(), Status::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr("is not a database"));
}

TEST_F(FileTest, AnotherProgramsDatabase) {
  SqliteConnection(file(), kReadWrite, "", "x").script("CREATE TABLE songs (title TEXT)");
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  SqliteConnection after(file(), SQLITE_OPEN_READONLY, "", "x");
  EXPECT_EQ(after.integer("SELECT count(*) FROM sqlite_schema"), 1) << "it was written to";
}

TEST_F(FileTest, DamagedPage) {
  { World world(*open()); }
  write_bytes(file(), std::string(2000, '\x5a'), 4096 * 3);
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.status(), Status::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr("damaged"));
}

TEST_F(FileTest, CutShort) {
  { World world(*open()); }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) / 2);
  EXPECT_EQ(error_of([&] { open(); }).status(), Status::kCorrupt);
}

TEST_F(FileTest, NewerSchema) {
  { open(); }
  SqliteConnection(file(), kReadWrite, "", "x").script("PRAGMA user_version = 99");
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.status(), Status::kIncompatible);
  EXPECT_THAT(error.what(), HasSubstr("schema 99, newer than"));
}

TEST_F(FileTest, ChangedMigration) {
  { open(); }
  SqliteConnection(file(), kReadWrite, "", "x")
      .script(
          "DROP TRIGGER migration_keeps_update; UPDATE migration SET checksum = 'no' "
          "WHERE version = 2");
  const Error error = error_of([&] { open(); });
  EXPECT_EQ(error.status(), Status::kIncompatible);
  EXPECT_THAT(error.what(), HasSubstr("migration 2 (0002_campaigns)"));
}

// Runs `body` as a user without root's right to write anywhere; true if it returned true.
template <class Body>
bool as_nobody(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(2);
    bool ok = false;
    try {
      ok = body();
    } catch (const std::exception& error) {
      fprintf(stderr, "unexpected: %s\n", error.what());
    }
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(FileTest, ReadOnlyFileAndFolder) {
  namespace fs = std::filesystem;
  {
    World world(*open());
  }
  fs::permissions(folder, fs::perms(0777));
  fs::permissions(file(), fs::perms(0444));
  auto refused = [&](const std::string& name, const char* part) {
    try {
      open(name);
    } catch (const Error& error) {
      return error.status() == Status::kIo &&
             std::string(error.what()).find(part) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(as_nobody([&] { return refused("tuning.db", "is read-only; make it writable"); }));
  fs::permissions(file(), fs::perms(0666));
  fs::permissions(folder, fs::perms(0555));
  EXPECT_TRUE(as_nobody([&] { return refused("tuning.db", "read-only, and the database keeps"); }));
  EXPECT_TRUE(as_nobody([&] { return refused("new.db", "read-only, and the database keeps"); }));
  // Reading works all the same.
  options.read_only = true;
  EXPECT_TRUE(as_nobody([&] { return all_workloads(*open()).size() == 1; }));
  fs::permissions(file(), fs::perms(0000));
  EXPECT_TRUE(as_nobody([&] { return refused("tuning.db", "may not be read"); }));
}

TEST_F(FileTest, ReadOnlyRefusesWrites) {
  { open(); }
  options.read_only = true;
  auto store = open();
  EXPECT_EQ(error_of([&] { store->put(Template{"t", 1, ""}); }).status(), Status::kIo);
}

TEST_F(FileTest, LockedForTooLong) {
  auto store = open();
  options.busy_timeout_ms = 1;
  auto hasty = open();
  store->transaction([&] {
    store->put(Template{"a", 1, ""});
    EXPECT_EQ(error_of([&] { hasty->put(Template{"b", 1, ""}); }).status(), Status::kExhausted);
  });
  hasty->put(Template{"b", 1, ""});
}

TEST_F(FileTest, KnowsNetworkFileSystems) {
  EXPECT_STREQ(network_filesystem_name(0x6969), "NFS");
  EXPECT_STREQ(network_filesystem_name(0xFFFFFFFFFF534D42u), "CIFS")
      << "sign-extended by the kernel";
  EXPECT_EQ(network_filesystem_name(0xEF53), nullptr) << "ext4";
  EXPECT_EQ(network_filesystem_name(0x01021994), nullptr) << "tmpfs";
}

TEST_F(FileTest, EveryOlderSchemaIsBroughtUpToDate) {
  for (int version = 0; version < latest_schema_version(); ++version) {
    const std::string name = "v" + std::to_string(version) + ".db";
    {
      SqliteConnection old(file(name), kReadWrite, "", name);
      migrate(old, version, [] { return int64_t{5}; });
      if (version > 0)
        old.run("INSERT INTO template (hash, name, version, parameters) VALUES (?,?,?,?)",
                key_of(Template{"kept", 1, "p"}), "kept", 1, "p");
    }
    if (version > 0) {
      OpenOptions reading = options;
      reading.read_only = true;
      EXPECT_EQ(error_of([&] { Store::open(file(name), reading); }).status(),
                Status::kIncompatible);
    }
    auto store = open(name);
    EXPECT_EQ(store->schema_version(), latest_schema_version());
    EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
    SqliteConnection look(file(name), SQLITE_OPEN_READONLY, "", name);
    EXPECT_EQ(look.integer("SELECT count(*) FROM template"), version > 0 ? 1 : 0);
    EXPECT_EQ(look.integer("SELECT count(*) FROM migration"), latest_schema_version());
    World world(*store);
    world.tried(*store, 8, 64, 100);
    EXPECT_TRUE(store->check().sound());
  }
}

// Shares stood in the detail of a phase, and figures had single times in any case.
TEST_F(StoreTest, SharesAndFiguresOfSchema20AreCarried) {
  const std::pair<const char*, std::optional<double>> details[] = {
      {R"({"failed":0,"share":0.25,"spent_s":1.5})", 0.25},
      {R"({"share":1})", 1},
      {R"({"share":2.5e-05})", 2.5e-05},
      {R"({"share":1.5})", std::nullopt},
      {R"({"share":"half"})", std::nullopt},
      {R"({"share":null})", std::nullopt},
      {"no JSON", std::nullopt},
      {"[]", std::nullopt},
      {"", std::nullopt}};
  const Uuid machine = new_uuid(), campaign = new_uuid(), figure = new_uuid(), run = new_uuid();
  Uuid task;
  {
    if (on_server()) place();
    const std::unique_ptr<Connection> old =
        on_server() ? connection()
                    : std::make_unique<SqliteConnection>(file(), kReadWrite, "", "old");
    migrate(*old, 20, [] { return int64_t{5}; });
    Hardware h;
    h.model_name = "Xeon";
    h.vendor = "GenuineIntel";
    h.isa = "x86-64-v4";
    h.caches = "L1d 48K/1";
    h.topology = "1 socket, 2 cores, 2 threads";
    old->run("INSERT INTO hardware VALUES (?,?,?,?,?,?,?,?,?,?)", key_of(h), h.vendor, h.family,
             h.model, h.stepping, h.model_name, h.isa, h.caches, h.topology, h.virtualised);
    old->run("INSERT INTO machine VALUES (?,?,?)", machine, "box", key_of(h));
    Workload w;
    w.canonical = "dense";
    old->run("INSERT INTO workload VALUES (?,?,?,?,?,?,?,?)", key_of(w), w.canonical, w.canonical,
             "dense", "f32", "", "", 1);
    old->run(
        "INSERT INTO campaign (uuid, digest, hardware, seed, options, command, budget_s, "
        "consumed_s, state, created_at, updated_at) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        campaign, "model", key_of(h), 0, "{}", "nimble tune m", 60.0, 0.0, "running", 5, 5);
    task = uuid_of_task(campaign, key_of(w));
    old->run(
        "INSERT INTO task (uuid, campaign, workload, label, share, calls, created_at) "
        "VALUES (?,?,?,?,?,?,?)",
        task, campaign, key_of(w), "dense", std::optional<double>(), 1, 5);
    int64_t at = 5;
    for (const auto& [detail, share] : details)
      old->run("INSERT INTO task_event (uuid, task, phase, detail, created_at) VALUES (?,?,?,?,?)",
               new_uuid(), task, "search", detail, ++at);
    old->run(
        "INSERT INTO peer_figure (uuid, run, peer, version, settings, machine, subject, dims, "
        "dtype, threads, n, ns, median_ns, created_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        figure, run, "torch", "2", "{}", machine, "model", "n=7", "f32", 2, 1,
        std::span<const uint8_t>(encode_samples(std::vector<double>{5})), 5.0, 6);
  }
  options.migrate_shared = true;
  auto store = open();
  const std::vector<TaskPhase> phases = store->phases(task);
  ASSERT_EQ(phases.size(), std::size(details));
  for (size_t i = 0; i < phases.size(); ++i) {
    EXPECT_EQ(phases[i].detail, details[i].first);
    EXPECT_EQ(phases[i].share, details[i].second) << details[i].first;
  }
  ASSERT_EQ(store->peer_run(run).size(), 1u);
  EXPECT_EQ(store->peer_run(run)[0].samples_ns, std::vector<double>{5});
  EXPECT_FALSE(store->peer_run(run)[0].ci_low_ns);
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  EXPECT_EQ(error_of([&] { connection()->run("DELETE FROM peer_figure"); }).status(),
            Status::kInvalidArgument);
  EXPECT_EQ(error_of([&] { connection()->run("UPDATE task_event SET share = 0.5"); }).status(),
            Status::kInvalidArgument);
}

// What was tuned before slots knew of classes stands in for any class, and says so; what a person
// had decided goes on as an override.
TEST_F(FileTest, TablesOfAnOlderSchemaAreFound) {
  Uuid table;
  LookupKey key;
  Hash chosen;
  {
    World world(*open("new.db"));
    key = world.lookup_key();
    SqliteConnection old(file(), kReadWrite, "", "old");
    migrate(old, 5, [] { return int64_t{5}; });
    const Hardware& h = world.hardware;
    old.run("INSERT INTO hardware VALUES (?,?,?,?,?,?,?,?,?,?)", key_of(h), h.vendor, h.family,
            h.model, h.stepping, h.model_name, h.isa, h.caches, h.topology, h.virtualised);
    const Toolchain& t = world.toolchain;
    old.run("INSERT INTO toolchain VALUES (?,?,?,?,?,?,?)", key_of(t), t.compiler, t.version,
            t.flags, t.codegen_version, t.revision, t.dirty);
    const Workload& w = world.workload;
    old.run("INSERT INTO workload VALUES (?,?,?,?,?,?,?,?)", key_of(w), w.canonical, w.anchor, w.op,
            w.dtype, w.layout, w.symbolic_dims, w.threads);
    old.run("INSERT INTO template VALUES (?,?,?,?)", key_of(world.dense), "dense", 2,
            world.dense.parameters);
    const MeasurePolicy p{CacheMode::kWarm, 3, 2, "rdtsc", "ci<1%"};
    old.run("INSERT INTO measure_policy VALUES (?,?,?,?,?,?)", key_of(p), "warm", 3, 2, "rdtsc",
            "ci<1%");
    std::vector<Hash> configs;
    for (const char* json : {R"({"tile":8})", R"({"tile":16})"}) {
      configs.push_back(key_of(Config{key_of(world.dense), json}));
      old.run("INSERT INTO config VALUES (?,?,?)", configs.back(), key_of(world.dense), json);
    }
    chosen = configs[1];
    table = new_uuid();
    for (const Uuid& uuid : {new_uuid(), table}) {  // the former is no longer active
      old.run(
          "INSERT INTO dispatch_table (uuid, workload, hardware, toolchain, policy, version, "
          "objective, tree, created_at) VALUES (?,?,?,?,?,1,'mean','{\"leaf\":0}',7)",
          uuid, key_of(w), key_of(h), key_of(t), key_of(p));
      old.run(
          "INSERT INTO dispatch_entry (dispatch_table, ordinal, range, config, is_override, "
          "reason) "
          "VALUES (?1,0,'{\"m\":[0,16]}',?2,0,''), (?1,1,'{\"m\":[17,null]}',?3,1,'noisy')",
          uuid, configs[0], configs[1]);
      old.run("INSERT INTO dispatch_event VALUES (?,?,'active','tuned',?)", new_uuid(), uuid,
              uuid == table ? 9 : 8);
    }
    std::filesystem::copy_file(file(), file("copy.db"));
  }
  auto store = open();
  const LookupResult r = store->lookup(key);
  EXPECT_EQ(r.outcome, LookupOutcome::kFallback);
  EXPECT_EQ(r.reason, "measured before classes of policy had names, not warm");
  ASSERT_TRUE(r.table);
  EXPECT_EQ(r.table->uuid, table);
  ASSERT_EQ(r.overrides.size(), 1u) << "of the active table alone";
  EXPECT_EQ(r.overrides[0].region, R"({"m":[17,null]})");
  EXPECT_EQ(r.overrides[0].config, chosen);
  EXPECT_EQ(r.overrides[0].reason, "noisy");
  EXPECT_TRUE(is_uuid(r.overrides[0].uuid)) << r.overrides[0].uuid;
  EXPECT_TRUE(store->check().sound()) << testing::PrintToString(store->check().problems);
  // A new table of the class asked for is preferred, and does not retire the old one.
  const Hash policy = store->put(MeasurePolicy{CacheMode::kWarm, 3, 2, "rdtsc", "ci<1%", "warm"});
  NewDispatchTable next = *r.table;
  next.policy = policy;
  const Uuid fresh = store->create_table(next);
  store->activate(fresh, "tuned");
  EXPECT_EQ(store->lookup(key).outcome, LookupOutcome::kExact);
  EXPECT_EQ(store->table(table)->status, TableStatus::kActive);
  EXPECT_EQ(store->lookup(key).overrides.size(), 1u);
  // A copy that was brought up to date elsewhere has the same override.
  EXPECT_EQ(store->import_from(file("copy.db")).rows_added, 0);
}

TEST_F(FileTest, FactsCannotBeChangedByAnyone) {
  { World world(*open()); }
  SqliteConnection raw(file(), kReadWrite, "", "x");
  for (const char* sql :
       {"UPDATE hardware SET isa = 'x'", "DELETE FROM workload", "UPDATE migration SET version = 9",
        "UPDATE campaign SET consumed_s = -1", "UPDATE campaign SET seed = 8",
        "DELETE FROM campaign", "UPDATE identity SET uuid = uuid"})
    EXPECT_EQ(error_of([&] { raw.script(sql); }).status(), Status::kInvalidArgument) << sql;
}

TEST_F(FileTest, TimesThatAreNoTimesAreRefused) {
  auto store = open();
  World world(*store);
  const Uuid trial = world.tried(*store, 8, 64, 100);
  const Measurement good = world.measured(*store, *store->trial(trial), 100);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()}) {
    for (double Measurement::*field :
         {&Measurement::median_ns, &Measurement::ci_low_ns, &Measurement::ci_high_ns}) {
      Measurement m = good;
      m.*field = bad;
      EXPECT_EQ(error_of([&] { store->add(m); }).status(), Status::kInvalidArgument) << bad;
    }
    Measurement m = good;
    m.samples_ns[1] = bad;
    EXPECT_EQ(error_of([&] { store->add(m); }).status(), Status::kInvalidArgument) << bad;
    NewDispatchTable t = world.draft(*store, 8);
    t.entries[0].expected_ns = bad;
    EXPECT_EQ(error_of([&] { store->create_table(t); }).status(), Status::kInvalidArgument);
    EXPECT_EQ(error_of([&] {
                store->enqueue({{world.trial_key(*store, 9, 64), 0, 0, bad}});
              }).status(),
              Status::kInvalidArgument);
    // The database itself refuses too, whoever writes.
    SqliteConnection raw(file(), kReadWrite, "", "x");
    Statement copy = raw.prepare(
        "INSERT INTO measurement (uuid, trial, artifact, policy, machine, host_state, n, "
        "median_ns, "
        "mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at) "
        "SELECT 'x' || substr(uuid, 2), trial, artifact, policy, machine, host_state, n, ?, "
        "mad_ns, "
        "ci_low_ns, ci_high_ns, stop_reason, created_at FROM measurement");
    copy.bind(bad);
    EXPECT_EQ(error_of([&] { copy.run(); }).status(), Status::kInvalidArgument) << bad;
  }
  Measurement m = good;
  m.samples_ns.clear();
  EXPECT_EQ(error_of([&] { store->add(m); }).status(), Status::kInvalidArgument);
  m = good;
  m.outliers.pop_back();
  EXPECT_EQ(error_of([&] { store->add(m); }).status(), Status::kInvalidArgument);
  m = good;
  m.median_ns = 1e6;
  EXPECT_EQ(error_of([&] { store->add(m); }).status(), Status::kInvalidArgument) << "not a median";
  EXPECT_EQ(error_of([&] {
              store->add(Correctness{"", good.artifact, world.shape(*store, 64), nan, 1e-5, true});
            }).status(),
            Status::kInvalidArgument);
  store->add(Correctness{"", good.artifact, world.shape(*store, 64), nan, 1e-5, false});
  EXPECT_TRUE(store->check().sound());
}

TEST(Records, KeysFollowContent) {
  EXPECT_EQ(key_of(Config{"t", R"({"b":1, "a":2})"}), key_of(Config{"t", R"({"a":2,"b":1})"}));
  EXPECT_NE(key_of(Config{"t", "1"}), key_of(Config{"u", "1"}));
  EXPECT_NE(hash_of_fields("k", {"ab", "c"}), hash_of_fields("k", {"a", "bc"}));
  EXPECT_NE(new_uuid(), new_uuid());
  EXPECT_TRUE(is_uuid(new_uuid()));
  EXPECT_EQ(text_of(Dims{{"n", 3}, {"m", 64}}), "m=64,n=3");
  EXPECT_EQ(dims_from_text("m=64,n=3"), (Dims{{"m", 64}, {"n", 3}}));
  EXPECT_EQ(dims_from_text(""), Dims{});
  for (const char* bad :
       {"m", "=3", "m=", "m=x", "m=1,", ",m=1", "m=1,m=2", "m=-1", "m=99999999999999999999"})
    EXPECT_EQ(error_of([&] { dims_from_text(bad); }).status(), Status::kInvalidArgument) << bad;
  for (const auto& [json, canonical] : std::vector<std::pair<const char*, const char*>>{
           {R"( {"b" : [1, -2, [ ], {}], "a": {"d": null, "c": [true, false, "x"]}} )",
            R"({"a":{"c":[true,false,"x"],"d":null},"b":[1,-2,[],{}]})"},
           {R"({"a": 1, "b": [2], "a": [3, {"a": 4}]})", R"({"a":[3,{"a":4}],"b":[2]})"},
           {"[[[]],[[],[1]]]", "[[[]],[[],[1]]]"},
           {"[1.0, 1e2, -0.0, 0.1, 18446744073709551615, -9223372036854775808]",
            "[1.0,100.0,-0.0,0.1,18446744073709551615,-9223372036854775808]"},
           {R"("a\u0041\n\"\u00e9\ud83d\ude00")", "\"aA\\n\\\"\u00e9\U0001F600\""},
           {R"({"\"k": ""})", R"({"\"k":""})"},
           {" 7 ", "7"}})
    EXPECT_EQ(canonical_json(json, "here"), canonical);
  for (const char* bad : {"", "{", "[1,]", "[1 2]", "{1:2}", "1 2", "1e999", "\"\xff\"", "nul"})
    EXPECT_EQ(error_of([&] { canonical_json(bad, "here"); }).place(), "here") << bad;
  EXPECT_EQ(error_of([] { canonical_json(std::string(100'000, '['), "deep"); }).status(),
            Status::kInvalidArgument);
}

}  // namespace
}  // namespace nimble::db
