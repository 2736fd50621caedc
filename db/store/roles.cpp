#include "db/store/roles.h"

#include "db/store/sql.h"

namespace nimble::db {
namespace {

// Roles are the server's, so that no lock of one database keeps another database's owner from
// making them at the same moment: who comes second finds them made.
constexpr const char* kRoles = R"(DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['nimble_reader', 'nimble_worker', 'nimble_planner'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', name);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;
      END;
    END IF;
  END LOOP;
END $$;

)";

constexpr const char* kGrants = R"(-- Nothing that somebody gave by hand stays.
REVOKE ALL ON SCHEMA nimble FROM PUBLIC, nimble_reader, nimble_worker, nimble_planner;
REVOKE ALL ON ALL TABLES IN SCHEMA nimble
  FROM PUBLIC, nimble_reader, nimble_worker, nimble_planner;
GRANT USAGE ON SCHEMA nimble TO nimble_reader, nimble_worker, nimble_planner;
GRANT SELECT ON ALL TABLES IN SCHEMA nimble TO nimble_reader, nimble_worker, nimble_planner;
ALTER DEFAULT PRIVILEGES IN SCHEMA nimble
  GRANT SELECT ON TABLES TO nimble_reader, nimble_worker, nimble_planner;

-- A worker tells who and where it is, what it measured and what that cost.
GRANT INSERT ON nimble.hardware, nimble.machine, nimble.host_state, nimble.worker,
  nimble.heartbeat, nimble.job_report, nimble.measurement, nimble.samples, nimble.correctness,
  nimble.consumption, nimble.event, nimble.twin_samples, nimble.failure_log
  TO nimble_worker;
-- It claims jobs and trials, and splits those whose lease ran out. What a job is of, and which code
-- runs for it, it cannot change; what it makes others run must be signed.
GRANT INSERT ON nimble.job, nimble.job_trial TO nimble_worker;
GRANT UPDATE (state, attempt, lost, worker, lease_until, avoid, claimed_at, finished_at)
  ON nimble.job TO nimble_worker;
GRANT UPDATE (state, attempt, lease_owner, lease_until, error_class, message, finished_at,
  median_ns, measured_on)
  ON nimble.trial TO nimble_worker;
GRANT UPDATE (at, state, job, load, message) ON nimble.heartbeat TO nimble_worker;
GRANT UPDATE (consumed_s) ON nimble.consumption TO nimble_worker;
GRANT UPDATE ON nimble.event_counter TO nimble_worker;

-- A planner does everything but change the schema and its history.
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA nimble TO nimble_planner;
REVOKE INSERT, UPDATE, DELETE ON nimble.migration, nimble.identity FROM nimble_planner;
)";

}  // namespace

std::string roles_sql() {
  return std::string(
             "-- Roles for a tuning database of nimble; see nimble db roles --help.\nBEGIN;\n") +
         kRoles + kGrants + "COMMIT;\n";
}

void renew_grants(Connection& db) {
  if (db.engine() != Engine::kPostgres) return;
  // Roles are the server's: what counts is whether they have rights in this database.
  if (db.integer("SELECT count(*) FROM pg_roles WHERE rolname IN "
                 "('nimble_reader', 'nimble_worker', 'nimble_planner')") < 3)
    return;
  if (db.integer("SELECT CAST(has_schema_privilege('nimble_reader', 'nimble', 'USAGE') OR "
                 "has_schema_privilege('nimble_worker', 'nimble', 'USAGE') OR "
                 "has_schema_privilege('nimble_planner', 'nimble', 'USAGE') AS int)") == 0)
    return;
  db.script(kGrants);
}

}  // namespace nimble::db
