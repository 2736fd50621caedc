-- The schema of a tuning database in PostgreSQL, as of version 6: what the migrations 0001 to 0006
-- make in SQLite, where each table and column is explained. A test compares the two.

CREATE SCHEMA nimble;
SET LOCAL search_path = nimble;

CREATE DOMAIN plain_text AS text COLLATE "C";
CREATE DOMAIN hash AS text COLLATE "C" CHECK (VALUE ~ '^[0-9a-f]{32}$');
CREATE DOMAIN uuid_text AS text COLLATE "C" CHECK (length(VALUE) = 36);
CREATE DOMAIN flag AS bigint CHECK (VALUE IN (0, 1));

CREATE TABLE migration (
  version bigint PRIMARY KEY CHECK (version > 0),
  checksum plain_text NOT NULL,
  applied_at bigint NOT NULL
);

CREATE TABLE identity (
  only_row bigint PRIMARY KEY CHECK (only_row = 1),
  uuid uuid_text NOT NULL,
  created_at bigint NOT NULL
);

CREATE TABLE hardware (
  hash hash PRIMARY KEY,
  vendor plain_text NOT NULL,
  family bigint NOT NULL,
  model bigint NOT NULL,
  stepping bigint NOT NULL,
  model_name plain_text NOT NULL,
  isa plain_text NOT NULL CHECK (isa <> ''),
  caches plain_text NOT NULL,
  topology plain_text NOT NULL,
  virtualised flag NOT NULL
);

CREATE TABLE machine (
  uuid uuid_text PRIMARY KEY,
  hostname plain_text NOT NULL,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE
);

CREATE TABLE host_state (
  uuid uuid_text PRIMARY KEY,
  governor plain_text NOT NULL,
  turbo flag,
  smt flag,
  affinity plain_text NOT NULL,
  load double precision NOT NULL CHECK (load >= 0),
  steal double precision NOT NULL CHECK (steal BETWEEN 0 AND 1)
);

CREATE TABLE toolchain (
  hash hash PRIMARY KEY,
  compiler plain_text NOT NULL CHECK (compiler <> ''),
  version plain_text NOT NULL,
  flags plain_text NOT NULL,
  codegen_version bigint NOT NULL CHECK (codegen_version > 0),
  revision plain_text NOT NULL,
  dirty flag NOT NULL
);

CREATE TABLE template (
  hash hash PRIMARY KEY,
  name plain_text NOT NULL CHECK (name <> ''),
  version bigint NOT NULL CHECK (version > 0),
  parameters plain_text NOT NULL
);

CREATE TABLE workload (
  hash hash PRIMARY KEY,
  canonical plain_text NOT NULL CHECK (canonical <> ''),
  anchor plain_text NOT NULL CHECK (anchor <> ''),
  op plain_text NOT NULL,
  dtype plain_text NOT NULL,
  layout plain_text NOT NULL,
  symbolic_dims plain_text NOT NULL,
  threads bigint NOT NULL CHECK (threads > 0)
);
CREATE INDEX workload_by_anchor ON workload (anchor);

CREATE TABLE shape (
  hash hash PRIMARY KEY,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  dims plain_text NOT NULL,
  flops bigint NOT NULL CHECK (flops >= 0),
  bytes bigint NOT NULL CHECK (bytes >= 0),
  UNIQUE (workload, dims)
);

CREATE TABLE config (
  hash hash PRIMARY KEY,
  template plain_text NOT NULL REFERENCES template (hash) DEFERRABLE,
  json plain_text NOT NULL CHECK (json <> '')
);

CREATE TABLE artifact (
  hash hash PRIMARY KEY,
  code_hash plain_text NOT NULL CHECK (code_hash <> ''),
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  config plain_text NOT NULL REFERENCES config (hash) DEFERRABLE,
  toolchain plain_text NOT NULL REFERENCES toolchain (hash) DEFERRABLE,
  compile_ms double precision NOT NULL CHECK (compile_ms >= 0 AND compile_ms < 1e12),
  size bigint NOT NULL CHECK (size >= 0)
);
CREATE INDEX artifact_by_config ON artifact (config);

