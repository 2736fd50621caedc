-- What is measured, as others than the program that tunes can measure it: executables and expected
-- results by content, the case (one workload, shape and policy with its data), and trials that say
-- for which hardware and under which policy they are, so that one campaign runs on many machines.

-- Bytes by content. The digest is BLAKE2b-256 of what they unpack to: it is what is signed.
CREATE TABLE blob (
  digest   TEXT PRIMARY KEY CHECK (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*'),
  size     INTEGER NOT NULL CHECK (size >= 0),    -- unpacked
  encoding TEXT NOT NULL CHECK (encoding IN ('raw', 'zstd', 'removed')),
  bytes    BLOB NOT NULL,
  CHECK (encoding <> 'removed' OR length(bytes) = 0)
) STRICT;
-- To save room the bytes may go, and come back; what they were stays.
CREATE TRIGGER blob_keeps_update BEFORE UPDATE ON blob
WHEN NEW.digest <> OLD.digest OR NEW.size <> OLD.size
     OR (NEW.encoding <> 'removed' AND OLD.encoding <> 'removed')
BEGIN SELECT RAISE(ABORT, 'blob is append-only'); END;
CREATE TRIGGER blob_keeps_delete BEFORE DELETE ON blob
BEGIN SELECT RAISE(ABORT, 'blob is append-only'); END;

-- An executable file with one kernel, as a worker runs it.
CREATE TABLE candidate (
  artifact   TEXT NOT NULL REFERENCES artifact (hash),
  digest     TEXT NOT NULL REFERENCES blob (digest),
  target     TEXT NOT NULL CHECK (target <> ''),  -- what its machine code may use
  created_at INTEGER NOT NULL,
  PRIMARY KEY (artifact, digest)
) STRICT;
CREATE INDEX candidate_by_digest ON candidate (digest);
CREATE INDEX artifact_by_code ON artifact (code_hash);

-- What every candidate of a case gets and must compute.
CREATE TABLE measure_case (
  hash      TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  workload  TEXT NOT NULL REFERENCES workload (hash),
  shape     TEXT NOT NULL REFERENCES shape (hash),
  policy    TEXT NOT NULL REFERENCES measure_policy (hash),
  seed      INTEGER NOT NULL,                     -- of the data
  fills     TEXT NOT NULL CHECK (fills <> ''),    -- JSON: how each operand is filled
  tolerance REAL NOT NULL CHECK (tolerance >= 0 AND tolerance < 1e18),
  expected  TEXT REFERENCES blob (digest)         -- NULL: the first candidate's result stands for it
) STRICT;
CREATE INDEX measure_case_by_shape ON measure_case (shape);

-- The time that a campaign took of each machine. Each only grows.
CREATE TABLE consumption (
  campaign   TEXT NOT NULL REFERENCES campaign (uuid),
  machine    TEXT NOT NULL REFERENCES machine (uuid),
  consumed_s REAL NOT NULL CHECK (consumed_s >= 0 AND consumed_s < 1e12),
  PRIMARY KEY (campaign, machine)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER consumption_grows BEFORE UPDATE ON consumption WHEN NEW.consumed_s < OLD.consumed_s
BEGIN SELECT RAISE(ABORT, 'the consumed time of a machine never shrinks'); END;
CREATE TRIGGER consumption_keeps_delete BEFORE DELETE ON consumption
BEGIN SELECT RAISE(ABORT, 'consumption is append-only'); END;

-- A trial's key gains the hardware and the policy; NULL: the campaign's, as in every older trial,
-- whose UUID stays. The UUID is the key, so the old UNIQUE, which knows of neither, goes; SQLite
-- can only make the table anew for that. Rows of other tables that refer to trials are counted as
-- broken when the old table goes and as mended when its rows are back.
PRAGMA defer_foreign_keys = ON;
CREATE TABLE trial_copy AS SELECT * FROM trial;
DROP TABLE trial;
CREATE TABLE trial (
  uuid         TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  campaign     TEXT NOT NULL REFERENCES campaign (uuid),
  workload     TEXT NOT NULL REFERENCES workload (hash),
  config       TEXT NOT NULL REFERENCES config (hash),
  shape        TEXT NOT NULL REFERENCES shape (hash),
  role         TEXT NOT NULL CHECK (role IN ('search', 'cross', 'verify', 'baseline')),
  threads      INTEGER NOT NULL CHECK (threads > 0),
  hardware     TEXT REFERENCES hardware (hash),
  policy       TEXT REFERENCES measure_policy (hash),
  round        INTEGER NOT NULL CHECK (round >= 0),
  priority     REAL NOT NULL,
  predicted_ns REAL CHECK (predicted_ns > 0 AND predicted_ns < 1e18),
  state        TEXT NOT NULL DEFAULT 'queued' CHECK (state IN
               ('queued', 'claimed', 'ok', 'wrong', 'crashed', 'timeout', 'compile_failed')),
  attempt      INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  lease_owner  TEXT,
  lease_until  INTEGER,
  error_class  TEXT NOT NULL DEFAULT '',
  message      TEXT NOT NULL DEFAULT '',
  created_at   INTEGER NOT NULL,
  finished_at  INTEGER,
  position     INTEGER NOT NULL DEFAULT 0 CHECK (position >= 0),
  CHECK ((state = 'claimed') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK ((state IN ('queued', 'claimed')) = (finished_at IS NULL))
) STRICT;
INSERT INTO trial (uuid, campaign, workload, config, shape, role, threads, round, priority,
                   predicted_ns, state, attempt, lease_owner, lease_until, error_class, message,
                   created_at, finished_at, position)
SELECT uuid, campaign, workload, config, shape, role, threads, round, priority,
       predicted_ns, state, attempt, lease_owner, lease_until, error_class, message,
       created_at, finished_at, position FROM trial_copy;
DROP TABLE trial_copy;
CREATE INDEX trial_by_workload ON trial (workload, shape, role, state);
CREATE INDEX trial_queue ON trial (campaign, state, priority DESC, position);
CREATE INDEX trial_lease ON trial (campaign, lease_until) WHERE state = 'claimed';
CREATE INDEX trial_by_position ON trial (campaign, position);
CREATE TRIGGER trial_is_final BEFORE UPDATE ON trial
WHEN OLD.state NOT IN ('queued', 'claimed')
BEGIN SELECT RAISE(ABORT, 'a finished trial is final'); END;
CREATE TRIGGER trial_keeps_key
BEFORE UPDATE OF uuid, campaign, workload, config, shape, role, threads, hardware, policy ON trial
BEGIN SELECT RAISE(ABORT, 'the key of a trial is final'); END;
CREATE TRIGGER trial_keeps_delete BEFORE DELETE ON trial
BEGIN SELECT RAISE(ABORT, 'trial is append-only'); END;

CREATE TRIGGER candidate_keeps_update BEFORE UPDATE ON candidate
BEGIN SELECT RAISE(ABORT, 'candidate is append-only'); END;
CREATE TRIGGER candidate_keeps_delete BEFORE DELETE ON candidate
BEGIN SELECT RAISE(ABORT, 'candidate is append-only'); END;

CREATE TRIGGER measure_case_keeps_update BEFORE UPDATE ON measure_case
BEGIN SELECT RAISE(ABORT, 'measure_case is append-only'); END;
CREATE TRIGGER measure_case_keeps_delete BEFORE DELETE ON measure_case
BEGIN SELECT RAISE(ABORT, 'measure_case is append-only'); END;
