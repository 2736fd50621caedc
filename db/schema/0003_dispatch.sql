-- What was chosen: versioned dispatch tables, and the shapes that met none.
--
-- A table and its entries never change; an override is a new table whose parent is the old one.
-- Being draft, active or retired is an event, and the view dispatch_status (0004) derives the
-- present from the events. Two merged databases may both have activated a table: the later wins.

CREATE TABLE dispatch_table (
  uuid       TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  workload   TEXT NOT NULL REFERENCES workload (hash),
  hardware   TEXT NOT NULL REFERENCES hardware (hash),
  toolchain  TEXT NOT NULL REFERENCES toolchain (hash),
  policy     TEXT NOT NULL REFERENCES measure_policy (hash),
  campaign   TEXT REFERENCES campaign (uuid),
  parent     TEXT REFERENCES dispatch_table (uuid),
  version    INTEGER NOT NULL CHECK (version > 0),  -- parent's + 1, or 1
  objective  TEXT NOT NULL,
  tree       TEXT NOT NULL CHECK (tree <> ''),  -- leaves name ordinals of dispatch_entry
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX dispatch_table_by_workload ON dispatch_table (workload, hardware);

CREATE TABLE dispatch_entry (
  dispatch_table TEXT NOT NULL REFERENCES dispatch_table (uuid),
  ordinal        INTEGER NOT NULL CHECK (ordinal >= 0),
  range          TEXT NOT NULL CHECK (range <> ''),
  config         TEXT NOT NULL REFERENCES config (hash),
  evidence       TEXT REFERENCES measurement (uuid),
  expected_ns    REAL CHECK (expected_ns > 0 AND expected_ns < 1e18),
  regret         REAL CHECK (regret >= 0 AND regret < 1e18),  -- 0.02: 2 % over the best known
  fallback       TEXT REFERENCES config (hash),
  is_override    INTEGER NOT NULL CHECK (is_override IN (0, 1)),
  reason         TEXT NOT NULL,
  PRIMARY KEY (dispatch_table, ordinal),
  CHECK (is_override = 0 OR reason <> '')
) STRICT, WITHOUT ROWID;

CREATE TABLE dispatch_event (
  uuid           TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  dispatch_table TEXT NOT NULL REFERENCES dispatch_table (uuid),
  status         TEXT NOT NULL CHECK (status IN ('active', 'retired')),
  reason         TEXT NOT NULL,
  created_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX dispatch_event_by_table ON dispatch_event (dispatch_table, created_at);

-- Shapes that a run saw and no table covered. A counter per replica that only grows: merging takes
-- the larger count of each replica, readers add them up.
CREATE TABLE dispatch_miss (
  replica  TEXT NOT NULL CHECK (length(replica) = 36),
  workload TEXT NOT NULL REFERENCES workload (hash),
  hardware TEXT NOT NULL REFERENCES hardware (hash),
  dims     TEXT NOT NULL,
  count    INTEGER NOT NULL CHECK (count > 0),
  PRIMARY KEY (replica, workload, hardware, dims)
) STRICT, WITHOUT ROWID;

CREATE TABLE import_batch (
  file_hash      TEXT PRIMARY KEY CHECK (length(file_hash) = 32),
  origin         TEXT NOT NULL,                   -- identity.uuid of the exporting database
  schema_version INTEGER NOT NULL,
  rows_added     INTEGER NOT NULL CHECK (rows_added >= 0),
  imported_at    INTEGER NOT NULL
) STRICT;
