-- What a campaign works through, what people ask of it, and a feed of what changed.

-- A workload that the campaign tunes.
CREATE TABLE task (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),  -- follows from campaign and workload
  campaign   TEXT NOT NULL REFERENCES campaign (uuid),
  workload   TEXT NOT NULL REFERENCES workload (hash),
  label      TEXT NOT NULL,                       -- where it stands in the model, for people
  share      REAL CHECK (share BETWEEN 0 AND 1),  -- of the model's time; NULL: unknown
  calls      INTEGER NOT NULL CHECK (calls >= 0),  -- in one run of the model
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX task_by_campaign ON task (campaign);
CREATE INDEX task_by_workload ON task (workload);

CREATE TABLE task_event (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  task       TEXT NOT NULL REFERENCES task (uuid),
  phase      TEXT NOT NULL CHECK (phase <> ''),
  detail     TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX task_event_by_task ON task_event (task, created_at);

-- How much a shape counts where times over several shapes are summed up.
CREATE TABLE task_shape (
  task   TEXT NOT NULL REFERENCES task (uuid),
  shape  TEXT NOT NULL REFERENCES shape (hash),
  weight REAL NOT NULL CHECK (weight >= 0 AND weight < 1e18),
  PRIMARY KEY (task, shape)
) STRICT, WITHOUT ROWID;

-- What somebody asks of a campaign, and what its service made of it.
CREATE TABLE control (
  uuid         TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  campaign     TEXT NOT NULL REFERENCES campaign (uuid),
  request      TEXT NOT NULL CHECK (request IN ('pause', 'resume', 'stop', 'cancel')),
  requested_by TEXT NOT NULL,
  reason       TEXT NOT NULL,
  created_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX control_by_campaign ON control (campaign, created_at);

CREATE TABLE control_answer (
  control    TEXT PRIMARY KEY REFERENCES control (uuid),
  accepted   INTEGER NOT NULL CHECK (accepted IN (0, 1)),
  message    TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

-- What changed, for whoever watches. Numbers only grow and become visible in their order. Of this
-- database alone; old rows go.
CREATE TABLE event (
  number     INTEGER PRIMARY KEY CHECK (number > 0),
  kind       TEXT NOT NULL CHECK (kind <> ''),
  campaign   TEXT,
  subject    TEXT NOT NULL,                       -- the key of what changed
  detail     TEXT NOT NULL,                       -- JSON
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX event_by_campaign ON event (campaign, number);
-- The last number given, which outlives the row.
CREATE TABLE event_counter (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  last     INTEGER NOT NULL CHECK (last >= 0)
) STRICT;
INSERT INTO event_counter (only_row, last) VALUES (1, 0);

CREATE INDEX campaign_by_state ON campaign (state);

CREATE TRIGGER task_keeps_update BEFORE UPDATE ON task
BEGIN SELECT RAISE(ABORT, 'task is append-only'); END;
CREATE TRIGGER task_keeps_delete BEFORE DELETE ON task
BEGIN SELECT RAISE(ABORT, 'task is append-only'); END;

CREATE TRIGGER task_event_keeps_update BEFORE UPDATE ON task_event
BEGIN SELECT RAISE(ABORT, 'task_event is append-only'); END;
CREATE TRIGGER task_event_keeps_delete BEFORE DELETE ON task_event
BEGIN SELECT RAISE(ABORT, 'task_event is append-only'); END;

CREATE TRIGGER task_shape_keeps_update BEFORE UPDATE ON task_shape
BEGIN SELECT RAISE(ABORT, 'task_shape is append-only'); END;
CREATE TRIGGER task_shape_keeps_delete BEFORE DELETE ON task_shape
BEGIN SELECT RAISE(ABORT, 'task_shape is append-only'); END;

CREATE TRIGGER control_keeps_update BEFORE UPDATE ON control
BEGIN SELECT RAISE(ABORT, 'control is append-only'); END;
CREATE TRIGGER control_keeps_delete BEFORE DELETE ON control
BEGIN SELECT RAISE(ABORT, 'control is append-only'); END;

CREATE TRIGGER control_answer_keeps_update BEFORE UPDATE ON control_answer
BEGIN SELECT RAISE(ABORT, 'control_answer is append-only'); END;
CREATE TRIGGER control_answer_keeps_delete BEFORE DELETE ON control_answer
BEGIN SELECT RAISE(ABORT, 'control_answer is append-only'); END;
