// A database that a program of schema 7 has made, in a campaign: nothing of it is lost.
#include <gmock/gmock.h>
#include <zstd.h>

#include <fstream>
#include <iterator>

#include "db/store/migrations.h"
#include "db/store/sqlite.h"
#include "db/store/test/all.h"
#include "db/store/test/fixture.h"

namespace nimble::db {
namespace {

constexpr int kVersion = 7;

std::string version7_file() {
  std::ifstream in(NIMBLE_SOURCE_DIR "/db/store/test/data/version7.db.zst", std::ios::binary);
  const std::string packed((std::istreambuf_iterator<char>(in)), {});
  std::string bytes(ZSTD_getFrameContentSize(packed.data(), packed.size()), '\0');
  EXPECT_EQ(ZSTD_decompress(bytes.data(), bytes.size(), packed.data(), packed.size()),
            bytes.size());
  return bytes;
}

// The columns of each table of version 7.
std::map<std::string, std::string> tables_of(Connection& db) {
  std::map<std::string, std::string> tables;
  Statement row = db.prepare(
      "SELECT t.name, group_concat(c.name, ', ') FROM sqlite_schema t, pragma_table_info(t.name) c "
      "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name <> 'migration' "
      "GROUP BY t.name");
  while (row.step()) tables[row.text(0)] = row.text(1);
  return tables;
}

std::vector<std::string> rows_of(Connection& db, const std::string& table,
                                 const std::string& columns) {
  std::vector<std::string> rows;
  Statement row = db.prepare(fmt::format("SELECT {} FROM {}", columns, table));
  while (row.step()) {
    std::string& line = rows.emplace_back();
    for (int i = 0; i < row.columns(); ++i) {
      if (row.is_null(i)) {
        line += "|NULL";
        continue;
      }
      switch (row.kind(i)) {
        case ValueKind::kInteger:
          line += fmt::format("|{}", row.integer(i));
          break;
        case ValueKind::kReal:
          line += fmt::format("|{}", row.real(i));
          break;
        case ValueKind::kBlob: {
          const std::span<const uint8_t> blob = row.blob(i);
          line += "|" + std::string(blob.begin(), blob.end());
          break;
        }
        default:
          line += "|" + row.text(i);
      }
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_F(StoreTest, ADatabaseOfSchema7KeepsEverything) {
  std::ofstream(file("old.db"), std::ios::binary) << version7_file();
  std::map<std::string, std::string> tables;
  std::map<std::string, std::vector<std::string>> before;
  {
    SqliteConnection old(file("old.db"), SQLITE_OPEN_READWRITE, "", "old");
    ASSERT_EQ(old.schema_version(), kVersion);
    tables = tables_of(old);
    for (const auto& [table, columns] : tables) before[table] = rows_of(old, table, columns);
    if (on_server()) {
      // The same rows in a server's database of that schema.
      place();
      const auto server = connection();
      migrate(*server, kVersion, [] { return int64_t{5}; });
      server->begin(0, true);
      server->defer_foreign_keys();
      server->run("ALTER TABLE identity DISABLE TRIGGER identity_keeps");
      server->run("DELETE FROM identity");
      server->run("ALTER TABLE identity ENABLE TRIGGER identity_keeps");
      for (const auto& [table, columns] : tables) {
        Statement row = old.prepare(fmt::format("SELECT {} FROM {}", columns, table));
        std::string marks = "?";
        for (int i = 1; i < row.columns(); ++i) marks += ",?";
        while (row.step()) {
          Statement insert = server->prepare(
              fmt::format("INSERT INTO {} ({}) VALUES ({})", table, columns, marks));
          for (int i = 0; i < row.columns(); ++i) insert.bind_column(i + 1, row, i);
          insert.run();
        }
      }
      server->commit(0);
    }
  }
  ASSERT_GT(before["trial"].size(), 100u);
  ASSERT_EQ(before["samples"].size(), before["trial"].size());
  if (!on_server()) std::filesystem::copy_file(file("old.db"), file());
  options.migrate_shared = true;
  auto store = open();
  EXPECT_EQ(store->schema_version(), latest_schema_version());
  const CheckReport report = store->check();
  EXPECT_TRUE(report.sound()) << testing::PrintToString(report.problems);
  const auto after = connection();
  for (const auto& [table, columns] : tables)
    EXPECT_EQ(rows_of(*after, table, columns), before[table]) << table;
  // Its trials are the same trials, under the same keys.
  const Campaign campaign = all_campaigns(*store).at(0);
  const std::vector<TrialOutcome> outcomes = store->outcomes(campaign.uuid);
  ASSERT_EQ(outcomes.size(), before["trial"].size());
  std::vector<NewTrial> again;
  for (const TrialOutcome& o : outcomes) again.push_back({o.trial.key});
  EXPECT_EQ(store->enqueue(again), 0);
  // A new file that imports the old one has all of it, too.
  clock = 1'900'000'000'000;  // later than what real clocks wrote there
  auto fresh = Store::open(file("fresh.db"), options);
  EXPECT_EQ(fresh->import_from(file("old.db")).origin, store->identity());
  EXPECT_EQ(fresh->outcomes(campaign.uuid).size(), outcomes.size());
  EXPECT_EQ(fresh->import_from(file("old.db")).rows_added, 0);
}

}  // namespace
}  // namespace nimble::db
