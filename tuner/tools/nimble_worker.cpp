// nimble worker: measures candidates for a campaign. `nimble tune` starts it; it links the
// runtime only.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "tuner/measure/host_state.h"
#include "tuner/measure/protocol.h"
#include "tuner/measure/worker.h"
#include "vm/arguments/command_line.h"
#include "vm/base/cpu.h"

namespace nimble {
namespace {

constexpr char kAbout[] =
    "Measures candidate kernels for a tuning campaign, in a process of its own, so that a\n"
    "candidate that crashes or hangs takes nothing else with it. `nimble tune` starts and ends\n"
    "it. By hand, without --serve, it prints what it would record of this machine's state.\n\n"
    "Example:\n"
    "  nimble worker";

int report() {
  tuner::HostWatch watch;
  ::usleep(100'000);
  const tuner::HostReading r = watch.read();
  const auto text = [](const std::optional<bool>& b) { return !b ? "unknown" : *b ? "on" : "off"; };
  fmt::print(
      "protocol   {}\ncpu        {} ({})\nthreads    {}\naffinity   {}\ngovernor   {}\n"
      "turbo      {}\nsmt        {}\nload       {:.0f} runnable threads besides this one\n"
      "steal      {:.1f} %\npolicy     {}\n",
      tuner::kProtocolVersion, host_cpu().model, host_cpu().level, host_cpu().usable_threads(),
      r.affinity, r.governor, text(r.turbo), text(r.smt), r.load, r.steal * 100,
      tuner::Policy{}.text());
  return kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app{kAbout, "nimble worker"};
  app.footer("Exit codes: 0 ok, 1 failure, 2 usage.");
  tuner::WorkerOptions options;
  bool serve = false;
  app.add_flag("--serve", serve, "Answer a campaign's requests on standard input and output");
  app.add_option("--parent", options.parent, "Process to die with")->group("");
  app.add_option("--progress-fd", options.progress, "Descriptor of the shared page")->group("");
  app.add_option("--memory-limit", options.memory_limit, "Bytes of address space; 0: no limit")
      ->check(number_from_zero());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return exit_of_arguments(app, e);
  }
  if (!serve) return report();
  // What a kernel or a library prints must not land among the messages.
  options.out = ::dup(1);
  ::dup2(2, 1);
  return tuner::serve(options);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble worker", [&] { return nimble::run(argc, argv); });
}
