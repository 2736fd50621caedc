// The schema's history. db/schema holds it as SQL; the build embeds it (embed.cmake).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "db/store/sqlite.h"

namespace nimble::db {

struct Migration {
  int version;  // 1, 2, …
  const char* name;
  const char* sql;
};

// All migrations, in order.
std::span<const Migration> migrations();
int latest_schema_version();

// "Nmbl": marks a SQLite file as a tuning database of nimble.
inline constexpr int kApplicationId = 0x4E6D626C;

enum class FileKind { kEmpty, kNimble };

// Tells an empty database from one of ours by application_id; throws Error(kInvalidArgument) for
// another program's, and Error(kIncompatible) for a schema newer than this program's or a
// migration whose SQL text is not the one this program knows.
FileKind inspect_schema(Connection& db);

// Brings `db` to `target` in one transaction. Safe when several processes open the database at
// once: the version is read again under the write lock.
void migrate(Connection& db, int target, const std::function<int64_t()>& clock_ms);

// The objects of the schema as (type, name, table, SQL), one per line, in a fixed order; equal
// texts mean equal schemas.
std::string schema_text(Connection& db);

// What schema_text() is after migration `version`: made once, in a scratch database in memory.
const std::string& expected_schema_text(int version);

}  // namespace nimble::db
