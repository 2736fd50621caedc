#include "db/store/open.h"

#include <cmath>

#include "db/store/place.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {

#ifndef NIMBLE_POSTGRES
namespace {
[[noreturn]] void lacks_postgres(const std::string& url) {
  throw Error(Status::kUnsupported, printable_place(url),
              "this nimble was built without PostgreSQL's client library",
              "install it (Debian: libpq-dev; scripts/setup does) and build again");
}
}  // namespace
std::unique_ptr<Connection> open_postgres(const std::string& url, const OpenOptions&) {
  lacks_postgres(url);
}
std::unique_ptr<Connection> open_postgres_source(const std::string& url) {
  lacks_postgres(url);
}
#endif

std::unique_ptr<Store> Store::open(const std::string& place, const OpenOptions& options) {
  return std::make_unique<SqlStore>(
      names_server(place) ? open_postgres(place, options) : open_sqlite(place, options), options);
}

SqlStore::SqlStore(std::unique_ptr<Connection> db, const OpenOptions& options)
    : options_(options), db_(std::move(db)) {
  identity_ = db_->text("SELECT uuid FROM identity");
  schema_version_ = db_->schema_version().value_or(0);
}

void SqlStore::transaction(const std::function<void()>& body) {
  Write write = begin_write();
  body();
  write.commit();
}

void require_time(double value, std::string_view what) {
  if (!(value > 0) || !std::isfinite(value))
    throw Error(Status::kInvalidArgument, std::string(what),
                fmt::format("{} is not a time: it must be positive and finite", value),
                "measure again; a clock that stands still measures nothing");
}

}  // namespace nimble::db
