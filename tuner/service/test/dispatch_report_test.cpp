// What tables lose at other shapes, with kernels whose speed is known: a copy, and one that sleeps.
#include "tuner/service/dispatch_report.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "compiler/tuned/tuned.h"
#include "tuner/service/test/two_speeds.h"
#include "vm/base/cpu.h"
#include "vm/base/file.h"

namespace nimble::tuner {
namespace {

using testing::HasSubstr;

class DispatchReportTest : public TwoSpeedsTest {
 protected:
  DispatchReportTest() {
    options.campaign = campaign;
    options.shapes.count = 4;
    options.shapes.ranges["n"] = {300, 500};  // no campaign measures there
    options.file = folder + "/report.json";
  }
  DispatchReport report() { return report_dispatch(options, backend, kNever); }
  std::string kept() const {
    const std::vector<uint8_t> bytes = read_file(options.file);
    return {bytes.begin(), bytes.end()};
  }
  std::string refused(Status status) {
    return refusal_of([&] { report(); }, status);
  }
  DispatchReportOptions options;
};

TEST_F(DispatchReportTest, APoolWithoutTheFastestIsFoundOut) {
  backend.slow = tune();
  const DispatchReport r = report();
  EXPECT_TRUE(r.complete);
  EXPECT_FALSE(r.interrupted || r.resumed);
  ASSERT_EQ(r.workloads.size(), 1u);
  const WorkloadRegret& w = r.workloads[0];
  EXPECT_EQ(w.table, table.uuid);
  EXPECT_EQ(w.symbols.size(), 1u);
  EXPECT_GT(w.candidates, w.pool);
  EXPECT_EQ(w.drawn, 4u);
  ASSERT_EQ(w.shapes.size(), 4u) << w.note;
  for (const ShapeRegret& s : w.shapes) {
    EXPECT_TRUE(s.symbols.at(0) >= 300 && s.symbols[0] <= 500);
    EXPECT_GT(s.chosen_ns, 2e6);
    EXPECT_GT(s.pool_regret(), 5) << "2 ms against a copy";
    EXPECT_LT(s.tree_regret(), 2) << "all of the pool sleep alike";
    EXPECT_NE(s.oracle, s.chosen);
    EXPECT_TRUE(s.foretold);
  }
  EXPECT_GT(summary_of(w.shapes, &ShapeRegret::regret).median, 5);
}

// All that takes part by itself is slow here; the rest of the space is not.
TEST_F(DispatchReportTest, ASearchFromNothingFindsWhatDidNotTakePart) {
  backend.slow = tune();
  options.campaign.top_k = 1;
  const auto regret_without = [&] {
    std::filesystem::remove(options.file);
    const DispatchReport r = report();
    EXPECT_EQ(r.workloads.at(0).shapes.size(), 4u) << r.workloads[0].note;
    const auto store = db::Store::open(campaign.database);
    for (const ShapeRegret& s : r.workloads[0].shapes) {
      EXPECT_FALSE(s.unsearched);
      backend.slow.insert(text_of_config(*store, s.oracle));
    }
    return summary_of(r.workloads[0].shapes, &ShapeRegret::regret).worst;
  };
  // The default and one of the campaign's best take part beside the pool.
  for (int i = 0; i < 3 && regret_without() > 2; ++i) {
  }
  EXPECT_LT(regret_without(), 2) << "all that take part sleep alike";
  options.searches = 3;
  options.search_trials = 40;
  refused(Status::kInvalidArgument);  // another question
  std::filesystem::remove(options.file);
  const DispatchReport r = report();
  EXPECT_TRUE(r.complete);
  ASSERT_EQ(r.workloads.at(0).shapes.size(), 4u);
  size_t searched = 0;
  for (const ShapeRegret& s : r.workloads[0].shapes) {
    if (!s.unsearched) continue;
    ++searched;
    EXPECT_LT(*s.unsearched, 2);
    EXPECT_GT(s.regret(), 5) << "2 ms against a copy";
    EXPECT_LT(s.tree_regret(), 2);
  }
  EXPECT_EQ(searched, 3u);
  EXPECT_GT(r.searched_s, 0);
  EXPECT_LT(r.searched_s, r.consumed_s);
  // Each search is kept, too.
  const size_t built = backend.built;
  const DispatchReport again = report();
  EXPECT_EQ(backend.built, built);
  EXPECT_EQ(again.searched_s, r.searched_s);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(again.workloads[0].shapes[i].unsearched, r.workloads[0].shapes[i].unsearched);
}

TEST_F(DispatchReportTest, AShortLookIsAtFewerCandidatesAndAtAllOfTheTable) {
  tune();
  const DispatchReport whole = report();
  std::filesystem::remove(options.file);
  options.look_s = 1e-9;
  const DispatchReport r = report();
  ASSERT_EQ(r.workloads.at(0).shapes.size(), 4u) << r.workloads[0].note;
  for (size_t i = 0; i < 4; ++i) {
    const WorkloadRegret& w = r.workloads[0];
    EXPECT_EQ(whole.workloads[0].shapes[i].candidates, w.candidates);
    EXPECT_LE(w.shapes[i].candidates, w.candidates);
    EXPECT_GE(w.shapes[i].candidates, std::min(w.candidates, w.pool + 1));
    EXPECT_LE(w.shapes[i].candidates, w.pool + 7);
  }
}

TEST_F(DispatchReportTest, WithoutATableTheDefaultIsChosen) {
  tune();
  options.campaign.threads = {2};
  const DispatchReport r = report();
  ASSERT_EQ(r.workloads.size(), 1u);
  EXPECT_EQ(r.workloads[0].table, "");
  ASSERT_EQ(r.workloads[0].shapes.size(), 4u);
  for (const ShapeRegret& s : r.workloads[0].shapes) {
    EXPECT_EQ(s.chosen_ns, s.default_ns);
    EXPECT_EQ(s.tree_regret(), 0);
    EXPECT_FALSE(s.foretold);
  }
}

// A compiler takes what its own toolchain may use, however new another's table is.
TEST_F(DispatchReportTest, ANewerTableOfAnotherToolchainIsNotTried) {
  tune();
  db::Uuid other;
  {
    const auto store = db::Store::open(campaign.database);
    other = copy_of_another_toolchain(*store);
    ASSERT_EQ(store->table(other)->status, db::TableStatus::kActive);
    ASSERT_EQ(store->table(table.uuid)->status, db::TableStatus::kActive);
    EXPECT_EQ(store->tables(table.workload).at(0).uuid, other) << "it is the newest";
  }
  EXPECT_EQ(report().workloads.at(0).table, table.uuid);
  {
    const auto store = db::Store::open(campaign.database);
    store->roll_back(table.uuid, "nothing of one's own is left");
  }
  std::filesystem::remove(options.file);
  const DispatchReport r = report();
  EXPECT_EQ(r.workloads.at(0).table, "");
  for (const ShapeRegret& s : r.workloads[0].shapes) EXPECT_EQ(s.chosen_ns, s.default_ns);
}

TEST_F(DispatchReportTest, AnOverrideIsWhatIsChosen) {
  tune();
  db::Hash config;  // none of the table's
  db::Uuid laid;
  {
    const auto store = db::Store::open(campaign.database);
    db::ResultQuery q{table.workload, table.hardware, table.policy};
    q.codegen_version = tuned::toolchain_record().codegen_version;
    for (const db::Result& known : store->results(q))
      if (!table.configs.contains(known.config)) config = known.config;
    ASSERT_FALSE(config.empty());
    backend.slow = {text_of_config(*store, config)};
    laid = store->add(db::NewOverride{table.workload, table.hardware, {}, config, "tried"});
  }
  const DispatchReport r = report();
  const WorkloadRegret& w = r.workloads.at(0);
  EXPECT_EQ(w.table, table.uuid);
  EXPECT_EQ(w.overrides, std::vector<db::Uuid>{laid});
  ASSERT_EQ(w.shapes.size(), 4u) << w.note;
  for (const ShapeRegret& s : w.shapes) {
    EXPECT_EQ(s.chosen, config);
    EXPECT_GT(s.tree_regret(), 5) << "2 ms against a copy";
    EXPECT_FALSE(s.foretold) << "the table says nothing of it";
  }
  EXPECT_EQ(report().workloads.at(0).shapes.at(0).chosen_ns, w.shapes[0].chosen_ns) << "kept";
  db::Store::open(campaign.database)->withdraw(laid, "tried");
  // What was measured under it is no answer any more.
  const DispatchReport without = report();
  EXPECT_TRUE(without.workloads.at(0).overrides.empty());
  ASSERT_EQ(without.workloads[0].shapes.size(), 4u);
  for (const ShapeRegret& s : without.workloads[0].shapes) EXPECT_NE(s.chosen, config);
}

TEST_F(DispatchReportTest, ANumberOfThreadsThatIsNamedTwiceCountsOnce) {
  tune();
  campaign.threads = options.campaign.threads = {1, 1};
  const CampaignReport again = run_campaign(campaign, backend, kNever);
  EXPECT_TRUE(again.nothing_to_do) << "it is another campaign";
  EXPECT_EQ(again.tasks.size(), 1u);
  EXPECT_EQ(report().workloads.size(), 1u);
}

TEST_F(DispatchReportTest, ShapesThatTheTableWasMadeFromAreLeftOut) {
  tune();
  options.shapes.ranges["n"] = {128, 128};
  const DispatchReport r = report();
  ASSERT_EQ(r.workloads.size(), 1u);
  EXPECT_EQ(r.workloads[0].known, 1u);
  EXPECT_TRUE(r.workloads[0].shapes.empty());
  EXPECT_THAT(r.workloads[0].note, HasSubstr("has times at every shape"));
}

TEST_F(DispatchReportTest, WhatIsKeptIsNotMeasuredAgain) {
  tune();
  options.campaign.budget_s = 1e-9;
  const DispatchReport none = report();
  EXPECT_FALSE(none.complete);
  EXPECT_FALSE(none.interrupted);
  EXPECT_TRUE(none.workloads[0].shapes.empty());
  options.campaign.budget_s = 60;
  const DispatchReport first = report();
  EXPECT_TRUE(first.resumed && first.complete);
  ASSERT_EQ(first.workloads[0].shapes.size(), 4u);
  const size_t built = backend.built;
  const DispatchReport again = report();
  EXPECT_EQ(backend.built, built);
  EXPECT_GT(first.workloads[0].candidates, 0u);
  EXPECT_EQ(again.workloads[0].candidates, first.workloads[0].candidates);
  EXPECT_GE(again.consumed_s, first.consumed_s);
  ASSERT_EQ(again.workloads[0].shapes.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const ShapeRegret &a = first.workloads[0].shapes[i], &b = again.workloads[0].shapes[i];
    EXPECT_EQ(a.symbols, b.symbols);
    EXPECT_EQ(a.chosen_ns, b.chosen_ns);
    EXPECT_EQ(a.pool_ns, b.pool_ns);
    EXPECT_EQ(a.oracle_ns, b.oracle_ns);
    EXPECT_EQ(a.oracle, b.oracle);
    EXPECT_EQ(a.noise, b.noise);
    EXPECT_EQ(a.foretold, b.foretold);
  }
}

TEST_F(DispatchReportTest, AFileOfAnotherQuestionOrNoneIsRefusedAndStays) {
  tune();
  report();
  const std::string before = kept();
  options.shapes.seed = 2;
  EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("other shapes"));
  EXPECT_EQ(kept(), before);
  options.shapes.seed = 1;
  if (host_cpu().has("x86-64-v3")) {
    const std::string target = std::exchange(options.campaign.target, "x86-64-v2");
    EXPECT_THAT(refused(Status::kInvalidArgument), HasSubstr("or machines")) << "code for another";
    options.campaign.target = target;
  }
  // `name` has another value.
  const auto with = [&](const std::string& name, const std::string& value) {
    std::string text = before;
    text.insert(text.find("\"" + name + "\": ") + name.size() + 4, value);
    return text;
  };
  for (const std::string& text :
       {std::string("no JSON"), std::string("{}"), std::string("[]"), before.substr(0, 200),
        with("chosen_ns", "-"), with("chosen_ns", "1e300, \"x\": "),
        with("consumed_s", "-1e9, \"x\": "), with("format", "1e300, \"x\": "),
        with("symbols", "[1e300], \"x\": "), std::string(R"({"format": 1, "question": 7})")}) {
    std::ofstream(options.file) << text;
    EXPECT_THAT(refused(Status::kCorrupt), HasSubstr(options.file)) << text.substr(0, 40);
    EXPECT_EQ(kept(), text);
  }
}

TEST_F(DispatchReportTest, AnInterruptedOneKeepsWhatItHas) {
  tune();
  const std::atomic<bool> at_once{true};
  const DispatchReport r = report_dispatch(options, backend, at_once);
  EXPECT_TRUE(r.interrupted);
  EXPECT_FALSE(r.complete);
  EXPECT_TRUE(report().resumed);
}

TEST_F(DispatchReportTest, ASearchThatIsInterruptedIsMadeWhenItGoesOn) {
  tune();
  const size_t before = backend.built;
  report();
  const size_t taking_part = backend.built - before;
  std::filesystem::remove(options.file);
  options.searches = 1;
  options.search_trials = 40;
  std::atomic<bool> cancel{false};
  backend.built = 0;
  backend.after_build = [&] {
    if (backend.built > taking_part) cancel = true;  // within the search
  };
  const DispatchReport r = report_dispatch(options, backend, cancel);
  EXPECT_TRUE(r.interrupted);
  EXPECT_FALSE(r.complete) << "the only search is not made";
  backend.after_build = nullptr;
  const DispatchReport again = report();
  EXPECT_TRUE(again.complete);
  EXPECT_EQ(std::ranges::count_if(again.workloads.at(0).shapes,
                                  [](const ShapeRegret& s) { return s.unsearched.has_value(); }),
            1);
}

TEST_F(DispatchReportTest, AFileThatNamesAShapeTwiceOrAnotherOneDoesNotCountIt) {
  tune();
  report();
  std::string text = kept();
  const size_t begin = text.find('{', text.find("\"shapes\": ["));
  const std::string first = text.substr(begin, text.find('}', begin) + 1 - begin);
  std::string other = first;
  const size_t size = other.find_first_of("0123456789", other.find("\"symbols\": ["));
  other.insert(size, "9");
  text.insert(begin, first + ", " + other + ", ");
  std::ofstream(options.file) << text;
  const DispatchReport again = report();
  std::set<std::vector<int64_t>> distinct;
  for (const ShapeRegret& s : again.workloads.at(0).shapes) distinct.insert(s.symbols);
  EXPECT_EQ(again.workloads[0].shapes.size(), 4u);
  EXPECT_EQ(distinct.size(), 4u);
}

TEST_F(DispatchReportTest, AWrongResultIsAFailedShapeAndNoTime) {
  tune();
  backend.kernel = "test.wrong";
  const DispatchReport r = report();
  EXPECT_EQ(r.workloads[0].failed, 4u) << r.workloads[0].note;
  EXPECT_TRUE(r.workloads[0].shapes.empty());
}

TEST_F(DispatchReportTest, WithoutADatabaseNothingIsMade) {
  refused(Status::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(options.campaign.database));
}

TEST(RegretSummaries, AreOfTheSortedValues) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const RegretSummary s = summary_of(values);
  EXPECT_EQ(s.median, 50.5);
  EXPECT_EQ(s.p95, 95);
  EXPECT_EQ(s.worst, 100);
  EXPECT_EQ(summary_of(std::vector<double>{}).worst, 0);
  EXPECT_EQ(summary_of(std::vector<double>{-0.1}).p95, -0.1);
}

}  // namespace
}  // namespace nimble::tuner
