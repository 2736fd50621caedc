// Scripts that hold everything they know: pressing the key starts no program. Each is three tables,
// what follows a command (subcommands, options), what follows an option, and how commands nest, in
// the words of its shell.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "vm/arguments/manual.h"
#include "vm/arguments/subcommands.h"
#include "vm/base/error.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using Json = nlohmann::ordered_json;

struct Word {
  std::string text, help;
};

struct Value {
  std::vector<std::string> options;  // that take it
  std::vector<std::string> choices;  // empty: files
};

struct Command {
  std::string path;  // "nimble db show"
  std::vector<Word> subcommands, options;
  std::vector<Value> values;
  std::vector<std::string> choices;  // of its positionals
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

Command command_of(const Json& described) {
  Command c{described["name"], {}, {}, {}, {}};
  for (const Json& s : described["subcommands"]) {
    const auto name = s["name"].get<std::string>();
    c.subcommands.push_back({name.substr(name.rfind(' ') + 1), first_line(s["about"])});
  }
  for (const Json& o : described["options"]) {
    const auto names = o["names"].get<std::vector<std::string>>();
    for (const std::string& n : names) c.options.push_back({n, first_line(o["help"])});
    if (o["value"].is_string()) c.values.push_back({names, o["choices"]});
  }
  for (const Json& p : described["positionals"])
    for (const Json& choice : p["choices"]) c.choices.push_back(choice);
  return c;
}

std::vector<Command> commands_of(const std::vector<Json>& programs) {
  Command front{"nimble", {}, {}, {}, {}};
  for (const Subcommand& s : subcommands())
    front.subcommands.push_back({std::string(s.name), std::string(s.sentence)});
  front.subcommands.push_back({"help", "print the help of a subcommand"});
  front.options = {{"--help", "print the help"}, {"--version", "print the version"}};
  std::vector<Command> out = {front};
  const std::function<void(const Json&)> add = [&](const Json& described) {
    out.push_back(command_of(described));
    for (const Json& s : described["subcommands"]) add(s);
  };
  for (const Json& p : programs) add(p);
  return out;
}

std::string texts(const std::vector<Word>& words) {
  std::string out;
  for (const Word& w : words) out += (out.empty() ? "" : " ") + w.text;
  return out;
}

// The commands below the front door, each a pattern of `case`.
std::string nested(const std::vector<Command>& commands) {
  std::string out;
  for (const Command& c : commands)
    if (c.path != "nimble") out += (out.empty() ? "\"" : " | \"") + c.path + "\"";
  return out;
}

std::string bash(const std::vector<Command>& commands) {
  std::string after_option, after_command;
  for (const Command& c : commands) {
    for (const Value& v : c.values) {
      std::string pattern;
      for (const std::string& o : v.options)
        pattern += fmt::format("{}\"{} {}\"", pattern.empty() ? "" : " | ", c.path, o);
      after_option += fmt::format(
          "    {})\n      {}\n      return ;;\n", pattern,
          v.choices.empty()
              ? "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
              : fmt::format("mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$cur\")",
                            fmt::join(v.choices, " ")));
    }
    after_command +=
        fmt::format("    \"{}\") options=\"{}\" words=\"{}\" ;;\n", c.path, texts(c.options),
                    c.subcommands.empty() ? fmt::format("{}", fmt::join(c.choices, " "))
                                          : texts(c.subcommands));
  }
  return fmt::format(R"SH(# bash completion of nimble, printed by: nimble completion bash
_nimble() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} path=nimble i options= words=
  COMPREPLY=()
  # "--format=json" is three words for bash.
  if [[ $cur == "=" ]]; then
    cur=
  elif [[ $prev == "=" ]]; then
    prev=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {0}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path $prev" in
{1}  esac
  case "$path" in
{2}  esac
  if [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  elif [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
}}
complete -F _nimble nimble
)SH",
                     nested(commands), after_option, after_command);
}

