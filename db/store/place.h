// What names a database: the path of a file, or the URL of a server's.
#pragma once

#include <string>
#include <string_view>

namespace nimble::db {

// Whether `place` names a PostgreSQL database ("postgresql://…", "postgres://…") and no file.
bool names_server(std::string_view place);

// Error(kInvalidArgument) if `place` is a URL of anything else ("mysql://host/db"): a file of such
// a name is rather a slip. "./mysql://…" is a file.
void require_place(std::string_view place);

// The place as messages, logs and commands may tell it: a URL without passwords. What remains of a
// well-formed one names the same database; of one with stray characters more than the password may
// be missing, never less.
std::string printable_place(std::string_view place);

// Where files lie that this machine keeps beside a database while it tunes: the database's file, or
// a place in the user's cache (XDG_CACHE_HOME, ~/.cache) for a server's, whose `identity` it has.
// The folder is made.
std::string local_prefix(const std::string& place, std::string_view identity);

}  // namespace nimble::db
