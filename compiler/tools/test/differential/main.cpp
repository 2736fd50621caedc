// nimble-differential: random programs, or programs from files, against the reference interpreter
// under many configurations. A test tool; scripts/differential builds and runs it.
//
//   nimble-differential --count 10000 --out failures     seeds 0 … 9999
//   nimble-differential program.nir                      3 if any configuration differs
//
// Each program runs in a process of its own, so that a crash or a hang is one failure and not the
// end of the run. A failing program is written to the folder `--out` with its verdict on top;
// `nimble reduce FILE --test 'nimble-differential --from SEED {}'` shrinks it.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "compiler/driver/test/differential.h"
#include "compiler/driver/test/random_program.h"
#include "compiler/ir/text.h"
#include "vm/arguments/command_line.h"
#include "vm/base/error.h"

namespace nimble::driver::testing {
namespace {

struct Options {
  std::vector<std::string> files;
  uint64_t from = 0, count = 200;
  size_t configurations = 2;
  int steps = 14;
  int seconds = 60;
  int jobs = 1;
  bool all = false, print = false, data_dependent = false;
  std::string out;
};

std::vector<Configuration> configurations_of(const Options& o, uint64_t seed) {
  return o.all ? all_configurations()
               : some_configurations(static_cast<unsigned>(seed), o.configurations);
}

// A comparison in a process of its own.
struct Child {
  pid_t pid = 0;
  int from = -1;
  uint64_t seed = 0;
};

Child start(const Options& o, uint64_t seed) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error(Status::kIo, "pipe", "no pipe can be made");
  std::cout.flush();
  Child c;
  c.seed = seed;
  c.pid = ::fork();
  if (c.pid == 0) {
    ::close(ends[0]);
    // Processor time: how busy the machine is does not make a program slow.
    const rlimit limit{static_cast<rlim_t>(o.seconds), static_cast<rlim_t>(o.seconds) + 5};
    ::setrlimit(RLIMIT_CPU, &limit);
    RandomProgramOptions program;
    program.steps = o.steps;
    program.data_dependent = o.data_dependent;
    const Comparison r = compare(random_module(seed, program), configurations_of(o, seed),
                                 static_cast<unsigned>(seed));
    const std::string text =
        std::string(1, static_cast<char>('0' + static_cast<int>(r.verdict))) + r.message;
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  c.from = ends[0];
  return c;
}

Comparison finish(const Child& c) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(c.from, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(c.from);
  int status = 0;
  ::waitpid(c.pid, &status, 0);
  if (WIFSIGNALED(status))
    return {Verdict::kDiffers, WTERMSIG(status) == SIGXCPU
                                   ? std::string("it did not end in time")
                                   : fmt::format("it died: {}", strsignal(WTERMSIG(status)))};
  if (text.empty()) return {Verdict::kDiffers, "it ended without a verdict"};
  return {static_cast<Verdict>(text[0] - '0'), text.substr(1)};
}

int run_random(const Options& o) {
  std::map<Verdict, uint64_t> counts;
  std::map<std::string, uint64_t> refusals;
  const auto begin = std::chrono::steady_clock::now();
  const bool terminal = ::isatty(STDERR_FILENO);
  if (!o.out.empty()) std::filesystem::create_directories(o.out);
  std::vector<Child> running;
  uint64_t next = o.from, done = 0;
  while (done < o.count) {
    while (running.size() < static_cast<size_t>(o.jobs) && next < o.from + o.count)
      running.push_back(start(o, next++));
    const Child c = running.front();
    running.erase(running.begin());
    const Comparison r = finish(c);
    ++done;
    ++counts[r.verdict];
    if (r.verdict == Verdict::kRefused) ++refusals[r.message];
    if (r.verdict == Verdict::kDiffers) {
      fmt::print("seed {}: {}\n", c.seed, r.message);
      if (!o.out.empty()) {
        RandomProgramOptions program;
        program.steps = o.steps;
        program.data_dependent = o.data_dependent;
        std::ofstream(fmt::format("{}/seed-{}.nir", o.out, c.seed))
            << "// " << r.message.substr(0, r.message.find('\n')) << "\n"
            << ir::print(random_module(c.seed, program));
      }
    }
    if (terminal && done % 10 == 0)
      fmt::print(stderr, "\r{} of {}, {} differ ", done, o.count, counts[Verdict::kDiffers]);
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  if (terminal) fmt::print(stderr, "\n");
  fmt::print("{} programs in {:.0f} s: {} agree, {} refused, {} ill-conditioned, {} differ\n",
             o.count, spent.count(), counts[Verdict::kAgrees], counts[Verdict::kRefused],
             counts[Verdict::kIllConditioned], counts[Verdict::kDiffers]);
  if (o.print)
    for (const auto& [message, n] : refusals) fmt::print("{:6}  {}\n", n, message);
  return counts[Verdict::kDiffers] ? kExitWrongResult : kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Compares random programs, or the programs of files, with the reference interpreter "
      "under many configurations",
      "nimble-differential"};
  Options o;
  app.add_option("files", o.files, "Text IR to compare instead of random programs");
  app.add_option("--from", o.from, "The first seed; of files, that of their inputs")
      ->capture_default_str();
  app.add_option("--count", o.count, "How many programs")->capture_default_str();
  app.add_option("--configurations", o.configurations, "Of each program, beside the default")
      ->capture_default_str();
  app.add_flag("--all", o.all, "All configurations");
  app.add_flag("--data-dependent", o.data_dependent,
               "Operators, too, that fail for some values or whose extents the values decide");
  app.add_option("--steps", o.steps, "Bindings of main, about")->capture_default_str();
  app.add_option("--seconds", o.seconds, "Processor time of one program at most")
      ->capture_default_str();
  app.add_option("--jobs", o.jobs, "Programs at a time")->capture_default_str();
  app.add_option("--out", o.out, "Folder for programs that differ");
  app.add_flag("--refusals", o.print, "List why programs were refused");
  bool show = false;
  app.add_flag("--print", show, "Print the program of --from and stop");
  if (const auto code = parse_arguments(app, argc, argv, {kExitWrongResult})) return *code;
  RandomProgramOptions program;
  program.steps = o.steps;
  program.data_dependent = o.data_dependent;
  if (show) {
    std::cout << ir::print(random_module(o.from, program));
    return kExitOk;
  }
  if (o.files.empty()) return run_random(o);
  int worst = kExitOk;
  for (const std::string& file : o.files) {
    const unsigned seed = app.count("--from") ? static_cast<unsigned>(o.from) : 1;
    const Comparison r = compare(ir::read_module(file), all_configurations(), seed);
    fmt::print("{}: {}{}{}\n", file, name_of(r.verdict), r.message.empty() ? "" : ": ", r.message);
    if (r.verdict == Verdict::kDiffers) worst = kExitWrongResult;
  }
  return worst;
}

}  // namespace
}  // namespace nimble::driver::testing

int main(int argc, char** argv) {
  return nimble::run_program("nimble-differential",
                             [&] { return nimble::driver::testing::run(argc, argv); });
}
