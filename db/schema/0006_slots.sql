-- Records that serve the right machine, and are found by it.
--
-- The slot of a dispatch table, in which one table is active, gains what its times depend on: the
-- class of measuring policy, the compiler's version and its flags. An override is no longer an entry
-- of a table: it is laid over whichever table is active, until it is withdrawn. And who became active
-- is decided by what an event knew of, not by the time of day alone.

-- Whoever measured names the class (tuner/measure); '': measured before classes had names.
ALTER TABLE measure_policy ADD COLUMN class TEXT NOT NULL DEFAULT '';

-- A person's word: these shapes use this configuration.
CREATE TABLE dispatch_override (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  workload   TEXT NOT NULL REFERENCES workload (hash),
  hardware   TEXT NOT NULL REFERENCES hardware (hash),
  region     TEXT NOT NULL CHECK (region <> ''),  -- JSON: feature -> [first, last], last null: open
  config     TEXT NOT NULL REFERENCES config (hash),
  evidence   TEXT REFERENCES measurement (uuid),  -- tells the code that the configuration stood for
  reason     TEXT NOT NULL CHECK (reason <> ''),
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX dispatch_override_by_workload ON dispatch_override (workload, hardware);

CREATE TABLE dispatch_withdrawal (
  uuid              TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  dispatch_override TEXT NOT NULL REFERENCES dispatch_override (uuid),
  reason            TEXT NOT NULL CHECK (reason <> ''),
  created_at        INTEGER NOT NULL
) STRICT;
CREATE INDEX dispatch_withdrawal_by_override ON dispatch_withdrawal (dispatch_override);

-- Overrides that are entries of an active table go on as what they are. The identifier follows from
-- the entry's, so that two copies of one database make the same.
INSERT INTO dispatch_override (uuid, workload, hardware, region, config, evidence, reason, created_at)
SELECT substr(e.dispatch_table, 1, 14) || '8' || substr(e.dispatch_table, 16, 17)
         || printf('%04x', e.ordinal),
       s.workload, s.hardware, e.range, e.config, e.evidence, e.reason, d.created_at
FROM dispatch_entry e
JOIN dispatch_status s ON s.uuid = e.dispatch_table
JOIN dispatch_table d ON d.uuid = e.dispatch_table
WHERE s.status = 'active' AND e.is_override = 1 AND e.ordinal < 65536;

-- What a table was compared with before it displaced that: times of both taken in turn, in one
-- session, at every shape. rival NULL: the templates' default schedules.
CREATE TABLE dispatch_comparison (
  uuid           TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  dispatch_table TEXT NOT NULL REFERENCES dispatch_table (uuid),
  rival          TEXT REFERENCES dispatch_table (uuid),
  shapes         INTEGER NOT NULL CHECK (shapes > 0),
  ratio          REAL NOT NULL CHECK (ratio > 0 AND ratio < 1e18),  -- its time over the rival's
  worst_ratio    REAL NOT NULL CHECK (worst_ratio >= ratio AND worst_ratio < 1e18),
  created_at     INTEGER NOT NULL,
  CHECK (rival IS NOT dispatch_table)
) STRICT;
CREATE INDEX dispatch_comparison_by_table ON dispatch_comparison (dispatch_table);

-- The events that an event knew of and replaces. A time of day that is wrong, be it the largest of
-- all numbers, can then not hold a slot against what came after it.
CREATE TABLE dispatch_replaced (
  replaced TEXT NOT NULL REFERENCES dispatch_event (uuid),
  event    TEXT NOT NULL REFERENCES dispatch_event (uuid),
  PRIMARY KEY (replaced, event),
  CHECK (replaced <> event)
) STRICT, WITHOUT ROWID;

CREATE VIEW dispatch_slot AS
SELECT d.uuid, d.workload, d.hardware, d.toolchain, d.policy, p.mode, p.class AS policy_class,
       tc.compiler, tc.version AS compiler_version, tc.flags, tc.codegen_version
FROM dispatch_table d
JOIN measure_policy p ON p.hash = d.policy
JOIN toolchain tc ON tc.hash = d.toolchain;

-- The present status of each dispatch table. In a slot (workload, hardware, class of policy, code
-- generator, compiler, its version and flags) the table activated last is active, unless it was
-- retired later still; an event that another one replaces does not count.
DROP VIEW dispatch_status;
CREATE VIEW dispatch_status AS
WITH last_event AS (
  SELECT * FROM (
    SELECT dispatch_table, status, created_at, uuid AS event, row_number() OVER (
      PARTITION BY dispatch_table ORDER BY created_at DESC, uuid) AS newest
    FROM dispatch_event e
    WHERE NOT EXISTS (SELECT 1 FROM dispatch_replaced r WHERE r.replaced = e.uuid))
  WHERE newest = 1),
ranked AS (
  SELECT d.*, e.status AS said, e.created_at AS since,
         row_number() OVER (
           PARTITION BY d.workload, d.hardware, d.mode, d.policy_class, d.codegen_version,
                        d.compiler, d.compiler_version, d.flags, e.status IS 'active'
           ORDER BY e.created_at DESC, e.event) AS place
  FROM dispatch_slot d
  LEFT JOIN last_event e ON e.dispatch_table = d.uuid)
SELECT uuid, workload, hardware, toolchain, policy, mode, policy_class, compiler, compiler_version,
       flags, codegen_version, since,
       CASE WHEN said = 'active' AND place = 1 THEN 'active'
            WHEN EXISTS (SELECT 1 FROM dispatch_event h WHERE h.dispatch_table = ranked.uuid)
            THEN 'retired'
            ELSE 'draft' END AS status
FROM ranked;

-- As before, with the host state: what was timed side by side has one in common.
DROP VIEW current_measured;
DROP VIEW measured;
CREATE VIEW measured AS
SELECT m.uuid AS measurement, m.trial, t.campaign, t.workload, t.shape, t.config, t.role, t.threads,
       t.round, mc.hardware, m.machine, m.host_state, m.policy, a.hash AS artifact, a.code_hash,
       a.toolchain, tc.codegen_version, m.n, m.median_ns, m.mad_ns, m.ci_low_ns, m.ci_high_ns,
       m.stop_reason, m.created_at
FROM trial t
JOIN measurement m ON m.trial = t.uuid
JOIN machine mc ON mc.uuid = m.machine
JOIN artifact a ON a.hash = m.artifact
JOIN toolchain tc ON tc.hash = a.toolchain
WHERE t.state = 'ok';
CREATE VIEW current_measured AS
SELECT * FROM (
  SELECT *, row_number() OVER (
    PARTITION BY workload, hardware, policy, codegen_version, shape, role, threads, config
    ORDER BY created_at DESC, measurement) AS newest
  FROM measured)
WHERE newest = 1;

CREATE TRIGGER dispatch_override_keeps_update BEFORE UPDATE ON dispatch_override
BEGIN SELECT RAISE(ABORT, 'dispatch_override is append-only'); END;
CREATE TRIGGER dispatch_override_keeps_delete BEFORE DELETE ON dispatch_override
BEGIN SELECT RAISE(ABORT, 'dispatch_override is append-only'); END;

CREATE TRIGGER dispatch_withdrawal_keeps_update BEFORE UPDATE ON dispatch_withdrawal
BEGIN SELECT RAISE(ABORT, 'dispatch_withdrawal is append-only'); END;
CREATE TRIGGER dispatch_withdrawal_keeps_delete BEFORE DELETE ON dispatch_withdrawal
BEGIN SELECT RAISE(ABORT, 'dispatch_withdrawal is append-only'); END;

CREATE TRIGGER dispatch_comparison_keeps_update BEFORE UPDATE ON dispatch_comparison
BEGIN SELECT RAISE(ABORT, 'dispatch_comparison is append-only'); END;
CREATE TRIGGER dispatch_comparison_keeps_delete BEFORE DELETE ON dispatch_comparison
BEGIN SELECT RAISE(ABORT, 'dispatch_comparison is append-only'); END;

CREATE TRIGGER dispatch_replaced_keeps_update BEFORE UPDATE ON dispatch_replaced
BEGIN SELECT RAISE(ABORT, 'dispatch_replaced is append-only'); END;
CREATE TRIGGER dispatch_replaced_keeps_delete BEFORE DELETE ON dispatch_replaced
BEGIN SELECT RAISE(ABORT, 'dispatch_replaced is append-only'); END;
