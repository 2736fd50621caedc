// What configuration files and environment variables may say of a program's options.
//
// A value comes from the first of these that has it: the command line, the environment variable
// NIMBLE_KEY, the project's file (.nimble.toml in the working directory or above it), the user's
// file (nimble/config.toml in XDG_CONFIG_HOME, ~/.config by default). In a file a value of the
// section of a program ([tune]) comes before one of no section.
//
// A project's file comes with a folder, and a folder may come from anybody. So it may set only what
// changes neither what runs, nor what is trusted, nor whom nimble speaks to, nor what a file may
// take; and it counts only if it belongs to the user and nobody else may write to it.
// docs/configuration.md is the page for users.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace nimble {

struct Setting {
  enum class Project { kNo, kYes, kFileInside };  // whether a project's file may set it
  std::string_view key;                           // the option's long name without dashes
  Project project;
  std::string_view program;  // that alone has it ("run"); empty: all that have such an option
  std::string_view sentence;
};
const std::vector<Setting>& all_settings();
// "top-k" -> "NIMBLE_TOP_K".
std::string environment_variable(std::string_view key);

struct SettingValue {
  std::string key, program;  // empty: of all programs
  std::vector<std::string> words;
  std::string source;  // "environment NIMBLE_DB", "/home/me/p/.nimble.toml:3"
};

struct ConfigurationFile {
  std::string path, kind;  // "project", "user"
  std::string state;       // "read", "missing", or why it is left out
};

class Configuration {
 public:
  // Reads the files that belong to the working directory and the environment; NIMBLE_CONFIG=off
  // reads none, and another value is the path of the user's file. Error(kInvalidArgument) names
  // the file, the line and the remedy.
  static Configuration load();

  // What is not the command line's. `program` without "nimble".
  std::optional<SettingValue> value(std::string_view key, std::string_view program) const;
  // All that files and the environment say, what counts first.
  const std::vector<SettingValue>& values() const { return values_; }
  const std::vector<ConfigurationFile>& files() const { return files_; }

 private:
  void read_environment();
  void read(const std::string& path, const std::string& kind);

  std::vector<SettingValue> values_;
  std::vector<ConfigurationFile> files_;
};

// The nearest .nimble.toml in `folder` or above it, up to the home folder, which is not asked, or
// the file system's root; empty if there is none.
std::string find_project_file(const std::string& folder);
// Why a file that lies in a folder is not to be believed; empty if it is.
std::string distrust_of(const std::string& path);

// Adds to `words`, the arguments of a program, what the configuration says of those options that
// they leave out. What was added is in `added`.
void add_settings(const CLI::App& app, const Configuration& configuration,
                  std::vector<std::string>* words, std::vector<SettingValue>* added);

}  // namespace nimble
