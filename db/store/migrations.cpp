#include "db/store/migrations.h"

#include <map>
#include <mutex>

#include "db/store/hash.h"
#include "db/store/roles.h"
#include "db/store/sqlite.h"
#include "vm/base/error.h"
#include "vm/base/stage.h"

namespace nimble::db {

int latest_schema_version() {
  return static_cast<int>(migrations().size());
}

FileKind inspect_schema(Connection& db) {
  const std::optional<int> version = db.schema_version();
  if (!version) return FileKind::kEmpty;
  if (*version > latest_schema_version())
    throw Error(Status::kIncompatible, db.name(),
                fmt::format("has schema {}, newer than this program's {}", *version,
                            latest_schema_version()),
                "use the nimble that wrote it, or a newer one");
  Statement rows = db.prepare("SELECT version, checksum FROM migration ORDER BY version");
  bool more = rows.step();
  for (const Migration& known : migrations()) {
    if (known.version > *version) break;
    if (!known.sql(db.engine())) continue;
    if (!more || rows.integer(0) != known.version)
      throw Error(Status::kIncompatible, db.name(),
                  fmt::format("its list of migrations does not match its version {}", *version),
                  "restore a copy, or start a new database");
    if (rows.text(1) != hash_of(known.sql(db.engine())))
      throw Error(Status::kIncompatible, db.name(),
                  fmt::format("migration {} ({}) is not the one this program knows", known.version,
                              known.name),
                  "it was made by an unreleased nimble; start a new database");
    more = rows.step();
  }
  if (more)
    throw Error(Status::kIncompatible, db.name(),
                fmt::format("its list of migrations does not match its version {}", *version),
                "restore a copy, or start a new database");
  return FileKind::kNimble;
}

void migrate(Connection& db, int target, const std::function<int64_t()>& clock_ms) {
  if (db.schema_version().value_or(0) >= target) return;
  const Stage stage("migrate");
  int depth = 0;
  Transaction transaction(db, depth, true);
  const std::optional<int> present = db.schema_version();
  for (const Migration& step : migrations()) {
    const char* sql = step.sql(db.engine());
    if (!sql || step.version <= present.value_or(0) || step.version > target) continue;
    db.script(sql);
    db.run("INSERT INTO migration (version, checksum, applied_at) VALUES (?, ?, ?)", step.version,
           hash_of(sql), clock_ms());
  }
  if (!present)
    db.run("INSERT INTO identity (only_row, uuid, created_at) VALUES (1, ?, ?)", new_uuid(),
           clock_ms());
  if (present) renew_grants(db);
  if (present.value_or(0) < target) db.set_schema_version(target);
  transaction.commit();
}

namespace {

// What the schema is after migration `version` in SQLite: made once, in a database in memory.
const std::string& sqlite_schema_text(int version) {
  static std::mutex mutex;
  static std::map<int, std::string> known;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto it = known.find(version); it != known.end()) return it->second;
  const auto scratch = connect_to_memory();
  migrate(*scratch, version, [] { return int64_t{0}; });
  return known.emplace(version, scratch->schema_text()).first->second;
}

}  // namespace

bool has_expected_schema(Connection& db, int version) {
  if (const std::optional<std::string> noted = db.noted_schema_hash())
    return hash_of(db.schema_text()) == *noted;
  return db.schema_text() == sqlite_schema_text(version);
}

}  // namespace nimble::db
