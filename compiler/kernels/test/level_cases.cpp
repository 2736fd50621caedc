#include "compiler/kernels/test/level_cases.h"

#include <algorithm>
#include <random>
#include <vector>

namespace nimble::kernels::testing {

void LevelTest::SetUp() {
  if (!harness_mode().runs(GetParam())) GTEST_SKIP() << "this machine lacks " << GetParam();
}

std::string name_of_level(const ::testing::TestParamInfo<std::string>& level) {
  std::string name = level.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void check_rows(const Workload& w, const TargetInfo& target, const std::string& server,
                int configurations, std::span<const int64_t> rows, float most) {
  SCOPED_TRACE(w.key);
  ReferenceHarness harness(w, target);
  ASSERT_NE(harness.chosen(), nullptr);
  ASSERT_EQ(harness.chosen()->name(), server);
  std::mt19937 random(11);
  configurations = std::min(configurations, harness_mode().most_configurations);
  size_t turn = 0;
  for (int c = 0; c < configurations && !::testing::Test::HasFailure(); ++c) {
    const Config config =
        c == 0 ? harness.chosen()->default_config(harness.workload(), target)
               : random_config(*harness.chosen(), harness.workload(), target, random);
    ASSERT_TRUE(harness.chosen()->valid(harness.workload(), config, target)) << to_json(config);
    SCOPED_TRACE(to_json(config));
    harness.lower(config);
    const bool symbolic = !w.contract.symbols.empty();
    const int runs = c == 0 && symbolic ? static_cast<int>(rows.size()) : 4;
    for (int run = 0; run < runs && !::testing::Test::HasFailure(); ++run) {
      const int64_t count = rows[turn++ % rows.size()];
      harness.run(symbolic ? std::vector<int64_t>{count} : std::vector<int64_t>{}, 1 + run % 3,
                  static_cast<unsigned>(turn), 5e-5, most);
    }
  }
}

}  // namespace nimble::kernels::testing
