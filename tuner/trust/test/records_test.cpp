// Signatures by way of a database: found where they were laid, worth what this machine trusts.
#include "tuner/trust/records.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "db/store/test/fixture.h"

namespace nimble::trust {
namespace {

using db::error_of;
using testing::HasSubstr;

class RecordsTest : public db::FileTest {
 protected:
  Keyring ring(const std::string& machine) const { return Keyring(folder + "/" + machine); }
  Claim claim(const std::string& target = "x86-64-v4") const {
    return claim_of(Candidate{"01234567-89ab-4def-8123-456789abcdef", std::string(32, 'c'),
                              std::string(64, 'd'), target, "{}"});
  }
  std::string refusal(db::Store& store, const Keyring& keys, const Claim& of) {
    const Verifier verifier = verifier_of(keys, store);
    return error_of([&] { require_signed(store, verifier, of); }).problem();
  }
};

TEST_F(RecordsTest, AWorkerRunsWhatAKeyItTrustsSigned) {
  auto store = open();
  Keyring planner = ring("planner"), worker = ring("worker");
  const NamedKey key = planner.make("planner");
  EXPECT_THAT(refusal(*store, worker, claim()), HasSubstr("is not signed"));
  sign(*store, planner.open("planner"), "planner", claim());
  EXPECT_THAT(refusal(*store, worker, claim()), HasSubstr("does not trust"));
  worker.trust(key);
  EXPECT_EQ(require_signed(*store, verifier_of(worker, *store), claim()).name, "planner");
  EXPECT_EQ(trusted_keys_json(verifier_of(worker, *store)), "[\"" + key.key + "\"]");
  EXPECT_THAT(refusal(*store, worker, claim("x86-64-v3")), HasSubstr("is not signed"));
  // The key's name is announced, which trusts nobody: another worker goes on refusing.
  ASSERT_EQ(store->signing_keys().size(), 1u);
  EXPECT_EQ(store->signing_keys()[0].name, "planner");
  EXPECT_THAT(refusal(*store, ring("other"), claim()), HasSubstr("does not trust"));
}

TEST_F(RecordsTest, SomebodyElsesBytesUnderATrustedKeyAreNoSignature) {
  auto store = open();
  Keyring worker = ring("worker");
  const NamedKey key = worker.make("planner");
  const SigningKey stranger = SigningKey::generate();
  store->add(db::Signature{claim().subject, key.key, stranger.sign(claim().message)});
  EXPECT_THAT(refusal(*store, worker, claim()), HasSubstr("differs from what"));
  // A signature of one claim laid under another.
  store->add(db::Signature{claim().subject, key.key,
                           worker.open("planner").sign(claim("x86-64-v3").message)});
  EXPECT_THAT(refusal(*store, worker, claim()), HasSubstr("differs from what"));
  sign(*store, worker.open("planner"), "planner", claim());
  EXPECT_NO_THROW(require_signed(*store, verifier_of(worker, *store), claim()));
}

TEST_F(RecordsTest, ARevocationOfTheDatabaseCountsAlsoWhereItWasMerged) {
  Keyring worker = ring("worker");
  const NamedKey key = worker.make("planner");
  {
    auto elsewhere = open("elsewhere");
    elsewhere->revoke({key.key, "laptop was stolen"});
  }
  auto store = open();
  sign(*store, worker.open("planner"), "planner", claim());
  EXPECT_NO_THROW(require_signed(*store, verifier_of(worker, *store), claim()));
  store->import_from(file("elsewhere"));
  EXPECT_THAT(refusal(*store, worker, claim()), HasSubstr("revoked (laptop was stolen)"));
  // A copy that never heard of it undoes nothing.
  { open("innocent"); }
  store->import_from(file("innocent"));
  EXPECT_THAT(refusal(*store, worker, claim()), HasSubstr("revoked"));
}

TEST_F(RecordsTest, NoSecretEntersTheDatabase) {
  auto store = open();
  Keyring planner = ring("planner");
  planner.make("planner");
  const SigningKey pair = planner.open("planner");
  sign(*store, pair, "planner", claim());
  store->export_to(file("out"));
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    bytes.append(std::istreambuf_iterator<char>(in), {});
  }
  const SecretBytes seed = pair.seed();
  const std::string raw(reinterpret_cast<const char*>(seed.bytes().data()), seed.bytes().size());
  std::string hex;
  for (const uint8_t b : seed.bytes()) hex += fmt::format("{:02x}", b);
  EXPECT_NE(bytes.find(pair.public_key()), std::string::npos);
  EXPECT_EQ(bytes.find(raw), std::string::npos);
  EXPECT_EQ(bytes.find(hex), std::string::npos);
}

}  // namespace
}  // namespace nimble::trust
