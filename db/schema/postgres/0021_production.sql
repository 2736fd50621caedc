-- Figures without single times, and shares of tasks: what ../0021_production.sql is for.
ALTER TABLE peer_figure ADD COLUMN ci_low_ns double precision
  CHECK (ci_low_ns > 0 AND ci_low_ns < 1e18);
ALTER TABLE peer_figure ADD COLUMN ci_high_ns double precision
  CHECK (ci_high_ns > 0 AND ci_high_ns < 1e18);
ALTER TABLE peer_figure DROP CONSTRAINT peer_figure_n_check;
ALTER TABLE peer_figure ADD CONSTRAINT peer_figure_n_check CHECK (n >= 0);
ALTER TABLE peer_figure ADD CONSTRAINT peer_figure_told_check
  CHECK (n > 0 OR (ci_low_ns IS NOT NULL AND ci_high_ns IS NOT NULL));

ALTER TABLE task_event ADD COLUMN share double precision CHECK (share BETWEEN 0 AND 1);
ALTER TABLE task_event DISABLE TRIGGER task_event_keeps;
-- As the service wrote it. Text that only looks like it is none of the service's.
UPDATE task_event SET share = told.share FROM (
  SELECT uuid,
    CAST(substring(detail FROM '"share":([0-9]{1,3}(?:\.[0-9]{1,30})?(?:[eE]-?[0-9]{1,2})?)[,}]')
      AS double precision) AS share
  FROM task_event WHERE detail LIKE '{%}') AS told
WHERE told.uuid = task_event.uuid AND told.share BETWEEN 0 AND 1;
ALTER TABLE task_event ENABLE TRIGGER task_event_keeps;
