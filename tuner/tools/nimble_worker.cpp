// nimble worker: measures candidates for a campaign. `nimble tune` and workers of a fleet start it;
// it links the runtime only. Told a database (--db, NIMBLE_DB, a configuration file) it becomes the
// worker of a fleet, nimble-fleet-worker.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string_view>
#include <vector>

#include "tuner/measure/confine.h"
#include "tuner/measure/protocol.h"
#include "tuner/measure/worker.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/settings.h"
#include "vm/arguments/subcommands.h"
#include "vm/arguments/table.h"
#include "vm/base/cpu.h"
#include "vm/base/host_state.h"

namespace nimble {
namespace {

constexpr char kAbout[] =
    "Measures candidate kernels for a tuning campaign, in a process of its own, so that a\n"
    "candidate that crashes or hangs takes nothing else with it. `nimble tune` starts and ends\n"
    "it. With --look, or told no database, it prints what it would record of this machine's "
    "state.\n"
    "To serve the campaigns of a database (--db) needs nimble whole, not its runtime only.\n\n"
    "Example:\n"
    "  nimble worker --look";

int report(Format format) {
  HostWatch watch;
  ::usleep(100'000);
  const HostReading r = watch.read();
  const auto known = [](const std::optional<bool>& b) {
    return b ? Table::Json(*b) : Table::Json();
  };
  Table table({"what", {"value", [](const Table::Json& v) -> std::string {
                          if (v.is_null()) return "unknown";
                          if (v.is_boolean()) return v.get<bool>() ? "on" : "off";
                          return v.is_string() ? v.get<std::string>() : v.dump();
                        }}});
  table.add({"protocol", tuner::kProtocolVersion});
  table.add({"cpu", host_cpu().model});
  table.add({"level", host_cpu().level});
  table.add({"threads", host_cpu().usable_threads()});
  table.add({"affinity", r.affinity});
  table.add({"governor", r.governor});
  table.add({"turbo", known(r.turbo)});
  table.add({"smt", known(r.smt)});
  table.add({"other runnable threads", r.load});
  table.add({"steal", r.steal});
  table.add({"policy", tuner::Policy{}.text()});
  table.add({"confined", tuner::confine().text()});
  table.print(std::cout, format);
  return kExitOk;
}

int run(int argc, char** argv) {
  CLI::App app{kAbout, "nimble worker"};
  tuner::WorkerOptions options;
  bool serve = false, look = false;
  Format format = Format::kTable;
  app.add_flag("--serve", serve, "Answer a campaign's requests on standard input and output");
  app.add_flag("--look", look,
               "Print what it sees of this machine, whatever database is configured");
  add_format(app, &format, "What it prints by hand");
  app.add_option("--parent", options.parent, "Process to die with")->group("");
  app.add_option("--progress-fd", options.progress, "Descriptor of the shared page")->group("");
  app.add_option("--memory-limit", options.memory_limit, "Bytes of address space; 0: no limit")
      ->check(number_from_zero());
  app.add_option("--cpus", options.cpus, "CPUs to be bound to: 0-3,8")->group("");
  app.add_flag("--gpu", options.gpu, "Candidates are of this machine's GPU")->group("");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  if (!serve) return report(format);
  // What a kernel or a library prints must not land among the messages.
  options.out = ::dup(1);
  ::dup2(2, 1);
  return tuner::serve(options);
}

bool asks_for_help(std::string_view word) {
  return word == "-h" || word.starts_with("--help");
}

// Whether the arguments are the fleet's worker's: it is told a database, there or by the
// configuration, or asked what the command takes, of which it knows all that a user wants.
bool is_for_fleet(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  // First: `nimble tune` starts it so, and no configuration may turn that into another.
  for (const std::string_view word : words)
    if (word == "--serve" || word == "--look") return false;
  for (const std::string_view word : words)
    if (word == "--db" || word.starts_with("--db=") || asks_for_help(word)) return true;
  return Configuration::load().value("db", "worker").has_value();
}

// Returns if that program is not there and this one can answer, too.
void become_fleet_worker(int argc, char** argv) {
  const std::string program = program_of("fleet-worker");
  if (!program.empty()) ::execv(program.c_str(), argv);
  if (argc < 2 || !asks_for_help(argv[1]))
    throw Error(Status::kUnsupported, program_folder() + "/nimble-fleet-worker", "is not installed",
                "install or build nimble whole, not its runtime only; nimble worker --look only "
                "looks at this machine");
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble worker", [&] {
    if (nimble::is_for_fleet(argc, argv)) nimble::become_fleet_worker(argc, argv);
    return nimble::run(argc, argv);
  });
}
