-- What was tried: campaigns, their trials, and every raw sample.
--
-- Only campaign and trial have columns that change, and those only move forward: a campaign's
-- consumed time grows, a trial goes queued -> claimed -> one final state. So merging a later copy
-- into an earlier one needs no judgement.

CREATE TABLE campaign (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  digest     TEXT NOT NULL CHECK (digest <> ''),  -- of the models and workloads to be tuned
  hardware   TEXT NOT NULL REFERENCES hardware (hash),
  seed       INTEGER NOT NULL,
  options    TEXT NOT NULL CHECK (options <> ''),
  command    TEXT NOT NULL,                       -- the command line that reproduces it
  budget_s   REAL NOT NULL CHECK (budget_s > 0 AND budget_s < 1e12),
  consumed_s REAL NOT NULL DEFAULT 0 CHECK (consumed_s >= 0 AND consumed_s < 1e12),
  state      TEXT NOT NULL DEFAULT 'running'
             CHECK (state IN ('running', 'paused', 'interrupted', 'finished', 'failed')),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX campaign_by_key ON campaign (digest, hardware, seed);

CREATE TABLE cost_model (
  uuid             TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  campaign         TEXT NOT NULL REFERENCES campaign (uuid),
  workload         TEXT NOT NULL REFERENCES workload (hash),
  round            INTEGER NOT NULL CHECK (round >= 0),
  model            BLOB NOT NULL,
  rank_correlation REAL CHECK (rank_correlation BETWEEN -1 AND 1),  -- NULL: too few points
  created_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX cost_model_by_campaign ON cost_model (campaign, workload, round);

-- The UUID is derived from the unique key below, so a trial has one UUID in every database.
CREATE TABLE trial (
  uuid         TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  campaign     TEXT NOT NULL REFERENCES campaign (uuid),
  workload     TEXT NOT NULL REFERENCES workload (hash),
  config       TEXT NOT NULL REFERENCES config (hash),
  shape        TEXT NOT NULL REFERENCES shape (hash),
  role         TEXT NOT NULL CHECK (role IN ('search', 'cross', 'verify', 'baseline')),
  threads      INTEGER NOT NULL CHECK (threads > 0),
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
  UNIQUE (campaign, workload, config, shape, role, threads),
  CHECK ((state = 'claimed') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK ((state IN ('queued', 'claimed')) = (finished_at IS NULL))
) STRICT;
CREATE INDEX trial_queue ON trial (campaign, state, priority DESC);
CREATE INDEX trial_by_workload ON trial (workload, shape, role, state);

CREATE TABLE measurement (
  uuid        TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  trial       TEXT NOT NULL REFERENCES trial (uuid),
  artifact    TEXT NOT NULL REFERENCES artifact (hash),
  policy      TEXT NOT NULL REFERENCES measure_policy (hash),
  machine     TEXT NOT NULL REFERENCES machine (uuid),
  host_state  TEXT NOT NULL REFERENCES host_state (uuid),
  n           INTEGER NOT NULL CHECK (n > 0),
  median_ns   REAL NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  mad_ns      REAL NOT NULL CHECK (mad_ns >= 0 AND mad_ns < 1e18),
  ci_low_ns   REAL NOT NULL CHECK (ci_low_ns > 0 AND ci_low_ns <= median_ns),
  ci_high_ns  REAL NOT NULL CHECK (ci_high_ns >= median_ns AND ci_high_ns < 1e18),
  stop_reason TEXT NOT NULL,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX measurement_by_trial ON measurement (trial);

-- Every raw sample: n little-endian doubles in ns, and beside them one byte each, 1 = outlier.
-- Outliers are flagged, never deleted.
CREATE TABLE samples (
  measurement TEXT PRIMARY KEY REFERENCES measurement (uuid),
  n           INTEGER NOT NULL CHECK (n > 0),
  ns          BLOB NOT NULL CHECK (length(ns) = 8 * n),
  outlier     BLOB NOT NULL CHECK (length(outlier) = n)
) STRICT;

CREATE TABLE correctness (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  artifact   TEXT NOT NULL REFERENCES artifact (hash),
  shape      TEXT NOT NULL REFERENCES shape (hash),
  max_error  REAL CHECK (max_error >= 0),         -- NULL: NaN where a number was due
  tolerance  REAL NOT NULL CHECK (tolerance >= 0),
  pass       INTEGER NOT NULL CHECK (pass IN (0, 1)),
  created_at INTEGER NOT NULL,
  CHECK (pass = 0 OR max_error <= tolerance),
  CHECK (pass = 0 OR max_error IS NOT NULL)
) STRICT;
CREATE INDEX correctness_by_artifact ON correctness (artifact, shape);
