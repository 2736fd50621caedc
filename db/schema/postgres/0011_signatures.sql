-- Who signs, and what was signed: what ../0011_signatures.sql is for.
CREATE TABLE signing_key (
  public_key digest PRIMARY KEY,
  name plain_text NOT NULL CHECK (name <> ''),
  created_at bigint NOT NULL
);
CREATE TABLE key_revocation (
  public_key digest PRIMARY KEY,
  reason plain_text NOT NULL CHECK (reason <> ''),
  created_at bigint NOT NULL
);
CREATE TABLE signature (
  subject digest NOT NULL,
  public_key digest NOT NULL,
  bytes bytea NOT NULL CHECK (length(bytes) = 64),
  created_at bigint NOT NULL,
  PRIMARY KEY (subject, public_key, bytes)
);
CREATE TRIGGER signing_key_keeps BEFORE UPDATE OR DELETE ON signing_key
FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER key_revocation_keeps BEFORE UPDATE OR DELETE ON key_revocation
FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER signature_keeps BEFORE UPDATE OR DELETE ON signature
FOR EACH ROW EXECUTE FUNCTION refuse_change();
