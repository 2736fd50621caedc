-- Facts of a worker's that would stop others for good, since nobody can take them back: no export
-- of a database takes a number that is none, no import one whose rows do not belong together, and a
-- time of the future stays the newest. What is there already stays.
ALTER TABLE host_state ADD CONSTRAINT host_state_is_a_number CHECK (load < 'Infinity') NOT VALID;
ALTER TABLE heartbeat ADD CONSTRAINT heartbeat_is_a_number CHECK (load < 'Infinity') NOT VALID;
ALTER TABLE correctness ADD CONSTRAINT correctness_is_a_number
  CHECK (max_error <= 'Infinity' AND tolerance < 'Infinity') NOT VALID;

-- Looked at when the transaction ends: a trial, its measurement and the samples come one by one.
-- Who may make campaigns may do all the same by other ways, and imports are judged as a whole.
CREATE FUNCTION measurement_is_sound() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF has_table_privilege('nimble.campaign', 'INSERT') THEN
    RETURN NULL;
  END IF;
  IF NEW.created_at > (extract(epoch FROM clock_timestamp()) + 86400) * 1000 THEN
    RAISE EXCEPTION 'a measurement is of the future';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM nimble.samples s WHERE s.measurement = NEW.uuid AND s.n = NEW.n)
  THEN
    RAISE EXCEPTION 'a measurement has not as many samples as it says';
  END IF;
  IF NOT EXISTS (SELECT 1 FROM nimble.trial t JOIN nimble.artifact a ON a.hash = NEW.artifact
                 WHERE t.uuid = NEW.trial AND a.workload = t.workload AND a.config = t.config) THEN
    RAISE EXCEPTION 'a measurement is of another configuration than its trial';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER measurement_is_sound AFTER INSERT ON measurement
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION measurement_is_sound();

CREATE FUNCTION ok_trial_is_measured() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT has_table_privilege('nimble.campaign', 'INSERT') AND NOT EXISTS
     (SELECT 1 FROM nimble.measurement m JOIN nimble.machine c ON c.uuid = m.machine
      WHERE m.trial = NEW.uuid AND m.median_ns = NEW.median_ns AND c.hardware = NEW.measured_on)
  THEN
    RAISE EXCEPTION 'a trial that ended ok has no such measurement';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER ok_trial_is_measured AFTER UPDATE OF state ON trial
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'ok')
EXECUTE FUNCTION ok_trial_is_measured();
