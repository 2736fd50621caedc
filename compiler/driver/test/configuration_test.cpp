// The corpus once more, a part of its sizes, under each way to compile and run that is not the
// default: a pass left out, an older target, another optimisation level, two threads, through a
// file's bytes, portable kernels in the checked interpreter. And the programs of the text tests,
// whose own commands look at what single passes do.
#include <algorithm>
#include <set>

#include "compiler/driver/test/differential.h"
#include "vm/base/cpu.h"

namespace nimble::driver::testing {
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
  // All of it where kernels run in another form: no other test runs those. (Those of other levels
  // differ in their packed weights alone.)
  const bool all_of_it = c.no_native && c.target == "native";
  size_t turn = std::hash<std::string>()(c.name) % 5;
  size_t checked = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all_of_it && all[i].text.find("@loop") == std::string::npos &&
        all[i].text.find("match (") == std::string::npos && i % 5 != turn)
      continue;
    ++checked;
    check_program(all[i], c, 2);
    if (HasFailure()) return;
  }
  EXPECT_GT(checked, all.size() / 6);
}

// Weights are packed for the vectors of the target, and its portable forms read the same ones.
TEST(PackedWeights, RunPortablyAndNativelyForEveryTarget) {
  const auto with_weights = [](const std::string& parameters, const std::string& rows,
                               const std::string& columns, const std::string& call) {
    return fmt::format(
        "fn @main({0}) {{\n"
        "  let %i = range() {{count = {1}*{2}, start = 0, step = 1, dtype = f32}};\n"
        "  let %s = sin(%i);\n"
        "  let %w = reshape(%s) {{shape = ({1}, {2})}};\n"
        "  let %y = {3};\n"
        "  %y\n}}",
        parameters, rows, columns, call);
  };
  std::vector<Program> programs;
  for (const char* n : {"1", "5", "24", "100"})
    programs.push_back({fmt::format("product of {} columns", n),
                        with_weights("%x: Tensor[(b, 7), f32]", "7", n, "matmul(%x, %w)")});
  for (const char* h : {"5", "16"})
    programs.push_back(
        {fmt::format("cell of {} units", h),
         with_weights(fmt::format("%x: Tensor[(b, 4*{0}), f32], %h: Tensor[(b, {0}), f32], "
                                  "%c: Tensor[(b, {0}), f32]",
                                  h),
                      h, fmt::format("4*{}", h), "lstm_cell(%x, %h, %c, %w)")});
  for (const char* target : {"native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "portable"})
    for (const bool no_native : {false, true}) {
      Configuration c{target + std::string(no_native ? ", no native" : "")};
      c.target = target;
      c.no_native = no_native;
      if (!no_native && !host_cpu().has(target) && c.target != "native" && c.target != "portable")
        continue;
      for (const Program& p : programs) {
        check_program(p, c, 4);
        if (HasFailure()) return;
      }
    }
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
}  // namespace nimble::driver::testing
