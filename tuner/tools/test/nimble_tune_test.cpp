// The program nimble-tune as a user meets it: arguments. Campaigns are tuner/service's to test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "vm/base/test/run_command.h"
#include "vm/base/test/scoped_variable.h"

namespace nimble::tuner {
namespace {

TEST(TuneProgram, WrongArgumentsAreUsageErrorsWithARemedy) {
  const std::string folder = testing::TempDir() + "nimble-tune-arguments";
  std::filesystem::create_directories(folder);
  const std::string model = folder + "/model.nir", database = folder + "/tuning.db";
  std::ofstream(model) << "fn @main(%x: Tensor[(n), f32]) { let %y = exp(%x); %y }";
  const auto run = [&](const std::string& arguments) {
    return run_command(
        fmt::format("{} {} --db {} {}", NIMBLE_TUNE_PROGRAM, model, database, arguments));
  };
  const std::pair<const char*, const char*> cases[] = {
      {"--budget -1", "--budget: \"-1\" is not a time; give, for example, 90s, 5m or 1.5h"},
      {"--only-hot 200%", "--only-hot: "},
      {"--fix q", "--fix: \"q\" fixes nothing; write SYMBOL=SIZE, for example b=4"},
      {"--shape n", "--shape: 'n' is not SYMBOL=EXTENT; write symbols as in b=1,n=128"},
      {"--target arm", "--target: target arm: there is no such target; "},
      {"--precision fp7",
       "--precision: precision fp7: there is no such precision; use one of f32, tf32, bf16"},
      {"--beside x86-64-v3", "--beside: x86-64-v3 is no GPU's target; give the target that"},
      {"--top-k 0", "--top-k: \"0\" is not a number above 0"},
      {"--bugdet 5m", "unknown option \"--bugdet\"; did you mean --budget?"},
  };
  for (const auto& [arguments, message] : cases) {
    const CommandResult wrong = run(arguments);
    EXPECT_EQ(wrong.exit_code, 2) << arguments;
    EXPECT_EQ(wrong.out.find(std::string("nimble tune: error: ") + message), 0u) << wrong.out;
  }
  const CommandResult twice = run("--fix n=1 --fix n=2");
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_NE(twice.out.find("--fix n=2: n has a value already"), std::string::npos) << twice.out;
  EXPECT_FALSE(std::filesystem::exists(database));
  // There is such a target, but nothing to measure its code on: no usage error, no stale database.
  EXPECT_EQ(run("--target portable").exit_code, 1);
  const ScopedVariable driver("NIMBLE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  const CommandResult no_gpu = run("--target sm_90a");
  EXPECT_EQ(no_gpu.exit_code, 1);
  EXPECT_NE(no_gpu.out.find("--target sm_90a: there is no GPU to measure on"), std::string::npos)
      << no_gpu.out;
  EXPECT_FALSE(std::filesystem::exists(database));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace nimble::tuner