CREATE TABLE measure_policy (
  hash hash PRIMARY KEY,
  mode plain_text NOT NULL CHECK (mode IN ('warm', 'cold')),
  warm_up bigint NOT NULL CHECK (warm_up >= 0),
  threads bigint NOT NULL CHECK (threads > 0),
  timer plain_text NOT NULL,
  stop_rule plain_text NOT NULL,
  class plain_text NOT NULL DEFAULT ''
);

CREATE TABLE campaign (
  uuid uuid_text PRIMARY KEY,
  digest plain_text NOT NULL CHECK (digest <> ''),
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  seed bigint NOT NULL,
  options plain_text NOT NULL CHECK (options <> ''),
  command plain_text NOT NULL,
  budget_s double precision NOT NULL CHECK (budget_s > 0 AND budget_s < 1e12),
  consumed_s double precision NOT NULL DEFAULT 0 CHECK (consumed_s >= 0 AND consumed_s < 1e12),
  state plain_text NOT NULL DEFAULT 'running'
    CHECK (state IN ('running', 'paused', 'interrupted', 'finished', 'failed')),
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL
);
CREATE INDEX campaign_by_key ON campaign (digest, hardware, seed);

CREATE TABLE cost_model (
  uuid uuid_text PRIMARY KEY,
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  round bigint NOT NULL CHECK (round >= 0),
  model bytea NOT NULL,
  rank_correlation double precision CHECK (rank_correlation BETWEEN -1 AND 1),
  created_at bigint NOT NULL
);
CREATE INDEX cost_model_by_campaign ON cost_model (campaign, workload, round);

CREATE TABLE trial (
  uuid uuid_text PRIMARY KEY,
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  config plain_text NOT NULL REFERENCES config (hash) DEFERRABLE,
  shape plain_text NOT NULL REFERENCES shape (hash) DEFERRABLE,
  role plain_text NOT NULL CHECK (role IN ('search', 'cross', 'verify', 'baseline')),
  threads bigint NOT NULL CHECK (threads > 0),
  round bigint NOT NULL CHECK (round >= 0),
  priority double precision NOT NULL,
  predicted_ns double precision CHECK (predicted_ns > 0 AND predicted_ns < 1e18),
  state plain_text NOT NULL DEFAULT 'queued' CHECK (state IN
    ('queued', 'claimed', 'ok', 'wrong', 'crashed', 'timeout', 'compile_failed')),
  attempt bigint NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  lease_owner plain_text,
  lease_until bigint,
  error_class plain_text NOT NULL DEFAULT '',
  message plain_text NOT NULL DEFAULT '',
  created_at bigint NOT NULL,
  finished_at bigint,
  UNIQUE (campaign, workload, config, shape, role, threads),
  CHECK ((state = 'claimed') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)),
  CHECK ((state IN ('queued', 'claimed')) = (finished_at IS NULL))
);
CREATE INDEX trial_queue ON trial (campaign, state, priority DESC);
CREATE INDEX trial_by_workload ON trial (workload, shape, role, state);

