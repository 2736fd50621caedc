// nimble run and bench, run as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "vm/base/file.h"
#include "vm/executable/reader.h"
#include "vm/tools/test/tools_fixture.h"

namespace nimble {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ToolsTest, RunsLeaveARecordOfTheirShapes) {
  exec::write(exec::assemble(R"(
function "main" 2 2 { Ret r0 }
function "fixed" 1 1 { Ret r0 }
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  input "w" f32 ["m", "n"] [-1, -1]
  output "y" f32 ["n"] [-1]
}
entry "fixed" f1 { input "x" f32 ["2"] [2] output "y" f32 ["2"] [2] }
)"),
              path_);
  const std::string file = path_ + ".shapes";
  ::unlink(file.c_str());
  const std::string command = "nimble-run --no-native " + path_ + " --record-shapes " + file;
  EXPECT_EQ(run(command + " -i x=zeros:5 -i w=zeros:2x5 --verify").exit_code, 0);
  EXPECT_EQ(run(command + " -i x=zeros:5 -i w=zeros:0x5").exit_code, 0);
  EXPECT_EQ(run(command + " -i x=zeros:5 -i w=zeros:2x4").exit_code, 1) << "not a run";
  EXPECT_EQ(read_text_file(file), "n\tm\tcount\n5\t2\t1\n5\t0\t1\n");

  // Many at once: no row is lost or torn.
  ::unlink(file.c_str());
  const std::string one = command + " -i x=zeros:7 -i w=zeros:3x7";
  std::string many;
  for (int i = 0; i < 8; ++i) many += program_folder() + "/" + one + " > /dev/null 2>&1 & ";
  ASSERT_EQ(std::system((many + "wait").c_str()), 0);
  std::string expected = "n\tm\tcount\n";
  for (int i = 0; i < 8; ++i) expected += "7\t3\t1\n";
  EXPECT_EQ(read_text_file(file), expected);

  write_file_atomically(file, "n\tcount\n");
  CommandResult refused = run(one);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.out, HasSubstr("it records n?count, not n?m?count"));
  EXPECT_THAT(run("nimble-run --no-native " + path_ +
                  " --record-shapes /nowhere/x -i x=zeros:7 -i w=zeros:3x7")
                  .out,
              HasSubstr("/nowhere"));
  refused = run(command + " --entry fixed -i x=zeros:2");
  EXPECT_THAT(refused.out, HasSubstr("no input of the model has a named dim"));
}

// A model's names choose no folder.
TEST_F(ToolsTest, RunsLeaveATraceOfWhatTheyDid) {
  const std::string file = path_ + ".json";
  exec::write(exec::assemble(R"(
text "no"
function "main" 1 2 { Move r1, r0  Ret r1 }
function "bad" 1 1 { Fatal t0, () }
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
entry "bad" f1 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)"),
              path_);
  const std::string command = "nimble-run --no-native " + path_ + " -i x=zeros:5 --trace " + file;
  const auto names = [&] {
    std::vector<std::string> all;
    const nlohmann::json trace = nlohmann::json::parse(read_text_file(file));
    for (const nlohmann::json& e : trace.at("traceEvents"))
      if (e.at("ph") == "X") all.push_back(e.at("name"));
    return all;
  };
  CommandResult done = run(command + " --verify");
  EXPECT_EQ(done.exit_code, 0) << done.out;
  EXPECT_THAT(done.out, HasSubstr("y: f32 (5)"));
  EXPECT_THAT(names(), ElementsAre("main", "Move", "Ret"));
  EXPECT_THAT(read_text_file(file), HasSubstr("\"from\":\"f32 (5)\""));

  done = run(command + " --trace-limit 1");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.out, HasSubstr("has the first 1 of 2 instructions; --trace-limit keeps more"));
  EXPECT_THAT(names(), ElementsAre("main", "Move"));

  EXPECT_EQ(run(command + " --entry bad").exit_code, 1);
  EXPECT_THAT(names(), ElementsAre("bad", "Fatal")) << "also of a run that fails";
  EXPECT_EQ(run(command + " --trace-limit 0").exit_code, 2);
  EXPECT_THAT(run("nimble-run --no-native " + path_ + " -i x=zeros:5 --trace /nowhere/t").out,
              HasSubstr("/nowhere"));
  ::unlink(file.c_str());
}

