-- What nobody may write whatever it has rights on: what ../0017_bounds.sql is for. On a server also
-- what a worker adds that is not its own to say: who may make no campaigns splits jobs only, and
-- tells of jobs, trials, reports and workers only.
CREATE FUNCTION event_counter_is_bounded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.last < OLD.last OR NEW.last > OLD.last + 1000000000 THEN
    RAISE EXCEPTION 'the number of the last event grows with the events';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER event_counter_is_bounded BEFORE UPDATE ON event_counter FOR EACH ROW
EXECUTE FUNCTION event_counter_is_bounded();

CREATE FUNCTION event_is_bounded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM added, nimble.event_counter c WHERE added.number > c.last) THEN
    RAISE EXCEPTION 'an event has a number that was not given out';
  END IF;
  IF NOT has_table_privilege('nimble.campaign', 'INSERT') AND EXISTS
     (SELECT 1 FROM added WHERE kind NOT IN ('job', 'trial', 'report', 'worker')) THEN
    RAISE EXCEPTION 'an event of that kind is not for this role to tell'
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER event_is_bounded AFTER INSERT ON event REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION event_is_bounded();

CREATE FUNCTION job_is_a_split() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT has_table_privilege('nimble.campaign', 'INSERT') AND NOT EXISTS
     (SELECT 1 FROM nimble.job p WHERE p.uuid = NEW.parent AND p.campaign = NEW.campaign
      AND p.measure_case = NEW.measure_case AND p.hardware = NEW.hardware
      AND p.machine IS NOT DISTINCT FROM NEW.machine AND p.limits = NEW.limits
      AND p.priority = NEW.priority) THEN
    RAISE EXCEPTION 'this role splits jobs, and makes no others'
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER job_is_a_split BEFORE INSERT ON job FOR EACH ROW
EXECUTE FUNCTION job_is_a_split();

CREATE FUNCTION job_trial_is_of_a_split() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT has_table_privilege('nimble.campaign', 'INSERT') AND NOT EXISTS
     (SELECT 1 FROM nimble.job j JOIN nimble.job_trial p ON p.job = j.parent
      WHERE j.uuid = NEW.job AND p.trial = NEW.trial AND p.artifact = NEW.artifact
      AND p.candidate IS NOT DISTINCT FROM NEW.candidate AND p.anchor = NEW.anchor) THEN
    RAISE EXCEPTION 'this role splits jobs, and adds no other trials'
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER job_trial_is_of_a_split BEFORE INSERT ON job_trial FOR EACH ROW
EXECUTE FUNCTION job_trial_is_of_a_split();
