// nimble completion: the script with which a shell completes nimble's words, made from what each
// installed program says of itself. `nimble completion man` prints the manual page of the front
// door; each program prints its own with --help-man.
#include <fmt/format.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "vm/arguments/command_line.h"
#include "vm/arguments/manual.h"
#include "vm/arguments/subcommands.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kAbout[] =
    "Prints the script with which a shell completes the subcommands of nimble, their options, and\n"
    "the values of those that take one of a few.";

constexpr char kEpilogue[] =
    "Examples:\n"
    "  source <(nimble completion bash)                  for this shell\n"
    "  nimble completion bash > ~/.local/share/bash-completion/completions/nimble\n"
    "  nimble completion zsh > ~/.zfunc/_nimble          a folder of fpath\n"
    "  nimble completion fish > ~/.config/fish/completions/nimble.fish";

// What the program at `path` says of itself.
Json described(const std::string& path) {
  const std::string command = shell_word(path) + " --help-json";
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe) {
    char buffer[4096];
    for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
      text.append(buffer, n);
  }
  const int status = pipe ? ::pclose(pipe) : -1;
  const Json out = Json::parse(text, nullptr, false);
  if (status != 0 || !out.is_object())
    throw Error(Status::kIo, path, "does not say what it takes",
                "install all of nimble's programs anew, of one version");
  return out;
}

Json front_door() {
  Json commands = Json::array();
  for (const Subcommand& s : subcommands())
    commands.push_back({{"names", Json::array()},
                        {"value", s.name},
                        {"help", fmt::format("{}; see nimble-{}(1)", s.sentence, s.name)},
                        {"choices", Json::array()},
                        {"environment", ""},
                        {"default", ""},
                        {"required", false},
                        {"repeated", false}});
  const auto option = [](const char* name, const char* help) {
    return Json{{"names", {name}},          {"value", nullptr},  {"help", help},
                {"choices", Json::array()}, {"environment", ""}, {"default", ""},
                {"required", false},        {"repeated", false}};
  };
  Json codes = Json::array();
  for (const ExitCodeInfo& info : kExitCodes) codes.push_back(static_cast<int>(info.code));
  return {
      {"name", "nimble"},
      {"about",
       "compiler, virtual machine and auto-tuner for dynamic neural networks.\n\n"
       "nimble SUBCOMMAND runs the program nimble-SUBCOMMAND beside it; nimble help "
       "SUBCOMMAND prints its help."},
      {"footer",
       "Examples:\n  nimble compile model.onnx --db tuning.db -o model.nimble\n"
       "  nimble run model.nimble --input input_ids=@ids.npy --output-dir out"},
      {"options", {option("--help", "Print the help"), option("--version", "Print the version")}},
      {"positionals", commands},
      {"subcommands", Json::array()},
      {"exit_codes", codes}};
}

int run(int argc, char** argv) {
  CLI::App app(kAbout, "nimble completion");
  app.footer(kEpilogue);
  std::string what;
  app.add_option("what", what, "bash, zsh, fish; or man, the manual page of nimble itself")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}).description("{bash,zsh,fish,man}"))
      ->type_name("SHELL");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  if (what == "man") {
    std::fputs(manual_page(front_door()).c_str(), stdout);
    return kExitOk;
  }
  std::vector<Json> programs;
  for (const Subcommand& s : subcommands())
    if (const std::string path = program_of(s.name); !path.empty())
      programs.push_back(described(path));
  std::fputs(completion_script(what, programs).c_str(), stdout);
  return kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble completion", [&] { return nimble::run(argc, argv); });
}