TEST_F(ToolsTest, OutputsStayInTheirFolder) {
  exec::Executable e = exec::assemble(R"(
function "main" 1 2 { AllocADT r1, 0, (r0, r0) Ret r1 }
entry "main" f0 {
  input "x" f32 [] []
  output "a" f32 [] []
  output "b" f32 [] []
}
)");
  const std::string folder = path_ + ".outputs";
  const auto run_with = [&](const std::string& a, const std::string& b) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    e.entries[0].outputs[0].name = a;
    e.entries[0].outputs[1].name = b;
    exec::write(e, path_);
    return run("nimble-run --no-native -i x=1 -o " + folder + "/in " + path_);
  };
  const CommandResult both = run_with("../escaped", "/decoder/y");
  EXPECT_EQ(both.exit_code, 0) << both.out;
  EXPECT_FALSE(std::filesystem::exists(folder + "/escaped.npy"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/in/_._escaped.npy"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/in/_decoder_y.npy"));
  EXPECT_EQ(run_with(std::string(100'000, 'y'), "b").exit_code, 0);
  const CommandResult same = run_with("a/b", "a_b");
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_THAT(same.out, HasSubstr("would both be a_b"));
  std::filesystem::remove_all(folder);
}

TEST_F(ToolsTest, LimitsOfLoadingAreErrorsInOneLine) {
  exec::write(exec::assemble("constant \"w\" u8 [3] { 1, 2, 3 }\n"
                             "function \"main\" 1 1 { Ret r0 }\n"
                             "entry \"main\" f0 { input \"x\" f32 [] [] output \"y\" f32 [] [] }"),
              path_);
  for (const std::string command : {"nimble-inspect ", "nimble-run ", "nimble-run --no-native "}) {
    const std::string line = command + path_;
    const CommandResult memory = run(line + " --load-memory 100");
    EXPECT_EQ(memory.exit_code, 1) << command;
    EXPECT_THAT(memory.out, AllOf(HasSubstr(path_), HasSubstr("--load-memory")));
    EXPECT_EQ(std::count(memory.out.begin(), memory.out.end(), '\n'), 1) << memory.out;
    const CommandResult constants = run(line + " --load-constants 2");
    EXPECT_EQ(constants.exit_code, 1) << command;
    EXPECT_THAT(constants.out, AllOf(HasSubstr("its constants have 3 bytes, 2 may be loaded"),
                                     HasSubstr("--load-constants")));
  }
  EXPECT_EQ(run("nimble-inspect " + path_ + " --load-memory 1MiB --load-constants 3").exit_code, 0);
}

TEST_F(ToolsTest, RunTakesLimitsFromOptionsAndTheEnvironment) {
  exec::write(exec::assemble(R"ASM(
scalar "minus" [a0 1 -]
function "main" 1 3 {
  ShapeOf r1, 1, r0
  Invoke r2, f"count", (r1)
  Move r1, r2
  Ret r1
}
function "count" 1 4 {
  If r0, @more, @done
more:
  LoadConsti r1, 1048576
  AllocStorage r2, r1, 64, d0
  Invoke r1, f"minus", (r0)
  Invoke r3, f"count", (r1)
  Move r0, r1
done:
  Ret r0
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" i64 [] [] }
)ASM"),
              path_);
  const std::string command = "nimble-run " + path_ + " -i x=zeros:20";
  EXPECT_EQ(run(command).exit_code, 0) << run(command).out;
  auto fails = [&](const std::string& option, const std::string& variable,
                   const std::string& text) {
    const CommandResult by_option = run(command + " " + option);
    EXPECT_EQ(by_option.exit_code, 1);
    EXPECT_THAT(by_option.out, HasSubstr(text));
    const auto equals = variable.find('=');
    ASSERT_EQ(::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1),
              0);
    const CommandResult by_variable = run(command);
    ::unsetenv(variable.substr(0, equals).c_str());
    EXPECT_EQ(by_variable.exit_code, 1);
    EXPECT_THAT(by_variable.out, HasSubstr(text));
  };
  fails("--fuel 50", "NIMBLE_FUEL=50", "more than 50 instructions");
  fails("--max-depth 5", "NIMBLE_MAX_DEPTH=5", "nested more than 5 deep");
  fails("--memory-limit 8MiB", "NIMBLE_MEMORY_LIMIT=8388608", "memory limit of 8388608 bytes");
  EXPECT_EQ(run(command + " --fuel many").exit_code, 2);
  EXPECT_EQ(run(command + " --memory-limit 8parsecs").exit_code, 2);
  EXPECT_THAT(run("nimble-run --help").out,
              AllOf(HasSubstr("NIMBLE_FUEL"), HasSubstr("NIMBLE_MAX_DEPTH"),
                    HasSubstr("NIMBLE_MEMORY_LIMIT")));
}

TEST_F(ToolsTest, RunsWithoutNativeCode) {
  // The file's native code is missing altogether; its portable form doubles.
  using Op = exec::PortableOp;
  exec::Executable e = exec::deserialize(read_file(path_));
  exec::PortableKernel k;
  k.indices = 3;
  k.values = {{DType::kF32, 1}};
  k.code = {{Op::kLoop, {2, 1, 0, 1}},
            {Op::kLoad, {0, 0, 1, 2, 0}},
            {Op::kAdd, {0, 0, 0}},
            {Op::kStore, {1, 1, 2, 0, 0}},
            {Op::kEnd, {}}};
  e.kernels[0].portable = k;
  // A block of bytes, not of elements.
  e.functions[0].code[1] = {exec::Opcode::kAllocStorage, {2, 4, 64, 0}};
  e.functions[0].registers = 5;
  e.functions[0].code.insert(e.functions[0].code.begin(), {exec::Opcode::kLoadConsti, {4, 400}});
  exec::write(e, path_);
  const std::string input = path_ + " -i 'x=[1, 2, 3]'";
  EXPECT_THAT(run("nimble-run " + input).out, HasSubstr("native code is missing"));
  const CommandResult checked = run("nimble-run --no-native " + input);
  EXPECT_EQ(checked.exit_code, 0) << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("y: f32 (3) [2, 4, 6]"));
  EXPECT_THAT(run("nimble-explain --no-native " + path_ + " --shapes n=3").out,
              HasSubstr("portable"));
  EXPECT_THAT(run("nimble-run --no-native --fuel 20 " + path_ + " -i x=ones:64").out,
              HasSubstr("more steps"));
  EXPECT_THAT(run("nimble-inspect --kernels " + path_).out, HasSubstr("5 instructions"));
  EXPECT_THAT(run("nimble-inspect --portable " + path_).out,
              HasSubstr("v0 = Load b0 [i1 + i2 + 0]"));
}

TEST_F(ToolsTest, RunAndBenchTakeValuesOfDataTypes) {
  // Gives the tree back, and the left one of a Node in a tuple with a number.
  exec::write(exec::assemble(R"ASM(
function "main" 1 5 {
  GetTag r1, r0
  If r1, @node, @leaf
node:
  GetField r2, r0, 0
  AllocADT r3, 0, (r2, r1)
  AllocADT r4, 0, (r0, r3)
  Ret r4
leaf:
  AllocADT r3, 0, (r0, r1)
  AllocADT r4, 0, (r0, r3)
  Ret r4
}
type "Tree" data { "Leaf" (1) "Node" (0, 0) }
type "Tensor[(2), f32]" tensor f32 ["2"] [2]
type "(Tree, i64)" tuple (0, 3)
type "i64" scalar i64
entry "main" f0 { input "t" type 0 output "same" type 0 output "left" type 2 }
)ASM"),
              path_);
  const std::string trees = path_ + ".trees", tree = "Node(Leaf([1, 2]), Leaf([3, 4]))";
  write_file_atomically(trees,
                        std::string_view("Leaf([5, 6])\nNode(Leaf([1, 2]),\n  Leaf([3, 4]))"));
  const std::string command = "nimble-run " + path_;
  const std::string expected =
      "same: Node(Leaf(f32[2]{1, 2}), Leaf(f32[2]{3, 4}))\nleft: (Leaf(f32[2]{1, 2}), 1i64)\n";
  EXPECT_EQ(run(command + " -i 't=" + tree + "'").out, expected);
  EXPECT_EQ(run(command + " --verify -i 't=@" + trees + "[1]'").out, expected);
  const CommandResult many = run(command + " -i t=@" + trees);
  EXPECT_EQ(many.exit_code, 1);
  EXPECT_THAT(many.out, HasSubstr("holds 2 values"));
  const CommandResult slip = run(command + " -i 't=Node(Leaf([1, 2]), Leav([3, 4]))'");
  EXPECT_EQ(slip.exit_code, 1);
  EXPECT_THAT(slip.out, HasSubstr("--input t:1:20: \"Leav\" stands where Tree belongs"));

  // What is written can be read, and compared with.
  const std::string folder = path_ + ".out";
  EXPECT_EQ(run(command + " -i 't=" + tree + "' -o " + folder).exit_code, 0);
  EXPECT_EQ(read_text_file(folder + "/left.txt"), "(Leaf(f32[2]{1, 2}), 1i64)\n");
  const std::string expect = command + " -i 't=" + tree + "' --expect same=@" + folder;
  EXPECT_EQ(run(expect + "/same.txt").exit_code, 0);
  write_file_atomically(folder + "/same.txt",
                        std::string_view("Node(Leaf([1, 2]), Leaf([3, 4.5]))"));
  const CommandResult differs = run(expect + "/same.txt");
  EXPECT_EQ(differs.exit_code, 3);
  EXPECT_THAT(differs.out, HasSubstr("element 1: 4 instead of 4.5"));
  write_file_atomically(folder + "/same.txt", std::string_view("Leaf([1, 2])"));
  EXPECT_EQ(run(expect + "/same.txt").exit_code, 3);
  EXPECT_THAT(run(command + " -i 't=" + tree + "' --output x.npz").out,
              HasSubstr("which .npz cannot hold"));

  const std::string bench = "nimble-bench --repetitions 3 --min-time 0 " + path_;
  EXPECT_THAT(run(bench + " --values t=" + trees).out, HasSubstr("2 values"));
  const auto json =
      nlohmann::json::parse(run(bench + " --values t=" + trees + " --format json").out);
  ASSERT_EQ(json["cases"].size(), 2u);
  EXPECT_EQ(json["cases"][1]["value"], 1);
  EXPECT_EQ(json["cases"][1]["runs"], 3);
  EXPECT_EQ(json["values"]["count"], 2);
  EXPECT_GE(json["values"]["p99_us"], json["values"]["p50_us"]);
  EXPECT_THAT(run(bench).out, HasSubstr("--values t=FILE"));
  EXPECT_THAT(run(bench + " --values u=" + trees).out, HasSubstr("no input of a data type"));
  std::filesystem::remove_all(folder);
  std::filesystem::remove(trees);
}

TEST_F(ToolsTest, BenchDerivesDimsAndAddsListsUp) {
  exec::write(exec::assemble(kTwoInputs), path_);
  const std::string bench = "nimble-bench --repetitions 1 --min-time 0 --format json " + path_;
  const auto shapes = [&](const std::string& options) {
    const CommandResult r = run(bench + " " + options);
    EXPECT_EQ(r.exit_code, 0) << r.out;
    std::vector<int64_t> of_n;
    const auto json = nlohmann::json::parse(r.out);
    for (const auto& c : json["cases"]) of_n.push_back(c["shape"].value("n", int64_t{-1}));
    return of_n;
  };
  EXPECT_THAT(shapes("--shapes n=2"), ElementsAre(2));
  EXPECT_THAT(shapes("--shapes n=4 --shapes n=5,7"), ElementsAre(4, 5, 7));
  EXPECT_THAT(shapes("-i 'x=[1, nan, -inf]'"), ElementsAre(-1));
  for (const char* program : {"nimble-bench ", "nimble-explain "})
    EXPECT_EQ(run(program + path_ + " -i x").exit_code, 2) << program;
  const auto fails = [&](const std::string& options, const std::string& text) {
    const CommandResult r = run(bench + " " + options);
    EXPECT_EQ(r.exit_code, 1);
    EXPECT_THAT(r.out, HasSubstr(text));
  };
  fails("", "add --set \"n=1\"");
  fails("--shapes m=2", "no input has a dim m");
  fails("--shapes n=2 --set n=3", "--set fixes n");
  fails("--set n=2 --set n=3", "n is given twice");
  fails("-i y=zeros:3", "add --set \"n=1\"");
  fails("-i x=zeros:3 --shapes n=2", "input x: its dim n is 3, not 2 as --shapes or --set says");
  fails("--set n=999999999999", "a tensor of shape (999999999999) takes more than 1 TiB");
  fails("-i z=zeros:3 --set n=1", "no input z");
}

TEST_F(ToolsTest, RunTakesWhatIsNotFiniteAndChecksExpectationsFirst) {
  exec::write(exec::assemble(R"ASM(
function "main" 1 1 { Ret r0 }
entry "main" f0 { input "x" f32 ["n", "m"] [-1, -1] output "y" f32 ["n", "m"] [-1, -1] }
)ASM"),
              path_);
  const std::string command = "nimble-run " + path_;
  EXPECT_THAT(run(command + " -i 'x=[[1, NaN], [-inf, +Infinity]]'").out,
              HasSubstr("[1, nan, -inf, inf]"));
  EXPECT_THAT(run(command + " -i 'x=[[nanny]]'").out, HasSubstr("is not a tensor"));
  EXPECT_THAT(run(command + " -i 'x=[[\"inf\"]]'").out, HasSubstr("is not a tensor"));
  // Without its input the run would fail: the unknown output is found before.
  EXPECT_THAT(run(command + " --expect z=@none.npy").out,
              HasSubstr("there is no output z; the outputs are y"));
}

}  // namespace
}  // namespace nimble
