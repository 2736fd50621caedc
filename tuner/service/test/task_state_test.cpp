#include "tuner/service/task_state.h"

#include <gtest/gtest.h>

namespace nimble::tuner {
namespace {

TEST(TaskState, IsReadAsItWasWritten) {
  TaskState s;
  s.best_ratio = 0.5;
  s.trials = 12;
  s.failed = 3;
  s.pruned = 2;
  s.share = 0.25;
  s.spent_s = 1.5;
  s.allotted_s = 9;
  s.verified_on = "01890000-0000-7000-8000-000000000001";
  s.noise = 0.01;
  s.searched_at = {{{{"n", 64}}, 0.75}, {{{"n", 4}}, 0.25}};
  s.rank_correlations = {{1, 0.5}, {2, -0.25}};
  s.vendor = db::standing_of(std::vector<db::BothSides>{{{{"n", 4}}, 10, 20}, {{{"n", 8}}, 10, 9}});
  s.no_vendor = "far: libdnnl.so.2 is not installed";
  s.note = "ended without a worker";
  s.default_ns = 2000;
  s.best_ns = 1000.5;
  s.k = 7;
  s.regret = 0.01;
  s.worst_regret = 0.05;
  s.single_regret = 0.02;
  const TaskState read = task_state_from_json(json_text(s));
  EXPECT_EQ(read.best_ratio, s.best_ratio);
  EXPECT_EQ(read.trials, s.trials);
  EXPECT_EQ(read.failed, s.failed);
  EXPECT_EQ(read.pruned, s.pruned);
  EXPECT_EQ(read.share, s.share);
  EXPECT_EQ(read.spent_s, s.spent_s);
  EXPECT_EQ(read.allotted_s, s.allotted_s);
  EXPECT_EQ(read.verified_on, s.verified_on);
  EXPECT_EQ(read.noise, s.noise);
  EXPECT_EQ(read.searched_at, s.searched_at);
  EXPECT_EQ(read.rank_correlations, s.rank_correlations);
  EXPECT_EQ(read.vendor, s.vendor);
  EXPECT_EQ(read.no_vendor, s.no_vendor);
  EXPECT_EQ(read.note, s.note);
  EXPECT_EQ(read.default_ns, s.default_ns);
  EXPECT_EQ(read.best_ns, s.best_ns);
  EXPECT_EQ(read.k, s.k);
  EXPECT_EQ(read.regret, s.regret);
  EXPECT_EQ(read.worst_regret, s.worst_regret);
  EXPECT_EQ(read.single_regret, s.single_regret);
  EXPECT_EQ(json_text(task_state_from_json(json_text(TaskState{}))), json_text(TaskState{}));
}

TEST(TaskState, ANoteMayHoldAnyBytes) {
  TaskState s;
  s.note = "no model in \xff";
  EXPECT_EQ(task_state_from_json(json_text(s)).note, "no model in \xEF\xBF\xBD");
}

// A detail is any text: of another program, or of another version of this one.
TEST(TaskState, WhatIsMissingOrOfAnotherFormKeepsItsDefault) {
  for (const char* odd :
       {"", "round 1", "[]", "{", "3", R"({"note":3,"trials":"many"})",
        R"({"best_ratio":null,"share":[],"noise":"loud","verified_on":{}})", R"({"trials":1.5})",
        R"({"searched_at":[3,{},{"shape":{"n":"x"},"share":1},{"shape":{"n":1}}]})",
        R"({"table":3})", R"({"table":{"best_ns":"fast","k":1.5}})",
        R"({"rank_correlations":{"round":1}})",
        R"({"rank_correlations":[1,{"round":1},{"round":"a","correlation":1}]})",
        R"({"rank_correlations":[{"round":1,"correlation":5},{"round":2,"correlation":-1e300}]})"})
    EXPECT_EQ(json_text(task_state_from_json(odd)), json_text(TaskState{})) << odd;
  EXPECT_EQ(task_state_from_json(R"({"trials":4,"of a later version":true})").trials, 4);
  const char again[] = R"({"rank_correlations":[{"round":2,"correlation":0.5},
      {"round":2,"correlation":0.1},{"round":1,"correlation":0.1},{"round":3,"correlation":1}]})";
  EXPECT_EQ(task_state_from_json(again).rank_correlations,
            (db::RankCorrelations{{2, 0.5}, {3, 1.0}}));
}

}  // namespace
}  // namespace nimble::tuner
