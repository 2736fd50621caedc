-- What a service found of a machine: what ../0018_verdicts.sql is for.
CREATE TABLE machine_verdict (
  uuid uuid_text PRIMARY KEY,
  campaign plain_text NOT NULL REFERENCES campaign (uuid) DEFERRABLE,
  machine plain_text NOT NULL REFERENCES machine (uuid) DEFERRABLE,
  cases bigint NOT NULL CHECK (cases >= 0),
  apart double precision NOT NULL CHECK (apart >= 0 AND apart < 1e18),
  noise double precision NOT NULL CHECK (noise >= 0 AND noise < 1e18),
  slowness double precision NOT NULL CHECK (slowness > 0 AND slowness < 1e18),
  set_aside bigint NOT NULL CHECK (set_aside IN (0, 1)),
  created_at bigint NOT NULL
);
CREATE INDEX machine_verdict_by_machine ON machine_verdict (machine, created_at);
CREATE INDEX machine_verdict_by_campaign ON machine_verdict (campaign, created_at);
CREATE TRIGGER machine_verdict_keeps BEFORE UPDATE OR DELETE ON machine_verdict
FOR EACH ROW EXECUTE FUNCTION refuse_change();
