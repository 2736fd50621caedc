// A campaign's record: what is read back is what was submitted, and nothing else is believed.
#include "tuner/service/submission.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "db/store/host_records.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// A loop whose counter is a scalar argument, a gather with indices, a packed product, a softmax.
const char kModel[] = R"(
fn @main(%x: Tensor[(b, n, 16), f32], %ids: Tensor[(b, n), i64], %t: Tensor[(50, 16), f32])
    -> Tensor[(b, n, 16), f32] {
  let %e = gather(%t, %ids) {axis = 0};
  let %s = add(%e, %x);
  let %z = mul(%s, 0.1f32);
  let %y = softmax(%z) {axis = 2};
  %y
})";

Submission submission_from(const std::string& text) {
  Submission s;
  const kernels::TargetInfo target = kernels::target_by_name("x86-64-v3");
  const ir::Module typed = ir::infer_types(ir::parse_module(text));
  passes::PassContext context;
  context.target = target;
  s.tasks =
      tuning_tasks(passes::run_pipeline(typed, context), model_points(typed, {}), target, nullptr);
  s.threads = {1, 2};
  s.target = target.level;
  s.policy = Policy::of_class("cached");
  s.policy.max_samples = 7;
  s.top_k = 9;
  s.only_hot = 0.9;
  s.search_end = {70, 900};
  s.seed = -3;
  return s;
}

void expect_same(const TuningTask& a, const TuningTask& b) {
  EXPECT_EQ(a.workload().identity(), b.workload().identity());
  EXPECT_EQ(a.workload().contract.symbols, b.workload().contract.symbols);
  EXPECT_EQ(a.label, b.label);
  EXPECT_EQ(a.calls, b.calls);
  EXPECT_EQ(a.fills, b.fills);
  EXPECT_EQ(a.stepping, b.stepping);
  EXPECT_EQ(a.reduction, b.reduction);
  EXPECT_EQ(a.representative(), b.representative());
  ASSERT_EQ(a.points.size(), b.points.size());
  for (size_t i = 0; i < a.points.size(); ++i) {
    EXPECT_EQ(a.points[i].symbols, b.points[i].symbols);
    EXPECT_EQ(a.points[i].weight, b.points[i].weight);
    EXPECT_EQ(a.points[i].exact, b.points[i].exact);
    EXPECT_EQ(a.points[i].held_out, b.points[i].held_out);
    EXPECT_EQ(a.points[i].flops, b.points[i].flops);
    EXPECT_EQ(a.points[i].bytes, b.points[i].bytes);
    EXPECT_EQ(a.fills_at(a.points[i]), b.fills_at(b.points[i]));
  }
}

TEST(Submission, IsReadBackAsItWas) {
  Submission s = submission_from(kModel);
  ASSERT_FALSE(s.tasks.empty());
  s.tasks[0].points[0].exact = s.tasks[0].points[0].weight / 2;
  const std::string text = to_json(s);
  const Submission back = submission_of(text);
  ASSERT_EQ(back.tasks.size(), s.tasks.size());
  for (size_t i = 0; i < s.tasks.size(); ++i) expect_same(back.tasks[i], s.tasks[i]);
  EXPECT_EQ(back.threads, s.threads);
  EXPECT_EQ(back.target, s.target);
  EXPECT_EQ(back.policy, s.policy);
  EXPECT_EQ(back.top_k, s.top_k);
  EXPECT_EQ(back.only_hot, s.only_hot);
  EXPECT_EQ(back.search_end.patience, s.search_end.patience);
  EXPECT_EQ(back.search_end.max_trials, s.search_end.max_trials);
  EXPECT_EQ(back.seed, s.seed);
  EXPECT_EQ(to_json(back), text);
}

// That n is at most 512 is asserted once; the groups behind it are typed by that.
constexpr char kBounded[] = R"(
fn @main(%x: Tensor[(n, 8), f32], %t: Tensor[(512, 8), f32]) -> Tensor[(n, 8), f32] {
  let %p: Tensor[(n, 8), f32] = slice(%t) {axes = [0], ends = (n), starts = (0)};
  let %y = add(%x, %p);
  %y
}
)";

