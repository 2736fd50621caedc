-- What lies behind a time, a failure and a prediction: how samples were taken, the second of two runs
-- of the same code, the code itself, what a failed process said, and what a model was learned from.

-- NULL: measured before this was kept.
ALTER TABLE measurement ADD COLUMN runs_per_sample INTEGER CHECK (runs_per_sample > 0);
-- How much the first candidate of the session had changed at its end: 0.02: 2 % slower.
ALTER TABLE measurement ADD COLUMN drift REAL CHECK (drift > -1 AND drift < 1e18);

-- Samples of the same code, timed in turn with those of the measurement as if it were another
-- candidate: how far the two lie apart is what the machine's noise looks like.
CREATE TABLE twin_samples (
  measurement TEXT PRIMARY KEY REFERENCES measurement (uuid),
  n           INTEGER NOT NULL CHECK (n > 0),
  ns          BLOB NOT NULL CHECK (length(ns) = 8 * n),
  median_ns   REAL NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX twin_samples_by_time ON twin_samples (created_at, measurement);

CREATE TABLE generated_code (
  code_hash  TEXT NOT NULL CHECK (code_hash <> ''),
  kind       TEXT NOT NULL CHECK (kind <> ''),    -- 'kernel-ir', 'llvm-ir', 'assembly', 'cuda', …
  digest     TEXT NOT NULL REFERENCES blob (digest),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (code_hash, kind)
) STRICT;

CREATE TABLE failure_log (
  uuid        TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  trial       TEXT NOT NULL REFERENCES trial (uuid),
  attempt     INTEGER NOT NULL CHECK (attempt >= 0),
  worker      TEXT REFERENCES worker (uuid),      -- NULL: the program that tuned
  error_class TEXT NOT NULL CHECK (error_class <> ''),
  message     TEXT NOT NULL,
  output      BLOB NOT NULL,                      -- what the process wrote to stderr
  command     TEXT NOT NULL,                      -- reproduces it; '' if nothing does
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX failure_log_by_trial ON failure_log (trial, attempt);
CREATE INDEX failure_log_by_class ON failure_log (error_class, created_at);

-- What a model predicts from, and in which unit. NULL: from before models were kept to predict.
ALTER TABLE cost_model ADD COLUMN feature_version INTEGER CHECK (feature_version > 0);
ALTER TABLE cost_model ADD COLUMN scale REAL CHECK (scale > 0 AND scale < 1e18);
ALTER TABLE cost_model ADD COLUMN digest TEXT;    -- of `model`: what is signed

-- What a machine can do at most, as it was measured.
CREATE TABLE ceiling (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  machine    TEXT NOT NULL REFERENCES machine (uuid),
  dtype      TEXT NOT NULL,                       -- '' where it makes no difference
  threads    INTEGER NOT NULL CHECK (threads > 0),
  kind       TEXT NOT NULL CHECK (kind <> ''),    -- 'compute', 'memory', 'L2', …
  value      REAL NOT NULL CHECK (value > 0 AND value < 1e24),  -- operations or bytes a second
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX ceiling_by_machine ON ceiling (machine, created_at);

-- What another program took for the same, as an experiment measured it. Figures are compared within
-- one run only.
CREATE TABLE peer_figure (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  run        TEXT NOT NULL CHECK (length(run) = 36),
  peer       TEXT NOT NULL CHECK (peer <> ''),
  version    TEXT NOT NULL,
  settings   TEXT NOT NULL CHECK (settings <> ''),  -- JSON
  machine    TEXT NOT NULL REFERENCES machine (uuid),
  subject    TEXT NOT NULL CHECK (subject <> ''), -- a model, or a workload's canonical text
  dims       TEXT NOT NULL,
  dtype      TEXT NOT NULL,
  threads    INTEGER NOT NULL CHECK (threads > 0),
  n          INTEGER NOT NULL CHECK (n > 0),
  ns         BLOB NOT NULL CHECK (length(ns) = 8 * n),
  median_ns  REAL NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX peer_figure_by_subject ON peer_figure (subject, dims);
CREATE INDEX peer_figure_by_run ON peer_figure (run);

-- How often production saw a shape: a counter per replica, as of dispatch_miss, that only grows.
CREATE TABLE shape_count (
  replica  TEXT NOT NULL CHECK (length(replica) = 36),
  workload TEXT NOT NULL REFERENCES workload (hash),
  hardware TEXT NOT NULL REFERENCES hardware (hash),
  dims     TEXT NOT NULL,
  count    INTEGER NOT NULL CHECK (count > 0),
  PRIMARY KEY (replica, workload, hardware, dims)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER shape_count_grows BEFORE UPDATE ON shape_count WHEN NEW.count < OLD.count
BEGIN SELECT RAISE(ABORT, 'a shape counter never shrinks'); END;

CREATE TRIGGER twin_samples_keeps_update BEFORE UPDATE ON twin_samples
BEGIN SELECT RAISE(ABORT, 'twin_samples is append-only'); END;
CREATE TRIGGER twin_samples_keeps_delete BEFORE DELETE ON twin_samples
BEGIN SELECT RAISE(ABORT, 'twin_samples is append-only'); END;

CREATE TRIGGER generated_code_keeps_update BEFORE UPDATE ON generated_code
BEGIN SELECT RAISE(ABORT, 'generated_code is append-only'); END;
CREATE TRIGGER generated_code_keeps_delete BEFORE DELETE ON generated_code
BEGIN SELECT RAISE(ABORT, 'generated_code is append-only'); END;

CREATE TRIGGER failure_log_keeps_update BEFORE UPDATE ON failure_log
BEGIN SELECT RAISE(ABORT, 'failure_log is append-only'); END;
CREATE TRIGGER failure_log_keeps_delete BEFORE DELETE ON failure_log
BEGIN SELECT RAISE(ABORT, 'failure_log is append-only'); END;

CREATE TRIGGER ceiling_keeps_update BEFORE UPDATE ON ceiling
BEGIN SELECT RAISE(ABORT, 'ceiling is append-only'); END;
CREATE TRIGGER ceiling_keeps_delete BEFORE DELETE ON ceiling
BEGIN SELECT RAISE(ABORT, 'ceiling is append-only'); END;

CREATE TRIGGER peer_figure_keeps_update BEFORE UPDATE ON peer_figure
BEGIN SELECT RAISE(ABORT, 'peer_figure is append-only'); END;
CREATE TRIGGER peer_figure_keeps_delete BEFORE DELETE ON peer_figure
BEGIN SELECT RAISE(ABORT, 'peer_figure is append-only'); END;
