// nimble config: what configuration files and the environment say of the programs' options.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <set>

#include "vm/arguments/command_line.h"
#include "vm/arguments/settings.h"
#include "vm/arguments/table.h"
#include "vm/base/url.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kEpilogue[] =
    "What counts: the command line, then the environment, then the project's file (.nimble.toml "
    "in\n"
    "this folder or above it), then yours.\n\n"
    "Examples:\n"
    "  nimble config show\n"
    "  nimble config show --program tune --format json\n"
    "  nimble config keys";

std::string all_or(std::string_view program) {
  return program.empty() ? "all" : std::string(program);
}

Table files_table(const Configuration& configuration) {
  Table table({"file", "kind", "state"});
  for (const ConfigurationFile& f : configuration.files()) table.add({f.path, f.kind, f.state});
  return table;
}

Table values_table(const Configuration& configuration, const std::string& program) {
  Table table({"key", "program", "value", "source", "counts"});
  std::set<std::pair<std::string, std::string>> seen;  // what counts more came before
  for (const SettingValue& v : configuration.values()) {
    if (!program.empty() && !v.program.empty() && v.program != program) continue;
    const bool counts = !seen.contains({v.key, v.program}) && !seen.contains({v.key, ""});
    seen.insert({v.key, v.program});
    std::string value;  // whose URL may hold a password
    for (const std::string& word : v.words)
      value += (value.empty() ? "" : ", ") + without_password(word);
    table.add({v.key, all_or(v.program), value, v.source, counts ? "yes" : "no"});
  }
  return table;
}

int keys(Format format) {
  Table table({"key", "program", "environment", "project", "sentence"});
  for (const Setting& s : all_settings())
    table.add({s.key, all_or(s.program), environment_variable(s.key),
               s.project == Setting::Project::kNo    ? "no"
               : s.project == Setting::Project::kYes ? "yes"
                                                     : "a file in its folder",
               s.sentence});
  table.print(std::cout, format);
  return kExitOk;
}

int show(const std::string& program, Format format) {
  const Configuration configuration = Configuration::load();
  print_report(
      std::cout, format,
      [&] {
        return Json{{"files", files_table(configuration).json()},
                    {"values", values_table(configuration, program).json()}};
      },
      [&] { return values_table(configuration, program); },
      [&] {
        std::cout << files_table(configuration).text("(no files: NIMBLE_CONFIG is off)") << '\n'
                  << values_table(configuration, program).text("(nothing is set)");
      });
  return kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app{"Show what configuration files and the environment set.", "nimble config"};
  app.require_subcommand(1);
  app.footer(kEpilogue);
  Format format = Format::kTable;
  std::string program;
  CLI::App* show_command = app.add_subcommand(
      "show", "Print which files are read, and each value with where it is from");
  show_command->add_option("--program", program, "Only what this program sees: tune, compile, …");
  CLI::App* keys_command = app.add_subcommand("keys", "Print what can be set");
  for (CLI::App* command : {show_command, keys_command}) add_format(*command, &format);
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  return *keys_command ? keys(format) : show(program, format);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble config", [&] { return nimble::run(argc, argv); });
}
