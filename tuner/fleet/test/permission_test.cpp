// Whose candidates run on a machine: each way in which a database could pass one off is refused.
#include "tuner/fleet/permission.h"

#include <functional>

#include "tuner/fleet/test/fleet_fixture.h"
#include "tuner/trust/records.h"
#include "vm/base/cpu.h"

namespace nimble::tuner {
namespace {

using testing::HasSubstr;

class PermissionTest : public FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    if (IsSkipped()) return;
    ring.emplace(folder + "/keys");
    planner = ring->make("planner").key;
    uuid = store->publish(job({"test.copy"}));
    claim();
  }
  void claim() {
    published = *store->job(uuid);
    bytes = *store->blob(*published.trials[1].candidate);
  }
  // Signs the second trial of the job, as the key of that name.
  void sign(const std::string& name, const std::function<void(trust::Candidate&)>& change = {}) {
    trust::Candidate c{published.campaign, published.measure_case, *published.trials[1].candidate,
                       "x86-64", published.limits};
    if (change) change(c);
    trust::sign(*store, ring->open(name), name, trust::claim_of(c));
  }
  // Why it may not run; empty: it may.
  std::string refusal(std::vector<std::string> only = {}) {
    SignedOnly permission(*ring, std::move(only));
    permission.renew(*store);
    return refusal_by(permission);
  }
  std::string refusal_by(SignedOnly& permission) {
    try {
      permission.require(*store, published, published.trials[1], bytes);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }

  std::optional<trust::Keyring> ring;
  trust::PublicKey planner;
  db::Uuid uuid;
  db::Job published;
  std::vector<uint8_t> bytes;
};

TEST_F(PermissionTest, WhatATrustedKeySignedRuns) {
  EXPECT_THAT(refusal(), HasSubstr("is not signed"));
  sign("planner");
  EXPECT_EQ(refusal(), "");
}

TEST_F(PermissionTest, AGpusCodeRunsOnThatGpuAlone) {
  sign("planner");
  const GpuFacts h100{"NVIDIA H100", 90}, a100{"NVIDIA A100", 80};
  SignedOnly cpu(*ring), hopper(*ring, {}, h100), ampere(*ring, {}, a100);
  for (SignedOnly* permission : {&cpu, &hopper, &ampere}) permission->renew(*store);
  EXPECT_EQ(refusal_by(cpu), "");
  EXPECT_THAT(refusal_by(hopper), HasSubstr("is code for x86-64, and this worker's GPU"));
  uuid = store->publish(job({"test.slow"}, 32, another_campaign(), "sm_90a"));
  claim();
  sign("planner", [](auto& c) { c.target = "sm_90a"; });
  EXPECT_EQ(refusal_by(hopper), "");
  EXPECT_THAT(refusal_by(ampere), HasSubstr("(NVIDIA A100) is of compute capability 8.0"));
  EXPECT_THAT(refusal_by(cpu), HasSubstr("is code for sm_90a, and this machine is"));
}

TEST_F(PermissionTest, ASignatureOfAnythingElseIsNone) {
  sign("planner", [&](auto& c) { c.campaign = another_campaign(); });
  sign("planner", [&](auto& c) { c.measure_case = db::hash_of("another case"); });
  sign("planner", [&](auto& c) { c.code = db::digest_of({}); });
  sign("planner", [&](auto& c) { c.target = "x86-64-v2"; });
  sign("planner", [&](auto& c) { c.limits = R"({"case_s":21})"; });
  EXPECT_THAT(refusal(), HasSubstr("is not signed"));
  // Nor does a true one serve another job.
  sign("planner");
  published.campaign = another_campaign();
  EXPECT_THAT(refusal(), HasSubstr("is not signed"));
  claim();
  published.limits = R"({"case_s":3600})";
  EXPECT_THAT(refusal(), HasSubstr("is not signed"));
  claim();
  EXPECT_EQ(refusal(), "");
}

TEST_F(PermissionTest, OtherBytesThanThoseThatWereSignedAreRefused) {
  sign("planner");
  bytes.back() ^= 1;
  EXPECT_THAT(refusal(), HasSubstr("is not what was published"));
}

TEST_F(PermissionTest, ASignatureThatWasMovedToAnotherClaimDoesNotFit) {
  sign("planner", [&](auto& c) { c.target = "x86-64-v2"; });
  const auto of = [&](const std::string& target) {
    return trust::claim_of(trust::Candidate{published.campaign, published.measure_case,
                                            *published.trials[1].candidate, target,
                                            published.limits});
  };
  db::Signature moved = store->signatures(of("x86-64-v2").subject).at(0);
  moved.subject = of("x86-64").subject;
  store->add(moved);
  EXPECT_THAT(refusal(), HasSubstr("differs from what key"));
}

TEST_F(PermissionTest, AKeyThatIsNotTrustedOrWasRevokedSignsInVain) {
  ring->make("other");
  const trust::PublicKey other = ring->trusted()[1].key;
  sign("other");
  ring->distrust(other);
  EXPECT_THAT(refusal(), HasSubstr("which this machine does not trust"));
  sign("planner");
  EXPECT_EQ(refusal(), "");
  SignedOnly permission(*ring);
  EXPECT_FALSE(permission.renew(*store));
  EXPECT_FALSE(permission.renew(*store)) << "nothing changed";
  store->revoke({planner, "laptop was stolen"});
  EXPECT_TRUE(permission.renew(*store));
  EXPECT_THAT(refusal_by(permission), HasSubstr("which is revoked (laptop was stolen)"));
  EXPECT_TRUE(permission.keys().empty());
  EXPECT_EQ(permission.trusted_keys(), "[]");
}

TEST_F(PermissionTest, ARevocationOfTheMachinesOwnListCounts) {
  sign("planner");
  ring->revoke(planner, "lost", 1);
  EXPECT_THAT(refusal(), HasSubstr("which is revoked (lost)"));
}

TEST_F(PermissionTest, CodeForAnotherMachineIsRefusedByNameThoughItIsSigned) {
  for (const char* target : {"cuda-sm_90", "aarch64", "x86-64-v9"}) {
    const db::NewJob foreign = job({"test.copy"}, 64, another_campaign(), target);
    db::NewJob changed = foreign;
    // Another artifact, since a candidate's first record counts.
    changed.trials[1].artifact = fleet->artifact(5000 + static_cast<int>(target[0]));
    store->put(db::Candidate{changed.trials[1].artifact, *changed.trials[1].candidate, target});
    uuid = store->publish(changed);
    claim();
    sign("planner", [&](auto& c) { c.target = target; });
    EXPECT_THAT(refusal(), HasSubstr(fmt::format("is code for {}, and this machine is {}", target,
                                                 host_cpu().level)));
  }
}

TEST_F(PermissionTest, OfSeveralKeysOnlyThoseThatWereChosenCount) {
  const trust::PublicKey other = ring->make("other").key;
  sign("planner");
  EXPECT_EQ(refusal({"planner"}), "");
  EXPECT_EQ(refusal({"other", planner}), "");
  EXPECT_THAT(refusal({"other"}), HasSubstr("which this machine does not trust"));
  EXPECT_THROW(refusal({"nobody"}), Error);
  EXPECT_THROW(refusal({std::string(64, '0')}), Error) << "no key";
  // A whole key need not be in the list; a name's trust ends with its line there.
  SignedOnly by_name(*ring, {"planner", other}), by_key(*ring, {planner});
  by_name.renew(*store);
  by_key.renew(*store);
  ring->distrust(planner);
  EXPECT_TRUE(by_name.renew(*store));
  EXPECT_FALSE(by_key.renew(*store));
  EXPECT_NE(refusal_by(by_name), "");
  EXPECT_EQ(refusal_by(by_key), "");
}

}  // namespace
}  // namespace nimble::tuner