TEST(Submission, AGroupMayRestOnWhatWasCheckedBeforeIt) {
  const Submission s = submission_from(kBounded);
  const auto slice = std::ranges::find_if(s.tasks, [](const TuningTask& t) {
    return t.workload().key.find("slice") != std::string::npos;
  });
  ASSERT_NE(slice, s.tasks.end());
  ASSERT_THAT(slice->workload().key, Not(HasSubstr("assert_shape")));
  const Submission back = submission_of(to_json(s));
  ASSERT_EQ(back.tasks.size(), s.tasks.size());
  for (size_t i = 0; i < s.tasks.size(); ++i) expect_same(back.tasks[i], s.tasks[i]);

  const std::string place = fmt::format("tasks[{}]", slice - s.tasks.begin());
  json bad = json::parse(to_json(s));
  bad["tasks"][static_cast<size_t>(slice - s.tasks.begin())]["points"][0]["symbols"][0] = 513;
  try {
    submission_of(bad.dump());
    ADD_FAILURE() << "513 of 512 rows";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCorrupt);
    EXPECT_THAT(e.what(), HasSubstr(place + ".points[0]: cannot occur"));
  }
}

TEST(Submission, AnOperatorsNameMayBeAnyBytes) {
  Submission s = submission_from(kModel);
  s.tasks[0].use.source = "layer \xff";
  EXPECT_EQ(submission_of(to_json(s)).tasks[0].use.source, "layer \xEF\xBF\xBD");
}

TEST(Submission, WhatIsOutOfRangeIsRefusedByItsPlace) {
  const json good = json::parse(to_json(submission_from(kModel)));
  const auto expect_refused = [&](const std::string& pointer, const json& value,
                                  const std::string& says, Status status = Status::kCorrupt) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    try {
      submission_of(bad.dump());
      ADD_FAILURE() << pointer << " = " << value;
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), status) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(says)) << pointer;
    }
  };
  expect_refused("/format", 3, "format 3", Status::kUnsupported);
  expect_refused("/target", "x86-64-v9", "target");
  expect_refused("/threads", json::array(), "threads");
  expect_refused("/threads", {0}, "0 is no number of threads");
  expect_refused("/threads", {2, 1, 2}, "name a number twice");
  expect_refused("/top_k", 0, "top_k");
  expect_refused("/only_hot", -1, "only_hot");
  expect_refused("/patience", 0, "patience");
  expect_refused("/max_trials", -1, "max_trials");
  expect_refused("/policy/max_samples", -1, "");
  expect_refused("/policy", 3, "no measuring policy");
  expect_refused("/tasks", json::array(), "tasks");
  expect_refused("/tasks", json::array({good["tasks"][0], good["tasks"][0]}), "twice");
  expect_refused("/tasks/0/calls", -2, "tasks[0].calls");
  expect_refused("/tasks/0/group", "fn @group(", "tasks[0]");
  expect_refused("/tasks/0/group", "fn @group() { 1 } fn @more() { 1 }", "tasks[0]");
  for (const char* group :
       {"fn @group(%x: Tensor[(n), f32]) { let %y = if (true) { %x } else { %x }; %y }",
        "fn @group(%x: Tensor[(n), f32]) { let %y: Tensor[(n), i64] = exp(%x); %y }",
        "fn @group(%x: Tensor[(n), f32]) { let %y = add(%x); %y }",
        "fn @group(%x: Tensor[(n), f32]) { let %y = softmax(%x); %y }",
        "fn @group(%x: Tensor[(n), f32]) { let %y = @group(%x); %y }",
        "fn @group(%f: fn(Tensor[(n), f32]) -> Tensor[(n), f32]) { %f }"})
    expect_refused("/tasks/0/group", group, "tasks[0]");
  expect_refused("/tasks/0/passed", {"n)"}, "is no symbol");
  expect_refused("/tasks/0/passed", 1, "record");
  expect_refused("/seed", true, "seed");
  expect_refused("/seed", 1e300, "seed");
  expect_refused("/threads", {1.5}, "threads");
  expect_refused("/tasks/0/constant", json::array(), "constant");
  expect_refused("/tasks/0/identity", "another", "another version", Status::kUnsupported);
  expect_refused("/tasks/0/points", json::array(), "points");
  expect_refused("/tasks/0/points/0/symbols", json::array(), "extents");
  expect_refused("/tasks/0/points/0/symbols/0", -1, "tasks[0].points[0]");
  expect_refused("/tasks/0/points/0/symbols/0", int64_t{1} << 50, "no extent");
  expect_refused("/tasks/0/points/0/symbols/0", int64_t{1} << 31, "too many elements");
  expect_refused("/tasks/0/points/0/weight", -0.5, "weight");
  expect_refused("/tasks/0/points/0/weight", 1e300, "weight");
  expect_refused("/tasks/0/calls", 1e300, "tasks[0].calls");
  expect_refused("/tasks/0/points/1", good["tasks"][0]["points"][0], "twice");
  EXPECT_THROW(submission_of("{"), Error);
  EXPECT_THROW(submission_of(""), Error);
  EXPECT_THROW(submission_of("[]"), Error);
  // What is written anew on the way would not fit on a stack.
  std::string deep = good.dump();
  const std::string name = "\"policy\":";
  deep.insert(deep.find(name) + name.size(),
              std::string(1'000'000, '[') + "1" + std::string(1'000'000, ']') + ",\"more\":");
  EXPECT_THROW(submission_of(deep), Error);
}

