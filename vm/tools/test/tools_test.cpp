// Runs the programs as a user does: arguments in, text and exit code out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "vm/arguments/subcommands.h"
#include "vm/base/device_number.h"
#include "vm/base/file.h"
#include "vm/base/test/run_command.h"
#include "vm/executable/assembler.h"
#include "vm/executable/reader.h"
#include "vm/executable/writer.h"

namespace nimble {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// `arguments` are for the shell; the program lies in the folder of this test.
CommandResult run(const std::string& arguments) {
  return run_command(program_folder() + "/" + arguments);
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

TEST_F(ToolsTest, InspectShowsHowKernelsOfGpusAreLaunched) {
  exec::Executable e = exec::assemble(
      "kernel \"k\" { symbols n device d2 in f32 ([a0]) out f32 ([a0]) scratch [0] "
      "dispatch { 0: 0 } native \"k0\" launch ([a0 255 + 256 //], [1], [2]) block 256 shared 4096 "
      "aligned 4 }");
  const std::vector<uint8_t> code(100, 1);
  e.images.push_back({"sm_90a", {}, code, nullptr, kCudaDevice});
  e.images.push_back({"compute_80", {}, code, nullptr, kCudaDevice});
  exec::write(e, path_);
  const std::string inspect = "nimble-inspect " + path_;
  EXPECT_THAT(run(inspect).out,
              AllOf(HasSubstr("100 bytes, for cuda\n"),
                    HasSubstr("100 bytes, for cuda, compiled by the driver at load\n")));
  EXPECT_THAT(
      run(inspect + " --kernels").out,
      AllOf(HasSubstr("on the cuda"),
            HasSubstr("((a0 + 255) // 256, 1, 2) blocks of 256 threads, 4096 bytes shared")));
  EXPECT_THAT(run(inspect + " --kernels --format csv").out, HasSubstr(",launch\n"));
  const auto json = nlohmann::json::parse(run(inspect + " --kernels --format json").out);
  const auto launch = json["kernels"][0]["implementations"][0]["launch"];
  EXPECT_EQ(launch["grid"][0], "(a0 + 255) // 256");
  EXPECT_EQ(launch["threads"], 256);
  EXPECT_EQ(launch["shared_bytes"], 4096);
  EXPECT_EQ(launch["alignment"], 4);
  EXPECT_TRUE(launch["steps"].is_null());
  EXPECT_EQ(
      nlohmann::json::parse(run(inspect + " --format json").out)["summary"]["images"][0]["device"],
      "cuda");
  EXPECT_THAT(run(inspect + " --verify").out, HasSubstr("sound"));
}

TEST_F(ToolsTest, InspectShowsOptionsOfTheCompilation) {
  exec::Executable e = exec::read(path_);
  e.provenance.options["precision"] = "bf16";
  exec::write(e, path_);
  const std::string inspect = "nimble-inspect --provenance " + path_;
  EXPECT_THAT(run(inspect).out, AllOf(HasSubstr("option precision"), HasSubstr("bf16")));
  EXPECT_EQ(nlohmann::json::parse(
                run(inspect + " --format json").out)["provenance"]["options"]["precision"],
            "bf16");
}

TEST_F(ToolsTest, InspectReportsDamageInOneLine) {
  std::vector<uint8_t> bytes = read_file(path_);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomically(path_, std::span<const uint8_t>(bytes));
  const CommandResult damaged = run("nimble-inspect " + path_);
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.out, HasSubstr("nimble inspect: error: " + path_ + ": damaged"));
  EXPECT_EQ(std::count(damaged.out.begin(), damaged.out.end(), '\n'), 1);
}

TEST_F(ToolsTest, InspectVerifiesUnsoundFiles) {
  exec::write(exec::assemble("function \"f\" 0 1 { Ret r0 }"), path_);
  const CommandResult unsound = run("nimble-inspect " + path_ + " --verify");
  EXPECT_EQ(unsound.exit_code, 1);
  EXPECT_THAT(unsound.out, HasSubstr("f@0: breaks rule R5"));
}

// It looks at files that no verifier has seen.
TEST_F(ToolsTest, InspectShowsPortsOfTypesThatAreNotThere) {
  exec::Executable e = exec::assemble(
      "function \"main\" 1 1 { Ret r0 }\n"
      "entry \"main\" f0 { input \"x\" f32 [] [] output \"y\" f32 [] [] }");
  e.entries[0].inputs[0].type = 50'000'000;
  exec::write(e, path_);
  for (const char* format : {" --format table", " --format json"}) {
    const CommandResult shown = run("nimble-inspect " + path_ + format);
    EXPECT_EQ(shown.exit_code, 0) << shown.out;
    EXPECT_THAT(shown.out, HasSubstr("<no such type>"));
  }
  EXPECT_THAT(run("nimble-inspect --verify " + path_).out, HasSubstr("breaks rule"));
}

// What a file says once, ten thousand lines may refer to.
TEST_F(ToolsTest, InspectDoesNotRepeatLongNames) {
  exec::Executable e = exec::assemble(
      "function \"main\" 1 2 { Ret r0 }\nfunction \"callee\" 0 1 { LoadConsti r0, 1 Ret r0 }\n"
      "type \"t\" tensor f32 [] []\n"
      "kernel \"k\" { symbols n in f32 ([a0]) dispatch { 0: 0 } host \"host.zero\" }\n"
      "entry \"main\" f0 { input \"x\" f32 [] [] output \"y\" f32 [] [] }");
  const std::string name(100'000, 'n');
  e.functions[1].name = name;
  e.types[0].name = name;
  e.kernels[0].contract.symbols[0] = name;
  for (int i = 0; i < 1000; ++i) {
    e.functions[0].code.insert(e.functions[0].code.begin(), e.functions[0].code.back());
    e.functions[0].code.front() = {exec::Opcode::kInvoke, {1, 1, 0}};
    exec::KernelArgument scalar;
    scalar.kind = exec::KernelArgument::Kind::kScalar;
    e.kernels[0].contract.arguments.push_back(scalar);
    exec::DispatchNode node = {exec::DispatchNode::Test::kEqual, {}, 0, 0, 0};
    e.kernels[0].dispatch.nodes.insert(e.kernels[0].dispatch.nodes.begin(), node);
    e.entries[0].inputs.push_back({fmt::format("x{}", i), 0, DType::kF32, {}, {}, ""});
  }
  e.kernels[0].implementations.push_back(e.kernels[0].implementations[0]);
  exec::write(e, path_);
  for (const char* view : {"", " --disassemble", " --kernels"})
    for (const char* format : {" --format table", " --format json"})
      EXPECT_LT(run("nimble-inspect " + path_ + view + format).out.size(), 3'000'000u)
          << view << format;
}

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

// Gives the extent of y back.
constexpr char kTwoInputs[] = R"ASM(
function "main" 2 3 {
  ShapeOf r2, 1, r1
  Ret r2
}
entry "main" f0 { input "x" f32 ["n"] [-1] input "y" f32 ["2*n + 1"] [-1] output "e" i64 [] [] }
)ASM";

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
