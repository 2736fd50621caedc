-- What was removed on purpose. Samples go, the measurement with its summary stays; a tombstone keeps
-- them from coming back with the next import.
CREATE TABLE tombstone (
  table_name TEXT NOT NULL CHECK (table_name IN ('samples', 'twin_samples')),
  row_key    TEXT NOT NULL CHECK (row_key <> ''),
  reason     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (table_name, row_key)
) STRICT, WITHOUT ROWID;

DROP TRIGGER samples_keeps_delete;
CREATE TRIGGER samples_keeps_delete BEFORE DELETE ON samples
WHEN NOT EXISTS (SELECT 1 FROM tombstone t
                 WHERE t.table_name = 'samples' AND t.row_key = OLD.measurement)
BEGIN SELECT RAISE(ABORT, 'samples is append-only'); END;
DROP TRIGGER twin_samples_keeps_delete;
CREATE TRIGGER twin_samples_keeps_delete BEFORE DELETE ON twin_samples
WHEN NOT EXISTS (SELECT 1 FROM tombstone t
                 WHERE t.table_name = 'twin_samples' AND t.row_key = OLD.measurement)
BEGIN SELECT RAISE(ABORT, 'twin_samples is append-only'); END;
CREATE TRIGGER tombstone_keeps_update BEFORE UPDATE ON tombstone
BEGIN SELECT RAISE(ABORT, 'tombstone is append-only'); END;

-- Measurements by age, for what removes and for what shows the newest.
CREATE INDEX measurement_by_time ON measurement (created_at, uuid);
