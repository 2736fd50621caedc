// Runs the programs as a user does: arguments in, text and exit code out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "vm/base/file.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"
#include "vm/tools/subcommands.h"

namespace nimble {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  int code;
  std::string out;  // stdout and stderr together
};

// `arguments` are for the shell; the program lies in the folder of this test.
Result run(const std::string& arguments) {
  const std::string command = program_folder() + "/" + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  Result result{-1, ""};
  if (!pipe) return result;
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

class ToolsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const exec::Executable e = exec::assemble(R"ASM(
constant "w" f32 [2] { 1, 2 }
kernel "double" { source "add" symbols n in f32 ([a0]) out f32 ([a0]) scratch [0]
  dispatch { 0: n <= 8 ? 1 : 2  1: 0  2: 1 } native "small" native "large" }
function "main" 1 4 {
  ShapeOf r1, 1, r0
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
  AllocTensorReg r3, r2, r3, f32, (r1)
  InvokePacked k0, (r0, r3)
  Ret r3
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)ASM");
    exec::write(e, path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ =
      ::testing::TempDir() + "nimble-tools-" + std::to_string(::getpid()) + ".nimble";
};

TEST_F(ToolsTest, TheFrontDoorListsAllSubcommands) {
  const Result help = run("nimble --help");
  EXPECT_EQ(help.code, 0);
  for (const Subcommand& s : subcommands())
    EXPECT_THAT(help.out, HasSubstr("\n  " + std::string(s.name) + " "));
  EXPECT_EQ(run("nimble help").out, help.out);
  const Result bare = run("nimble");
  EXPECT_EQ(bare.code, 2);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_THAT(run("nimble --version").out, HasSubstr("nimble "));
}

TEST_F(ToolsTest, TheFrontDoorKnowsSlips) {
  const Result slip = run("nimble inspct");
  EXPECT_EQ(slip.code, 2);
  EXPECT_THAT(slip.out, HasSubstr("did you mean \"nimble inspect\"?"));
  EXPECT_EQ(run("nimble frobnicate").code, 2);
  EXPECT_EQ(run("nimble --frobnicate").code, 2);
  EXPECT_EQ(run("nimble ../nimble-inspect").code, 2);
  EXPECT_EQ(nearest_subcommand("copmile"), "compile");
  EXPECT_EQ(nearest_subcommand("ins"), "inspect");
  EXPECT_EQ(nearest_subcommand("frobnicate"), "");
  EXPECT_EQ(nearest_subcommand("x"), "");
}

TEST_F(ToolsTest, TheFrontDoorPassesArgumentsAndExitCodes) {
  EXPECT_EQ(run("nimble inspect " + path_ + " --verify").code, 0);
  EXPECT_EQ(run("nimble inspect").code, 2);
  EXPECT_EQ(run("nimble inspect /nonexistent").code, 1);
  const Result help = run("nimble help inspect");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--disassemble"));
}

TEST_F(ToolsTest, InspectShowsEachView) {
  const std::string inspect = "nimble-inspect " + path_;
  EXPECT_THAT(run(inspect).out, AllOf(HasSubstr("instructions      6"), HasSubstr("(n)")));
  EXPECT_THAT(run(inspect + " --signature").out,
              AllOf(HasSubstr("output"), Not(HasSubstr("file"))));
  EXPECT_THAT(run(inspect + " --kernels").out,
              AllOf(HasSubstr("double: add"), HasSubstr("if n <= 8")));
  EXPECT_THAT(run(inspect + " --disassemble").out, HasSubstr("InvokePacked k0, (r0, r3)"));
  EXPECT_THAT(run(inspect + " --verify").out, HasSubstr("sound"));
  const auto json = nlohmann::json::parse(
      run(inspect + " --signature --kernels --disassemble --provenance --verify --format json")
          .out);
  EXPECT_EQ(json["signature"][0]["inputs"][0]["name"], "x");
  EXPECT_EQ(json["kernels"][0]["arguments"][0], "in f32 (n)");
  EXPECT_EQ(json["functions"][0]["code"].size(), 6u);
  EXPECT_EQ(json["verification"]["sound"], true);
}

TEST_F(ToolsTest, InspectReportsDamageInOneLine) {
  std::vector<uint8_t> bytes = read_file(path_);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomically(path_, std::span<const uint8_t>(bytes));
  const Result damaged = run("nimble-inspect " + path_);
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.out, HasSubstr("nimble inspect: error: " + path_ + ": damaged"));
  EXPECT_EQ(std::count(damaged.out.begin(), damaged.out.end(), '\n'), 1);
}

TEST_F(ToolsTest, InspectVerifiesUnsoundFiles) {
  exec::write(exec::assemble("function \"f\" 0 1 { Ret r0 }"), path_);
  const Result unsound = run("nimble-inspect " + path_ + " --verify");
  EXPECT_EQ(unsound.code, 1);
  EXPECT_THAT(unsound.out, HasSubstr("f@0: breaks rule R5"));
}

TEST_F(ToolsTest, DoctorSeesTheMachine) {
  EXPECT_THAT(run("nimble-doctor").out, HasSubstr("cpu.level"));
  const auto json = nlohmann::json::parse(run("nimble-doctor --format json").out);
  EXPECT_GE(json["cores"]["usable_threads"], 1);
  EXPECT_EQ(json["programs"]["inspect"], true);
  EXPECT_GT(json["memory"]["total_bytes"], 0);
  EXPECT_EQ(run("nimble-doctor --format xml").code, 2);
}

}  // namespace
}  // namespace nimble
