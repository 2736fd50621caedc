// nimble: the front door. `nimble X …` becomes the program nimble-X beside it, so that each
// subcommand links only what it needs: those of the runtime need no LLVM.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "vm/arguments/subcommands.h"
#include "vm/base/program.h"
#include "vm/base/url.h"

namespace nimble {
namespace {

std::string usage() {
  std::string text =
      "nimble: compiler, virtual machine and auto-tuner for dynamic neural networks\n\n"
      "Usage: nimble SUBCOMMAND [ARGUMENT...]\n"
      "       nimble help SUBCOMMAND\n\n"
      "Subcommands:\n";
  bool missing = false;
  for (const Subcommand& s : subcommands()) {
    const bool there = !program_of(s.name).empty();
    missing |= !there && s.needs.empty();
    text += fmt::format("  {:<11} {}{}\n", s.name, s.sentence, there ? "" : " (not installed)");
  }
  text +=
      "\nOptions:\n"
      "  -h, --help     print this text\n"
      "  --version      print the version\n\n"
      "Examples:\n"
      "  nimble compile model.onnx --db tuning.db -o model.nimble\n"
      "  nimble run model.nimble --input input_ids=@ids.npy --output-dir out\n"
      "  nimble help tune\n\nExit codes:";
  for (const ExitCodeInfo& info : kExitCodes)
    text += fmt::format("{} {} {}", info.code == kExitOk ? "" : ",", static_cast<int>(info.code),
                        info.words);
  text += ".\n";
  if (missing) text += "Subcommands that are not installed need a build with the compiler.\n";
  for (const Subcommand& s : subcommands())
    if (!s.needs.empty() && program_of(s.name).empty())
      text += fmt::format("\"{}\" needs a build that found {}.\n", s.name, s.needs);
  return text;
}

int unknown(const std::string& word) {
  const std::string_view nearest = nearest_subcommand(word);
  std::fprintf(stderr, "nimble: error: \"%s\" is not a subcommand; %s\n",
               without_password(word).c_str(),
               nearest.empty() ? "see nimble --help"
                               : fmt::format("did you mean \"nimble {}\"?", nearest).c_str());
  return kExitUsage;
}

// Becomes the subcommand's program. Returns only if that fails.
int become(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string program = program_of(name);
  if (program.empty()) {
    const Subcommand* known = nullptr;
    for (const Subcommand& s : subcommands())
      if (s.name == name) known = &s;
    if (!known) return unknown(name);
    const std::string remedy =
        known->needs.empty() ? "install or build nimble whole, not its runtime only"
                             : fmt::format("build nimble where {} are installed", known->needs);
    std::fprintf(stderr, "nimble: error: %s/nimble-%s: is not installed; %s\n",
                 program_folder().c_str(), name.c_str(), remedy.c_str());
    return kExitFailure;
  }
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  std::fprintf(stderr, "nimble: error: %s: cannot start: %s; reinstall nimble\n", program.c_str(),
               std::strerror(errno));
  return kExitFailure;
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) {
    std::fputs(usage().c_str(), stderr);
    return kExitUsage;
  }
  const std::string& first = words[0];
  if (first == "--version") {
    std::puts("nimble " NIMBLE_VERSION);
    return kExitOk;
  }
  if (first == "--help" || first == "-h" || (first == "help" && words.size() == 1)) {
    std::fputs(usage().c_str(), stdout);
    return kExitOk;
  }
  if (first == "--help-man") return become("completion", {"man"});
  if (first == "help") {
    // `nimble help db show` is `nimble db show --help`.
    std::vector<std::string> rest(words.begin() + 2, words.end());
    rest.push_back("--help");
    return become(words[1], rest);
  }
  if (first.starts_with("-")) {
    std::fprintf(stderr, "nimble: error: unknown option \"%s\"; see nimble --help\n",
                 without_password(first).c_str());
    return kExitUsage;
  }
  // A name with a slash would leave the folder of programs.
  if (first.find('/') != std::string::npos) return unknown(first);
  return become(first, {words.begin() + 1, words.end()});
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program(
      "nimble", [&] { return nimble::run(std::vector<std::string>(argv + 1, argv + argc)); });
}
