-- Twins, code, failures, ceilings and peers: what ../0012_evidence.sql is for.
ALTER TABLE measurement ADD COLUMN runs_per_sample bigint CHECK (runs_per_sample > 0);
ALTER TABLE measurement ADD COLUMN drift double precision CHECK (drift > -1 AND drift < 1e18);

CREATE TABLE twin_samples (
  measurement plain_text PRIMARY KEY REFERENCES measurement (uuid) DEFERRABLE,
  n bigint NOT NULL CHECK (n > 0),
  ns bytea NOT NULL CHECK (length(ns) = 8 * n),
  median_ns double precision NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  created_at bigint NOT NULL
);
CREATE INDEX twin_samples_by_time ON twin_samples (created_at, measurement);

CREATE TABLE generated_code (
  code_hash plain_text NOT NULL CHECK (code_hash <> ''),
  kind plain_text NOT NULL CHECK (kind <> ''),
  digest plain_text NOT NULL REFERENCES blob (digest) DEFERRABLE,
  created_at bigint NOT NULL,
  PRIMARY KEY (code_hash, kind)
);

CREATE TABLE failure_log (
  uuid uuid_text PRIMARY KEY,
  trial plain_text NOT NULL REFERENCES trial (uuid) DEFERRABLE,
  attempt bigint NOT NULL CHECK (attempt >= 0),
  worker plain_text REFERENCES worker (uuid) DEFERRABLE,
  error_class plain_text NOT NULL CHECK (error_class <> ''),
  message plain_text NOT NULL,
  output bytea NOT NULL,
  command plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX failure_log_by_trial ON failure_log (trial, attempt);
CREATE INDEX failure_log_by_class ON failure_log (error_class, created_at);

ALTER TABLE cost_model ADD COLUMN feature_version bigint CHECK (feature_version > 0);
ALTER TABLE cost_model ADD COLUMN scale double precision CHECK (scale > 0 AND scale < 1e18);
ALTER TABLE cost_model ADD COLUMN digest plain_text;

CREATE TABLE ceiling (
  uuid uuid_text PRIMARY KEY,
  machine plain_text NOT NULL REFERENCES machine (uuid) DEFERRABLE,
  dtype plain_text NOT NULL,
  threads bigint NOT NULL CHECK (threads > 0),
  kind plain_text NOT NULL CHECK (kind <> ''),
  value double precision NOT NULL CHECK (value > 0 AND value < 1e24),
  created_at bigint NOT NULL
);
CREATE INDEX ceiling_by_machine ON ceiling (machine, created_at);

CREATE TABLE peer_figure (
  uuid uuid_text PRIMARY KEY,
  run plain_text NOT NULL CHECK (length(run) = 36),
  peer plain_text NOT NULL CHECK (peer <> ''),
  version plain_text NOT NULL,
  settings plain_text NOT NULL CHECK (settings <> ''),
  machine plain_text NOT NULL REFERENCES machine (uuid) DEFERRABLE,
  subject plain_text NOT NULL CHECK (subject <> ''),
  dims plain_text NOT NULL,
  dtype plain_text NOT NULL,
  threads bigint NOT NULL CHECK (threads > 0),
  n bigint NOT NULL CHECK (n > 0),
  ns bytea NOT NULL CHECK (length(ns) = 8 * n),
  median_ns double precision NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  created_at bigint NOT NULL
);
CREATE INDEX peer_figure_by_subject ON peer_figure (subject, dims);
CREATE INDEX peer_figure_by_run ON peer_figure (run);

CREATE TABLE shape_count (
  replica uuid_text NOT NULL,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  dims plain_text NOT NULL,
  count bigint NOT NULL CHECK (count > 0),
  PRIMARY KEY (replica, workload, hardware, dims)
);
CREATE TRIGGER shape_count_grows BEFORE UPDATE ON shape_count FOR EACH ROW
WHEN (NEW.count < OLD.count)
EXECUTE FUNCTION refuse('a shape counter never shrinks');

DO $$
DECLARE fact text;
BEGIN
  FOREACH fact IN ARRAY ARRAY['twin_samples', 'generated_code', 'failure_log', 'ceiling', 'peer_figure'] LOOP
    EXECUTE format('CREATE TRIGGER %s_keeps BEFORE UPDATE OR DELETE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_change()', fact, fact);
  END LOOP;
END $$;
