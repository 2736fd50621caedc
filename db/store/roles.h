// Who may do what on a shared database of a PostgreSQL server: roles of SQL, which the server
// enforces whatever a program asks for.
//
//   nimble_reader   reads everything: the compiler, the GUI, whoever looks
//   nimble_worker   besides, registers itself, claims jobs and reports what it measured; it can
//                   neither make campaigns, jobs for others to run, candidates, tables, overrides
//                   or signatures, nor control a campaign
//                   (triggers hold it to splitting jobs whose lease ran out, and to numbers that
//                   leave room for others; that its times are true nobody can tell)
//   nimble_planner  besides, all else that the service does: campaigns, candidates, tables,
//                   requests, keys and revocations
//
// The owner of the schema, who migrates it, is whoever made it. They are roles to be granted to
// people's own, and log in nowhere; that facts stay as they were written holds for all of them.
#pragma once

#include <string>

namespace nimble::db {

class Connection;

// SQL for psql, to be run as the owner: makes the roles where they are not there and gives them
// their rights in the schema "nimble", exactly. Run again, it changes nothing.
std::string roles_sql();

// For a migration, as a part of its transaction: where the roles have rights in this database, they
// get exactly those of the schema as it is now, new tables included. Elsewhere nothing is done.
void renew_grants(Connection& db);

}  // namespace nimble::db
