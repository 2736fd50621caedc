-- The queue's order: what ../0007_queue.sql is for.
ALTER TABLE trial ADD COLUMN position bigint NOT NULL DEFAULT 0 CHECK (position >= 0);
ALTER TABLE trial DISABLE TRIGGER trial_is_final;
UPDATE trial SET position = numbered.place FROM (
  SELECT uuid, row_number() OVER (PARTITION BY campaign ORDER BY created_at, uuid) AS place
  FROM trial) AS numbered
WHERE numbered.uuid = trial.uuid;
ALTER TABLE trial ENABLE TRIGGER trial_is_final;

DROP INDEX trial_queue;
CREATE INDEX trial_queue ON trial (campaign, state, priority DESC, position);
CREATE INDEX trial_lease ON trial (campaign, lease_until) WHERE state = 'claimed';
CREATE INDEX trial_by_position ON trial (campaign, position);
