// Flag, environment, project, user: which value counts, and what a folder may not do to its user.
#include "vm/arguments/settings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "vm/arguments/subcommands.h"
#include "vm/base/program.h"
#include "vm/base/test/run_command.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/home/.config/nimble");
    fs::create_directories(root_ + "/project/deep/er");
  }
  void TearDown() override { fs::remove_all(root_); }

  void user(const std::string& text) { write("/home/.config/nimble/config.toml", text); }
  void project(const std::string& text) { write("/project/.nimble.toml", text); }
  void write(const std::string& file, const std::string& text) {
    std::ofstream(root_ + file) << text;
    ::chmod((root_ + file).c_str(), 0644);
  }
  // In project/deep/er, with nothing of the environment that runs the test.
  CommandResult run(const std::string& arguments, const std::string& environment = "") {
    return run_command("cd " + shell_word(root_ + "/project/deep/er") +
                       " && env -i PATH=\"$PATH\" HOME=" + shell_word(root_ + "/home") + " " +
                       environment + " " + shell_word(program_folder()) + "/nimble-" + arguments);
  }
  // The value of `key` that counts for doctor, and where it is from.
  std::string shown(const std::string& key, const std::string& environment = "") {
    const CommandResult ran = run("config show --program doctor --format json", environment);
    const auto json = nlohmann::json::parse(ran.out, nullptr, false);
    if (!json.is_object()) return ran.out;
    for (const auto& v : json["values"])
      if (v["key"] == key && v["counts"] == "yes")
        return v["value"].get<std::string>() + " of " + v["source"].get<std::string>();
    return "nothing";
  }

  const std::string root_ = fs::canonical(::testing::TempDir()).string() + "/nimble-settings-" +
                            std::to_string(::getpid());
};

TEST_F(SettingsTest, FlagEnvironmentProjectUser) {
  EXPECT_EQ(shown("format"), "nothing");
  user("# mine\nformat = \"csv\"\n\n[doctor]\nthreads = 3\n");
  EXPECT_EQ(shown("format"), "csv of " + root_ + "/home/.config/nimble/config.toml:2");
  EXPECT_EQ(shown("threads"), "3 of " + root_ + "/home/.config/nimble/config.toml:5");
  EXPECT_THAT(run("doctor").out, HasSubstr("what,value\n"));
  project("format = \"json\"");
  EXPECT_EQ(shown("format"), "json of " + root_ + "/project/.nimble.toml:1");
  EXPECT_TRUE(nlohmann::json::accept(run("doctor").out));
  EXPECT_EQ(shown("format", "NIMBLE_FORMAT=csv"), "csv of environment NIMBLE_FORMAT");
  EXPECT_THAT(run("doctor", "NIMBLE_FORMAT=csv").out, HasSubstr("what,value\n"));
  EXPECT_THAT(run("doctor --format table", "NIMBLE_FORMAT=csv").out, HasSubstr("what   "));
  EXPECT_THAT(run("doctor --format=table").out, HasSubstr("what   "));
  EXPECT_EQ(shown("format", "NIMBLE_CONFIG=off"), "nothing");
  write("/other.toml", "format = \"table\"");
  fs::remove(root_ + "/project/.nimble.toml");
  EXPECT_EQ(shown("format", "NIMBLE_CONFIG=" + shell_word(root_ + "/other.toml")),
            "table of " + root_ + "/other.toml:1");
}

TEST_F(SettingsTest, ASectionCountsMoreThanNone) {
  user("format = \"csv\"\n[doctor]\nformat = \"json\"\n");
  EXPECT_TRUE(nlohmann::json::accept(run("doctor").out));
  EXPECT_THAT(run("config keys").out, HasSubstr("key,program,environment"));
}

TEST_F(SettingsTest, MistakesNameFileLineAndRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"\nformt = \"csv\"",
       "config.toml:2: there is no setting \"formt\"; did you mean \"format\"?"},
      {"format = ", "config.toml:1: "},
      {"[doktor]\nformat = \"csv\"",
       "config.toml:1: there is no program \"doktor\"; did you mean [doctor]?"},
      {"format = {}", "config.toml:1: "},
      {"format = 1979-05-27", "has no value that an option could have"},
      {"format = \"xml\"", "config.toml:1)"},
  };
  for (const auto& [text, message] : cases) {
    user(text);
    const CommandResult ran = run("doctor");
    EXPECT_EQ(ran.exit_code, 2) << text;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("nimble doctor: error: "), HasSubstr(message))) << text;
  }
  EXPECT_EQ(run("doctor --help").exit_code, 0) << "help is always there";
  EXPECT_THAT(run("doctor", "NIMBLE_FORMAT=xml NIMBLE_CONFIG=off").out,
              HasSubstr("environment NIMBLE_FORMAT"));
  EXPECT_THAT(run("doctor", "NIMBLE_CONFIG=/nowhere.toml").out, HasSubstr("there is no such file"));
}

