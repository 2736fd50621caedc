-- What a program that shows trials sorts and filters by stands in their rows: the time that a trial
-- was finished with, and the hardware that took it. Further measurements of it change neither.
ALTER TABLE trial ADD COLUMN median_ns REAL CHECK (median_ns > 0 AND median_ns < 1e18);
ALTER TABLE trial ADD COLUMN measured_on TEXT REFERENCES hardware (hash);
DROP TRIGGER trial_is_final;
UPDATE trial SET
  median_ns = (SELECT m.median_ns FROM measurement m WHERE m.trial = trial.uuid
               ORDER BY m.created_at, m.uuid LIMIT 1),
  measured_on = (SELECT c.hardware FROM measurement m JOIN machine c ON c.uuid = m.machine
                 WHERE m.trial = trial.uuid ORDER BY m.created_at, m.uuid LIMIT 1)
WHERE state = 'ok';
CREATE TRIGGER trial_is_final BEFORE UPDATE ON trial
WHEN OLD.state NOT IN ('queued', 'claimed')
BEGIN SELECT RAISE(ABORT, 'a finished trial is final'); END;

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
