// Signatures, what they cover, and whom a machine trusts. Every refusal has its test.
#include <gmock/gmock.h>

#include "db/store/hash.h"
#include "db/store/test/fixture.h"
#include "tuner/trust/verifier.h"

namespace nimble::trust {
namespace {

using db::digest_of;
using db::error_of;
using testing::HasSubstr;

std::vector<uint8_t> from_hex(std::string_view text) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return out;
}

std::vector<uint8_t> bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

// RFC 8032, section 7.1, tests 1 and 2.
TEST(SigningKey, SignsAsTheStandardSays) {
  struct Vector {
    const char *seed, *key, *message, *signature;
  };
  for (const Vector& v :
       {Vector{"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
               "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
               "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc6"
               "1e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
        Vector{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
               "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
               "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e45"
               "8f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"}}) {
    const SigningKey pair(from_hex(v.seed));
    EXPECT_EQ(pair.public_key(), v.key);
    EXPECT_EQ(pair.sign(from_hex(v.message)), from_hex(v.signature));
    EXPECT_TRUE(is_signed(from_hex(v.message), from_hex(v.signature), v.key));
  }
}

TEST(SigningKey, TheSeedMakesThePairAgainAndNoTwoAreAlike) {
  const SigningKey a = SigningKey::generate(), b = SigningKey::generate();
  EXPECT_NE(a.public_key(), b.public_key());
  EXPECT_EQ(SigningKey(a.seed().bytes()).public_key(), a.public_key());
}

TEST(SigningKey, WhatIsNoSignatureOfTheMessageIsTold) {
  const SigningKey pair = SigningKey::generate(), other = SigningKey::generate();
  const std::vector<uint8_t> message = bytes_of("message"), good = pair.sign(message);
  ASSERT_TRUE(is_signed(message, good, pair.public_key()));
  EXPECT_FALSE(is_signed(bytes_of("messagf"), good, pair.public_key()));
  EXPECT_FALSE(is_signed(message, good, other.public_key()));
  EXPECT_FALSE(is_signed(message, other.sign(message), pair.public_key()));
  EXPECT_FALSE(is_signed(message, std::span(good).first(63), pair.public_key()));
  EXPECT_FALSE(is_signed(message, {}, pair.public_key()));
  EXPECT_FALSE(is_signed(message, good, "no key"));
  for (const size_t at : {size_t{0}, size_t{31}, size_t{32}, size_t{63}}) {
    std::vector<uint8_t> bad = good;
    bad[at] ^= 1;
    EXPECT_FALSE(is_signed(message, bad, pair.public_key())) << at;
  }
  // The same point with the group's order added to the scalar: another encoding of one signature.
  const std::vector<uint8_t> order =
      from_hex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
  std::vector<uint8_t> twin = good;
  for (size_t i = 0, carry = 0; i < 32; ++i) {
    carry += twin[32 + i] + size_t{order[i]};
    twin[32 + i] = static_cast<uint8_t>(carry);
    carry >>= 8;
  }
  EXPECT_FALSE(is_signed(message, twin, pair.public_key()));
}

TEST(PublicKey, WhatIsNoneIsRefused) {
  const PublicKey good = SigningKey::generate().public_key();
  EXPECT_EQ(public_key_from_text(good, "here"), good);
  std::string upper = good;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(public_key_from_text(upper, "here"), good);
  const std::string zeros(62, '0');
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "0", "x" + good.substr(1), " " + good.substr(1),
        "00" + zeros, "01" + zeros,  // of small order: they would sign anything
        std::string(64, 'f')}) {
    const Error error = error_of([&] { public_key_from_text(bad, "here"); });
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << bad;
    EXPECT_EQ(error.place(), "here");
  }
}

Candidate example() {
  return {"01234567-89ab-4def-8123-456789abcdef", std::string(32, 'c'),
          digest_of(bytes_of("executable")), "x86-64-v4", R"({"memory":1024})"};
}