TEST_F(SettingsTest, NoPasswordIsShown) {
  user("db = \"postgresql://me:secret@host/x\"");
  for (const char* format : {"table", "json", "csv"}) {
    const CommandResult ran = run(std::string("config show --format ") + format);
    EXPECT_THAT(ran.out, AllOf(HasSubstr("me@host"), ::testing::Not(HasSubstr("secret"))));
  }
}

// A folder that somebody else made must not decide what runs, what is trusted, whom nimble speaks
// to, or what a file may take.
TEST_F(SettingsTest, AProjectMaySetOnlyWhatIsHarmless) {
  for (const Setting& s : all_settings()) {
    if (s.project != Setting::Project::kNo) continue;
    project(std::string(s.key) + " = \"1\"");
    const CommandResult ran = run("doctor");
    EXPECT_EQ(ran.exit_code, 2) << s.key;
    EXPECT_THAT(ran.out, HasSubstr("is not for a project to set")) << s.key;
    user(std::string(s.key) + " = \"1\"");
    fs::remove(root_ + "/project/.nimble.toml");
    EXPECT_EQ(run("doctor").exit_code, 0) << s.key;
    fs::remove(root_ + "/home/.config/nimble/config.toml");
  }
  for (const char* key : {"trust", "native", "output", "model", "worker", "input"}) {
    project(std::string(key) + " = \"1\"");
    EXPECT_EQ(run("doctor").exit_code, 2) << key;
  }
  fs::create_symlink("/etc", root_ + "/project/link");
  for (const char* place :
       {"postgresql://host/x", "/tmp/x.db", "../x.db", "a/../../x.db", "link/x.db", ""}) {
    project("db = \"" + std::string(place) + "\"");
    EXPECT_THAT(shown("db"), HasSubstr("is not a file in the project's folder")) << place;
  }
  project("db = [\"a.db\", \"b.db\"]");
  EXPECT_THAT(shown("db"), HasSubstr("names several files"));
  project("db = \"tuning.db\"");
  EXPECT_EQ(shown("db"), root_ + "/project/tuning.db of " + root_ + "/project/.nimble.toml:1");
}

TEST_F(SettingsTest, AFileThatOthersCouldWriteIsLeftOut) {
  project("format = \"csv\"");
  const std::string file = root_ + "/project/.nimble.toml";
  EXPECT_EQ(distrust_of(file), "");
  ::chmod(file.c_str(), 0666);
  EXPECT_EQ(shown("format"), "nothing");
  EXPECT_THAT(run("config show").out, HasSubstr("others may write to it"));
  if (::geteuid() == 0) {
    ::chmod(file.c_str(), 0644);
    ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
    EXPECT_EQ(shown("format"), "nothing");
    EXPECT_THAT(run("config show").out, HasSubstr("it belongs to another user"));
  }
  fs::remove(file);
  write("/project/real.toml", "format = \"csv\"");
  fs::create_symlink("real.toml", file);
  EXPECT_EQ(shown("format"), "nothing");
}

TEST_F(SettingsTest, TheHomeFolderIsNoProject) {
  write("/home/.nimble.toml", "format = \"csv\"");
  fs::create_directories(root_ + "/home/a/b");
  ::setenv("HOME", (root_ + "/home").c_str(), 1);
  EXPECT_EQ(find_project_file(root_ + "/home/a/b"), "");
  write("/home/a/.nimble.toml", "format = \"csv\"");
  EXPECT_EQ(find_project_file(root_ + "/home/a/b"), root_ + "/home/a/.nimble.toml");
}

TEST(Settings, ThePageForUsersNamesEach) {
  std::ifstream page(NIMBLE_SOURCE_DIR "/docs/configuration.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  ASSERT_FALSE(text.empty());
  for (const Setting& s : all_settings())
    EXPECT_THAT(text, HasSubstr("`" + std::string(s.key) + "`"));
}

TEST(ExitCodes, ThePageOfCommandsNamesEach) {
  std::ifstream page(NIMBLE_SOURCE_DIR "/docs/commands.md");
  const std::string text((std::istreambuf_iterator<char>(page)), {});
  for (const ExitCodeInfo& info : kExitCodes)
    EXPECT_THAT(text,
                HasSubstr(fmt::format("\n| {} | {}", static_cast<int>(info.code), info.words)));
}

TEST(Settings, EnvironmentVariablesAreNamedAfterThem) {
  EXPECT_EQ(environment_variable("top-k"), "NIMBLE_TOP_K");
  std::set<std::string_view> keys;
  for (const Setting& s : all_settings()) {
    EXPECT_TRUE(keys.insert(s.key).second) << s.key;
    EXPECT_FALSE(s.sentence.empty());
  }
}

}  // namespace
}  // namespace nimble
