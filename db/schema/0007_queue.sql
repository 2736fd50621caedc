-- The queue of trials has an order of its own, which is the same in every engine: rows of one
-- priority are taken as they were enqueued. A position counts within a campaign and only ever grows
-- (after this migration not from 1 on); merged copies of one campaign may have a position twice.
ALTER TABLE trial ADD COLUMN position INTEGER NOT NULL DEFAULT 0 CHECK (position >= 0);
DROP TRIGGER trial_is_final;
UPDATE trial SET position = rowid;
CREATE TRIGGER trial_is_final BEFORE UPDATE ON trial
WHEN OLD.state NOT IN ('queued', 'claimed')
BEGIN SELECT RAISE(ABORT, 'a finished trial is final'); END;

-- A claim reads as many rows as it takes, however many there are.
DROP INDEX trial_queue;
CREATE INDEX trial_queue ON trial (campaign, state, priority DESC, position);
CREATE INDEX trial_lease ON trial (campaign, lease_until) WHERE state = 'claimed';
CREATE INDEX trial_by_position ON trial (campaign, position);
