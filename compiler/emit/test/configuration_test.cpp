// The corpus once more, a part of its sizes, under each way to compile and run that is not the
// default: a pass left out, an older target, another optimisation level, two threads, through a
// file's bytes.
#include <algorithm>

#include "compiler/emit/test/harness.h"
#include "compiler/passes/pass.h"
#include "vm/base/cpu.h"

namespace nimble::emit::testing {
namespace {

// Every optional pass; those that no module can do without refuse to be disabled.
std::vector<Configuration> configurations() {
  std::vector<Configuration> out;
  for (const passes::PassInfo& p : passes::all_passes()) {
    bool required = p.name == "infer" || p.name == "fuse" || p.name == "lower-memory" ||
                    p.name == "lower-shapes";
    if (!required) {
      Configuration c{"without_" + std::string(p.name)};
      c.disabled_pass = p.name;
      out.push_back(std::move(c));
    }
  }
  for (const char* level : {"x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    Configuration c{"for_" + std::string(level)};
    c.target = level;
    out.push_back(std::move(c));
  }
  Configuration optimised{"optimised"};
  optimised.optimize = 2;
  out.push_back(optimised);
  Configuration threads{"two_threads"};
  threads.threads = 2;
  out.push_back(threads);
  Configuration file{"through_a_file"};
  file.round_trip = true;
  out.push_back(file);
  for (Configuration& c : out)
    std::replace_if(
        c.name.begin(), c.name.end(), [](char x) { return !std::isalnum(x); }, '_');
  return out;
}

class Configured : public ::testing::TestWithParam<Configuration> {};

TEST_P(Configured, CorpusAgreesWithTheReference) {
  const Configuration& c = GetParam();
  if (c.target != "native" && c.target > kernels::detect_host().level)
    GTEST_SKIP() << "this machine does not run " << c.target;
  // A fifth of the corpus each time, another for each configuration, but all of what loops,
  // branches and computes with scalars: passes and memory are at work there.
  const std::vector<Program>& all = all_programs();
  size_t turn = std::hash<std::string>()(c.name) % 5;
  size_t checked = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].text.find("@loop") == std::string::npos && i % 5 != turn) continue;
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
