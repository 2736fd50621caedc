// What a search believes of times that were taken in different hours.
#include "tuner/service/search_times.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "db/store/store.h"

namespace nimble::tuner {
namespace {

class SearchTimesTest : public testing::Test {
 protected:
  SearchTimesTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nimble-times-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    store = db::Store::open(folder + "/tuning.db");
    times.begin(*store, "default", 1000, {});
  }
  ~SearchTimesTest() override {
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }

  // A case of the anchors and these, on a machine so many times slower than at first; `beside`: the
  // default alone took so much longer. Whether it was believed.
  bool measure(const std::vector<std::pair<std::string, double>>& entries, double slower = 1,
               double beside = 1) {
    std::vector<db::Trial> trials;
    std::vector<EntryResult> results;
    const auto add = [&](const std::string& name, double ns) {
      db::Trial& t = trials.emplace_back();
      t.uuid = name;
      t.key.config = name;
      t.key.role = db::Role::kSearch;
      EntryResult& r = results.emplace_back();
      r.state = ns > 0 ? EntryState::kOk : EntryState::kCrashed;
      if (ns > 0) r.samples_ns = {ns, ns, ns};
    };
    for (const db::Uuid& anchor : times.anchors())
      add(anchor, anchor == "default" ? 1000 * slower * beside : known.at(anchor) * slower);
    for (const auto& [name, ns] : entries) {
      known[name] = ns;
      add(name, ns * slower);
    }
    return times.take(trials, results);
  }
  // What is believed of a trial that took `measured` when it was measured.
  double ns(const std::string& name, double measured) const {
    db::TrialOutcome o;
    o.trial.uuid = name;
    o.median_ns = measured;
    return times.ns(o).value_or(-1);
  }

  std::string folder;
  std::unique_ptr<db::Store> store;
  std::map<std::string, double> known;
  SearchTimes times;
};

TEST_F(SearchTimesTest, AMachineThatBecameSlowerCondemnsNobody) {
  ASSERT_TRUE(measure({{"a", 800}, {"b", 0}}));
  ASSERT_TRUE(measure({{"c", 700}}, 3));
  EXPECT_DOUBLE_EQ(ns("a", 800), 800);
  EXPECT_DOUBLE_EQ(ns("c", 2100), 700);
  EXPECT_EQ(times.anchors(), (std::vector<db::Uuid>{"default", "a"}));
  db::TrialOutcome failed;
  failed.trial.uuid = "b";
  EXPECT_FALSE(times.ns(failed));
}

TEST_F(SearchTimesTest, WithoutTheDefaultsTimeTimesStandAsTheyAre) {
  EXPECT_TRUE(measure({{"a", 800}}, 1, 0)) << "there is nothing that a second try would tell";
  EXPECT_DOUBLE_EQ(ns("a", 800), 800);
  EXPECT_EQ(times.anchors().size(), 1u);
}

TEST_F(SearchTimesTest, ACaseIsMeasuredAgainIfTheDefaultWasDisturbed) {
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(measure({{"a" + std::to_string(i), 900}}, 1 + i * 0.1));
  EXPECT_FALSE(measure({{"x", 950}}, 1, 4)) << "all beside it looks four times faster";
  EXPECT_DOUBLE_EQ(ns("x", 950), 950) << "nothing was learnt";
  EXPECT_TRUE(measure({{"x", 950}}, 2));
  EXPECT_DOUBLE_EQ(ns("x", 1900), 950);
}

// Until enough is known, nobody can tell.
TEST_F(SearchTimesTest, TheFirstCasesAreDoubtedLater) {
  ASSERT_TRUE(measure({{"a", 900}}));
  ASSERT_TRUE(measure({{"early", 950}}, 1, 4));
  EXPECT_LT(ns("early", 950), 300);
  ASSERT_TRUE(measure({{"b", 900}}));
  EXPECT_TRUE(times.doubted().empty());
  ASSERT_TRUE(measure({{"c", 900}}));
  EXPECT_EQ(times.doubted(), std::vector<db::Hash>{"early"});
  EXPECT_TRUE(times.doubted().empty()) << "told once";
  ASSERT_TRUE(measure({{"early", 950}}));
  EXPECT_DOUBLE_EQ(ns("early", 950), 950);
}

}  // namespace
}  // namespace nimble::tuner
