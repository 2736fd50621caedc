// How every program answers wrong arguments: one line on stderr, "NAME: error: …", which names the
// argument, and exit code 2. Only for programs, which link CLI11 themselves.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/edit_distance.h"
#include "vm/base/error.h"
#include "vm/base/program.h"

namespace nimble {

// Checks of options whose numbers have no upper bound; CLI11's own print the bound that a double
// has, which is 309 digits long.
inline CLI::Validator number_above_zero() {
  return {[](std::string& text) {
            double v = 0;
            return CLI::detail::lexical_cast(text, v) && v > 0
                       ? std::string()
                       : fmt::format("\"{}\" is not a number above 0", text);
          },
          "POSITIVE", "POSITIVE"};
}
inline CLI::Validator number_from_zero() {
  return {[](std::string& text) {
            double v = 0;
            return CLI::detail::lexical_cast(text, v) && v >= 0
                       ? std::string()
                       : fmt::format("\"{}\" is not a number from 0 on", text);
          },
          "NONNEGATIVE", "NONNEGATIVE"};
}

// Checks a text by the function that will read it: an Error(kInvalidArgument) is wrong usage. What
// else is wrong, it says when it reads.
template <typename Read>
CLI::Validator read_by(Read read) {
  return {[read](std::string& text) -> std::string {
            try {
              read(text);
              return {};
            } catch (const Error& e) {
              if (e.status() != Status::kInvalidArgument) return {};
              // The option stands before it anyway.
              const bool place = !e.place().starts_with("--") && e.place() != text;
              return fmt::format("{}{}{}", place ? e.place() + ": " : "", e.problem(),
                                 e.remedy().empty() ? "" : "; " + e.remedy());
            }
          },
          ""};
}

namespace command_line {

// What is wrong, and the remedy. A word that nothing takes comes first: it is often the reason why
// something else is missing.
inline std::string problem(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App* command = &app;
  std::string place = app.get_name();
  std::vector<std::string> options;
  while (true) {
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    const std::vector<CLI::App*> chosen = command->get_subcommands();
    if (chosen.empty()) break;
    command = chosen[0];
    place += " " + command->get_name();
  }
  const std::string help = fmt::format("see {} --help", place);
  const std::vector<std::string> left = app.remaining(true);
  std::vector<std::string> subcommands;
  for (const CLI::App* s : command->get_subcommands([](const CLI::App*) { return true; }))
    subcommands.push_back(s->get_name());
  if (!subcommands.empty() && !left.empty() && !left[0].starts_with("-")) {
    const std::string_view name = nearest_name(left[0], subcommands, 4);
    return fmt::format("\"{}\" is not a subcommand; {}", left[0],
                       name.empty() ? help : fmt::format("did you mean \"{} {}\"?", place, name));
  }
  for (const std::string& word : left) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string typed = word.substr(0, word.find('='));
    const std::string_view name = nearest_name(typed, options, 4);
    return fmt::format("unknown option \"{}\"; {}", typed,
                       name.empty() ? help : fmt::format("did you mean {}?", name));
  }
  if (!left.empty()) return fmt::format("unexpected argument \"{}\"; {}", left[0], help);
  return fmt::format("{}; {}", e.what(), help);
}

}  // namespace command_line

// Ends a program whose arguments did not parse: prints the help if they ask for it, else what is
// wrong with them. Returns the exit code.
inline int exit_of_arguments(const CLI::App& app, const CLI::ParseError& e) {
  if (e.get_exit_code() == 0) return app.exit(e) == 0 ? kExitOk : kExitUsage;
  std::fprintf(stderr, "%s: error: %s\n", app.get_name().c_str(),
               command_line::problem(app, e).c_str());
  return kExitUsage;
}

}  // namespace nimble
