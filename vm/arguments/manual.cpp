#include "vm/arguments/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "vm/arguments/settings.h"
#include "vm/arguments/subcommands.h"

namespace nimble {
namespace {

using Json = nlohmann::ordered_json;

// The values of a check like "{table,json,csv}", which CLI11 keeps as text only.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}', open);
  std::vector<std::string> out;
  if (open == std::string::npos || close == std::string::npos) return out;
  std::istringstream in(type.substr(open + 1, close - open - 1));
  for (std::string one; std::getline(in, one, ',');) out.push_back(one);
  return out;
}

Json describe_option(const CLI::Option& o) {
  Json names = Json::array();
  for (const std::string& n : o.get_snames()) names.push_back("-" + n);
  for (const std::string& n : o.get_lnames()) names.push_back("--" + n);
  const std::string type = o.get_type_name();
  const std::string plain = type.substr(0, type.find(':'));
  Json out = {{"names", names},
              {"value", o.get_expected_max() == 0 ? Json() : Json(plain.empty() ? "VALUE" : plain)},
              {"help", o.get_description()},
              {"choices", choices_in(type)},
              {"environment", o.get_envname()},
              {"default", o.get_default_str()},
              {"required", o.get_required()},
              {"repeated", o.get_expected_max() > 1}};
  if (o.get_lnames().empty() && o.get_snames().empty()) out["value"] = o.get_name(true);
  return out;
}

Json describe_command(const CLI::App& app, const std::string& name) {
  Json out = {{"name", name},
              {"about", app.get_description()},
              {"footer", app.get_footer()},
              {"options", Json::array()},
              {"positionals", Json::array()},
              {"subcommands", Json::array()}};
  for (const CLI::Option* o : app.get_options()) {
    if (o->get_group().empty()) continue;
    out[o->nonpositional() ? "options" : "positionals"].push_back(describe_option(*o));
  }
  for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; }))
    out["subcommands"].push_back(describe_command(*s, name + " " + s->get_name()));
  return out;
}

// ---- man(7) ------------------------------------------------------------------------------------

// A text as it is: what the language would read as its own is escaped.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

// Paragraphs of a help text; lines that are indented, as examples are, stay lines.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool as_is = false;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const bool indented = line.starts_with("  ");
    if (indented != as_is && !(as_is && line.empty())) {
      out += indented ? ".nf\n.RS\n" : ".RE\n.fi\n";
      as_is = indented;
    }
    if (line.empty())
      out += ".PP\n";
    else
      out += escaped(indented ? line.substr(2) : line) + "\n";
  }
  if (as_is) out += ".RE\n.fi\n";
  return out;
}

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : ".SH " + title + "\n" + body;
}

std::string option_entry(const Json& o) {
  std::vector<std::string> names;
  for (const Json& n : o["names"]) names.push_back("\\fB" + escaped(n.get<std::string>()) + "\\fR");
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  if (o["value"].is_string())
    head += (head.empty() ? "\\fI" : " \\fI") + escaped(o["value"].get<std::string>()) + "\\fR";
  std::string text = o["help"].get<std::string>();
  const auto sentence = [&](const std::string& s) {
    text += (text.ends_with('.') ? " " : ". ") + s;
  };
  if (!o["choices"].empty())
    sentence(
        fmt::format("One of {}.", fmt::join(o["choices"].get<std::vector<std::string>>(), ", ")));
  if (o["required"] == true) sentence("Required.");
  if (o["repeated"] == true && !o["names"].empty()) sentence("May be given more than once.");
  if (o["default"] != "") sentence("Default: " + o["default"].get<std::string>() + ".");
  if (o["environment"] != "")
    sentence("Environment variable: " + o["environment"].get<std::string>() + ".");
  return ".TP\n" + head + "\n" + escaped(text) + "\n";
}

std::string synopsis(const Json& command) {
  std::string out = ".B " + escaped(command["name"].get<std::string>()) + "\n";
  if (!command["subcommands"].empty()) return out + ".I SUBCOMMAND\n[\\fIOPTION\\fR]...\n.br\n";
  out += "[\\fIOPTION\\fR]...";
  for (const Json& p : command["positionals"]) {
    const std::string name = "\\fI" + escaped(p["value"].get<std::string>()) + "\\fR";
    out += p["required"] == true ? " " + name : " [" + name + "]";
  }
  return out + "\n.br\n";
}

std::string entries_of(const Json& command) {
  std::string out;
  for (const Json& p : command["positionals"]) out += option_entry(p);
  for (const Json& o : command["options"]) out += option_entry(o);
  return out;
}

std::string first_sentence(const std::string& about) {
  std::string text = about.substr(0, std::min(about.find(".\n"), about.find(". ")));
  text = text.substr(0, text.find("\n\n"));
  for (char& c : text)
    if (c == '\n') c = ' ';
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

Json describe(const CLI::App& app, const std::vector<ExitCode>& others) {
  Json out = describe_command(app, app.get_name());
  Json codes = Json::array();
  for (const ExitCodeInfo& info : kExitCodes)
    if (info.code <= kExitUsage ||
        std::find(others.begin(), others.end(), info.code) != others.end())
      codes.push_back(static_cast<int>(info.code));
  out["exit_codes"] = codes;
  return out;
}

std::string manual_page(const Json& program) {
  const auto name = program["name"].get<std::string>();
  std::string file = name;
  for (char& c : file)
    if (c == ' ') c = '-';
  std::string title;
  for (char c : file) title += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string out =
      fmt::format(".\\\" -*- coding: UTF-8 -*-\n.TH {} 1 \"\" \"nimble {}\" \"nimble manual\"\n",
                  escaped(title), NIMBLE_VERSION);
  const auto about = program["about"].get<std::string>();
  out += section("NAME", fmt::format("{} \\- {}\n", escaped(file), escaped(first_sentence(about))));
  std::string synopses = synopsis(program), commands;
  for (const Json& s : program["subcommands"]) {
    commands += ".SS " + escaped(s["name"].get<std::string>()) + "\n" + synopsis(s) + ".PP\n" +
                paragraphs(s["about"].get<std::string>()) + entries_of(s) + ".PP\n" +
                paragraphs(s["footer"].get<std::string>());
  }
  out += section("SYNOPSIS", synopses);
  out += section("DESCRIPTION", paragraphs(about));
  out += section("SUBCOMMANDS", commands);
  out += section("OPTIONS", entries_of(program));
  out += section("EXAMPLES AND NOTES", paragraphs(program["footer"].get<std::string>()));
  std::string codes;
  for (const ExitCodeInfo& info : kExitCodes)
    for (const Json& code : program["exit_codes"])
      if (code == static_cast<int>(info.code))
        codes += fmt::format(".TP\n\\fB{}\\fR {}\n{}\n", static_cast<int>(info.code), info.words,
                             escaped(std::string(info.sentence)));
  out += section("EXIT STATUS", codes);
  out += section("FILES AND ENVIRONMENT",
                 "Options that the command line leaves out come from environment variables, a "
                 "project's file \\fI.nimble.toml\\fR and the user's file "
                 "\\fI~/.config/nimble/config.toml\\fR:\n.B nimble config show\ntells which.\n");
  std::string see = ".BR nimble (1)";
  for (const Subcommand& s : subcommands())
    if (file != "nimble-" + std::string(s.name))
      see += fmt::format(",\n.BR nimble\\-{} (1)", s.name);
  return out + section("SEE ALSO", see + "\n");
}

}  // namespace nimble
