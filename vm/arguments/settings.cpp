#include "vm/arguments/settings.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

// Messages with line numbers as exceptions, which its header offers by default.
#include <toml++/toml.h>

#include "vm/arguments/subcommands.h"
#include "vm/base/edit_distance.h"
#include "vm/base/error.h"

namespace nimble {
namespace {

namespace fs = std::filesystem;

constexpr char kProjectFile[] = ".nimble.toml";

const Setting* find_setting(std::string_view key) {
  for (const Setting& s : all_settings())
    if (s.key == key) return &s;
  return nullptr;
}

[[noreturn]] void refuse(const std::string& place, const std::string& problem,
                         const std::string& remedy) {
  throw Error(Status::kInvalidArgument, place, problem, remedy);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string user_file() {
  if (const std::string named = environment("NIMBLE_CONFIG"); !named.empty()) return named;
  const std::string base = environment("XDG_CONFIG_HOME"), home = environment("HOME");
  if (base.starts_with('/')) return base + "/nimble/config.toml";
  return home.starts_with('/') ? home + "/.config/nimble/config.toml" : "";
}

// The words that an option gets for a value; empty: it has no such form.
std::vector<std::string> words_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return {*text};
  if (const auto number = node.value_exact<int64_t>()) return {fmt::format("{}", *number)};
  if (const auto number = node.value_exact<double>()) return {fmt::format("{}", *number)};
  if (const auto flag = node.value_exact<bool>()) return {*flag ? "true" : "false"};
  std::vector<std::string> words;
  if (const toml::array* list = node.as_array())
    for (const toml::node& element : *list) {
      const std::vector<std::string> one = words_of(element);
      if (one.size() != 1) return {};
      words.push_back(one[0]);
    }
  return words;
}

// A project's database lies inside its folder: no server, and no file of somebody else's.
std::string file_inside(const std::string& text, const std::string& file,
                        const std::string& place) {
  const fs::path path(text), folder = fs::path(file).parent_path();
  bool leaves = path.is_absolute() || text.find("://") != std::string::npos || text.empty();
  for (const fs::path& part : path) leaves |= part == "..";
  std::error_code error;
  const fs::path real = fs::weakly_canonical(folder / path, error);
  const fs::path root = fs::weakly_canonical(folder, error);
  leaves |= std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first != root.end();
  if (leaves)
    refuse(place, fmt::format("\"{}\" is not a file in the project's folder", text),
           "a project's file may name no other; put it into your own, or give --db");
  return (folder / path).string();
}

}  // namespace

const std::vector<Setting>& all_settings() {
  using enum Setting::Project;
  static const std::vector<Setting> all = {
      {"db", kFileInside, "", "the tuning database; in a project's file a file in its folder"},
      {"format", kYes, "", "how tables are printed: table, json or csv"},
      {"threads", kYes, "", "numbers of threads to use, or to tune for"},
      {"target", kYes, "", "levels of machines to generate code for"},
      {"hardware", kYes, "", "whose records of the database are used"},
      {"policy", kYes, "",
       "the class of measuring policy: auto, cached, warm, weights-cold or cold"},
      {"jobs", kYes, "", "compilations at a time"},
      {"budget", kYes, "tune", "the time to spend on a campaign"},
      {"top-k", kYes, "tune", "configurations to cross-evaluate, per workload"},
      {"only-hot", kYes, "tune", "the share of a model's time that is tuned"},
      {"quiet", kYes, "", "no progress on stderr: true or false"},
      {"pin", kYes, "", "bind threads to cores: true or false"},
      {"crash-dir", kNo, "", "where a crash leaves its reproducer"},
      {"memory-limit", kNo, "run", "bytes that a run may take"},
      {"fuel", kNo, "run", "instructions that a run may take"},
      {"max-depth", kNo, "run", "nested calls that a run may make"},
      {"load-memory", kNo, "", "bytes that loading a file may take"},
      {"load-constants", kNo, "", "bytes of constants that a file may have"},
      {"load-steps", kNo, "", "steps that a file's verification may take"},
  };
  return all;
}

std::string environment_variable(std::string_view key) {
  std::string out = "NIMBLE_";
  for (char c : key)
    out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string find_project_file(const std::string& folder) {
  std::error_code error;
  const fs::path home = fs::weakly_canonical(environment("HOME"), error);
  for (fs::path at = fs::weakly_canonical(folder, error); !at.empty(); at = at.parent_path()) {
    if (at == home) return "";
    if (fs::exists(fs::symlink_status(at / kProjectFile, error)))
      return (at / kProjectFile).string();
    if (at == at.parent_path()) return "";
  }
  return "";
}

std::string distrust_of(const std::string& path) {
  struct stat of {};
  if (::lstat(path.c_str(), &of) != 0) return std::strerror(errno);
  if (!S_ISREG(of.st_mode)) return "it is no regular file";
  if (of.st_uid != ::geteuid()) return "it belongs to another user";
  if (of.st_mode & (S_IWGRP | S_IWOTH)) return "others may write to it: chmod go-w";
  return "";
}

Configuration Configuration::load() {
  Configuration c;
  c.read_environment();
  if (environment("NIMBLE_CONFIG") == "off") return c;
  std::error_code error;
  const std::string project = find_project_file(fs::current_path(error).string());
  if (!project.empty()) c.read(project, "project");
  const std::string user = user_file();
  if (!user.empty()) c.read(user, "user");
  return c;
}

void Configuration::read_environment() {
  for (const Setting& s : all_settings()) {
    const std::string name = environment_variable(s.key), text = environment(name.c_str());
    if (!text.empty())
      values_.push_back(
          {std::string(s.key), std::string(s.program), {text}, "environment " + name});
  }
}

void Configuration::read(const std::string& path, const std::string& kind) {
  const bool project = kind == "project";
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (kind == "user" && !environment("NIMBLE_CONFIG").empty())
      refuse(path, "there is no such file", "NIMBLE_CONFIG names it: correct that, or unset it");
    files_.push_back({path, kind, "missing"});
    return;
  }
  if (const std::string why = project ? distrust_of(path) : ""; !why.empty()) {
    files_.push_back({path, kind, why});
    return;
  }
  toml::table root;
  try {
    root = toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    refuse(fmt::format("{}:{}", path, e.source().begin.line), std::string(e.description()),
           "docs/configuration.md shows the form");
  }
  files_.push_back({path, kind, "read"});
  std::vector<SettingValue> of_programs, of_all;
  const auto add = [&](const std::string& program, std::string_view key, const toml::node& node) {
    const std::string place = fmt::format("{}:{}", path, node.source().begin.line);
    const Setting* s = find_setting(key);
    if (!s) {
      std::vector<std::string_view> keys;
      for (const Setting& known : all_settings()) keys.push_back(known.key);
      const std::string_view near = nearest_name(key, keys, 4);
      refuse(place, fmt::format("there is no setting \"{}\"", key),
             near.empty() ? "nimble config keys lists them"
                          : fmt::format("did you mean \"{}\"?", near));
    }
    if (project && s->project == Setting::Project::kNo)
      refuse(place, fmt::format("\"{}\" is not for a project to set", key),
             "put it into your own file; nimble config show says where that is");
    std::vector<std::string> words = words_of(node);
    if (words.empty())
      refuse(place, fmt::format("\"{}\" has no value that an option could have", key),
             "write a text, a number, true, false, or a list of these");
    if (project && s->project == Setting::Project::kFileInside) {
      if (words.size() > 1) refuse(place, "names several files", "name one");
      words[0] = file_inside(words[0], path, place);
    }
    (program.empty() ? of_all : of_programs).push_back({std::string(key), program, words, place});
  };
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (const toml::table* section = node.as_table()) {
      if (const std::string_view near = nearest_subcommand(name); near != name)
        refuse(fmt::format("{}:{}", path, node.source().begin.line),
               fmt::format("there is no program \"{}\"", name),
               near.empty() ? "nimble --help lists them" : fmt::format("did you mean [{}]?", near));
      for (const auto& [inner, value] : *section) add(name, inner.str(), value);
    } else {
      add("", name, node);
    }
  }
  values_.insert(values_.end(), of_programs.begin(), of_programs.end());
  values_.insert(values_.end(), of_all.begin(), of_all.end());
}

