// The files that nimble run writes: what cannot be written, and what was there before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "vm/arguments/subcommands.h"
#include "vm/base/file.h"
#include "vm/base/test/run_command.h"
#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommandResult run(const std::string& arguments) {
  return run_command(program_folder() + "/" + arguments);
}

// A run may take long: where its results cannot be written, it does not begin. The entry point ends
// in a Fatal, which such a command must not come to.
TEST(RunOutputs, AreTriedBeforeTheRun) {
  const std::string path =
      ::testing::TempDir() + "nimble-outputs-" + std::to_string(::getpid()) + ".nimble";
  exec::write(exec::assemble(R"(
text "it ran"
function "main" 1 1 { Fatal t0, () }
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)"),
              path);
  const std::string folder = path + ".tried";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/taken/y.npy");
  write_file_atomically(folder + "/file", std::string_view("kept"));
  write_file_atomically(folder + "/other.tsv", std::string_view("m\tcount\n"));
  const std::string command = "nimble-run --no-native " + path + " -i x=zeros:5 ";
  for (const std::string& wrong :
       {"--output " + folder + "/none/y.npz", "--output " + folder, "-o " + folder + "/file",
        "-o " + folder + "/none/out", "-o " + folder + "/taken", "--trace " + folder + "/none/t",
        "--output " + folder + "/file/y.npz", "--record-shapes " + folder + "/none/s",
        "--record-shapes " + folder + "/other.tsv"}) {
    const CommandResult refused = run(command + wrong);
    EXPECT_EQ(refused.exit_code, 1) << wrong;
    EXPECT_THAT(refused.out, HasSubstr(folder)) << wrong;
    EXPECT_THAT(refused.out, Not(HasSubstr("it ran"))) << wrong;
  }
  // Where it runs and fails, what was there is there, and nothing beside it.
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(folder),
                         std::filesystem::directory_iterator());
  };
  const auto before = entries();
  const CommandResult failed = run(command + "--output " + folder + "/file");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("it ran"));
  EXPECT_EQ(read_text_file(folder + "/file"), "kept");
  EXPECT_EQ(entries(), before);
  std::filesystem::remove_all(folder);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace nimble
