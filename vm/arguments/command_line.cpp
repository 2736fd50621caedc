#include "vm/arguments/command_line.h"

#include <algorithm>
#include <cstdio>

#include "vm/arguments/manual.h"
#include "vm/arguments/settings.h"
#include "vm/base/edit_distance.h"
#include "vm/base/json_text.h"
#include "vm/base/url.h"

namespace nimble {
namespace {

// The subcommand that was chosen, or the program itself; `path` is what one types for it.
const CLI::App* chosen_command(const CLI::App& app, std::string* path) {
  const CLI::App* command = &app;
  *path = app.get_name();
  while (true) {
    const std::vector<CLI::App*> chosen = command->get_subcommands();
    if (chosen.empty()) return command;
    command = chosen[0];
    *path += " " + command->get_name();
  }
}

}  // namespace

std::string command_line::problem(const CLI::App& app, const CLI::ParseError& e) {
  std::string place;
  const CLI::App* command = chosen_command(app, &place);
  const std::string help = fmt::format("see {} --help", place);
  const std::vector<std::string> left = app.remaining(true);
  std::vector<std::string> subcommands, options;
  for (const CLI::App* s : command->get_subcommands([](const CLI::App*) { return true; }))
    subcommands.push_back(s->get_name());
  if (!subcommands.empty() && !left.empty() && !left[0].starts_with("-")) {
    const std::string_view name = nearest_name(left[0], subcommands, 4);
    return fmt::format("\"{}\" is not a subcommand; {}", without_password(left[0]),
                       name.empty() ? help : fmt::format("did you mean \"{} {}\"?", place, name));
  }
  for (const CLI::App* a = command; a; a = a->get_parent())
    for (const CLI::Option* option : a->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  for (const std::string& word : left) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string typed = word.substr(0, word.find('='));
    const std::string_view name = nearest_name(typed, options, 4);
    return fmt::format("unknown option \"{}\"; {}", without_password(typed),
                       name.empty() ? help : fmt::format("did you mean {}?", name));
  }
  if (!left.empty())
    return fmt::format("unexpected argument \"{}\"; {}", without_password(left[0]), help);
  const std::string text = without_passwords(e.what());
  constexpr std::string_view kTooOften = ": At Most 1 required but received ";  // CLI11's words
  if (const size_t at = text.find(kTooOften); at != std::string::npos)
    return fmt::format("{} is given {} times; give it once", text.substr(0, at),
                       text.substr(at + kTooOften.size()));
  return fmt::format("{}; {}", text, help);
}

std::string exit_codes_text(const std::vector<ExitCode>& others) {
  std::string out;
  for (const ExitCodeInfo& info : kExitCodes)
    if (info.code <= kExitUsage ||
        std::find(others.begin(), others.end(), info.code) != others.end())
      out +=
          fmt::format("{}{} {}", out.empty() ? "" : ", ", static_cast<int>(info.code), info.words);
  return "Exit codes: " + out + ".";
}

int usage_error(const CLI::App& app, const std::string& problem) {
  std::string place;
  chosen_command(app, &place);
  print_error(app.get_name().c_str(), fmt::format("{}; see {} --help", problem, place));
  return kExitUsage;
}

std::optional<int> parse_arguments(CLI::App& app, std::vector<std::string> words,
                                   const std::vector<ExitCode>& others) {
  if (words == std::vector<std::string>{"--help-json"} ||
      words == std::vector<std::string>{"--help-man"}) {
    const nlohmann::ordered_json program = describe(app, others);
    std::fputs(
        (words[0] == "--help-man" ? manual_page(program) : json_text(program) + "\n").c_str(),
        stdout);
    return kExitOk;
  }
  const std::string footer = app.get_footer();
  app.footer(footer + (footer.empty() ? "" : "\n\n") + exit_codes_text(others));
  std::vector<SettingValue> added;
  // Help is there however bad a file is.
  const bool help = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--help" || word == "-h";
  });
  try {
    if (!help) add_settings(app, Configuration::load(), &words, &added);
  } catch (const Error& e) {
    print_error(app.get_name().c_str(), e.what());
    return kExitUsage;
  }
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants it
    app.parse(std::move(words));
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e) == 0 ? kExitOk : kExitUsage;
    std::string what = command_line::problem(app, e);
    for (const SettingValue& v : added)
      if (what.find("--" + v.key) != std::string::npos)
        what += fmt::format(" (its value is of {})", v.source);
    print_error(app.get_name().c_str(), what);
    return kExitUsage;
  }
}

std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv,
                                   const std::vector<ExitCode>& others) {
  return parse_arguments(app, std::vector<std::string>(argv + std::min(argc, 1), argv + argc),
                         others);
}

}  // namespace nimble
