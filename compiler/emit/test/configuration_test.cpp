// The corpus once more, a part of its sizes, under each way to compile and run that is not the
// default: a pass left out, an older target, another optimisation level, two threads, through a
// file's bytes, portable kernels in the checked interpreter.
#include <algorithm>

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

INSTANTIATE_TEST_SUITE_P(By, Configured, ::testing::ValuesIn(configurations()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nimble::emit::testing
