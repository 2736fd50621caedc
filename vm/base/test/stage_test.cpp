#include "vm/base/stage.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "vm/base/fault/child.h"

namespace nimble {
namespace {

std::string told(const std::string& folder, pid_t pid) {
  std::ifstream in(folder + "/" + std::to_string(pid), std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  return text.substr(0, text.find('\0'));
}

TEST(Stage, IsToldToTheFolderThatTheEnvironmentNames) {
  if (!kAllocatorSurvivesFork) GTEST_SKIP() << kWhyNot;
  std::string folder = (std::filesystem::temp_directory_path() / "nimble-stage-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_EQ(in_child([&] {
              ::setenv("NIMBLE_STAGES", folder.c_str(), 1);
              const auto now = [&] { return told(folder, ::getpid()); };
              const Stage outer("measure");
              bool well = now() == "measure";
              {
                const Stage inner("a");
                well = well && now() == "a";
              }
              if (well && now() == "measure") ::raise(SIGKILL);
              return false;
            }),
            "ended by signal 9");
  // What was told last stays for whoever looks at what became of the process.
  std::string last;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    last = told(folder, std::stoi(file.path().filename()));
  EXPECT_EQ(last, "measure");
  std::filesystem::remove_all(folder);
}

TEST(Stage, WithoutAFolderNothingIsTold) {
  if (!kAllocatorSurvivesFork) GTEST_SKIP() << kWhyNot;
  EXPECT_EQ(in_child([] {
              ::unsetenv("NIMBLE_STAGES");
              const Stage one("claim");
              ::setenv("NIMBLE_STAGES", "/nowhere", 1);
              const Stage two("report");
              return true;
            }),
            "");
}

}  // namespace
}  // namespace nimble
