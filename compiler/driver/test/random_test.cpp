// Random programs by seed; scripts/differential runs them by the thousand.
#include <algorithm>
#include <filesystem>

#include "compiler/driver/test/differential.h"
#include "compiler/driver/test/random_program.h"
#include "compiler/driver/test/random_rules.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"

namespace nimble::driver::testing {
namespace {

class RandomPrograms : public ::testing::TestWithParam<int> {};

// Twenty seeds a test: each under the default and one other configuration.
TEST_P(RandomPrograms, AgreeWithTheReference) {
  constexpr int kSeeds = 20;
  int compared = 0;
  for (int i = 0; i < kSeeds; ++i) {
    const auto seed = static_cast<unsigned>(GetParam() * kSeeds + i);
    RandomProgramOptions options;
    options.data_dependent = i % 4 == 3;
    const ir::Module m = random_module(seed, options);
    const Comparison r = compare(m, some_configurations(seed, 1), seed);
    compared += r.verdict == Verdict::kAgrees;
    ASSERT_NE(r.verdict, Verdict::kDiffers) << "seed " << seed << ": " << r.message << "\n"
                                            << ir::print(m);
  }
  EXPECT_GT(compared, kSeeds / 3) << "the generator makes too little that can be compared";
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range(0, 10));

TEST(RandomProgram, IsTheSameForTheSameSeed) {
  EXPECT_EQ(ir::print(random_module(7)), ir::print(random_module(7)));
  EXPECT_NE(ir::print(random_module(7)), ir::print(random_module(8)));
}

// An attribute may use an extent that arose in the body: an annotation names it.
TEST(RandomProgram, NamesTheExtentsThatItsAttributesUse) {
  int naming = 0;
  for (uint64_t seed = 0; seed < 10'000 && naming < 3; ++seed) {  // one in some hundred does
    const ir::Module m = random_module(seed);
    const std::string text = ir::print(m);
    if (text.find(fmt::format("[({}", kBornExtent)) == std::string::npos) continue;
    ++naming;
    EXPECT_EQ(text, ir::print(random_module(seed)));
    for (const ir::Diagnostic& d : ir::infer_module(m).diagnostics)
      EXPECT_EQ(d.problem.find("unknown symbol"), std::string::npos) << d.str() << "\n" << text;
  }
  EXPECT_GT(naming, 0);
}

// Programs that once differed, reduced.
std::vector<std::string> regressions() {
  std::vector<std::string> out;
  const std::filesystem::path folder =
      std::filesystem::path(NIMBLE_SOURCE_DIR) / "compiler/driver/test/regressions";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".nir") out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

class OnceDiffered : public ::testing::TestWithParam<std::string> {};

TEST_P(OnceDiffered, Agrees) {
  const Comparison r = compare(ir::read_module(GetParam()), all_configurations(), 1);
  EXPECT_EQ(r.verdict, Verdict::kAgrees) << GetParam() << ": " << r.message;
}

INSTANTIATE_TEST_SUITE_P(Program, OnceDiffered, ::testing::ValuesIn(regressions()),
                         [](const auto& info) {
                           std::string name = std::filesystem::path(info.param).stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nimble::driver::testing
