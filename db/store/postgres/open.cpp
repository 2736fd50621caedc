// Opening a database of PostgreSQL. Others work with it while we open it: it is made where there is
// none, and brought up to date only on request.
#include "db/store/open.h"

#include "db/store/migrations.h"
#include "db/store/postgres/connection.h"
#include "vm/base/error.h"

namespace nimble::db {

std::unique_ptr<Connection> open_postgres(const std::string& url, const OpenOptions& options) {
  auto db = std::make_unique<PostgresConnection>(url, options.busy_timeout_ms, options.read_only,
                                                 options.durable);
  const FileKind kind = inspect_schema(*db);
  if (kind == FileKind::kEmpty && (options.read_only || !options.create))
    throw Error(Status::kNotFound, db->name(), "has no tuning database",
                "name one that has, or make its tables with nimble db check --migrate");
  const bool may_migrate = kind == FileKind::kEmpty || options.migrate_shared;
  if (db->schema_version().value_or(0) < latest_schema_version()) {
    if (!may_migrate || options.read_only)
      throw Error(Status::kIncompatible, db->name(),
                  fmt::format("has schema {}, older than this program's {}",
                              db->schema_version().value_or(0), latest_schema_version()),
                  "once every program that uses it is updated: nimble db check --migrate");
    migrate(
        *db, latest_schema_version(),
        options.clock_ms ? options.clock_ms : [&db] { return db->clock_ms(); });
  }
  return db;
}

std::unique_ptr<Connection> open_postgres_source(const std::string& url) {
  OpenOptions options;
  options.read_only = true;
  std::unique_ptr<Connection> source = open_postgres(url, options);
  if (!has_expected_schema(*source, latest_schema_version()))
    throw Error(Status::kCorrupt, source->name(),
                fmt::format("its tables are not those of schema {}", latest_schema_version()),
                "import only from a database that nimble has made");
  return source;
}

}  // namespace nimble::db
