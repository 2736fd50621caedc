// Cost models that outlive their campaign: what is signed is taken, everything else is told of and
// never read.
#include "tuner/service/model_keeper.h"

#include <gmock/gmock.h>

#include "tuner/search/features.h"
#include "tuner/service/test/service_fixture.h"

namespace nimble::tuner {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::vector<float>> kRows = {{1, 0}, {2, 0}, {3, 1}, {4, 1}, {5, 1}, {6, 0}};

CostModel learnt() {
  CostModel m(7);
  m.train(kRows, std::vector<double>{1, 1.1, 1.3, 1.7, 2.5, 4});
  return m;
}

class KeptModelTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    if (IsSkipped()) return;
    earlier = campaign(1, 1);
    const kernels::TargetInfo target = kernels::target_by_name("native");
    workload = store->put(tuned::workload_record(submission().tasks.at(0).workload(), target, 1));
    later = *store->campaign(earlier);
    later.uuid = db::new_uuid();
    later.created_at += 3'600'000;
  }
  ModelSigner signer() const { return {key, "planner"}; }
  std::optional<CostModel> kept() {
    return kept_model(*store, signer(), later, workload,
                      [this](const std::string& text) { said += text + "\n"; });
  }
  // A record as somebody else may write one.
  void put(const std::vector<uint8_t>& bytes) {
    db::CostModel m;
    m.campaign = earlier;
    m.workload = workload;
    m.model = bytes;
    store->add(m);
  }
  void sign(const trust::SigningKey& by, const db::Hash& of, const std::vector<uint8_t>& bytes) {
    trust::sign(*store, by, "planner",
                trust::claim_of(trust::LearntModel{earlier, of, db::digest_of(bytes)}));
  }
  std::vector<db::CostModel> models_of(const db::Uuid& campaign) {
    return store->cost_models(workload, store->campaign(campaign)->key.hardware, INT64_MAX, 100);
  }
  void expect_refused(const std::string& reason) {
    said.clear();
    EXPECT_FALSE(kept());
    EXPECT_THAT(said, HasSubstr("is left alone"));
    EXPECT_THAT(said, HasSubstr(reason));
  }
  db::Uuid earlier;
  db::Hash workload;
  db::Campaign later;
};

TEST_F(KeptModelTest, AnEarlierCampaignsModelPredictsAsItDid) {
  EXPECT_FALSE(kept());
  keep_model(*store, signer(), earlier, workload, CostModel(1), 0, std::nullopt);
  EXPECT_FALSE(kept()) << "it was never trained";
  keep_model(*store, signer(), earlier, workload, learnt(), 6, 0.9);
  const std::optional<CostModel> back = kept();
  ASSERT_TRUE(back) << said;
  EXPECT_EQ(back->predict(kRows), learnt().predict(kRows));
  EXPECT_EQ(models_of(earlier).at(0).rank_correlation, 0.9);
  EXPECT_THAT(said, IsEmpty());
  // Not of another workload, another kind of hardware, this campaign, or a later hour.
  EXPECT_FALSE(kept_model(*store, signer(), later, std::string(32, '0'), {}));
  db::Campaign other = later;
  other.key.hardware = std::string(32, '0');
  EXPECT_FALSE(kept_model(*store, signer(), other, workload, {}));
  other = later;
  other.uuid = earlier;
  EXPECT_FALSE(kept_model(*store, signer(), other, workload, {}));
  other = later;
  other.created_at = 1;
  EXPECT_FALSE(kept_model(*store, signer(), other, workload, {}));
}

TEST_F(KeptModelTest, OneThatNobodySignedIsNeverRead) {
  put({0xff, 0x00, 0x13});  // no model at all: whoever read it would say so
  expect_refused("is not signed");
  EXPECT_THAT(said, Not(HasSubstr("not a cost model")));
}

TEST_F(KeptModelTest, OneOfAnotherKeyIsRefused) {
  const std::vector<uint8_t> bytes = learnt().serialised();
  put(bytes);
  sign(trust::SigningKey::generate(), workload, bytes);
  expect_refused("does not trust");
}

TEST_F(KeptModelTest, OneOfARevokedKeyIsRefused) {
  keep_model(*store, signer(), earlier, workload, learnt(), 6, std::nullopt);
  ASSERT_TRUE(kept());
  store->revoke({key.public_key(), "laptop was stolen"});
  expect_refused("revoked");
}

TEST_F(KeptModelTest, OneWhoseBytesWereChangedIsRefused) {
  std::vector<uint8_t> bytes = learnt().serialised();
  sign(key, workload, bytes);
  bytes.back() ^= 1;
  put(bytes);
  expect_refused("is not signed");
}

TEST_F(KeptModelTest, OneThatWasSignedForAnotherWorkloadIsRefused) {
  const std::vector<uint8_t> bytes = learnt().serialised();
  put(bytes);
  sign(key, std::string(32, 'a'), bytes);
  expect_refused("is not signed");
}

TEST_F(KeptModelTest, OneOfOtherFeaturesIsRefused) {
  std::vector<uint8_t> bytes = learnt().serialised();
  bytes[4] = static_cast<uint8_t>(kFeatureVersion + 1);
  put(bytes);
  sign(key, workload, bytes);
  expect_refused("its features are of version");
}

TEST_F(KeptModelTest, BehindOneThatIsRefusedTheNextIsTaken) {
  keep_model(*store, signer(), earlier, workload, learnt(), 6, std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));  // later by the store's clock
  put({1, 2, 3});
  EXPECT_TRUE(kept());
  EXPECT_THAT(said, HasSubstr("is left alone"));
}

// Programs of before kept one of every round of a search, none of them signed.
TEST_F(KeptModelTest, HoweverManyNobodySignedTheSignedOneIsFound) {
  keep_model(*store, signer(), earlier, workload, learnt(), 6, std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));  // later by the store's clock
  for (uint8_t round = 0; round < 250; ++round) put({1, 2, round});
  EXPECT_TRUE(kept());
  EXPECT_THAT(said, HasSubstr("250 earlier cost models are left alone"));
}

// From end to end: what one campaign's service learnt ranks the first candidates of the next.
TEST_F(ServiceTest, ACampaignBeginsWithWhatAnEarlierOneLearnt) {
  const db::Uuid first = campaign(1.5, 1);
  start_worker("a");
  EXPECT_EQ(serve().finished, 1) << said;
  const db::Hash workload = store->tasks(first).at(0).workload;
  const auto models_of = [&](const db::Uuid& campaign) {
    auto all = store->cost_models(workload, store->campaign(campaign)->key.hardware, INT64_MAX, 9);
    std::erase_if(all, [&](const db::CostModel& m) { return m.campaign != campaign; });
    return all.size();
  };
  ASSERT_EQ(models_of(first), 1u) << said;
  const db::Uuid second = campaign(1.5, 2);
  EXPECT_EQ(serve().finished, 1) << said;
  EXPECT_THAT(said, Not(HasSubstr("is left alone")));
  expect_tuned(second);
  EXPECT_EQ(models_of(second), 1u);
}

}  // namespace
}  // namespace nimble::tuner
