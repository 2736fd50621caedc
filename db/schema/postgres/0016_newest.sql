-- The newest measurement of each comparable thing: what ../0016_newest.sql is for. Nobody writes the
-- table but the triggers, which run as its owner.
CREATE TABLE newest_measured (
  workload plain_text NOT NULL,
  hardware plain_text NOT NULL,
  policy plain_text NOT NULL,
  codegen_version bigint NOT NULL,
  config plain_text NOT NULL,
  shape plain_text NOT NULL,
  role plain_text NOT NULL,
  threads bigint NOT NULL,
  measurement plain_text NOT NULL,
  trial plain_text NOT NULL,
  campaign plain_text NOT NULL,
  artifact plain_text NOT NULL,
  host_state plain_text NOT NULL,
  round bigint NOT NULL,
  n bigint NOT NULL,
  median_ns double precision NOT NULL,
  mad_ns double precision NOT NULL,
  ci_low_ns double precision NOT NULL,
  ci_high_ns double precision NOT NULL,
  stop_reason plain_text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (workload, hardware, policy, codegen_version, config, shape, role, threads)
);

INSERT INTO newest_measured (workload, hardware, policy, codegen_version, config, shape, role,
  threads, measurement, trial, campaign, artifact, host_state, round, n, median_ns, mad_ns,
  ci_low_ns, ci_high_ns, stop_reason, created_at)
SELECT workload, hardware, policy, codegen_version, config, shape, role, threads, measurement,
       trial, campaign, artifact, host_state, round, n, median_ns, mad_ns, ci_low_ns, ci_high_ns,
       stop_reason, created_at
FROM current_measured;

-- One function for both: what came are measurements, or trials that are ok now. A plan is made once
-- for a connection, when the tables may have been empty: it goes by keys in any case.
CREATE FUNCTION note_newest_measured() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  INSERT INTO nimble.newest_measured AS newest (workload, hardware, policy, codegen_version, config,
    shape, role, threads, measurement, trial, campaign, artifact, host_state, round, n, median_ns,
    mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at)
  SELECT DISTINCT ON (r.workload, r.hardware, r.policy, r.codegen_version, r.config, r.shape, r.role,
                      r.threads)
         r.workload, r.hardware, r.policy, r.codegen_version, r.config, r.shape, r.role, r.threads,
         r.measurement, r.trial, r.campaign, r.artifact, r.host_state, r.round, r.n, r.median_ns,
         r.mad_ns, r.ci_low_ns, r.ci_high_ns, r.stop_reason, r.created_at
  FROM added JOIN nimble.measured r ON r.measurement = added.uuid
  ORDER BY r.workload, r.hardware, r.policy, r.codegen_version, r.config, r.shape, r.role,
           r.threads, r.created_at DESC, r.measurement
  ON CONFLICT (workload, hardware, policy, codegen_version, config, shape, role, threads)
  DO UPDATE SET
    measurement = excluded.measurement, trial = excluded.trial, campaign = excluded.campaign,
    artifact = excluded.artifact, host_state = excluded.host_state, round = excluded.round,
    n = excluded.n, median_ns = excluded.median_ns, mad_ns = excluded.mad_ns,
    ci_low_ns = excluded.ci_low_ns, ci_high_ns = excluded.ci_high_ns,
    stop_reason = excluded.stop_reason, created_at = excluded.created_at
  WHERE excluded.created_at > newest.created_at
     OR (excluded.created_at = newest.created_at AND excluded.measurement < newest.measurement);
  RETURN NULL;
END $$;
CREATE TRIGGER measurement_is_newest AFTER INSERT ON measurement
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION note_newest_measured();

-- What had been measured of a trial before it was ok: mostly nothing.
CREATE FUNCTION note_ok_trial() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT * FROM nimble.measurement m WHERE m.trial = NEW.uuid LOOP
    INSERT INTO nimble.newest_measured AS newest (workload, hardware, policy, codegen_version,
      config, shape, role, threads, measurement, trial, campaign, artifact, host_state, round, n,
      median_ns, mad_ns, ci_low_ns, ci_high_ns, stop_reason, created_at)
    SELECT v.workload, v.hardware, v.policy, v.codegen_version, v.config, v.shape, v.role, v.threads,
           v.measurement, v.trial, v.campaign, v.artifact, v.host_state, v.round, v.n, v.median_ns,
           v.mad_ns, v.ci_low_ns, v.ci_high_ns, v.stop_reason, v.created_at
    FROM nimble.measured v WHERE v.measurement = r.uuid
    ON CONFLICT (workload, hardware, policy, codegen_version, config, shape, role, threads)
    DO UPDATE SET
      measurement = excluded.measurement, trial = excluded.trial, campaign = excluded.campaign,
      artifact = excluded.artifact, host_state = excluded.host_state, round = excluded.round,
      n = excluded.n, median_ns = excluded.median_ns, mad_ns = excluded.mad_ns,
      ci_low_ns = excluded.ci_low_ns, ci_high_ns = excluded.ci_high_ns,
      stop_reason = excluded.stop_reason, created_at = excluded.created_at
    WHERE excluded.created_at > newest.created_at
       OR (excluded.created_at = newest.created_at AND excluded.measurement < newest.measurement);
  END LOOP;
  RETURN NULL;
END $$;
CREATE TRIGGER trial_is_newest AFTER UPDATE OF state ON trial FOR EACH ROW
WHEN (NEW.state = 'ok' AND OLD.state <> 'ok') EXECUTE FUNCTION note_ok_trial();
