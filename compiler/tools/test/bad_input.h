// Programs that are given what they cannot take, and the one error that each must tell.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "vm/base/program.h"

namespace nimble::tools {

inline constexpr const char* kModel =
    "fn @main(%x: Tensor[(n, 4), f32], %m: Tensor[(n), i64]) {\n"
    "  let %u = unsqueeze(%m) {axes = [1]};\n"
    "  let %f = cast(%u) {dtype = f32};\n"
    "  let %y = mul(%x, %f);\n"
    "  let %z = exp(%y);\n"
    "  %z\n"
    "}\n";

struct Ran {
  int code;  // 128 + signal if one ended it
  std::string out, error;
};

inline std::string contents(const std::filesystem::path& p) {
  std::ifstream in(p, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}
inline void write(const std::filesystem::path& p, const std::string& text) {
  std::ofstream(p, std::ios::binary) << text;
}

class BadInput : public ::testing::Test {
 protected:
  BadInput() {
    std::string pattern = ::testing::TempDir() + "nimble-bad-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    write(file("model.nir"), kModel);
  }
  ~BadInput() override {
    std::error_code ignored;
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  // Runs a program that lies in the folder of this test. `prepare` runs in the child before it.
  Ran run(std::vector<std::string> arguments, const std::function<void()>& prepare = {}) {
    arguments[0] =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / arguments[0]).string();
    const std::string out = file("stdout"), error = file("stderr");
    pid_t child = fork();
    if (child == 0) {
      if (!freopen(out.c_str(), "w", stdout) || !freopen(error.c_str(), "w", stderr)) _exit(125);
      unsetenv("NIMBLE_DB");
      std::vector<char*> argv;
      for (std::string& a : arguments) argv.push_back(a.data());
      argv.push_back(nullptr);
      if (prepare) prepare();
      execv(argv[0], argv.data());
      _exit(126);
    }
    int status = 0;
    waitpid(child, &status, 0);
    Ran r{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(out),
          contents(error)};
    return r;
  }
  Ran compile(const std::string& model, std::vector<std::string> more = {},
              const std::string& output = "out.nimble") {
    std::vector<std::string> a = {"nimble-compile", model, "-o", file(output), "-j", "1"};
    a.insert(a.end(), more.begin(), more.end());
    return run(a);
  }
  void compiled() {
    Ran r = compile(file("model.nir"), {}, "model.nimble");
    ASSERT_EQ(r.code, 0) << r.error;
  }

  // One line, "PROGRAM: error: PLACE: …; REMEDY", that has all of `parts`; of a fault in text IR
  // the source line and a caret follow.
  static void expect_error(const Ran& r, const std::vector<std::string>& parts,
                           int code = kExitFailure) {
    EXPECT_EQ(r.code, code) << r.error;
    const auto lines = std::count(r.error.begin(), r.error.end(), '\n');
    EXPECT_TRUE(lines == 1 || (lines == 3 && r.error.ends_with("^\n"))) << r.error;
    EXPECT_THAT(r.error, ::testing::HasSubstr(": error: "));
    EXPECT_THAT(r.error, ::testing::HasSubstr("; ")) << "a remedy";
    EXPECT_THAT(r.error, ::testing::Not(::testing::HasSubstr("internal error")));
    for (const std::string& part : parts) EXPECT_THAT(r.error, ::testing::HasSubstr(part));
  }
  void expect_nothing_written(const std::string& name = "out.nimble") {
    EXPECT_FALSE(std::filesystem::exists(file(name)));
    for (const auto& f : std::filesystem::directory_iterator(folder_))
      EXPECT_THAT(f.path().filename().string(), ::testing::Not(::testing::HasSubstr(".tmp")));
  }
  std::filesystem::path folder_;
};

}  // namespace nimble::tools
