-- Who signs, who must not any more, and what was signed. Nothing of it gives trust: whom a machine
-- trusts stands in its user's configuration, and a signature is checked by whoever relies on it. A
-- revocation counts wherever it comes from, and rows are only added, so no merge undoes one. Secret
-- keys never get here.

-- A key by its name, for people.
CREATE TABLE signing_key (
  public_key TEXT PRIMARY KEY CHECK (length(public_key) = 64 AND public_key NOT GLOB '*[^0-9a-f]*'),
  name       TEXT NOT NULL CHECK (name <> ''),
  created_at INTEGER NOT NULL
) STRICT;

-- Also of keys that nobody has named here.
CREATE TABLE key_revocation (
  public_key TEXT PRIMARY KEY CHECK (length(public_key) = 64 AND public_key NOT GLOB '*[^0-9a-f]*'),
  reason     TEXT NOT NULL CHECK (reason <> ''),
  created_at INTEGER NOT NULL
) STRICT;

-- Of the message with this digest (tuner/trust/claim.h). The bytes are part of the key: somebody's
-- wrong ones must not take the place of the right ones.
CREATE TABLE signature (
  subject    TEXT NOT NULL CHECK (length(subject) = 64 AND subject NOT GLOB '*[^0-9a-f]*'),
  public_key TEXT NOT NULL CHECK (length(public_key) = 64 AND public_key NOT GLOB '*[^0-9a-f]*'),
  bytes      BLOB NOT NULL CHECK (length(bytes) = 64),
  created_at INTEGER NOT NULL,
  PRIMARY KEY (subject, public_key, bytes)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER signing_key_keeps_update BEFORE UPDATE ON signing_key
BEGIN SELECT RAISE(ABORT, 'signing_key is append-only'); END;
CREATE TRIGGER signing_key_keeps_delete BEFORE DELETE ON signing_key
BEGIN SELECT RAISE(ABORT, 'signing_key is append-only'); END;

CREATE TRIGGER key_revocation_keeps_update BEFORE UPDATE ON key_revocation
BEGIN SELECT RAISE(ABORT, 'key_revocation is append-only'); END;
CREATE TRIGGER key_revocation_keeps_delete BEFORE DELETE ON key_revocation
BEGIN SELECT RAISE(ABORT, 'key_revocation is append-only'); END;

CREATE TRIGGER signature_keeps_update BEFORE UPDATE ON signature
BEGIN SELECT RAISE(ABORT, 'signature is append-only'); END;
CREATE TRIGGER signature_keeps_delete BEFORE DELETE ON signature
BEGIN SELECT RAISE(ABORT, 'signature is append-only'); END;