CREATE TABLE measurement (
  uuid uuid_text PRIMARY KEY,
  trial plain_text NOT NULL REFERENCES trial (uuid) DEFERRABLE,
  artifact plain_text NOT NULL REFERENCES artifact (hash) DEFERRABLE,
  policy plain_text NOT NULL REFERENCES measure_policy (hash) DEFERRABLE,
  machine plain_text NOT NULL REFERENCES machine (uuid) DEFERRABLE,
  host_state plain_text NOT NULL REFERENCES host_state (uuid) DEFERRABLE,
  n bigint NOT NULL CHECK (n > 0),
  median_ns double precision NOT NULL CHECK (median_ns > 0 AND median_ns < 1e18),
  mad_ns double precision NOT NULL CHECK (mad_ns >= 0 AND mad_ns < 1e18),
  ci_low_ns double precision NOT NULL CHECK (ci_low_ns > 0 AND ci_low_ns <= median_ns),
  ci_high_ns double precision NOT NULL CHECK (ci_high_ns >= median_ns AND ci_high_ns < 1e18),
  stop_reason plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX measurement_by_trial ON measurement (trial);

CREATE TABLE samples (
  measurement plain_text PRIMARY KEY REFERENCES measurement (uuid) DEFERRABLE,
  n bigint NOT NULL CHECK (n > 0),
  ns bytea NOT NULL CHECK (length(ns) = 8 * n),
  outlier bytea NOT NULL CHECK (length(outlier) = n)
);

CREATE TABLE correctness (
  uuid uuid_text PRIMARY KEY,
  artifact plain_text NOT NULL REFERENCES artifact (hash) DEFERRABLE,
  shape plain_text NOT NULL REFERENCES shape (hash) DEFERRABLE,
  max_error double precision CHECK (max_error >= 0),
  tolerance double precision NOT NULL CHECK (tolerance >= 0),
  pass flag NOT NULL,
  created_at bigint NOT NULL,
  CHECK (pass = 0 OR max_error <= tolerance),
  CHECK (pass = 0 OR max_error IS NOT NULL)
);
CREATE INDEX correctness_by_artifact ON correctness (artifact, shape);

CREATE TABLE dispatch_table (
  uuid uuid_text PRIMARY KEY,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  toolchain plain_text NOT NULL REFERENCES toolchain (hash) DEFERRABLE,
  policy plain_text NOT NULL REFERENCES measure_policy (hash) DEFERRABLE,
  campaign plain_text REFERENCES campaign (uuid) DEFERRABLE,
  parent plain_text REFERENCES dispatch_table (uuid) DEFERRABLE,
  version bigint NOT NULL CHECK (version > 0),
  objective plain_text NOT NULL,
  tree plain_text NOT NULL CHECK (tree <> ''),
  created_at bigint NOT NULL
);
CREATE INDEX dispatch_table_by_workload ON dispatch_table (workload, hardware);

CREATE TABLE dispatch_entry (
  dispatch_table plain_text NOT NULL REFERENCES dispatch_table (uuid) DEFERRABLE,
  ordinal bigint NOT NULL CHECK (ordinal >= 0),
  range plain_text NOT NULL CHECK (range <> ''),
  config plain_text NOT NULL REFERENCES config (hash) DEFERRABLE,
  evidence plain_text REFERENCES measurement (uuid) DEFERRABLE,
  expected_ns double precision CHECK (expected_ns > 0 AND expected_ns < 1e18),
  regret double precision CHECK (regret >= 0 AND regret < 1e18),
  fallback plain_text REFERENCES config (hash) DEFERRABLE,
  is_override flag NOT NULL,
  reason plain_text NOT NULL,
  PRIMARY KEY (dispatch_table, ordinal),
  CHECK (is_override = 0 OR reason <> '')
);

CREATE TABLE dispatch_event (
  uuid uuid_text PRIMARY KEY,
  dispatch_table plain_text NOT NULL REFERENCES dispatch_table (uuid) DEFERRABLE,
  status plain_text NOT NULL CHECK (status IN ('active', 'retired')),
  reason plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX dispatch_event_by_table ON dispatch_event (dispatch_table, created_at);

CREATE TABLE dispatch_miss (
  replica uuid_text NOT NULL,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  dims plain_text NOT NULL,
  count bigint NOT NULL CHECK (count > 0),
  PRIMARY KEY (replica, workload, hardware, dims)
);

CREATE TABLE import_batch (
  file_hash hash PRIMARY KEY,
  origin plain_text NOT NULL,
  schema_version bigint NOT NULL,
  rows_added bigint NOT NULL CHECK (rows_added >= 0),
  imported_at bigint NOT NULL
);

CREATE TABLE dispatch_override (
  uuid uuid_text PRIMARY KEY,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  region plain_text NOT NULL CHECK (region <> ''),
  config plain_text NOT NULL REFERENCES config (hash) DEFERRABLE,
  evidence plain_text REFERENCES measurement (uuid) DEFERRABLE,
  reason plain_text NOT NULL CHECK (reason <> ''),
  created_at bigint NOT NULL
);
CREATE INDEX dispatch_override_by_workload ON dispatch_override (workload, hardware);

CREATE TABLE dispatch_withdrawal (
  uuid uuid_text PRIMARY KEY,
  dispatch_override plain_text NOT NULL REFERENCES dispatch_override (uuid) DEFERRABLE,
  reason plain_text NOT NULL CHECK (reason <> ''),
  created_at bigint NOT NULL
);
CREATE INDEX dispatch_withdrawal_by_override ON dispatch_withdrawal (dispatch_override);

CREATE TABLE dispatch_comparison (
  uuid uuid_text PRIMARY KEY,
  dispatch_table plain_text NOT NULL REFERENCES dispatch_table (uuid) DEFERRABLE,
  rival plain_text REFERENCES dispatch_table (uuid) DEFERRABLE,
  shapes bigint NOT NULL CHECK (shapes > 0),
  ratio double precision NOT NULL CHECK (ratio > 0 AND ratio < 1e18),
  worst_ratio double precision NOT NULL CHECK (worst_ratio >= ratio AND worst_ratio < 1e18),
  created_at bigint NOT NULL,
  CHECK (rival IS DISTINCT FROM dispatch_table)
);
CREATE INDEX dispatch_comparison_by_table ON dispatch_comparison (dispatch_table);

CREATE TABLE dispatch_replaced (
  replaced plain_text NOT NULL REFERENCES dispatch_event (uuid) DEFERRABLE,
  event plain_text NOT NULL REFERENCES dispatch_event (uuid) DEFERRABLE,
  PRIMARY KEY (replaced, event),
  CHECK (replaced <> event)
);

CREATE VIEW campaign_progress AS
SELECT c.uuid AS campaign,
       count(t.uuid) AS trials,
       count(*) FILTER (WHERE t.state = 'queued') AS queued,
       count(*) FILTER (WHERE t.state = 'claimed') AS claimed,
       count(*) FILTER (WHERE t.state = 'ok') AS ok,
       count(*) FILTER (WHERE t.state IN ('wrong', 'crashed', 'timeout', 'compile_failed')) AS failed
FROM campaign c LEFT JOIN trial t ON t.campaign = c.uuid
GROUP BY c.uuid;

CREATE VIEW total_miss AS
SELECT workload, hardware, dims, CAST(sum(count) AS bigint) AS count
FROM dispatch_miss GROUP BY workload, hardware, dims;

CREATE VIEW dispatch_slot AS
SELECT d.uuid, d.workload, d.hardware, d.toolchain, d.policy, p.mode, p.class AS policy_class,
       tc.compiler, tc.version AS compiler_version, tc.flags, tc.codegen_version
FROM dispatch_table d
JOIN measure_policy p ON p.hash = d.policy
JOIN toolchain tc ON tc.hash = d.toolchain;

CREATE VIEW dispatch_status AS
WITH last_event AS (
  SELECT * FROM (
    SELECT dispatch_table, status, created_at, uuid AS event, row_number() OVER (
      PARTITION BY dispatch_table ORDER BY created_at DESC, uuid) AS newest
    FROM dispatch_event e
    WHERE NOT EXISTS (SELECT 1 FROM dispatch_replaced r WHERE r.replaced = e.uuid)) AS numbered
  WHERE newest = 1),
ranked AS (
  SELECT d.*, e.status AS said, e.created_at AS since,
         row_number() OVER (
           PARTITION BY d.workload, d.hardware, d.mode, d.policy_class, d.codegen_version,
                        d.compiler, d.compiler_version, d.flags, coalesce(e.status = 'active', false)
           ORDER BY e.created_at DESC NULLS LAST, e.event) AS place
  FROM dispatch_slot d
  LEFT JOIN last_event e ON e.dispatch_table = d.uuid)
SELECT uuid, workload, hardware, toolchain, policy, mode, policy_class, compiler, compiler_version,
       flags, codegen_version, since,
       CASE WHEN said = 'active' AND place = 1 THEN 'active'
            WHEN EXISTS (SELECT 1 FROM dispatch_event h WHERE h.dispatch_table = ranked.uuid)
            THEN 'retired'
            ELSE 'draft' END AS status
FROM ranked;

CREATE VIEW measured AS
SELECT m.uuid AS measurement, m.trial, t.campaign, t.workload, t.shape, t.config, t.role, t.threads,
       t.round, mc.hardware, m.machine, m.host_state, m.policy, a.hash AS artifact, a.code_hash,
       a.toolchain, tc.codegen_version, m.n, m.median_ns, m.mad_ns, m.ci_low_ns, m.ci_high_ns,
       m.stop_reason, m.created_at
FROM trial t
JOIN measurement m ON m.trial = t.uuid
JOIN machine mc ON mc.uuid = m.machine
JOIN artifact a ON a.hash = m.artifact
JOIN toolchain tc ON tc.hash = a.toolchain
WHERE t.state = 'ok';

CREATE VIEW current_measured AS
SELECT * FROM (
  SELECT *, row_number() OVER (
    PARTITION BY workload, hardware, policy, codegen_version, shape, role, threads, config
    ORDER BY created_at DESC, measurement) AS newest
  FROM measured) AS numbered
WHERE newest = 1;

-- Facts are only added.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
END $$;
DO $$
DECLARE fact text;
BEGIN
  FOREACH fact IN ARRAY ARRAY[
    'hardware', 'machine', 'host_state', 'toolchain', 'template', 'workload', 'shape', 'config',
    'artifact', 'measure_policy', 'cost_model', 'measurement', 'samples', 'correctness',
    'dispatch_table', 'dispatch_entry', 'dispatch_event', 'dispatch_replaced',
    'dispatch_comparison', 'dispatch_override', 'dispatch_withdrawal', 'import_batch',
    'migration', 'identity'] LOOP
    EXECUTE format('CREATE TRIGGER %s_keeps BEFORE UPDATE OR DELETE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_change()', fact, fact);
  END LOOP;
END $$;
CREATE TRIGGER trial_keeps_delete BEFORE DELETE ON trial
FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER campaign_keeps_delete BEFORE DELETE ON campaign
FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0];
END $$;
CREATE TRIGGER trial_is_final BEFORE UPDATE ON trial FOR EACH ROW
WHEN (OLD.state NOT IN ('queued', 'claimed'))
EXECUTE FUNCTION refuse('a finished trial is final');
CREATE TRIGGER trial_keeps_key
BEFORE UPDATE OF uuid, campaign, workload, config, shape, role, threads ON trial
FOR EACH ROW EXECUTE FUNCTION refuse('the key of a trial is final');
CREATE TRIGGER campaign_moves_forward BEFORE UPDATE OF consumed_s ON campaign FOR EACH ROW
WHEN (NEW.consumed_s < OLD.consumed_s)
EXECUTE FUNCTION refuse('the consumed time of a campaign never shrinks');
CREATE TRIGGER campaign_keeps_key BEFORE UPDATE OF uuid, digest, hardware, seed, options ON campaign
FOR EACH ROW EXECUTE FUNCTION refuse('the key of a campaign is final');
CREATE TRIGGER dispatch_miss_grows BEFORE UPDATE ON dispatch_miss FOR EACH ROW
WHEN (NEW.count < OLD.count)
EXECUTE FUNCTION refuse('a miss counter never shrinks');
