-- What other programs took where an experiment kept its medians and intervals but no single times,
-- and the share of a model's time that a task was told to have as a number of its own.

-- Nothing refers to the table.
CREATE TABLE peer_figure_next (
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
  n          INTEGER NOT NULL CHECK (n >= 0),
  ns         BLOB NOT NULL CHECK (length(ns) = 8 * n),
  median_ns  REAL NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  created_at INTEGER NOT NULL,
  -- At 95 %; NULL: not told.
  ci_low_ns  REAL CHECK (ci_low_ns > 0 AND ci_low_ns < 1e18),
  ci_high_ns REAL CHECK (ci_high_ns > 0 AND ci_high_ns < 1e18),
  CHECK (n > 0 OR (ci_low_ns IS NOT NULL AND ci_high_ns IS NOT NULL))
) STRICT;
INSERT INTO peer_figure_next (uuid, run, peer, version, settings, machine, subject, dims, dtype,
  threads, n, ns, median_ns, created_at)
SELECT uuid, run, peer, version, settings, machine, subject, dims, dtype, threads, n, ns, median_ns,
  created_at FROM peer_figure;
DROP TABLE peer_figure;
ALTER TABLE peer_figure_next RENAME TO peer_figure;
CREATE INDEX peer_figure_by_subject ON peer_figure (subject, dims);
CREATE INDEX peer_figure_by_run ON peer_figure (run);
CREATE TRIGGER peer_figure_keeps_update BEFORE UPDATE ON peer_figure
BEGIN SELECT RAISE(ABORT, 'peer_figure is append-only'); END;
CREATE TRIGGER peer_figure_keeps_delete BEFORE DELETE ON peer_figure
BEGIN SELECT RAISE(ABORT, 'peer_figure is append-only'); END;

-- NULL: not told with this phase. Until now it stood in the detail, which is any text.
ALTER TABLE task_event ADD COLUMN share REAL CHECK (share BETWEEN 0 AND 1);
DROP TRIGGER task_event_keeps_update;
UPDATE task_event SET share = json_extract(detail, '$.share')
WHERE CASE WHEN json_valid(detail) THEN json_type(detail) = 'object'
  AND json_type(detail, '$.share') IN ('integer', 'real')
  AND json_extract(detail, '$.share') BETWEEN 0 AND 1 ELSE 0 END;
CREATE TRIGGER task_event_keeps_update BEFORE UPDATE ON task_event
BEGIN SELECT RAISE(ABORT, 'task_event is append-only'); END;
