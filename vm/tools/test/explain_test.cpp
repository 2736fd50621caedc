// nimble explain, run as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "vm/tools/test/tools_fixture.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

TEST_F(ToolsTest, ExplainTakesInputsAndRefusesUnknownKernels) {
  exec::write(exec::assemble(kTwoInputs), path_);
  const std::string explain = "nimble-explain " + path_;
  EXPECT_EQ(run(explain + " --shapes n=2").exit_code, 0);
  EXPECT_EQ(run(explain + " -i x=zeros:3").exit_code, 0);
  const CommandResult unknown = run(explain + " --shapes n=2 --kernel zzz");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.out, HasSubstr("--kernel zzz: no such kernel or chain ran"));
  exec::write(exec::assemble(R"ASM(
function "main" 1 2 { GetTag r1, r0
  Ret r1 }
type "Light" data { "On" () "Off" () }
entry "main" f0 { input "l" type 0 output "tag" i64 [] [] }
)ASM"),
              path_);
  EXPECT_EQ(run(explain + " -i l=Off").exit_code, 0) << run(explain + " -i l=Off").out;
  EXPECT_THAT(run(explain).out, HasSubstr("--input 'l=…'"));
  EXPECT_EQ(run("nimble-bench --repetitions 1 --min-time 0 -i l=On " + path_).exit_code, 0);
}

// The expected time is of the shape that was asked: measured there, between two sizes, or of the
// nearest, said to be another.
TEST_F(ToolsTest, ExplainTellsTheTimeOfTheShape) {
  exec::Executable e = exec::assemble(R"ASM(
kernel "k0" { source "copy" symbols n in f32 ([a0]) out f32 ([a0]) scratch [0]
  dispatch { 0: 0 } host "host.copy" }
function "main" 1 5 {
  ShapeOf r1, 1, r0
  LoadConsti r4, 4096
  AllocStorage r2, r4, 64, d0
  LoadConsti r3, 0
  AllocTensorReg r3, r2, r3, f32, (r1)
  InvokePacked k0, (r0, r3)
  Ret r3
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)ASM");
  e.provenance.kernels["k0"] =
      R"([{"table":"0123456789abcdef","version":3,"threads":1,"class":"warm","entries":[
{"candidate":0,"config":{"routine":"host.copy"},"override":false,"regret":0.02,
"measured":[[[16],1000],[[32],3000],[[64],9000]]}]}])";
  exec::write(e, path_);
  const auto told = [&](const std::string& arguments) {
    const CommandResult ran = run("nimble-explain --format json " + path_ + arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    const auto rows = nlohmann::json::parse(ran.out, nullptr, false);
    if (!rows.is_array()) return ran.out;
    return rows.at(0).at("summary").get<std::string>();
  };
  EXPECT_EQ(told(" --shapes n=32 --threads 1"),
            "table 01234567 v3, warm, measured here 3.0 us, regret 2.0 %");
  EXPECT_THAT(told(" --shapes n=40 --threads 1"),
              HasSubstr("expected about 4.5 us, between n=32 and 64"));
  EXPECT_THAT(told(" --shapes n=200 --threads 1"), HasSubstr("not measured here; 9.0 us at n=64"));
  EXPECT_THAT(told(" --shapes n=32 --threads 2"), HasSubstr("of 1 thread (the nearest to 2)"));
  // Entries of one configuration share its kernel: the one that serves the shape is told.
  e.provenance.kernels["k0"] =
      R"J([{"table":"0123456789abcdef","version":3,"threads":1,"class":"warm","entries":[
{"candidate":0,"config":{"routine":"host.copy"},"override":false,"regret":0.02,"range":{"n":[0,8]}},
{"candidate":1,"config":{"other":1},"override":false,"regret":0.03,"range":{"n":[9,31]}},
{"candidate":2,"config":{"routine":"host.copy"},"override":false,"regret":0.04,
"range":{"n":[32,null],"mod(n,8)":[0,0]}},
{"candidate":3,"config":{"routine":"host.copy"},"override":true,"reason":"mine",
"range":{"n":[64,64]}}]}])J";
  exec::write(e, path_);
  EXPECT_THAT(told(" --shapes n=8 --threads 1"), HasSubstr("regret 2.0 %"));
  EXPECT_THAT(told(" --shapes n=32 --threads 1"), HasSubstr("regret 4.0 %"));
  EXPECT_THAT(told(" --shapes n=33 --threads 1"), HasSubstr("regret 2.0 %"));  // none serves it
  EXPECT_THAT(told(" --shapes n=64 --threads 1"), HasSubstr("mine"));
  const auto entry = [&](const std::string& arguments) {
    const CommandResult ran = run("nimble-explain --format json " + path_ + arguments);
    const auto rows = nlohmann::json::parse(ran.out, nullptr, false);
    return rows.is_array() ? rows.at(0).at("entry") : nlohmann::json();
  };
  EXPECT_EQ(entry(" --shapes n=32 --threads 1").value("candidate", -1), 2);
  EXPECT_EQ(entry(" --shapes n=64 --threads 1").value("reason", ""), "mine");
  EXPECT_EQ(run("nimble-explain " + path_ + " --shapes n=8 --fuel 1").exit_code, 1);
  EXPECT_EQ(run("nimble-explain " + path_ + " --shapes n=8 --memory-limit 1").exit_code, 1);
  // What a file says need not be so.
  for (
      const char* odd :
      {R"([])", R"([{"table":"x","version":1}])", R"([{"threads":1,"entries":[]}])",
       R"([{"table":"x","version":1,"threads":1,"entries":[7,{"config":{"routine":"host.copy"}}]}])",
       R"([{"threads":1,"entries":[{"config":{"routine":"host.copy"},"range":{"n":[0,"x"],"zz":7}},
{"config":{"routine":"host.copy"},"range":7,"override":"yes","template":5}]}])",
       R"([7,{"threads":"many"},[{"threads":1}]])", R"([{"table":7,"version":"x","threads":1}])",
       R"([{"threads":1,"entries":[{"candidate":0,"config":{"routine":"host.copy"},"measured":[7]}]}])"}) {
    e.provenance.kernels["k0"] = odd;
    exec::write(e, path_);
    EXPECT_EQ(run("nimble-explain " + path_ + " --shapes n=2").exit_code, 0) << odd;
  }
}

