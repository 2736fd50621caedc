// The schema's history. db/schema holds it as SQL; the build embeds it (embed.cmake).
#pragma once

#include <functional>
#include <span>
#include <string>

#include "db/store/sql.h"

namespace nimble::db {

struct Migration {
  int version;  // 1, 2, …
  const char* name;
  const char* sqlite;
  const char* postgres;  // null: older than the first schema for PostgreSQL, which is one step

  const char* sql(Engine engine) const { return engine == Engine::kSqlite ? sqlite : postgres; }
};

// All migrations, in order.
std::span<const Migration> migrations();
int latest_schema_version();

enum class FileKind { kEmpty, kNimble };

// Tells an empty database from one of ours; throws Error(kInvalidArgument) for
// another program's, and Error(kIncompatible) for a schema newer than this program's or a
// migration whose SQL text is not the one this program knows.
FileKind inspect_schema(Connection& db);

// Brings `db` to `target` in one transaction. Safe when several processes open the database at
// once: the version is read again under the write lock.
void migrate(Connection& db, int target, const std::function<int64_t()>& clock_ms);

// Whether the tables, views and triggers are, word for word, those that the migrations up to
// `version` make.
bool has_expected_schema(Connection& db, int version);

}  // namespace nimble::db
