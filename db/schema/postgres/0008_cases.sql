-- What is measured, by content, and on which hardware: what ../0008_cases.sql is for.
CREATE DOMAIN digest AS text COLLATE "C" CHECK (VALUE ~ '^[0-9a-f]{64}$');

CREATE TABLE blob (
  digest digest PRIMARY KEY,
  size bigint NOT NULL CHECK (size >= 0),
  encoding plain_text NOT NULL CHECK (encoding IN ('raw', 'zstd', 'removed')),
  bytes bytea NOT NULL,
  CHECK (encoding <> 'removed' OR length(bytes) = 0)
);
CREATE TRIGGER blob_keeps_update BEFORE UPDATE ON blob FOR EACH ROW
WHEN (NEW.digest <> OLD.digest OR NEW.size <> OLD.size
      OR (NEW.encoding <> 'removed' AND OLD.encoding <> 'removed'))
EXECUTE FUNCTION refuse('blob is append-only');
CREATE TRIGGER blob_keeps_delete BEFORE DELETE ON blob
FOR EACH ROW EXECUTE FUNCTION refuse_change();
-- What zstd has packed does not get smaller.
ALTER TABLE blob ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE candidate (
  artifact plain_text NOT NULL REFERENCES artifact (hash) DEFERRABLE,
  digest plain_text NOT NULL REFERENCES blob (digest) DEFERRABLE,
  target plain_text NOT NULL CHECK (target <> ''),
  created_at bigint NOT NULL,
  PRIMARY KEY (artifact, digest)
);
CREATE INDEX candidate_by_digest ON candidate (digest);
CREATE INDEX artifact_by_code ON artifact (code_hash);

CREATE TABLE measure_case (
  hash hash PRIMARY KEY,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  shape plain_text NOT NULL REFERENCES shape (hash) DEFERRABLE,
  policy plain_text NOT NULL REFERENCES measure_policy (hash) DEFERRABLE,
  seed bigint NOT NULL,
  fills plain_text NOT NULL CHECK (fills <> ''),
  tolerance double precision NOT NULL CHECK (tolerance >= 0 AND tolerance < 1e18),
  expected plain_text REFERENCES blob (digest) DEFERRABLE
);
CREATE INDEX measure_case_by_shape ON measure_case (shape);

CREATE TABLE consumption (
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  machine plain_text NOT NULL REFERENCES machine (uuid) DEFERRABLE,
  consumed_s double precision NOT NULL CHECK (consumed_s >= 0 AND consumed_s < 1e12),
  PRIMARY KEY (campaign, machine)
);
CREATE TRIGGER consumption_grows BEFORE UPDATE ON consumption FOR EACH ROW
WHEN (NEW.consumed_s < OLD.consumed_s)
EXECUTE FUNCTION refuse('the consumed time of a machine never shrinks');
CREATE TRIGGER consumption_keeps_delete BEFORE DELETE ON consumption
FOR EACH ROW EXECUTE FUNCTION refuse_change();

ALTER TABLE trial ADD COLUMN hardware plain_text REFERENCES hardware (hash) DEFERRABLE;
ALTER TABLE trial ADD COLUMN policy plain_text REFERENCES measure_policy (hash) DEFERRABLE;
DO $$
DECLARE old_key text;
BEGIN
  SELECT conname INTO STRICT old_key FROM pg_constraint
  WHERE conrelid = CAST('trial' AS regclass) AND contype = 'u';
  EXECUTE format('ALTER TABLE trial DROP CONSTRAINT %I', old_key);
END $$;
DROP TRIGGER trial_keeps_key ON trial;
CREATE TRIGGER trial_keeps_key
BEFORE UPDATE OF uuid, campaign, workload, config, shape, role, threads, hardware, policy ON trial
FOR EACH ROW EXECUTE FUNCTION refuse('the key of a trial is final');

DO $$
DECLARE fact text;
BEGIN
  FOREACH fact IN ARRAY ARRAY['candidate', 'measure_case'] LOOP
    EXECUTE format('CREATE TRIGGER %s_keeps BEFORE UPDATE OR DELETE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_change()', fact, fact);
  END LOOP;
END $$;
