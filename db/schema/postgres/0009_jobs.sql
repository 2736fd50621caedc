-- Workers and what is handed out to them: what ../0009_jobs.sql is for.
CREATE TABLE worker (
  uuid uuid_text PRIMARY KEY,
  machine plain_text NOT NULL REFERENCES machine (uuid) DEFERRABLE,
  name plain_text NOT NULL,
  pid bigint NOT NULL CHECK (pid >= 0),
  version plain_text NOT NULL,
  capabilities plain_text NOT NULL CHECK (capabilities <> ''),
  trusted_keys plain_text NOT NULL CHECK (trusted_keys <> ''),
  started_at bigint NOT NULL
);
CREATE INDEX worker_by_machine ON worker (machine);

CREATE TABLE heartbeat (
  worker plain_text PRIMARY KEY REFERENCES worker (uuid) DEFERRABLE,
  at bigint NOT NULL,
  state plain_text NOT NULL
    CHECK (state IN ('idle', 'measuring', 'paused', 'stopping', 'stopped')),
  job plain_text,
  load double precision NOT NULL CHECK (load >= 0),
  message plain_text NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX heartbeat_by_time ON heartbeat (at);

CREATE TABLE job (
  uuid uuid_text PRIMARY KEY,
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  measure_case plain_text NOT NULL REFERENCES measure_case (hash) DEFERRABLE,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  machine plain_text REFERENCES machine (uuid) DEFERRABLE,
  limits plain_text NOT NULL CHECK (limits <> ''),
  priority double precision NOT NULL,
  position bigint NOT NULL CHECK (position >= 0),
  state plain_text NOT NULL DEFAULT 'queued'
    CHECK (state IN ('queued', 'claimed', 'done', 'split', 'cancelled')),
  attempt bigint NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  lost bigint NOT NULL DEFAULT 0 CHECK (lost >= 0),
  worker plain_text REFERENCES worker (uuid) DEFERRABLE,
  lease_until bigint,
  avoid plain_text REFERENCES machine (uuid) DEFERRABLE,
  parent plain_text REFERENCES job (uuid) DEFERRABLE,
  created_at bigint NOT NULL,
  claimed_at bigint,
  finished_at bigint,
  CHECK ((state = 'claimed') = (worker IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK ((state IN ('queued', 'claimed')) = (finished_at IS NULL))
);
CREATE INDEX job_queue ON job (campaign, hardware, priority DESC, position) WHERE state = 'queued';
CREATE INDEX job_lease ON job (lease_until) WHERE state = 'claimed';
CREATE INDEX job_held ON job (campaign, worker) WHERE state = 'claimed';
CREATE INDEX job_by_position ON job (campaign, position);
CREATE INDEX job_served ON job (campaign, claimed_at);
CREATE INDEX job_by_parent ON job (parent);

CREATE TABLE job_trial (
  job plain_text NOT NULL REFERENCES job (uuid) DEFERRABLE,
  ordinal bigint NOT NULL CHECK (ordinal >= 0),
  trial plain_text NOT NULL REFERENCES trial (uuid) DEFERRABLE,
  artifact plain_text NOT NULL REFERENCES artifact (hash) DEFERRABLE,
  candidate plain_text REFERENCES blob (digest) DEFERRABLE,
  anchor flag NOT NULL,
  PRIMARY KEY (job, ordinal)
);
CREATE INDEX job_trial_by_trial ON job_trial (trial);

CREATE TABLE job_report (
  uuid uuid_text PRIMARY KEY,
  job plain_text NOT NULL CHECK (length(job) = 36),
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  measure_case plain_text NOT NULL REFERENCES measure_case (hash) DEFERRABLE,
  worker plain_text NOT NULL REFERENCES worker (uuid) DEFERRABLE,
  host_state plain_text NOT NULL REFERENCES host_state (uuid) DEFERRABLE,
  attempt bigint NOT NULL CHECK (attempt >= 0),
  consumed_s double precision NOT NULL CHECK (consumed_s >= 0 AND consumed_s < 1e12),
  results bigint NOT NULL CHECK (results >= 0),
  late flag NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX job_report_by_campaign ON job_report (campaign, created_at);
CREATE INDEX job_report_by_worker ON job_report (worker, created_at);

CREATE TRIGGER job_is_final BEFORE UPDATE ON job FOR EACH ROW
WHEN (OLD.state NOT IN ('queued', 'claimed'))
EXECUTE FUNCTION refuse('a finished job is final');
CREATE TRIGGER job_keeps_key
BEFORE UPDATE OF uuid, campaign, measure_case, hardware, machine, limits, parent ON job
FOR EACH ROW EXECUTE FUNCTION refuse('the key of a job is final');

DO $$
DECLARE fact text;
BEGIN
  FOREACH fact IN ARRAY ARRAY['worker', 'job_report'] LOOP
    EXECUTE format('CREATE TRIGGER %s_keeps BEFORE UPDATE OR DELETE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_change()', fact, fact);
  END LOOP;
END $$;
