-- Who measures, and what is handed out. A job is one case on one hardware with the trials that are
-- timed in turn there; a worker holds it under a lease. Jobs, heartbeats and leases are of this
-- database alone: merging carries what came out, the reports, and never makes another database's
-- workers run anything.

-- One process on one machine.
CREATE TABLE worker (
  uuid         TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  machine      TEXT NOT NULL REFERENCES machine (uuid),
  name         TEXT NOT NULL,
  pid          INTEGER NOT NULL CHECK (pid >= 0),
  version      TEXT NOT NULL,                     -- of nimble
  capabilities TEXT NOT NULL CHECK (capabilities <> ''),  -- JSON
  trusted_keys TEXT NOT NULL CHECK (trusted_keys <> ''),  -- JSON: public keys that it runs code of
  started_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX worker_by_machine ON worker (machine);

-- The last sign of life of each worker.
CREATE TABLE heartbeat (
  worker  TEXT PRIMARY KEY REFERENCES worker (uuid),
  at      INTEGER NOT NULL,
  state   TEXT NOT NULL CHECK (state IN ('idle', 'measuring', 'paused', 'stopping', 'stopped')),
  job     TEXT,
  load    REAL NOT NULL CHECK (load >= 0),        -- runnable threads of others
  message TEXT NOT NULL                           -- for people: what it waits for, why it stopped
) STRICT;
CREATE INDEX heartbeat_by_time ON heartbeat (at);

CREATE TABLE job (
  uuid         TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  campaign     TEXT NOT NULL REFERENCES campaign (uuid),
  measure_case TEXT NOT NULL REFERENCES measure_case (hash),
  hardware     TEXT NOT NULL REFERENCES hardware (hash),
  machine      TEXT REFERENCES machine (uuid),    -- NULL: any of that hardware
  limits       TEXT NOT NULL CHECK (limits <> ''),  -- JSON: what one candidate may take
  priority     REAL NOT NULL,
  position     INTEGER NOT NULL CHECK (position >= 0),
  state        TEXT NOT NULL DEFAULT 'queued'
               CHECK (state IN ('queued', 'claimed', 'done', 'split', 'cancelled')),
  attempt      INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),  -- claims so far
  lost         INTEGER NOT NULL DEFAULT 0 CHECK (lost >= 0),  -- leases that ran out
  worker       TEXT REFERENCES worker (uuid),
  lease_until  INTEGER,
  avoid        TEXT REFERENCES machine (uuid),    -- where its lease ran out last
  parent       TEXT REFERENCES job (uuid),        -- the job that this is a part of
  created_at   INTEGER NOT NULL,
  claimed_at   INTEGER,
  finished_at  INTEGER,
  CHECK ((state = 'claimed') = (worker IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK ((state IN ('queued', 'claimed')) = (finished_at IS NULL))
) STRICT;
-- A claim reads what is open, however much is done.
CREATE INDEX job_queue ON job (campaign, hardware, priority DESC, position) WHERE state = 'queued';
CREATE INDEX job_lease ON job (lease_until) WHERE state = 'claimed';
CREATE INDEX job_held ON job (campaign, worker) WHERE state = 'claimed';
CREATE INDEX job_by_position ON job (campaign, position);
CREATE INDEX job_served ON job (campaign, claimed_at);
CREATE INDEX job_by_parent ON job (parent);

CREATE TABLE job_trial (
  job       TEXT NOT NULL REFERENCES job (uuid),
  ordinal   INTEGER NOT NULL CHECK (ordinal >= 0),
  trial     TEXT NOT NULL REFERENCES trial (uuid),
  artifact  TEXT NOT NULL REFERENCES artifact (hash),
  candidate TEXT REFERENCES blob (digest),        -- NULL: whoever claims it has the executable
  anchor    INTEGER NOT NULL CHECK (anchor IN (0, 1)),  -- timed with every case, finished or not
  PRIMARY KEY (job, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_trial_by_trial ON job_trial (trial);

-- What a worker told of a job. The worker makes the UUID, so telling it twice is telling it once.
CREATE TABLE job_report (
  uuid         TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  job          TEXT NOT NULL CHECK (length(job) = 36),
  campaign     TEXT NOT NULL REFERENCES campaign (uuid),
  measure_case TEXT NOT NULL REFERENCES measure_case (hash),
  worker       TEXT NOT NULL REFERENCES worker (uuid),
  host_state   TEXT NOT NULL REFERENCES host_state (uuid),
  attempt      INTEGER NOT NULL CHECK (attempt >= 0),
  consumed_s   REAL NOT NULL CHECK (consumed_s >= 0 AND consumed_s < 1e12),
  results      INTEGER NOT NULL CHECK (results >= 0),
  late         INTEGER NOT NULL CHECK (late IN (0, 1)),  -- the lease was no longer the worker's
  created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX job_report_by_campaign ON job_report (campaign, created_at);
CREATE INDEX job_report_by_worker ON job_report (worker, created_at);

CREATE TRIGGER job_is_final BEFORE UPDATE ON job WHEN OLD.state NOT IN ('queued', 'claimed')
BEGIN SELECT RAISE(ABORT, 'a finished job is final'); END;
CREATE TRIGGER job_keeps_key
BEFORE UPDATE OF uuid, campaign, measure_case, hardware, machine, limits, parent ON job
BEGIN SELECT RAISE(ABORT, 'the key of a job is final'); END;

CREATE TRIGGER worker_keeps_update BEFORE UPDATE ON worker
BEGIN SELECT RAISE(ABORT, 'worker is append-only'); END;
CREATE TRIGGER worker_keeps_delete BEFORE DELETE ON worker
BEGIN SELECT RAISE(ABORT, 'worker is append-only'); END;

CREATE TRIGGER job_report_keeps_update BEFORE UPDATE ON job_report
BEGIN SELECT RAISE(ABORT, 'job_report is append-only'); END;
CREATE TRIGGER job_report_keeps_delete BEFORE DELETE ON job_report
BEGIN SELECT RAISE(ABORT, 'job_report is append-only'); END;
