-- Trials in the orders in which they are shown: what ../0014_reading.sql is for.
ALTER TABLE trial ADD COLUMN median_ns double precision
  CHECK (median_ns > 0 AND median_ns < 1e18);
ALTER TABLE trial ADD COLUMN measured_on plain_text REFERENCES hardware (hash) DEFERRABLE;
ALTER TABLE trial DISABLE TRIGGER trial_is_final;
UPDATE trial SET
  median_ns = (SELECT m.median_ns FROM measurement m WHERE m.trial = trial.uuid
               ORDER BY m.created_at, m.uuid LIMIT 1),
  measured_on = (SELECT c.hardware FROM measurement m JOIN machine c ON c.uuid = m.machine
                 WHERE m.trial = trial.uuid ORDER BY m.created_at, m.uuid LIMIT 1)
WHERE state = 'ok';
ALTER TABLE trial ENABLE TRIGGER trial_is_final;

-- One index for each order in which trials are shown, of all, of a campaign, of a workload on one
-- hardware: a page is read from where the last one ended, however many there are.
CREATE INDEX trial_by_end ON trial (finished_at, uuid) WHERE finished_at IS NOT NULL;
CREATE INDEX trial_by_time ON trial (median_ns, uuid) WHERE median_ns IS NOT NULL;
CREATE INDEX trial_of_campaign_by_end ON trial (campaign, finished_at, uuid)
WHERE finished_at IS NOT NULL;
CREATE INDEX trial_of_campaign_by_time ON trial (campaign, median_ns, uuid)
WHERE median_ns IS NOT NULL;
CREATE INDEX trial_of_workload_by_end ON trial (workload, measured_on, finished_at, uuid)
WHERE finished_at IS NOT NULL;
CREATE INDEX trial_of_workload_by_time ON trial (workload, measured_on, median_ns, uuid)
WHERE median_ns IS NOT NULL;
CREATE INDEX trial_failed ON trial (finished_at, uuid)
WHERE state IN ('wrong', 'crashed', 'timeout', 'compile_failed');
CREATE INDEX trial_of_campaign_failed ON trial (campaign, finished_at, uuid)
WHERE state IN ('wrong', 'crashed', 'timeout', 'compile_failed');
-- What was timed side by side.
CREATE INDEX measurement_by_session ON measurement (host_state);
CREATE INDEX campaign_by_age ON campaign (created_at, uuid);
CREATE INDEX workload_by_text ON workload (canonical, hash);
