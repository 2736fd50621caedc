// Tests of a level of CPUs: for whom they run, what they are called, and products of rows against
// the reference interpreter.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>

#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels::testing {

// A fixture of a level, for machines that have its instructions.
class LevelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  const TargetInfo target_ = target_by_name(GetParam());
};

// Of an instance: names of tests have no dashes.
std::string name_of_level(const ::testing::TestParamInfo<std::string>& level);

// The template must be the one that serves the workload. Its default configuration and drawn ones
// run at numbers of rows that are taken in turn, the default one at all of them; a workload of a
// fixed number has its own. `most` bounds the floats of its operands.
void check_rows(const Workload& w, const TargetInfo& target, const std::string& server,
                int configurations, std::span<const int64_t> rows, float most);

}  // namespace nimble::kernels::testing