std::optional<SettingValue> Configuration::value(std::string_view key,
                                                 std::string_view program) const {
  const Setting* s = find_setting(key);
  if (!s || (!s->program.empty() && s->program != program)) return std::nullopt;
  for (const SettingValue& v : values_)
    if (v.key == key && (v.program.empty() || v.program == program)) return v;
  return std::nullopt;
}

void add_settings(const CLI::App& app, const Configuration& configuration,
                  std::vector<std::string>* words, std::vector<SettingValue>* added) {
  const auto end = std::find(words->begin(), words->end(), "--");
  // The subcommand that the words name.
  const CLI::App* command = &app;
  for (auto word = words->begin(); word != end; ++word) {
    if (word->starts_with('-')) continue;
    const auto subcommands = command->get_subcommands([](const CLI::App*) { return true; });
    const auto named = std::find_if(subcommands.begin(), subcommands.end(),
                                    [&](const CLI::App* s) { return s->get_name() == *word; });
    if (named == subcommands.end()) break;
    command = *named;
  }
  const auto given = [&](const CLI::Option* option) {
    return std::any_of(words->begin(), end, [&](const std::string& word) {
      for (const std::string& name : option->get_lnames())
        if (word == "--" + name || word.starts_with("--" + name + "=")) return true;
      for (const std::string& name : option->get_snames())
        if (!word.starts_with("--") && word.starts_with("-" + name)) return true;
      return false;
    });
  };
  const std::string name = app.get_name();
  const std::string program = name.substr(name.find(' ') + 1);
  std::vector<std::string> more;
  for (const Setting& s : all_settings()) {
    const CLI::Option* option = command->get_option_no_throw("--" + std::string(s.key));
    if (!option || option->get_group().empty() || given(option)) continue;
    const std::optional<SettingValue> value = configuration.value(s.key, program);
    if (!value) continue;
    const bool flag = option->get_expected_max() == 0;
    for (const std::string& word : value->words)
      more.push_back(fmt::format("--{}={}", s.key, word));
    if (flag && value->words.size() != 1)
      refuse(value->source, fmt::format("\"{}\" is not true or false", s.key), "give one of them");
    added->push_back(*value);
  }
  words->insert(end, more.begin(), more.end());
}

}  // namespace nimble