class SubmitTest : public testing::Test {
 protected:
  SubmitTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nimble-sub-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    store = db::Store::open(folder + "/tuning.db");
    hardware = store->put(db::host_hardware());
  }
  ~SubmitTest() override {
    store.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::string folder;
  std::unique_ptr<db::Store> store;
  db::Hash hardware;
};

TEST_F(SubmitTest, TheCampaignIsFoundWithItsTasks) {
  const Submission s = submission_from(kModel);
  const db::Uuid campaign = submit(*store, s, hardware, 60, "a command");
  const Submission back = load_submission(*store, campaign);
  ASSERT_EQ(back.tasks.size(), s.tasks.size());
  const auto tasks = store->tasks(campaign);
  EXPECT_EQ(tasks.size(), s.tasks.size() * s.threads.size());
  for (const db::Task& t : tasks) EXPECT_EQ(t.weights.size(), s.tasks[0].points.size());
  EXPECT_EQ(store->campaign(campaign)->state, db::CampaignState::kRunning);
  EXPECT_TRUE(store->check().sound());
}

TEST_F(SubmitTest, SubmittedAgainItIsTheSameAndALargerBudgetExtendsIt) {
  const Submission s = submission_from(kModel);
  const db::Uuid campaign = submit(*store, s, hardware, 60, "a command");
  store->set_campaign_state(campaign, db::CampaignState::kFinished);
  EXPECT_EQ(submit(*store, s, hardware, 60, "a command"), campaign);
  EXPECT_EQ(store->campaign(campaign)->state, db::CampaignState::kFinished);
  EXPECT_EQ(submit(*store, s, hardware, 90, "a command"), campaign);
  EXPECT_EQ(store->campaign(campaign)->budget_s, 90);
  EXPECT_EQ(store->campaign(campaign)->state, db::CampaignState::kRunning);
  Submission other = s;
  other.top_k = 10;
  EXPECT_NE(submit(*store, other, hardware, 60, "a command"), campaign);
}

TEST_F(SubmitTest, ACampaignOfOneMachineIsNotForAService) {
  db::CampaignKey key;
  key.digest = "program";
  key.hardware = hardware;
  const db::Uuid campaign = store->create_campaign(key, 60, "nimble tune");
  try {
    load_submission(*store, campaign);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnsupported);
    EXPECT_THAT(e.what(), HasSubstr("nimble tune"));
  }
  EXPECT_THROW(load_submission(*store, "00000000-0000-4000-8000-000000000000"), Error);
}

}  // namespace
}  // namespace nimble::tuner
