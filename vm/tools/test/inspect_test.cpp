// nimble inspect, run as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vm/base/device_number.h"
#include "vm/base/file.h"
#include "vm/executable/reader.h"
#include "vm/tools/test/tools_fixture.h"

namespace nimble {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

}  // namespace
}  // namespace nimble
