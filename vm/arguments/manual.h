// What a program takes, walked from its CLI::App: the same source as --help, for manual pages and
// the completion of shells.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "vm/base/program.h"

namespace CLI {
class App;
}  // namespace CLI

namespace nimble {

// {"name": "nimble db show", "about": …, "footer": …, "exit_codes": [0, 1, 2],
//  "options": [{"names": ["-o", "--output"], "value": "FILE" (null of a flag), "help": …,
//               "choices": ["table", "json"], "environment": …, "default": …, "required": …,
//               "repeated": …}],
//  "positionals": [the same without names],
//  "subcommands": [the same of each, without exit_codes]}
nlohmann::ordered_json describe(const CLI::App& app, const std::vector<ExitCode>& others);

// The page of section 1, in the language of man(7), of what describe() returns.
std::string manual_page(const nlohmann::ordered_json& program);

// The script that completes `nimble` and its subcommands in "bash", "zsh" or "fish".
// `programs`: what describe() returns, of each.
std::string completion_script(const std::string& shell,
                              const std::vector<nlohmann::ordered_json>& programs);
inline constexpr const char* kCompletedShells[] = {"bash", "zsh", "fish"};

}  // namespace nimble
