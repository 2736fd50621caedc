-- Tombstones, and samples that may go under one: what ../0013_retention.sql is for.
CREATE TABLE tombstone (
  table_name plain_text NOT NULL CHECK (table_name IN ('samples', 'twin_samples')),
  row_key plain_text NOT NULL CHECK (row_key <> ''),
  reason plain_text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (table_name, row_key)
);

CREATE FUNCTION refuse_unless_entombed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM nimble.tombstone t
                 WHERE t.table_name = TG_TABLE_NAME AND t.row_key = OLD.measurement) THEN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END $$;
DO $$
DECLARE fact text;
BEGIN
  FOREACH fact IN ARRAY ARRAY['samples', 'twin_samples'] LOOP
    EXECUTE format('DROP TRIGGER %s_keeps ON %I', fact, fact);
    EXECUTE format('CREATE TRIGGER %s_keeps BEFORE UPDATE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_change()', fact, fact);
    EXECUTE format('CREATE TRIGGER %s_keeps_delete BEFORE DELETE ON %I '
                   'FOR EACH ROW EXECUTE FUNCTION refuse_unless_entombed()', fact, fact);
  END LOOP;
END $$;
CREATE TRIGGER tombstone_keeps_update BEFORE UPDATE ON tombstone
FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE INDEX measurement_by_time ON measurement (created_at, uuid);
