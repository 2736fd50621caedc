// The front door and what describes the machine, run as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "vm/arguments/subcommands.h"
#include "vm/tools/test/tools_fixture.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

TEST_F(ToolsTest, TheFrontDoorListsAllSubcommands) {
  const CommandResult help = run("nimble --help");
  EXPECT_EQ(help.exit_code, 0);
  for (const Subcommand& s : subcommands())
    EXPECT_THAT(help.out, HasSubstr("\n  " + std::string(s.name) + " "));
  EXPECT_EQ(run("nimble help").out, help.out);
  const CommandResult bare = run("nimble");
  EXPECT_EQ(bare.exit_code, 2);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_THAT(run("nimble --version").out, HasSubstr("nimble "));
}

TEST_F(ToolsTest, TheFrontDoorKnowsSlips) {
  const CommandResult slip = run("nimble inspct");
  EXPECT_EQ(slip.exit_code, 2);
  EXPECT_THAT(slip.out, HasSubstr("did you mean \"nimble inspect\"?"));
  EXPECT_EQ(run("nimble frobnicate").exit_code, 2);
  EXPECT_EQ(run("nimble --frobnicate").exit_code, 2);
  EXPECT_EQ(run("nimble ../nimble-inspect").exit_code, 2);
  EXPECT_EQ(nearest_subcommand("copmile"), "compile");
  EXPECT_EQ(nearest_subcommand("ins"), "inspect");
  EXPECT_EQ(nearest_subcommand("frobnicate"), "");
  EXPECT_EQ(nearest_subcommand("x"), "");
}

TEST_F(ToolsTest, WrongArgumentsAreOneLineWithARemedy) {
  const std::pair<std::string, std::string> cases[] = {
      {"inspect " + path_ + " --signatur",
       "nimble inspect: error: unknown option \"--signatur\"; did you mean --signature?\n"},
      // What follows an unknown option is not the place of the fault.
      {"run " + path_ + " --inptu x=1",
       "nimble run: error: unknown option \"--inptu\"; did you mean --input?\n"},
      {"run --inptu=x=1", "nimble run: error: unknown option \"--inptu\"; did you mean --input?\n"},
      {"run " + path_ + " --frobnicate",
       "nimble run: error: unknown option \"--frobnicate\"; see nimble run --help\n"},
      {"doctor now",
       "nimble doctor: error: unexpected argument \"now\"; see nimble doctor --help\n"},
      {"run", "nimble run: error: MODEL is required; see nimble run --help\n"},
      {"run " + path_ + " --threads two",
       "nimble run: error: --threads: Value two not in range 0 to 1024; see nimble run --help\n"},
      {"run " + path_ + " --threads 1 --threads 2",
       "nimble run: error: --threads is given 2 times; give it once\n"},
      {"run " + path_ + " --fuel -1",
       "nimble run: error: --fuel: \"-1\" is not a whole number from 0 on; see nimble run "
       "--help\n"},
      {"run " + path_ + " --seed 18446744073709551616",
       "nimble run: error: --seed: \"18446744073709551616\" is not a whole number from 0 on; see "
       "nimble run --help\n"},
      {"run " + path_ + " --memory-limit=-1",
       "nimble run: error: --memory-limit: \"-1\" is not a number of bytes; see nimble run "
       "--help\n"},
      {"run " + path_ + " --tolerance nan",
       "nimble run: error: --tolerance: \"nan\" is not a number from 0 on; see nimble run "
       "--help\n"},
      {"bench " + path_ + " --min-time -1",
       "nimble bench: error: --min-time: \"-1\" is not a number from 0 on; see nimble bench "
       "--help\n"},
      // Of another form, whatever the model is.
      {"bench " + path_ + " --shapes n=x",
       "nimble bench: error: --shapes: \"x\" is not an extent; give whole numbers; see nimble "
       "bench --help\n"},
      {"bench " + path_ + " --values t",
       "nimble bench: error: --values: \"t\" has no NAME=VALUE; write NAME=VALUE; see nimble bench "
       "--help\n"},
      {"explain " + path_ + " --set n",
       "nimble explain: error: --set: \"n\" has no NAME=VALUE; write NAME=VALUE; see nimble "
       "explain --help\n"},
      {"run " + path_ + " --expect y",
       "nimble run: error: --expect: \"y\" has no NAME=VALUE; write NAME=VALUE; see nimble run "
       "--help\n"},
      // Nothing that steers a terminal.
      {"run " + path_ + " \"$(printf 'a\\033b')\"",
       "nimble run: error: unexpected argument \"a?b\"; see nimble run --help\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const CommandResult wrong = run("nimble " + arguments);
    EXPECT_EQ(wrong.exit_code, 2) << arguments;
    EXPECT_EQ(wrong.out, message) << arguments;
  }
}

TEST_F(ToolsTest, TheFrontDoorPassesArgumentsAndExitCodes) {
  EXPECT_EQ(run("nimble inspect " + path_ + " --verify").exit_code, 0);
  EXPECT_EQ(run("nimble inspect").exit_code, 2);
  EXPECT_EQ(run("nimble inspect /nonexistent").exit_code, 1);
  const CommandResult help = run("nimble help inspect");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--disassemble"));
}

TEST_F(ToolsTest, DoctorSeesTheMachine) {
  EXPECT_THAT(run("nimble-doctor").out, HasSubstr("cpu.level"));
  const auto json = nlohmann::json::parse(run("nimble-doctor --format json").out);
  EXPECT_GE(json["cores"]["usable_threads"], 1);
  EXPECT_EQ(json["programs"]["inspect"], true);
  EXPECT_GT(json["memory"]["total_bytes"], 0);
  EXPECT_THAT(json["devices"]["0"].get<std::string>(), HasSubstr("cpu"));
  EXPECT_THAT(json["devices"]["1"].get<std::string>(), HasSubstr("stand-in"));
  // What there is, or why there is none.
  EXPECT_NE(json["gpu"]["name"].is_null(), json["gpu"].value("why", "").empty());
  EXPECT_NE(json["nvrtc"]["version"].is_null(), json["nvrtc"].value("why", "").empty());
  for (const char* library : {"onednn", "cublaslt", "cudnn"}) {
    const auto& row = json["libraries"][library];
    EXPECT_TRUE(!row["version"].is_null() || !row.value("why", "").empty()) << library;
  }
  EXPECT_EQ(run("nimble-doctor --format xml").exit_code, 2);
}

}  // namespace
}  // namespace nimble
