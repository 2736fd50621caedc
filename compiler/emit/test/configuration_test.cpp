// The corpus once more, a part of its sizes, under each way to compile and run that is not the
// default: a pass left out, an older target, another optimisation level, two threads, through a
// file's bytes, portable kernels in the checked interpreter. And the programs of the text tests,
// whose own commands look at what single passes do.
#include <algorithm>
#include <set>

#include "compiler/emit/test/differential.h"

namespace nimble::emit::testing {
namespace {

std::vector<Configuration> configurations() {
  std::vector<Configuration> out = all_configurations();
  out.erase(out.begin());  // the default has the whole corpus: program_test.cpp
  for (Configuration& c : out)
    std::replace_if(
        c.name.begin(), c.name.end(), [](char x) { return !std::isalnum(x); }, '_');
  return out;
}

class Configured : public ::testing::TestWithParam<Configuration> {};

TEST_P(Configured, CorpusAgreesWithTheReference) {
  const Configuration& c = GetParam();
  // A fifth of the corpus each time, another for each configuration, but all of what loops,
  // branches and computes with scalars: passes and memory are at work there.
  const std::vector<Program>& all = all_programs();
  // All of it where kernels run in another form: no other test runs those.
  size_t turn = std::hash<std::string>()(c.name) % 5;
  size_t checked = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!c.no_native && all[i].text.find("@loop") == std::string::npos &&
        all[i].text.find("match (") == std::string::npos && i % 5 != turn)
      continue;
    ++checked;
    check_program(all[i], c, 2);
    if (HasFailure()) return;
  }
  EXPECT_GT(checked, all.size() / 6);
}

// All programs of the text tests, under what most changes a program on its way. One of them never
// ends, and must not in any form.
class ConfiguredText : public ::testing::TestWithParam<Configuration> {};

TEST_P(ConfiguredText, ProgramsAgreeWithTheReference) {
  const std::vector<Program> programs = text_programs();
  EXPECT_GT(programs.size(), 60u);
  for (const Program& p : programs) check_program(p, GetParam(), 3);
}

std::vector<Configuration> text_configurations() {
  const std::set<std::string> names = {"without_fusion", "without_plan_memory",
                                       "without_update_in_place", "reserialised",
                                       "a_kernel_per_residue"};
  std::vector<Configuration> out = {{"default"}};
  for (const Configuration& c : configurations())
    if (names.count(c.name)) out.push_back(c);
  NIMBLE_CHECK(out.size() == names.size() + 1, "a configuration has another name");
  return out;
}

INSTANTIATE_TEST_SUITE_P(By, ConfiguredText, ::testing::ValuesIn(text_configurations()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(By, Configured, ::testing::ValuesIn(configurations()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nimble::emit::testing
