-- What is active, at the same cost however many tables there are: what ../0015_standing.sql is for.
CREATE TABLE dispatch_standing (
  event plain_text PRIMARY KEY REFERENCES dispatch_event (uuid) DEFERRABLE,
  dispatch_table plain_text NOT NULL REFERENCES dispatch_table (uuid) DEFERRABLE,
  workload plain_text NOT NULL REFERENCES workload (hash) DEFERRABLE,
  hardware plain_text NOT NULL REFERENCES hardware (hash) DEFERRABLE,
  status plain_text NOT NULL,
  created_at bigint NOT NULL
);
CREATE INDEX dispatch_standing_by_workload ON dispatch_standing (workload, hardware);
CREATE INDEX dispatch_standing_by_table ON dispatch_standing (dispatch_table, created_at);

INSERT INTO dispatch_standing (event, dispatch_table, workload, hardware, status, created_at)
SELECT e.uuid, e.dispatch_table, d.workload, d.hardware, e.status, e.created_at
FROM dispatch_event e JOIN dispatch_table d ON d.uuid = e.dispatch_table
WHERE NOT EXISTS (SELECT 1 FROM dispatch_replaced r WHERE r.replaced = e.uuid);

CREATE FUNCTION dispatch_event_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO nimble.dispatch_standing
    (event, dispatch_table, workload, hardware, status, created_at)
  SELECT NEW.uuid, NEW.dispatch_table, d.workload, d.hardware, NEW.status, NEW.created_at
  FROM nimble.dispatch_table d
  WHERE d.uuid = NEW.dispatch_table
    AND NOT EXISTS (SELECT 1 FROM nimble.dispatch_replaced r WHERE r.replaced = NEW.uuid);
  RETURN NULL;
END $$;
CREATE TRIGGER dispatch_event_stands AFTER INSERT ON dispatch_event FOR EACH ROW
EXECUTE FUNCTION dispatch_event_stands();
CREATE FUNCTION dispatch_event_falls() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM nimble.dispatch_standing WHERE event = NEW.replaced;
  RETURN NULL;
END $$;
CREATE TRIGGER dispatch_event_falls AFTER INSERT ON dispatch_replaced FOR EACH ROW
EXECUTE FUNCTION dispatch_event_falls();

-- The last word on each table that has one.
CREATE VIEW dispatch_word AS
SELECT s.* FROM dispatch_standing s
WHERE NOT EXISTS (
  SELECT 1 FROM dispatch_standing n
  WHERE n.dispatch_table = s.dispatch_table
    AND (n.created_at > s.created_at OR (n.created_at = s.created_at AND n.event < s.event)));

-- The active table of each slot that has one: that on which 'active' was said last.
CREATE VIEW dispatch_active AS
SELECT w.dispatch_table AS uuid, w.workload, w.hardware, d.toolchain, d.policy, d.mode,
       d.policy_class, d.compiler, d.compiler_version, d.flags, d.codegen_version,
       w.created_at AS since
FROM dispatch_word w
JOIN dispatch_slot d ON d.uuid = w.dispatch_table
WHERE w.status = 'active' AND NOT EXISTS (
  SELECT 1 FROM dispatch_word o
  JOIN dispatch_slot b ON b.uuid = o.dispatch_table
  WHERE o.workload = w.workload AND o.hardware = w.hardware AND o.status = 'active'
    AND (o.created_at > w.created_at OR (o.created_at = w.created_at AND o.event < w.event))
    AND b.mode = d.mode AND b.policy_class = d.policy_class
    AND b.codegen_version = d.codegen_version AND b.compiler = d.compiler
    AND b.compiler_version = d.compiler_version AND b.flags = d.flags);

-- As before: the present status of each dispatch table.
DROP VIEW dispatch_status;
CREATE VIEW dispatch_status AS
SELECT d.uuid, d.workload, d.hardware, d.toolchain, d.policy, d.mode, d.policy_class, d.compiler,
       d.compiler_version, d.flags, d.codegen_version,
       (SELECT w.created_at FROM dispatch_word w WHERE w.dispatch_table = d.uuid) AS since,
       CASE WHEN EXISTS (SELECT 1 FROM dispatch_active a WHERE a.uuid = d.uuid) THEN 'active'
            WHEN EXISTS (SELECT 1 FROM dispatch_event h WHERE h.dispatch_table = d.uuid)
            THEN 'retired'
            ELSE 'draft' END AS status
FROM dispatch_slot d;

-- The last time of day at which something became active, which the next is not before.
CREATE INDEX dispatch_event_by_time ON dispatch_event (created_at);
