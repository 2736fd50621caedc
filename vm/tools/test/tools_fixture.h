// A program to run tools on, and how tests run them: as a user does, arguments in, text and exit
// code out.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "vm/arguments/subcommands.h"
#include "vm/base/test/run_command.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble {

// `arguments` are for the shell; the program lies in the folder of this test.
inline CommandResult run(const std::string& arguments) {
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

// Gives the extent of y back.
inline constexpr char kTwoInputs[] = R"ASM(
function "main" 2 3 {
  ShapeOf r2, 1, r1
  Ret r2
}
entry "main" f0 { input "x" f32 ["n"] [-1] input "y" f32 ["2*n + 1"] [-1] output "e" i64 [] [] }
)ASM";

}  // namespace nimble
