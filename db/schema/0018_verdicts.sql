-- What a campaign's service found of a machine's times: how far its anchors' ratio is from those of
-- the others of its kind, what is usual among them, its speed, and whether it is set aside.
CREATE TABLE machine_verdict (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  campaign   TEXT NOT NULL REFERENCES campaign (uuid),
  machine    TEXT NOT NULL REFERENCES machine (uuid),
  cases      INTEGER NOT NULL CHECK (cases >= 0),
  apart      REAL NOT NULL CHECK (apart >= 0 AND apart < 1e18),
  noise      REAL NOT NULL CHECK (noise >= 0 AND noise < 1e18),
  slowness   REAL NOT NULL CHECK (slowness > 0 AND slowness < 1e18),
  set_aside  INTEGER NOT NULL CHECK (set_aside IN (0, 1)),
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX machine_verdict_by_machine ON machine_verdict (machine, created_at);
CREATE INDEX machine_verdict_by_campaign ON machine_verdict (campaign, created_at);

CREATE TRIGGER machine_verdict_keeps_update BEFORE UPDATE ON machine_verdict
BEGIN SELECT RAISE(ABORT, 'machine_verdict is append-only'); END;
CREATE TRIGGER machine_verdict_keeps_delete BEFORE DELETE ON machine_verdict
BEGIN SELECT RAISE(ABORT, 'machine_verdict is append-only'); END;
