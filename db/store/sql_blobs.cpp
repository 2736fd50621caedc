// Bytes by content, the executables among them, and the cases that they are measured in.
#include <zstd.h>

#include <cmath>

#include "db/store/hash.h"
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

constexpr size_t kLargestBlob = size_t{1} << 30;
constexpr int kLevel = 3;  // executables of some KiB: higher ones win a few percent only

// Empty where packing gains nothing.
std::vector<uint8_t> packed(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> out(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size) || size >= bytes.size()) return {};
  out.resize(size);
  return out;
}

}  // namespace

std::vector<uint8_t> unpack_blob(const std::string& digest, int64_t size, std::string_view encoding,
                                 std::span<const uint8_t> bytes) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(Status::kCorrupt, fmt::format("blob {}", digest), problem, "restore a copy");
  };
  if (size < 0 || static_cast<size_t>(size) > kLargestBlob) refuse("has a size that none has");
  std::vector<uint8_t> out;
  if (encoding == "removed") refuse("was removed to save room");
  if (encoding == "zstd") {
    out.resize(static_cast<size_t>(size));
    const size_t got = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(got) || got != out.size()) refuse("cannot be unpacked");
  } else {
    out.assign(bytes.begin(), bytes.end());
    if (out.size() != static_cast<size_t>(size)) refuse("has another size than it says");
  }
  if (digest_of(out) != digest) refuse("does not have the digest under which it is stored");
  return out;
}

Digest SqlStore::put_blob(std::span<const uint8_t> bytes) {
  if (bytes.size() > kLargestBlob)
    throw Error(Status::kInvalidArgument, "blob", fmt::format("has {} bytes", bytes.size()),
                fmt::format("at most {} can be stored", kLargestBlob));
  const Digest digest = digest_of(bytes);
  if (has_blob(digest)) return digest;
  const std::vector<uint8_t> small = packed(bytes);
  const std::string_view encoding = small.empty() ? "raw" : "zstd";
  const std::span<const uint8_t> stored = small.empty() ? bytes : std::span<const uint8_t>(small);
  Write write = begin_write();
  db_->run(
      "INSERT INTO blob (digest, size, encoding, bytes) VALUES (?,?,?,?) "
      "ON CONFLICT (digest) DO NOTHING",
      digest, static_cast<int64_t>(bytes.size()), encoding, stored);
  // It was there once, and its bytes were removed. A role that may only add needs not say so.
  if (db_->changes() == 0 && !has_blob(digest))
    db_->run("UPDATE blob SET encoding = ?, bytes = ? WHERE digest = ? AND encoding = 'removed'",
             encoding, stored, digest);
  write.commit();
  return digest;
}

std::optional<std::vector<uint8_t>> SqlStore::blob(const Digest& digest) {
  Statement row = db_->prepare(
      "SELECT size, encoding, bytes FROM blob WHERE digest = ? AND encoding <> 'removed'");
  if (!row.bind(digest).step()) return std::nullopt;
  return unpack_blob(digest, row.integer(0), row.text(1), row.blob(2));
}

bool SqlStore::has_blob(const Digest& digest) {
  return exists("SELECT 1 FROM blob WHERE digest = ? AND encoding <> 'removed'", digest);
}

void SqlStore::put(const Candidate& c) {
  if (c.target.empty())
    throw Error(Status::kInvalidArgument, "candidate", "names no target",
                "say what its machine code may use");
  db_->run(
      "INSERT INTO candidate (artifact, digest, target, created_at) VALUES (?,?,?,?) "
      "ON CONFLICT (artifact, digest) DO NOTHING",
      c.artifact, c.digest, c.target, now());
}

std::vector<Candidate> SqlStore::candidates(const Hash& artifact) {
  std::vector<Candidate> all;
  Statement row = db_->prepare(
      "SELECT artifact, digest, target, created_at FROM candidate WHERE artifact = ? "
      "ORDER BY created_at DESC, digest");
  row.bind(artifact);
  while (row.step()) all.push_back({row.text(0), row.text(1), row.text(2), row.integer(3)});
  return all;
}

std::optional<Artifact> SqlStore::artifact(const Hash& hash) {
  Statement row = db_->prepare(
      "SELECT code_hash, workload, config, toolchain, compile_ms, size FROM artifact "
      "WHERE hash = ?");
  if (!row.bind(hash).step()) return std::nullopt;
  return Artifact{row.text(0), row.text(1), row.text(2), row.text(3), row.real(4), row.integer(5)};
}

Hash SqlStore::put(const MeasureCase& c) {
  if (!(c.tolerance >= 0) || !std::isfinite(c.tolerance))
    throw Error(Status::kInvalidArgument, "case", fmt::format("{} is no tolerance", c.tolerance));
  const Hash key = key_of(c);
  if (exists("SELECT 1 FROM measure_case WHERE hash = ?", key)) return key;
  db_->run(
      "INSERT INTO measure_case (hash, workload, shape, policy, seed, fills, tolerance, expected) "
      "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (hash) DO NOTHING",
      key, c.workload, c.shape, c.policy, c.seed, canonical_json(c.fills, "fills of a case"),
      c.tolerance, c.expected);
  return key;
}

std::optional<MeasureCase> SqlStore::measure_case(const Hash& hash) {
  Statement row = db_->prepare(
      "SELECT workload, shape, policy, seed, fills, tolerance, expected FROM measure_case "
      "WHERE hash = ?");
  if (!row.bind(hash).step()) return std::nullopt;
  return MeasureCase{row.text(0), row.text(1), row.text(2),      row.integer(3),
                     row.text(4), row.real(5), row.maybe_text(6)};
}

std::optional<MeasurePolicy> SqlStore::policy(const Hash& hash) {
  Statement row = db_->prepare(
      "SELECT mode, warm_up, threads, timer, stop_rule, class FROM measure_policy WHERE hash = ?");
  if (!row.bind(hash).step()) return std::nullopt;
  return MeasurePolicy{cache_mode_from_name(row.text(0)).value(),
                       row.integer(1),
                       row.integer(2),
                       row.text(3),
                       row.text(4),
                       row.text(5)};
}

std::optional<Machine> SqlStore::machine(const Uuid& uuid) {
  Statement row = db_->prepare("SELECT hostname, hardware FROM machine WHERE uuid = ?");
  if (!row.bind(uuid).step()) return std::nullopt;
  return Machine{uuid, row.text(0), row.text(1)};
}

}  // namespace nimble::db
