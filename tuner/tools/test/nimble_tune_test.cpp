// The program nimble-tune as a user meets it: arguments. Campaigns are tuner/service's to test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "db/store/store.h"
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
  const CommandResult other =
      run_command(fmt::format("{} {} --db mysql://me:secret@host/db", NIMBLE_TUNE_PROGRAM, model));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_EQ(other.out.find("nimble tune: error: --db: mysql://me@host/db: nimble has no databases "
                           "at mysql://; name a file by its path, or a server's database as "),
            0u)
      << other.out;
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

// What is told the second time is what the first one stored; nothing of it is a zero that stands
// for "not searched".
TEST(TuneProgram, ASecondRunSaysThatNothingWasSearchedAndWhatIsStored) {
  const std::string folder = testing::TempDir() + "nimble-tune-again";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const ScopedVariable locks("NIMBLE_LOCK_FOLDER", folder.c_str());
  const std::string model = folder + "/model.nir", database = folder + "/tuning.db";
  std::ofstream(model) << "fn @main(%x: Tensor[(16, 64), f32]) { let %y = softmax(%x) {axis = 1}; "
                          "%y }";
  const auto run = [&](const std::string& arguments) {
    return run_command(fmt::format("{} {} --db {} --threads 1 --max-trials 4 {}",
                                   NIMBLE_TUNE_PROGRAM, model, database, arguments));
  };
  const auto report = [&] {
    const CommandResult result = run("--format json --quiet");
    EXPECT_EQ(result.exit_code, 0) << result.out;
    return nlohmann::json::parse(result.out, nullptr, false);
  };
  const nlohmann::json first = report();
  ASSERT_TRUE(first.is_object());
  EXPECT_EQ(first.at("nothing_to_do"), false);
  const nlohmann::json second = report();
  ASSERT_TRUE(second.is_object());
  EXPECT_EQ(second.at("nothing_to_do"), true);
  ASSERT_EQ(second.at("workloads").size(), 1u);
  const nlohmann::json &then = first.at("workloads")[0], &now = second.at("workloads")[0];
  for (const char* stored : {"table", "active", "k", "entries", "best_ns", "default_ns", "note"})
    EXPECT_EQ(now.value(stored, nlohmann::json()), then.value(stored, nlohmann::json())) << stored;
  EXPECT_GT(now.at("trials"), 0);
  EXPECT_TRUE(now.at("candidates").is_null()) << "none was looked at";
  const CommandResult told = run("");
  EXPECT_NE(told.out.find("; nothing was searched: the campaign is finished; stored are "),
            std::string::npos)
      << told.out;

  // A table that is not active: the command that makes it so works wherever it is copied to.
  ASSERT_TRUE(now.contains("table")) << now;
  const auto store = db::Store::open(database);
  const db::Uuid table = now.at("table");
  if (now.at("active")) store->roll_back(table, "slower in use");
  const std::string hint =
      fmt::format("; to use it: nimble dispatch activate {} --db {}", table.substr(0, 8), database);
  const CommandResult inactive = run("");
  EXPECT_NE(inactive.out.find(hint), std::string::npos) << inactive.out;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace nimble::tuner
