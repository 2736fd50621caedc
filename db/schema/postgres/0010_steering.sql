-- Tasks, requests and the feed of changes: what ../0010_steering.sql is for.
CREATE TABLE task (
  uuid uuid_text PRIMARY KEY,
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  label plain_text NOT NULL,
  share double precision CHECK (share BETWEEN 0 AND 1),
  calls bigint NOT NULL CHECK (calls >= 0),
  created_at bigint NOT NULL
);
CREATE INDEX task_by_campaign ON task (campaign);
CREATE INDEX task_by_workload ON task (workload);

CREATE TABLE task_event (
  uuid uuid_text PRIMARY KEY,
  task plain_text NOT NULL REFERENCES task (uuid) DEFERRABLE,
  phase plain_text NOT NULL CHECK (phase <> ''),
  detail plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX task_event_by_task ON task_event (task, created_at);

CREATE TABLE task_shape (
  task plain_text NOT NULL REFERENCES task (uuid) DEFERRABLE,
  shape plain_text NOT NULL REFERENCES shape (hash) DEFERRABLE,
  weight double precision NOT NULL CHECK (weight >= 0 AND weight < 1e18),
  PRIMARY KEY (task, shape)
);

CREATE TABLE control (
  uuid uuid_text PRIMARY KEY,
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  request plain_text NOT NULL CHECK (request IN ('pause', 'resume', 'stop', 'cancel')),
  requested_by plain_text NOT NULL,
  reason plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX control_by_campaign ON control (campaign, created_at);

CREATE TABLE control_answer (
  control plain_text PRIMARY KEY REFERENCES control (uuid) DEFERRABLE,
  accepted flag NOT NULL,
  message plain_text NOT NULL,
  created_at bigint NOT NULL
);

CREATE TABLE event (
  number bigint PRIMARY KEY CHECK (number > 0),
  kind plain_text NOT NULL CHECK (kind <> ''),
  campaign plain_text,
  subject plain_text NOT NULL,
  detail plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX event_by_campaign ON event (campaign, number);
-- Whoever takes a number holds the row until the transaction ends, so a reader never sees a number
-- before a lower one.
CREATE TABLE event_counter (
  only_row bigint PRIMARY KEY CHECK (only_row = 1),
  last bigint NOT NULL CHECK (last >= 0)
) WITH (fillfactor = 10);
INSERT INTO event_counter (only_row, last) VALUES (1, 0);

CREATE INDEX campaign_by_state ON campaign (state);

DO $$
DECLARE fact text;
BEGIN
  FOREACH fact IN ARRAY ARRAY['task', 'task_event', 'task_shape', 'control', 'control_answer'] LOOP
    EXECUTE format('CREATE TRIGGER %s_keeps BEFORE UPDATE OR DELETE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_change()', fact, fact);
  END LOOP;
END $$;
