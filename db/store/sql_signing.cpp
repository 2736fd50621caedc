// Public keys, revocations and signatures. Rows are only added: what is there already stays.
#include "db/store/sql_store.h"
#include "db/store/topics.h"

namespace nimble::db {

void SqlStore::put(const SigningKey& k) {
  db_->run(
      "INSERT INTO signing_key (public_key, name, created_at) VALUES (?,?,?) "
      "ON CONFLICT (public_key) DO NOTHING",
      k.public_key, k.name, now());
}

std::vector<SigningKey> SqlStore::signing_keys() {
  Statement row = db_->prepare(
      "SELECT public_key, name, created_at FROM signing_key ORDER BY name, public_key");
  std::vector<SigningKey> all;
  while (row.step()) all.push_back({row.text(0), row.text(1), row.integer(2)});
  return all;
}

bool SqlStore::revoke(const KeyRevocation& r) {
  Write write = begin_write();
  db_->run(
      "INSERT INTO key_revocation (public_key, reason, created_at) VALUES (?,?,?) "
      "ON CONFLICT (public_key) DO NOTHING",
      r.public_key, r.reason, now());
  const bool added = db_->changes() > 0;
  // Whoever watches stops what the key has signed.
  if (added) note_event(topic::kKey, {}, r.public_key, R"({"state":"revoked"})");
  write.commit();
  return added;
}

std::vector<KeyRevocation> SqlStore::key_revocations() {
  Statement row =
      db_->prepare("SELECT public_key, reason, created_at FROM key_revocation ORDER BY public_key");
  std::vector<KeyRevocation> all;
  while (row.step()) all.push_back({row.text(0), row.text(1), row.integer(2)});
  return all;
}

void SqlStore::add(const Signature& s) {
  db_->run(
      "INSERT INTO signature (subject, public_key, bytes, created_at) VALUES (?,?,?,?) "
      "ON CONFLICT (subject, public_key, bytes) DO NOTHING",
      s.subject, s.public_key, std::span<const uint8_t>(s.bytes), now());
}

std::vector<Signature> SqlStore::signatures(const std::string& subject) {
  Statement row = db_->prepare(
      "SELECT public_key, bytes, created_at FROM signature WHERE subject = ? "
      "ORDER BY public_key, created_at LIMIT 100");
  row.bind(subject);
  std::vector<Signature> all;
  while (row.step()) {
    const std::span<const uint8_t> bytes = row.blob(1);
    all.push_back({subject, row.text(0), {bytes.begin(), bytes.end()}, row.integer(2)});
  }
  return all;
}

}  // namespace nimble::db
