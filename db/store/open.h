// How the databases of both engines are opened. Private to db/store.
#pragma once

#include <memory>
#include <string>

#include "db/store/sql.h"
#include "db/store/store.h"

namespace nimble::db {

// Opens the database with the settings that every use shares, at the latest schema. Errors: see
// Store::open.
std::unique_ptr<Connection> open_sqlite(const std::string& path, const OpenOptions& options);
std::unique_ptr<Connection> open_postgres(const std::string& url, const OpenOptions& options);

// Opens what is to be imported, which nobody trusts, for reading, at the latest schema.
std::unique_ptr<Connection> open_sqlite_source(const std::string& path);
std::unique_ptr<Connection> open_postgres_source(const std::string& url);

// Makes `copy` what exports are: one file without log and leases.
void finish_sqlite_export(const std::string& copy, const OpenOptions& options,
                          const std::string& name);

}  // namespace nimble::db