TEST_F(ToolsTest, ExplainTellsThatASizeHasAnEntryOfItsOwn) {
  exec::write(exec::assemble(R"ASM(
kernel "k0" { source "copy" symbols n in f32 ([a0]) out f32 ([a0]) scratch [0]
  dispatch { 0: n == 37 ? 1 : 2  1: 0  2: 1 } host "host.copy" host "host.copy" }
function "main" 1 5 {
  ShapeOf r1, 1, r0
  LoadConsti r4, 4096
  AllocStorage r2, r4, 64, d0
  LoadConsti r3, 0
  AllocTensorReg r3, r2, r3, f32, (r1)
  InvokePacked k0, (r0, r3)
  Ret r3
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)ASM"),
              path_);
  const auto told = [&](const std::string& shape) {
    return run("nimble-explain --format json " + path_ + " --shapes " + shape).out;
  };
  EXPECT_THAT(told("n=37"), HasSubstr("n == 37"));
  EXPECT_THAT(told("n=36"), HasSubstr("n != 37"));
}

// Copying and writing JSON recurse: a file that nests without end must not reach the stack's.
TEST_F(ToolsTest, DeepProvenanceIsNotFollowed) {
  exec::Executable e = exec::assemble(R"ASM(
kernel "k0" { source "zero" out f32 ([1]) dispatch { 0: 0 } host "host.zero" }
function "main" 1 4 {
  LoadConsti r1, 4
  AllocStorage r2, r1, 64, d0
  LoadConsti r3, 0
  AllocTensor r3, r2, r3, f32, [1]
  InvokePacked k0, (r3)
  Ret r3
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["1"] [1] }
)ASM");
  const size_t depth = 1'000'000;
  const std::string open(depth, '['), close(depth, ']');
  for (const std::string& deep :
       {open + close,
        // Brackets in a text are none.
        "[\"" + close + "\"," + open + close + "]",
        R"([{"threads":1,"entries":[{"config":)" + open + close + "}]}]"}) {
    e.provenance.kernels["k0"] = deep;
    exec::write(e, path_);
    for (const char* format : {"table", "json"}) {
      const std::string how = fmt::format(" --format {} > /dev/null", format);
      EXPECT_EQ(run("nimble-inspect --provenance " + path_ + how).exit_code, 0);
      EXPECT_EQ(run("nimble-explain --no-native " + path_ + " --shapes n=2" + how).exit_code, 0);
    }
  }
}

}  // namespace
}  // namespace nimble
