// nimble reduce: shrinks a module that shows a fault.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <filesystem>

#include "compiler/ir/text.h"
#include "compiler/tools/reduce/command_test.h"
#include "compiler/tools/reduce/reduce.h"
#include "vm/arguments/command_line.h"

namespace nimble::reduce {
namespace {

namespace fs = std::filesystem;

constexpr char kAbout[] =
    "Shrinks a module of text IR while a command keeps its verdict on it: its exit code and, with\n"
    "--match, a text in what it prints. Writes the smallest module so far at once, so that "
    "nothing\n"
    "is lost by an interruption, and goes on from it with --resume.\n\n"
    "Examples:\n"
    "  nimble reduce bad.nir --test 'nimble opt {}'\n"
    "  nimble reduce bad.nir --test 'nimble opt {} --verify' --match 'check failed'\n"
    "  nimble reduce bad.nir --test './compare.sh {}' --minutes 10 -o small.nir";

struct Arguments {
  std::string module, test, match, output;
  bool resume = false;
  int64_t most_tests = 100'000;
  double minutes = 60, command_seconds = 60;
};

std::atomic<bool> interrupted{false};

std::string default_output(const std::string& module) {
  fs::path path = module;
  return (path.parent_path() / (path.stem().string() + ".reduced.nir")).string();
}

std::string sentence(const Progress& p) {
  return fmt::format("{} parts, {} reads, {} characters after {} tests, {} of them kept", p.size[0],
                     p.size[1], p.size[4], p.tests, p.accepted);
}

void show(const Progress& p) {
  fmt::print(stderr, "\r\x1b[K{} ({})", sentence(p), p.edit);
  std::fflush(stderr);
}

bool has_verdict(const Verdict& v, int code, const std::string& match) {
  return !v.timed_out && v.code == code && v.output.find(match) != std::string::npos;
}

// What the command says of the module itself; an Error if that is nothing to look for.
int wanted_code(const Arguments& a, const std::string& from) {
  const Verdict v = run_command(a.test, from, a.command_seconds, [] { return interrupted.load(); });
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error(Status::kInvalidArgument, "--test", problem, remedy);
  };
  if (v.timed_out)
    refuse(fmt::format("the command takes more than {} s on {}", a.command_seconds, from),
           "give --command-seconds, or a command with a limit of its own: timeout 5 …");
  if (v.code == 126 || v.code == 127)
    refuse(fmt::format("the command cannot be run (exit code {})", v.code),
           "give its path, or mend its first word");
  if (v.code == 0 && a.match.empty())
    refuse(fmt::format("the command succeeds on {}", from),
           "give one that fails, or --match with a text that it prints");
  if (v.output.find(a.match) == std::string::npos)
    refuse(fmt::format("the command does not print '{}' on {}", a.match, from),
           "copy the text from its output");
  return v.code;
}

int run(Arguments a) {
  if (a.output.empty()) a.output = default_output(a.module);
  std::error_code code;
  if (fs::equivalent(a.output, a.module, code))
    throw Error(Status::kInvalidArgument, a.output, "is the module itself", "name another file");
  const bool goes_on = a.resume && fs::exists(a.output);
  if (!a.resume && fs::exists(a.output))
    throw Error(Status::kInvalidArgument, a.output, "exists already",
                "give --resume to go on from it, or name another file with -o");
  const std::string from = goes_on ? a.output : a.module;
  const ir::Module m = ir::read_module(from);
  const int wanted = wanted_code(a, from);

  Options options;
  options.file_name = fs::path(a.module).filename().string();
  options.most_tests = a.most_tests;
  options.most_seconds = a.minutes * 60;
  options.interrupted = [] { return interrupted.load(); };
  options.save = [&](const ir::Module& best) { ir::write_module(best, a.output); };
  const bool terminal = isatty(STDERR_FILENO);
  if (terminal) options.progress = show;
  const Test test = [&](const std::string& path) {
    const Verdict v = run_command(a.test, path, a.command_seconds, options.interrupted);
    return !interrupted && has_verdict(v, wanted, a.match);
  };
  const Outcome out = reduce(m, test, options);
  if (terminal) fmt::print(stderr, "\n");
  ir::write_module(out.module, a.output);
  fmt::print("{}: {}{}\n", a.output, sentence(out.progress),
             out.complete ? "" : "; not finished, go on with --resume");
  return interrupted ? kExitInterrupted : kExitOk;
}

int main_of(int argc, char** argv) {
  Arguments a;
  CLI::App app(kAbout, "nimble reduce");
  app.add_option("MODULE", a.module, "Text IR (.nir)")->required();
  app.add_option("--test", a.test, "A shell command; {} is the file with a candidate")->required();
  app.add_option("--match", a.match, "The command must also print this");
  app.add_option("-o,--output", a.output, "Where the result goes (default: MODULE.reduced.nir)");
  app.add_flag("--resume", a.resume, "Go on from the result of an earlier run");
  app.add_option("--most-tests", a.most_tests, "Stop after so many runs of the command")
      ->capture_default_str()
      ->check(number_above_zero());
  app.add_option("--minutes", a.minutes, "Stop after this time")
      ->capture_default_str()
      ->check(number_above_zero());
  app.add_option("--command-seconds", a.command_seconds, "A command may take so long")
      ->capture_default_str()
      ->check(number_above_zero());
  if (const auto code = parse_arguments(app, argc, argv, {kExitInterrupted})) return *code;
  std::signal(SIGINT, [](int) { interrupted = true; });
  std::signal(SIGTERM, [](int) { interrupted = true; });
  return run(a);
}

}  // namespace
}  // namespace nimble::reduce

int main(int argc, char** argv) {
  return nimble::run_program("nimble reduce", [&] { return nimble::reduce::main_of(argc, argv); });
}
