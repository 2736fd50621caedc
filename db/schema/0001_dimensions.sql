-- What was measured, and on what: the dimension tables.
--
-- A dimension row never changes. Its key is xxHash128 (32 hex digits) of its content, so two
-- databases that met the same hardware or configuration gave it the same key, and merging them is
-- "insert what is missing". Which fields the hash covers stands in db/store/records.cpp.
-- JSON is checked by the program that writes it: SQLite counts json_valid() among the functions that
-- a schema may not call while untrusted schemas are refused.
-- Times of day are milliseconds since 1970 (UTC); durations say their unit in their name.

CREATE TABLE migration (
  version    INTEGER PRIMARY KEY CHECK (version > 0),
  checksum   TEXT NOT NULL,                       -- xxHash128 of the migration's SQL text
  applied_at INTEGER NOT NULL
) STRICT;

-- This database itself: the origin that exports name, and the replica of the miss counters.
CREATE TABLE identity (
  only_row   INTEGER PRIMARY KEY CHECK (only_row = 1),
  uuid       TEXT NOT NULL CHECK (length(uuid) = 36),
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE hardware (
  hash        TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  vendor      TEXT NOT NULL,
  family      INTEGER NOT NULL,
  model       INTEGER NOT NULL,
  stepping    INTEGER NOT NULL,
  model_name  TEXT NOT NULL,
  isa         TEXT NOT NULL CHECK (isa <> ''),    -- 'x86-64-v4', 'sm_90': code for one may not run on another
  caches      TEXT NOT NULL,
  topology    TEXT NOT NULL,
  virtualised INTEGER NOT NULL CHECK (virtualised IN (0, 1))
) STRICT;

-- One box of that hardware. Holds no credentials.
CREATE TABLE machine (
  uuid     TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  hostname TEXT NOT NULL,
  hardware TEXT NOT NULL REFERENCES hardware (hash)
) STRICT;

-- What may change on a machine without changing its identity, as seen beside a measurement.
CREATE TABLE host_state (
  uuid     TEXT PRIMARY KEY CHECK (length(uuid) = 36),
  governor TEXT NOT NULL,
  turbo    INTEGER CHECK (turbo IN (0, 1)),       -- NULL: unknown
  smt      INTEGER CHECK (smt IN (0, 1)),
  affinity TEXT NOT NULL,
  load     REAL NOT NULL CHECK (load >= 0),       -- runnable threads other than ours
  steal    REAL NOT NULL CHECK (steal BETWEEN 0 AND 1)
) STRICT;

CREATE TABLE toolchain (
  hash            TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  compiler        TEXT NOT NULL CHECK (compiler <> ''),
  version         TEXT NOT NULL,                  -- 'major.minor.patch'
  flags           TEXT NOT NULL,
  codegen_version INTEGER NOT NULL CHECK (codegen_version > 0),
  revision        TEXT NOT NULL,
  dirty           INTEGER NOT NULL CHECK (dirty IN (0, 1))
) STRICT;

CREATE TABLE template (
  hash       TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  name       TEXT NOT NULL CHECK (name <> ''),
  version    INTEGER NOT NULL CHECK (version > 0),
  parameters TEXT NOT NULL
) STRICT;

CREATE TABLE workload (
  hash          TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  canonical     TEXT NOT NULL CHECK (canonical <> ''),  -- the full key; compared in full at lookup
  anchor        TEXT NOT NULL CHECK (anchor <> ''),     -- the key without its epilogue
  op            TEXT NOT NULL,
  dtype         TEXT NOT NULL,
  layout        TEXT NOT NULL,
  symbolic_dims TEXT NOT NULL,                          -- 'm,n'; '' when every dim is constant
  threads       INTEGER NOT NULL CHECK (threads > 0)
) STRICT;
CREATE INDEX workload_by_anchor ON workload (anchor);

CREATE TABLE shape (
  hash     TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  workload TEXT NOT NULL REFERENCES workload (hash),
  dims     TEXT NOT NULL,                         -- 'm=64,n=128', sorted by name
  flops    INTEGER NOT NULL CHECK (flops >= 0),
  bytes    INTEGER NOT NULL CHECK (bytes >= 0),
  UNIQUE (workload, dims)
) STRICT;

CREATE TABLE config (
  hash     TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  template TEXT NOT NULL REFERENCES template (hash),
  json     TEXT NOT NULL CHECK (json <> '') -- canonical: keys sorted, no white space
) STRICT;

-- A kernel as built. Equal code_hash: the same machine code, so any difference in time is noise.
CREATE TABLE artifact (
  hash       TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  code_hash  TEXT NOT NULL CHECK (code_hash <> ''),
  workload   TEXT NOT NULL REFERENCES workload (hash),
  config     TEXT NOT NULL REFERENCES config (hash),
  toolchain  TEXT NOT NULL REFERENCES toolchain (hash),
  compile_ms REAL NOT NULL CHECK (compile_ms >= 0 AND compile_ms < 1e12),
  size       INTEGER NOT NULL CHECK (size >= 0)
) STRICT;
CREATE INDEX artifact_by_config ON artifact (config);

-- How time was taken. Results of two policies are never ranked against each other.
CREATE TABLE measure_policy (
  hash      TEXT PRIMARY KEY CHECK (length(hash) = 32 AND hash NOT GLOB '*[^0-9a-f]*'),
  mode      TEXT NOT NULL CHECK (mode IN ('warm', 'cold')),
  warm_up   INTEGER NOT NULL CHECK (warm_up >= 0),
  threads   INTEGER NOT NULL CHECK (threads > 0),
  timer     TEXT NOT NULL,
  stop_rule TEXT NOT NULL
) STRICT;