// The encoding is a promise to signatures that exist: it never changes under its name.
TEST(Claim, IsEncodedInOneWay) {
  const Candidate c = example();
  std::vector<uint8_t> expected = bytes_of("nimble candidate 1");
  expected.push_back(0);
  for (const std::string& field : {c.campaign, c.measure_case, c.code, c.target, c.limits}) {
    for (int shift = 0; shift < 64; shift += 8)
      expected.push_back(static_cast<uint8_t>(field.size() >> shift));
    expected.insert(expected.end(), field.begin(), field.end());
  }
  EXPECT_EQ(claim_of(c).message, expected);
  EXPECT_EQ(claim_of(c).subject, digest_of(expected));
  EXPECT_EQ(digest_of({}), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8")
      << "BLAKE2b-256 of nothing";
}

TEST(Claim, EveryFieldCounts) {
  std::vector<Candidate> others(5, example());
  others[0].campaign[0] = 'f';
  others[1].measure_case[0] = 'f';
  others[2].code[0] = others[2].code[0] == 'f' ? 'e' : 'f';
  others[3].target = "x86-64-v3";
  others[4].limits = R"({"memory":1025})";
  // What leaves one field and enters the next.
  others.push_back(example());
  others.back().target += "{";
  others.back().limits = others.back().limits.substr(1);
  std::set<std::vector<uint8_t>> messages = {claim_of(example()).message};
  std::set<std::string> subjects = {claim_of(example()).subject};
  for (const Candidate& c : others) {
    EXPECT_TRUE(messages.insert(claim_of(c).message).second);
    EXPECT_TRUE(subjects.insert(claim_of(c).subject).second);
  }
}

TEST(Claim, OfAnotherFormIsRefused) {
  std::vector<Candidate> bad(8, example());
  bad[0].campaign = "x";
  bad[1].campaign = "";
  bad[2].measure_case = "";
  bad[3].measure_case += "0";
  bad[4].code = std::string(64, 'F');
  bad[5].code = std::string(32, 'f');
  bad[6].target = "";
  bad[7].limits = "";
  for (const Candidate& c : bad)
    EXPECT_EQ(error_of([&] { claim_of(c); }).status(), Status::kInvalidArgument);
  EXPECT_THROW(claim_of(LearntModel{example().campaign, "x", example().code}), Error);
  EXPECT_THROW(claim_of(LearntModel{"x", example().measure_case, example().code}), Error);
  EXPECT_THROW(claim_of(LearntModel{example().campaign, example().measure_case, ""}), Error);
}

class VerifierTest : public testing::Test {
 protected:
  Signature sign(const SigningKey& key, const Claim& claim) const {
    return {key.public_key(), key.sign(claim.message)};
  }
  std::string refusal(const Verifier& v, const Claim& claim, const std::vector<Signature>& by) {
    const Error error = error_of([&] { v.require(claim, by); });
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    EXPECT_EQ(error.place(), claim.name);
    EXPECT_FALSE(error.remedy().empty());
    return error.problem();
  }
  SigningKey mine = SigningKey::generate(), other = SigningKey::generate();
  Claim claim = claim_of(example());
  std::vector<NamedKey> trusted = {{mine.public_key(), "mine"}};
};

TEST_F(VerifierTest, TellsTheTrustedKeyThatSigned) {
  const Verifier v(trusted, {});
  EXPECT_EQ(v.require(claim, std::vector{sign(mine, claim)}).name, "mine");
  EXPECT_EQ(v.require(claim, std::vector{sign(other, claim), sign(mine, claim)}).name, "mine")
      << "one suffices";
  ASSERT_EQ(v.keys().size(), 1u);
}

TEST_F(VerifierTest, RefusesWhatIsNotSignedByWhomItTrusts) {
  const Verifier v(trusted, {});
  EXPECT_THAT(refusal(v, claim, {}), HasSubstr("is not signed"));
  EXPECT_THAT(refusal(v, claim, {sign(other, claim)}), HasSubstr("does not trust"));
  EXPECT_THAT(refusal(Verifier({}, {}), claim, {sign(mine, claim)}), HasSubstr("does not trust"));
  // Somebody else's signature under a trusted name, and none at all under it.
  EXPECT_THAT(refusal(v, claim, {{mine.public_key(), other.sign(claim.message)}}),
              HasSubstr("differs from what"));
  EXPECT_THAT(refusal(v, claim, {{mine.public_key(), {}}}), HasSubstr("differs from what"));
  EXPECT_THAT(refusal(v, claim, {{"\n", {}}}), HasSubstr("key ?"));
}

TEST_F(VerifierTest, RefusesASignatureOfAnythingElse) {
  const Verifier v(trusted, {});
  const Signature s = sign(mine, claim);
  std::vector<Candidate> changed(5, example());
  changed[0].campaign[0] = 'f';
  changed[1].measure_case[0] = 'f';
  changed[2].code[0] = changed[2].code[0] == 'f' ? 'e' : 'f';
  changed[3].target = "x86-64-v3";
  changed[4].limits = R"({"memory":1025})";
  for (const Candidate& c : changed)
    EXPECT_THAT(refusal(v, claim_of(c), {s}), HasSubstr("differs from what"));
  // A cost model of the same digests is another kind of claim.
  const Claim model =
      claim_of(LearntModel{example().campaign, example().measure_case, example().code});
  EXPECT_THAT(refusal(v, model, {s}), HasSubstr("differs from what"));
  EXPECT_EQ(v.require(model, std::vector{sign(mine, model)}).name, "mine");
}

TEST_F(VerifierTest, RefusesARevokedKeyWhoeverTrustsIt) {
  const Revocation revoked{mine.public_key(), "laptop was stolen", 0};
  const Verifier v(trusted, {revoked});
  EXPECT_TRUE(v.keys().empty());
  EXPECT_THAT(refusal(v, claim, {sign(mine, claim)}), HasSubstr("revoked (laptop was stolen)"));
  // Another trusted key is still good.
  const Verifier both({trusted[0], {other.public_key(), "other"}}, {revoked});
  EXPECT_EQ(both.require(claim, std::vector{sign(mine, claim), sign(other, claim)}).name, "other");
}

}  // namespace
}  // namespace nimble::trust
