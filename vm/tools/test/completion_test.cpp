// Manual pages and completion come from the same source as --help: nothing of it is missing there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "vm/arguments/manual.h"
#include "vm/arguments/subcommands.h"
#include "vm/base/test/run_command.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

CommandResult run(const std::string& arguments) {
  return run_command(shell_word(program_folder()) + "/" + arguments);
}

// Each command of a program: "db show" of "db".
std::vector<std::string> commands_of(const std::string& program) {
  std::vector<std::string> out = {program};
  const Json all = Json::parse(run("nimble-" + program + " --help-json").out);
  for (const Json& s : all["subcommands"])
    out.push_back(s["name"].get<std::string>().substr(sizeof "nimble"));
  return out;
}

// The options that a help text lists: words that begin a line, after two spaces.
std::set<std::string> options_in_help(const std::string& command) {
  std::set<std::string> out;
  std::istringstream in(run("nimble-" + command + " --help").out);
  bool in_options = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "Options:") in_options = true;
    if (line.empty()) in_options = false;
    if (!in_options || !line.starts_with("  -")) continue;
    std::string word;
    for (char c : line.substr(2) + ",") {
      if (c != ',' && c != ' ') {
        word += c;
        continue;
      }
      if (word.starts_with('-')) out.insert(word);
      word.clear();
      if (c == ' ') break;
    }
  }
  return out;
}

std::string as_man_writes(const std::string& option) {
  std::string out;
  for (char c : option) out += c == '-' ? "\\-" : std::string(1, c);
  return "\\fB" + out + "\\fR";
}

TEST(Completion, EachOptionOfEachProgramIsInTheManualAndInEachScript) {
  std::map<std::string, std::string> scripts;
  for (const char* shell : kCompletedShells)
    scripts[shell] = run(std::string("nimble completion ") + shell).out;
  int programs = 0;
  for (const Subcommand& s : subcommands()) {
    const std::string name(s.name);
    if (program_of(name).empty()) continue;
    ++programs;
    const std::string manual = run("nimble-" + name + " --help-man").out;
    EXPECT_THAT(manual, AllOf(HasSubstr(".SH NAME"), HasSubstr(".SH SYNOPSIS"),
                              HasSubstr(".SH EXIT STATUS")));
    for (const std::string& command : commands_of(name)) {
      const std::set<std::string> options = options_in_help(command);
      EXPECT_TRUE(options.contains("--help")) << command;
      std::string bash = scripts["bash"];
      const size_t at = bash.find("\n    \"nimble " + command + "\") options=\"");
      ASSERT_NE(at, std::string::npos) << command;
      bash = " " + bash.substr(bash.find('"', at + 12 + command.size()) + 1);
      bash = bash.substr(bash.find("options=\"") + 9);
      bash = " " + bash.substr(0, bash.find('"')) + " ";
      for (const std::string& option : options) {
        EXPECT_THAT(manual, HasSubstr(as_man_writes(option))) << command;
        EXPECT_THAT(bash, HasSubstr(" " + option + " ")) << command;
        EXPECT_THAT(scripts["zsh"], HasSubstr("'" + option + ":")) << command;
        const std::string fish = option.starts_with("--") ? " -l " + option.substr(2) + " "
                                                          : " -s " + option.substr(1) + " ";
        EXPECT_THAT(scripts["fish"], HasSubstr("\"__nimble_at '" + command + "'\"" + fish));
      }
    }
  }
  EXPECT_GE(programs, 7);
}

TEST(Completion, ScriptsAreOfTheirShells) {
  const std::string file = ::testing::TempDir() + "nimble-completion";
  for (const char* shell : kCompletedShells) {
    std::ofstream(file) << run(std::string("nimble completion ") + shell).out;
    const CommandResult there = run_command(std::string("command -v ") + shell);
    if (there.exit_code != 0) continue;
    const CommandResult checked = run_command(std::string(shell) + " -n " + shell_word(file));
    EXPECT_EQ(checked.exit_code, 0) << checked.out;
    EXPECT_EQ(checked.out, "");
  }
  std::filesystem::remove(file);
  EXPECT_EQ(run("nimble completion tcsh").exit_code, 2);
}

// What bash offers for words; the last is what stands under the cursor.
std::string offered(const std::vector<std::string>& words) {
  std::string line =
      "source <(" + shell_word(program_folder() + "/nimble") + " completion bash); COMP_WORDS=(";
  for (const std::string& w : words) line += shell_word(w) + " ";
  line += ") COMP_CWORD=" + std::to_string(words.size() - 1) +
          "; _nimble 2>/dev/null; echo \"${COMPREPLY[*]}\"";
  return run_command("bash -c " + shell_word(line)).out;
}

TEST(Completion, BashOffersWhatFits) {
  EXPECT_EQ(offered({"nimble", "insp"}), "inspect\n");
  EXPECT_THAT(offered({"nimble", "inspect", "--"}),
              AllOf(HasSubstr("--signature"), Not(HasSubstr("--repetitions"))));
  EXPECT_EQ(offered({"nimble", "inspect", "--format", ""}), "table json csv\n");
  EXPECT_EQ(offered({"nimble", "inspect", "--format", "=", "j"}), "json\n");
  EXPECT_EQ(offered({"nimble", "config", ""}), "show keys\n");
  EXPECT_EQ(offered({"nimble", "config", "show", "--pro"}), "--program\n");
}

TEST(Manual, IsReadByMan) {
  if (run_command("command -v groff").exit_code != 0) GTEST_SKIP() << "there is no groff";
  for (const char* program : {"nimble", "nimble-run", "nimble-config"}) {
    const CommandResult page = run_command("(" + shell_word(program_folder()) + "/" + program +
                                           " --help-man | groff -k -man -Tutf8 -ww > /dev/null)");
    EXPECT_EQ(page.out, "") << program;
  }
}

}  // namespace
}  // namespace nimble