// "name:what it is" in single quotes; a colon of the name is escaped.
std::string zsh_words(const std::vector<Word>& words) {
  std::string out;
  for (const Word& w : words) {
    std::string name;
    for (char c : w.text) name += c == ':' ? "\\:" : std::string(1, c);
    std::string quoted;
    for (char c : name + ":" + w.help) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    out += " '" + quoted + "'";
  }
  return out;
}

std::string zsh(const std::vector<Command>& commands) {
  std::string after_option, after_command;
  for (const Command& c : commands) {
    for (const Value& v : c.values) {
      std::string pattern;
      for (const std::string& o : v.options)
        pattern += fmt::format("{}\"{} {}\"", pattern.empty() ? "" : "|", c.path, o);
      after_option += fmt::format(
          "    {})\n      {}\n      return ;;\n", pattern,
          v.choices.empty() ? "_files" : fmt::format("compadd -- {}", fmt::join(v.choices, " ")));
    }
    std::vector<Word> words = c.subcommands;
    for (const std::string& choice : c.choices) words.push_back({choice, ""});
    after_command += fmt::format("    \"{}\")\n      options=({} )\n      more=({} ) ;;\n", c.path,
                                 zsh_words(c.options), zsh_words(words));
  }
  return fmt::format(R"SH(#compdef nimble
# zsh completion of nimble, printed by: nimble completion zsh
_nimble() {{
  local cur=${{words[CURRENT]}} prev=${{words[CURRENT-1]}} at=nimble word
  local -a options more
  # "--format=json" is one word for zsh.
  if [[ $cur == --*=* ]]; then
    prev=${{cur%%=*}}
    compset -P '*='
  fi
  for word in ${{words[2,CURRENT-1]}}; do
    case "$at $word" in
      {0}) at="$at $word" ;;
    esac
  done
  case "$at $prev" in
{1}  esac
  case "$at" in
{2}  esac
  if [[ $cur == -* ]]; then
    _describe -o option options
  elif (( $#more )); then
    _describe command more
  else
    _files
  fi
}}
compdef _nimble nimble
)SH",
                     [&] {
                       std::string out;
                       for (const Command& c : commands)
                         if (c.path != "nimble")
                           out += (out.empty() ? "\"" : "|\"") + c.path + "\"";
                       return out;
                     }(),
                     after_option, after_command);
}

std::string fish_text(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return "'" + out + "'";
}

std::string fish(const std::vector<Command>& commands) {
  std::string out = "# fish completion of nimble, printed by: nimble completion fish\n";
  out += "set -g __nimble_commands";
  const auto below = [](const Command& c) {
    return c.path == "nimble" ? std::string() : c.path.substr(sizeof "nimble");
  };
  for (const Command& c : commands)
    if (c.path != "nimble") out += " " + fish_text(below(c));
  out += R"SH(
# Whether the words so far name this command.
function __nimble_at --argument-names wanted
  set -l path ''
  set -l words (commandline -opc)
  for word in $words[2..-1]
    set -l longer (string trim -- "$path $word")
    if contains -- $longer $__nimble_commands
      set path $longer
    end
  end
  test "$path" = "$wanted"
end
)SH";
  for (const Command& c : commands) {
    const std::string at =
        fmt::format("complete -c nimble -n \"__nimble_at {}\"", fish_text(below(c)));
    for (const Word& s : c.subcommands)
      out += fmt::format("{} -f -a {} -d {}\n", at, s.text, fish_text(s.help));
    for (const std::string& choice : c.choices) out += fmt::format("{} -f -a {}\n", at, choice);
    for (const Word& o : c.options) {
      std::string line =
          at + (o.text.starts_with("--") ? " -l " + o.text.substr(2) : " -s " + o.text.substr(1));
      for (const Value& v : c.values)
        for (const std::string& name : v.options)
          if (name == o.text)
            line += v.choices.empty() ? " -r -F"
                                      : fmt::format(" -x -a '{}'", fmt::join(v.choices, " "));
      out += line + " -d " + fish_text(o.help) + "\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<Json>& programs) {
  const std::vector<Command> commands = commands_of(programs);
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  throw Error(Status::kInvalidArgument, "\"" + shell + "\"", "is no shell that nimble completes in",
              "name bash, zsh or fish");
}

}  // namespace nimble
