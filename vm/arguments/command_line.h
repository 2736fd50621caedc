// The frame of every program's arguments: what all of them take, and how they answer wrong ones:
// with one line on stderr, "NAME: error: …", which names the argument, without a password that a
// URL in it may have, and exit code 2.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// Of options whose numbers are unsigned: CLI11 makes 2^64 - 1 of -1, and of what has more digits.
inline CLI::Validator whole_number() {
  return {[](std::string& text) {
            uint64_t v = 0;
            const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), v);
            return code == std::errc() && end == text.data() + text.size()
                       ? std::string()
                       : fmt::format("\"{}\" is not a whole number from 0 on", text);
          },
          ""};
}
// A number of bytes, also as 512MiB. CLI11's own takes -1 for the largest there is.
struct ByteSize : CLI::AsSizeValue {
  ByteSize() : CLI::AsSizeValue(false) {
    func_ = [parse = std::move(func_)](std::string& text) {
      return text.starts_with('-') ? fmt::format("\"{}\" is not a number of bytes", text)
                                   : parse(text);
    };
  }
};

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
std::string problem(const CLI::App& app, const CLI::ParseError& e);
}  // namespace command_line

// Parses the arguments of a program; what they leave out comes from the environment and from
// configuration files (settings.h). Returns the exit code if the program ends here: with what was
// asked for (--help; --help-man, a manual page; --help-json, the same for programs), or with one
// line on stderr about what is wrong. `others` are the codes that the program may end with beside
// 0, 1 and 2; the help tells them.
std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv,
                                   const std::vector<ExitCode>& others = {});
// The same of words in order, without the program's name.
std::optional<int> parse_arguments(CLI::App& app, std::vector<std::string> words,
                                   const std::vector<ExitCode>& others = {});

// Says what only the program itself can see to be wrong with its arguments, as parse_arguments says
// the rest. Returns the exit code.
int usage_error(const CLI::App& app, const std::string& problem);

// "Exit codes: 0 ok, 1 failure, 2 usage, 5 stale or incompatible database."
std::string exit_codes_text(const std::vector<ExitCode>& others);

}  // namespace nimble
