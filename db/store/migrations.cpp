#include "db/store/migrations.h"

#include <map>
#include <mutex>

#include "db/store/hash.h"
#include "vm/base/error.h"

namespace nimble::db {

int latest_schema_version() {
  return static_cast<int>(migrations().size());
}

FileKind inspect_schema(Connection& db) {
  const int64_t application = db.integer("PRAGMA application_id");
  const int64_t version = db.integer("PRAGMA user_version");
  if (application != kApplicationId) {
    if (application == 0 && version == 0 && db.integer("SELECT count(*) FROM sqlite_schema") == 0)
      return FileKind::kEmpty;
    throw Error(Status::kInvalidArgument, db.name(), "is a database of another program",
                "name a tuning database of nimble, or a new file");
  }
  if (version > latest_schema_version())
    throw Error(Status::kIncompatible, db.name(),
                fmt::format("has schema {}, newer than this program's {}", version,
                            latest_schema_version()),
                "use the nimble that wrote it, or a newer one");
  Statement rows = db.prepare("SELECT version, checksum FROM migration ORDER BY version");
  int64_t expected = 0;
  while (rows.step()) {
    if (rows.integer(0) != ++expected || expected > version) break;
    const Migration& known = migrations()[static_cast<size_t>(expected - 1)];
    if (rows.text(1) != hash_of(known.sql))
      throw Error(Status::kIncompatible, db.name(),
                  fmt::format("migration {} ({}) is not the one this program knows", known.version,
                              known.name),
                  "it was made by an unreleased nimble; start a new database");
  }
  if (expected != version)
    throw Error(Status::kIncompatible, db.name(),
                fmt::format("its list of migrations does not match its version {}", version),
                "restore a copy, or start a new database");
  return FileKind::kNimble;
}

void migrate(Connection& db, int target, const std::function<int64_t()>& clock_ms) {
  if (db.integer("PRAGMA user_version") >= target) return;
  WriteTransaction transaction(db);
  const int64_t present = db.integer("PRAGMA user_version");
  for (const Migration& step : migrations()) {
    if (step.version <= present || step.version > target) continue;
    db.script(step.sql);
    db.run("INSERT INTO migration (version, checksum, applied_at) VALUES (?, ?, ?)", step.version,
           hash_of(step.sql), clock_ms());
    if (step.version == 1)
      db.run("INSERT INTO identity (only_row, uuid, created_at) VALUES (1, ?, ?)", new_uuid(),
             clock_ms());
  }
  if (present < target) {
    db.script(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId,
                          target));
  }
  transaction.commit();
}

// All but what SQLite makes for itself: its names alone prove nothing in a file of unknown origin.
std::string schema_text(Connection& db) {
  std::string text;
  Statement rows = db.prepare(
      "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema WHERE NOT "
      "((type = 'index' AND sql IS NULL) OR "
      "(type = 'table' AND name IN ('sqlite_sequence', 'sqlite_stat1', 'sqlite_stat4'))) "
      "ORDER BY type, name");
  while (rows.step()) {
    for (int column = 0; column < 4; ++column) text += rows.text(column) + '\x1f';
    text += '\n';
  }
  return text;
}

const std::string& expected_schema_text(int version) {
  static std::mutex mutex;
  static std::map<int, std::string> known;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto it = known.find(version); it != known.end()) return it->second;
  Connection scratch(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, "", ":memory:");
  migrate(scratch, version, [] { return int64_t{0}; });
  return known.emplace(version, schema_text(scratch)).first->second;
}

}  // namespace nimble::db
