// What of a result becomes of record.
#include "tuner/fleet/finding.h"

#include <gtest/gtest.h>

namespace nimble::tuner {
namespace {

EntryResult measured(std::vector<double> samples) {
  EntryResult r;
  r.samples_ns = std::move(samples);
  r.runs_per_sample = 7;
  r.stop_reason = "ci";
  return r;
}
const CaseKeys kKeys{"policy", "shape", 1e-6, StopRule(6, 24)};

TEST(Finding, TellsTheRunsOfASampleWhereTheyAreKnown) {
  EntryResult r = measured({1, 2, 3});
  EXPECT_EQ(finding_of(r, "artifact", kKeys)->measurement->runs_per_sample, 7);
  r.runs_per_sample = 0;
  EXPECT_FALSE(finding_of(r, "artifact", kKeys)->measurement->runs_per_sample);
}

TEST(Finding, TheFirstEntryTellsTheDrift) {
  const EntryResult slower = measured({100, 101, 99, 110, 112, 111});
  EXPECT_NEAR(*drift_of({slower, measured({1, 1, 1, 9, 9, 9})}), 0.11, 1e-12);
  EXPECT_EQ(drift_of({measured({5, 5, 5, 5, 5, 5, 5})}), 0);
  EXPECT_FALSE(drift_of({measured({5, 5, 5})})) << "too few";
  EXPECT_FALSE(drift_of({}));
  EntryResult wrong = slower;
  wrong.state = EntryState::kWrong;
  EXPECT_FALSE(drift_of({wrong, slower}));
}

TEST(Finding, WhatTheMachineLacksHasAClassOfItsOwn) {
  EntryResult r = measured({});
  r.state = EntryState::kUnavailable;
  r.message = "libdnnl.so.2 is not installed";
  const auto found = finding_of(r, "artifact", kKeys);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->error_class, db::kNotAvailable);
  EXPECT_EQ(found->message, r.message);
  EXPECT_FALSE(found->measurement || found->correctness);
}

TEST(Finding, AFailureLeavesALog) {
  EntryResult r = measured({1, 2, 3});
  EXPECT_FALSE(log_of(r, *finding_of(r, "artifact", kKeys), "again"));
  r.state = EntryState::kCrashed;
  r.message = "SIGSEGV: assertion failed";
  r.output = "assertion failed";
  const auto log = log_of(r, *finding_of(r, "artifact", kKeys), "again");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->error_class, "SIGSEGV");
  EXPECT_EQ(log->message, "SIGSEGV: assertion failed");
  EXPECT_EQ(log->output, "assertion failed");
  EXPECT_EQ(log->command, "again");
}

}  // namespace
}  // namespace nimble::tuner
