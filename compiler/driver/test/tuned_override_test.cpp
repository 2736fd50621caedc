// What people have laid over tables of a tuning database, as the compiler takes it.
#include <algorithm>

#include "compiler/driver/test/tuned_fixture.h"

namespace nimble::driver::testing {
namespace {

TEST_F(Tuned, AnOverrideIsLaidOverWhicheverTableIsActive) {
  const db::DispatchTable first = *store_->table(table(1, {0, 1}));
  const db::Hash config = store_->table(table(2, {2}))->entries[0].config;
  const db::Uuid word = lay({{"s0", {20, 40}}}, config, first);
  const auto chosen = [&](int64_t rows) {
    const tuned::Lookup found = find();
    const uint32_t leaf = found.choice->tree.choose(std::vector<int64_t>{rows}, 1);
    const auto it = std::find_if(candidates_.begin(), candidates_.end(), [&](const auto& c) {
      return c.config == found.choice->candidates.at(leaf).config;
    });
    return it - candidates_.begin();
  };
  for (int pass = 0; pass < 2; ++pass) {
    const long below = pass, above = 1 - pass;
    EXPECT_EQ(chosen(8), below);
    EXPECT_EQ(chosen(19), above);
    EXPECT_EQ(chosen(20), 2);
    EXPECT_EQ(chosen(40), 2);
    EXPECT_EQ(chosen(41), above);
    if (pass == 0) table(1, {1, 0});  // another one becomes active
  }
  // The later of two that overlap counts.
  const db::Uuid later = lay({{"s0", {30, std::nullopt}}}, first.entries[0].config, first);
  EXPECT_EQ(chosen(29), 2);
  EXPECT_EQ(chosen(30), 0);
  const KernelReport k = compiled();
  EXPECT_NE(k.reason.find("2 overrides in force"), std::string::npos) << k.reason;
  EXPECT_NE(k.evidence.find(word), std::string::npos);
  store_->withdraw(later, "no");
  store_->withdraw(word, "no");
  EXPECT_EQ(chosen(30), 0);
  EXPECT_EQ(chosen(8), 1);
  EXPECT_EQ(compiled().reason, "");
}

TEST_F(Tuned, AnOverrideOfAnUntunedWorkloadIsLaidOverTheDefault) {
  const db::DispatchTable t = *store_->table(table(1, {1}));
  lay({{"s0", {20, 40}}}, t.entries[0].config, t);
  store_->roll_back(t.uuid, "none is left");
  const tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kUntuned);
  ASSERT_TRUE(found.choice);
  const auto chosen = [&](int64_t rows) {
    return found.choice->candidates.at(found.choice->tree.choose(std::vector<int64_t>{rows}, 1));
  };
  EXPECT_EQ(chosen(30).config, candidates_[1].config);
  EXPECT_EQ(chosen(41).config, candidates_[0].config);
  EXPECT_EQ(compiled().outcome, tuned::Lookup::Outcome::kUntuned);
}

TEST_F(Tuned, AnOverrideThatCannotBeUsedIsReportedAndLeftOut) {
  const db::DispatchTable t = *store_->table(table(1, {0}));
  lay({{"moon", {1, 2}}}, t.entries[0].config, t);
  lay({{"threads", {1, 2}}}, t.entries[0].config, t);
  const db::Hash odd = store_->put(db::Config{store_->put(db::Template{"hexagonal", 1, ""}), "{}"});
  lay({}, odd, t);
  const db::Hash vendor =
      store_->put(db::Config{store_->put(db::Template{tuned::kVendorTemplate, 1, ""}), "{}"});
  lay({}, vendor, t);
  const tuned::Lookup found = find();
  EXPECT_EQ(found.outcome, tuned::Lookup::Outcome::kTuned);
  EXPECT_EQ(found.choice->candidates.size(), 1u);
  for (const char* word : {"moon is not a feature", "threads is not a feature",
                           "hexagonal does not", "names no routine", "override "})
    EXPECT_NE(found.reason.find(word), std::string::npos) << found.reason;
  // Very many are cut, and the tree stays sound.
  for (int i = 0; i < 100; ++i) lay({{"s0", {i, i}}}, t.entries[0].config, t);
  const tuned::Lookup many = find();
  EXPECT_LE(many.choice->candidates.size(), 65u);
  EXPECT_EQ(many.choice->tree.verify(1, static_cast<uint32_t>(many.choice->candidates.size())), "");
  EXPECT_NE(many.reason.find("withdraw some"), std::string::npos) << many.reason;
}

}  // namespace
}  // namespace nimble::driver::testing
