-- The newest measurement of each comparable thing (current_measured), kept beside the facts: what
-- was measured of a workload on one kind of hardware is then one range of rows, however many others
-- there are. Triggers derive it as measurements come; `check` compares it with the view.
CREATE TABLE newest_measured (
  workload        TEXT NOT NULL,
  hardware        TEXT NOT NULL,
  policy          TEXT NOT NULL,
  codegen_version INTEGER NOT NULL,
  config          TEXT NOT NULL,
  shape           TEXT NOT NULL,
  role            TEXT NOT NULL,
  threads         INTEGER NOT NULL,
  measurement     TEXT NOT NULL,
  trial           TEXT NOT NULL,
  campaign        TEXT NOT NULL,
  artifact        TEXT NOT NULL,
  host_state      TEXT NOT NULL,
  round           INTEGER NOT NULL,
  n               INTEGER NOT NULL,
  median_ns       REAL NOT NULL,
  mad_ns          REAL NOT NULL,
  ci_low_ns       REAL NOT NULL,
  ci_high_ns      REAL NOT NULL,
  stop_reason     TEXT NOT NULL,
  created_at      INTEGER NOT NULL,
  PRIMARY KEY (workload, hardware, policy, codegen_version, config, shape, role, threads)
) STRICT, WITHOUT ROWID;

INSERT INTO newest_measured (workload, hardware, policy, codegen_version, config, shape, role,
  threads, measurement, trial, campaign, artifact, host_state, round, n, median_ns, mad_ns,
  ci_low_ns, ci_high_ns, stop_reason, created_at)
SELECT workload, hardware, policy, codegen_version, config, shape, role, threads, measurement,
       trial, campaign, artifact, host_state, round, n, median_ns, mad_ns, ci_low_ns, ci_high_ns,
       stop_reason, created_at
FROM current_measured;

CREATE TRIGGER measurement_is_newest AFTER INSERT ON measurement
BEGIN
  INSERT INTO newest_measured (workload, hardware, policy, codegen_version, config, shape, role,
    threads, measurement, trial, campaign, artifact, host_state, round, n, median_ns, mad_ns,
    ci_low_ns, ci_high_ns, stop_reason, created_at)
  SELECT workload, hardware, policy, codegen_version, config, shape, role, threads, measurement,
         trial, campaign, artifact, host_state, round, n, median_ns, mad_ns, ci_low_ns, ci_high_ns,
         stop_reason, created_at
  FROM measured WHERE measurement = NEW.uuid
  ON CONFLICT (workload, hardware, policy, codegen_version, config, shape, role, threads)
  DO UPDATE SET
    measurement = excluded.measurement, trial = excluded.trial, campaign = excluded.campaign,
    artifact = excluded.artifact, host_state = excluded.host_state, round = excluded.round,
    n = excluded.n, median_ns = excluded.median_ns, mad_ns = excluded.mad_ns,
    ci_low_ns = excluded.ci_low_ns, ci_high_ns = excluded.ci_high_ns,
    stop_reason = excluded.stop_reason, created_at = excluded.created_at
  WHERE excluded.created_at > newest_measured.created_at
     OR (excluded.created_at = newest_measured.created_at
         AND excluded.measurement < newest_measured.measurement);
END;
-- What had been measured of a trial before it was ok.
CREATE TRIGGER trial_is_newest AFTER UPDATE OF state ON trial
WHEN NEW.state = 'ok' AND OLD.state <> 'ok'
BEGIN
  INSERT INTO newest_measured (workload, hardware, policy, codegen_version, config, shape, role,
    threads, measurement, trial, campaign, artifact, host_state, round, n, median_ns, mad_ns,
    ci_low_ns, ci_high_ns, stop_reason, created_at)
  SELECT workload, hardware, policy, codegen_version, config, shape, role, threads, measurement,
         trial, campaign, artifact, host_state, round, n, median_ns, mad_ns, ci_low_ns, ci_high_ns,
         stop_reason, created_at
  FROM measured WHERE trial = NEW.uuid
  ON CONFLICT (workload, hardware, policy, codegen_version, config, shape, role, threads)
  DO UPDATE SET
    measurement = excluded.measurement, trial = excluded.trial, campaign = excluded.campaign,
    artifact = excluded.artifact, host_state = excluded.host_state, round = excluded.round,
    n = excluded.n, median_ns = excluded.median_ns, mad_ns = excluded.mad_ns,
    ci_low_ns = excluded.ci_low_ns, ci_high_ns = excluded.ci_high_ns,
    stop_reason = excluded.stop_reason, created_at = excluded.created_at
  WHERE excluded.created_at > newest_measured.created_at
     OR (excluded.created_at = newest_measured.created_at
         AND excluded.measurement < newest_measured.measurement);
END;
