// What a program says of arguments that it does not take.
#include "vm/arguments/command_line.h"

#include <gmock/gmock.h>

namespace nimble {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A program of two subcommands; the message for what it is given.
std::string message_for(std::vector<std::string> words) {
  CLI::App app{"A program.", "nimble example"};
  app.require_subcommand(1);
  std::string file;
  int64_t limit = 0;
  std::string format;
  CLI::App* show = app.add_subcommand("show", "");
  show->add_option("file", file);
  show->add_option("--limit", limit)->check(number_above_zero());
  show->add_option("--format", format)->check(CLI::IsMember({"table", "json"}));
  app.add_subcommand("import", "");
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    return command_line::problem(app, e);
  }
  return "";
}

TEST(CommandLine, NamesWhatNothingTakesAndTheRemedy) {
  EXPECT_EQ(message_for({"shwo"}),
            "\"shwo\" is not a subcommand; did you mean \"nimble example show\"?");
  EXPECT_EQ(message_for({"show", "--limti", "3"}),
            "unknown option \"--limti\"; did you mean --limit?");
  EXPECT_EQ(message_for({"show", "a", "b"}),
            "unexpected argument \"b\"; see nimble example show --help");
  EXPECT_THAT(message_for({"show", "--limit", "0"}), HasSubstr("is not a number above 0"));
}

// Wherever a URL lands by mistake, what is said of it ends up in logs.
TEST(CommandLine, TellsNoPasswordOfAUrl) {
  const std::string url = "postgresql://me:secret@host/tuning";
  for (const std::vector<std::string>& words :
       std::initializer_list<std::vector<std::string>>{{url},
                                                       {"show", "a", url},
                                                       {"show", "a", url + "?password=secret"},
                                                       {"show", "--" + url},
                                                       {"show", "--database=" + url},
                                                       {"show", "--format", url},
                                                       {"show", "--format=" + url},
                                                       {"show", "--limit", url},
                                                       {"show", "a", "misspelt://me:sec ret@host"}})
    EXPECT_THAT(message_for(words), AllOf(HasSubstr("see nimble example"), Not(HasSubstr("secret")),
                                          Not(HasSubstr("sec ret"))))
        << words.back();
}

}  // namespace
}  // namespace nimble
