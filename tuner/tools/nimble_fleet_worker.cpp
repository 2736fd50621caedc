// nimble worker --db: takes jobs of campaigns from a database and measures them on this machine.
// A program of its own, which nimble-worker becomes: it holds the connection and the keys, and the
// processes that it starts to run candidates link neither.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "db/store/identifier.h"
#include "db/store/place.h"
#include "tuner/fleet/fleet_worker.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"
#include "vm/arguments/table.h"
#include "vm/base/cpu.h"
#include "vm/base/cpu_list.h"
#include "vm/base/printable.h"
#include "vm/runtime/cuda_facts.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kAbout[] =
    "Measures candidates for the campaigns of a tuning database that are for hardware of this\n"
    "kind: takes one job at a time under a lease, measures it in a process of its own and "
    "reports.\n"
    "Runs only candidates that are signed by a key that this machine trusts (nimble keys). Serves\n"
    "until it is told to stop (Ctrl-C or SIGTERM); a job that it holds then goes back.\n\n"
    "Without any arguments it prints what a measuring process sees of this machine. Those\n"
    "processes are started by nimble tune and by this program itself.";

constexpr char kEpilogue[] =
    "Examples:\n"
    "  nimble worker --db postgresql://worker@server/tuning\n"
    "  nimble worker --db tuning.db --once\n"
    "  nimble worker --db postgresql://worker@server/tuning --cpus 0-7 --trust planner\n"
    "  nimble worker --db postgresql://worker@server/tuning --device gpu:1\n"
    "  nimble worker --db tuning.db --rerun 3f2a81c0\n"
    "  nimble worker";

struct Arguments {
  tuner::FleetWorkerOptions worker;
  std::string campaign, cpus, rerun, jobs_for, device = "cpu";
  std::vector<std::string> trust;
  double lease_s = 60, poll_s = 1, max_idle_s = 0;
  bool quiet = false;
  Format format = Format::kTable;
};

void say(const std::string& text) {
  std::cerr << "nimble worker: " << sayable(text) << std::endl;
}

// The number of "gpu:1", "" of "cpu" and of "gpu", which is the driver's first one or
// NIMBLE_CUDA_DEVICE's. Error(kInvalidArgument) for anything else.
std::string gpu_number(const std::string& device) {
  if (device == "cpu" || device == "gpu") return "";
  const std::string number = device.starts_with("gpu:") ? device.substr(4) : "";
  int value = 0;
  const char* end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, value);
  if (number.empty() || error != std::errc() || rest != end || value < 0)
    throw Error(Status::kInvalidArgument, "--device " + printable(device), "is no device",
                "give cpu, gpu or gpu:N, N from 0 on");
  return number;
}

// The GPU that it measures on, which the measuring process finds by the same variable.
GpuFacts gpu_of(const std::string& device) {
  const std::string number = gpu_number(device);
  if (!number.empty()) ::setenv("NIMBLE_CUDA_DEVICE", number.c_str(), 1);
  try {
    return rt::cuda_facts();
  } catch (const Error& e) {
    throw Error(e.status(), "--device " + device, "there is no GPU to measure on: " + e.problem(),
                e.remedy());
  }
}

// What jobs were packed for. Those for hardware that there is are its own machines': its service
// takes every time of them for that hardware's, and its tables would be made of another's.
db::Hash any_gpu_of(db::Store& store, const std::string& kind) {
  const db::Hardware hardware = db::find_hardware(store, kind);
  if (hardware.isa != db::kAnyGpu)
    throw Error(Status::kInvalidArgument, "--jobs-for " + printable(kind),
                fmt::format("{} is hardware of its own, whose jobs are its own workers'",
                            printable(hardware.model_name)),
                "name what nimble campaigns pack has packed for: any GPU of some target");
  return db::key_of(hardware);
}

// Tells what it serves and whom it trusts, before anything runs; refuses what cannot go well.
void greet(Arguments& a, tuner::SignedOnly& permission, const trust::Keyring& ring) {
  const std::unique_ptr<db::Store> store = db::Store::open(a.worker.database, a.worker.open);
  permission.renew(*store);
  const std::vector<trust::NamedKey> keys = permission.keys();
  if (keys.empty())
    throw Error(Status::kInvalidArgument, ring.folder(),
                "trusts no key that is not revoked, so nothing could run here",
                "nimble keys trust KEY --name planner, with the key that the campaigns are "
                "signed by");
  if (!a.campaign.empty())
    a.worker.campaign =
        db::the_one(*store, db::Kind::kCampaign, a.campaign, "list them: nimble db campaigns");
  if (!a.jobs_for.empty()) a.worker.jobs_for = any_gpu_of(*store, a.jobs_for);
  if (a.quiet) return;
  std::string trusted;
  for (const trust::NamedKey& k : keys)
    trusted += fmt::format("{}{} ({})", trusted.empty() ? "" : ", ", k.name, k.key.substr(0, 16));
  const std::optional<GpuFacts>& gpu = a.worker.gpu;
  const db::Hardware hardware = gpu ? db::gpu_hardware(*gpu) : db::host_hardware();
  say(fmt::format("serves {} with {} {} ({}{}{})", store->path(),
                  db::key_of(hardware).substr(0, 12), hardware.model_name, hardware.isa,
                  gpu && !gpu->slot.empty() ? ", " + gpu->slot : "",
                  a.cpus.empty() ? "" : ", CPUs " + cpu_list_text(a.worker.cpus)));
  say("trusts " + trusted);
}

void print(const tuner::FleetTally& tally, bool stopped, Format format) {
  print_report(
      std::cout, format,
      [&] {
        Json passed = Json::array();
        for (const auto& [campaign, reason] : tally.passed_over)
          passed.push_back({{"campaign", campaign}, {"reason", reason}});
        return Json{{"jobs", tally.jobs},     {"trials", tally.trials},
                    {"absent", tally.absent}, {"leases_lost", tally.leases_lost},
                    {"interrupted", stopped}, {"passed_over", passed}};
      },
      [&] {
        Table table({"jobs", "trials", "absent", "leases_lost", "passed_over"});
        table.add(
            {tally.jobs, tally.trials, tally.absent, tally.leases_lost, tally.passed_over.size()});
        return table;
      },
      [&] {
        Table table(
            {"jobs", "trials", {"absent", "not available"}, {"leases_lost", "leases lost"}});
        table.add({tally.jobs, tally.trials, tally.absent, tally.leases_lost});
        std::cout << table.text();
        for (const auto& [campaign, reason] : tally.passed_over)
          std::cout << fmt::format("campaign {} was passed over: {}\n", campaign.substr(0, 8),
                                   reason);
      });
}

// A process's own words, on several lines.
std::string visible(const std::string& text) {
  return without_controls(text, '?', "\n\t");
}

// Exit code 0 says that it was told what became of the trial, whatever that is.
int rerun(const Arguments& a, tuner::Permission& permission, const std::atomic<bool>& interrupted) {
  db::Uuid trial;
  {
    const std::unique_ptr<db::Store> store = db::Store::open(a.worker.database, a.worker.open);
    trial = db::the_one(*store, db::Kind::kTrial, a.rerun, "list them: nimble db show trials");
  }
  const tuner::Rerun r =
      tuner::rerun_trial(a.worker, permission, trial, interrupted, [&](const std::string& text) {
        if (!a.quiet) say(text);
      });
  const Json median = r.finding.measurement ? Json(r.finding.measurement->median_ns) : Json();
  const Json report = {{"trial", trial},
                       {"job", r.job.uuid},
                       {"state", std::string(name_of(r.finding.state))},
                       {"class", r.finding.error_class},
                       {"message", r.finding.message},
                       {"median_ns", median},
                       {"output", r.output}};
  Table table({"trial", "state", "class", "message", "median_ns"});
  table.add({trial, std::string(name_of(r.finding.state)), r.finding.error_class, r.finding.message,
             median});
  print_report(
      std::cout, a.format, [&] { return report; }, [&] { return table; },
      [&] {
        std::cout << fmt::format("trial {}: {}", trial, name_of(r.finding.state));
        if (r.finding.measurement)
          std::cout << fmt::format(", {:.3g} us", r.finding.measurement->median_ns / 1e3);
        std::cout << '\n';
        for (const std::string& text : {r.finding.message, r.output})
          if (!text.empty()) std::cout << visible(text) << '\n';
      });
  return kExitOk;
}

int64_t milliseconds(double seconds) {
  return std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3));
}

int run(int argc, char** argv) {
  CLI::App app{kAbout, "nimble worker"};
  app.footer(kEpilogue);
  Arguments a;
  tuner::FleetWorkerOptions& w = a.worker;
  app.add_option("--db", w.database, "The database whose campaigns are served")
      ->check(read_by(db::require_place))
      ->envname("NIMBLE_DB")
      ->type_name("FILE|URL");
  app.add_option("--name", w.name, "What people call this worker; default: the host's name");
  app.add_option("--campaign", a.campaign,
                 "Serve this one alone; default: of all that run the one whose turn it is")
      ->type_name("UUID");
  app.add_option("--device", a.device,
                 "What it measures on: cpu, gpu (an NVIDIA GPU: the first, or that of "
                 "NIMBLE_CUDA_DEVICE) or gpu:N, its number among those that CUDA_VISIBLE_DEVICES "
                 "leaves; a worker for each")
      ->capture_default_str()
      ->check(read_by(gpu_number))
      ->type_name("DEVICE");
  app.add_option("--jobs-for", a.jobs_for,
                 "Take the jobs that nimble campaigns pack has made for this (\"any GPU of "
                 "sm_90a\") instead of those for its own hardware; what it finds is filed under "
                 "its own")
      ->type_name("KIND");
  app.add_option("--cpus", a.cpus,
                 "Bind the measuring process to these (0-3,8); default: all that it may use. They "
                 "are recorded with what it measures")
      ->check(read_by([](const std::string& text) { cpu_list_from_text(text, "--cpus"); }))
      ->type_name("LIST");
  app.add_option("--trust", a.trust,
                 "Run only what these keys sign, names or whole keys; default: all that nimble "
                 "keys lists as trusted")
      ->type_name("NAME|KEY");
  app.add_flag("--once", w.once, "End after one job");
  app.add_option("--max-idle", a.max_idle_s, "Seconds without a job after which it ends")
      ->check(number_from_zero())
      ->type_name("SECONDS");
  app.add_option("--lease", a.lease_s,
                 "Seconds after which others may take over its job if nothing is heard of it")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0))
      ->type_name("SECONDS");
  app.add_option("--poll", a.poll_s, "Seconds at most between two looks at an empty queue")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 3600.0))
      ->type_name("SECONDS");
  app.add_option("--rerun", a.rerun,
                 "Measure this trial of a job once more, print what became of it and what it "
                 "wrote, and end; nothing is stored")
      ->type_name("TRIAL");
  // nimble-worker answers it before this program is begun; here for its help and completion.
  bool look = false;
  app.add_flag("--look", look,
               "Print what a measuring process sees of this machine and end, whatever database is "
               "configured");
  app.add_flag("--quiet", a.quiet, "No progress on stderr");
  add_format(app, &a.format, "What it did, printed at its end");
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale, kExitInterrupted}))
    return *code;
  if (w.database.empty())
    return usage_error(app, "--db is missing: which database's campaigns are to be served?");
  w.open.create = false;
  w.program = tuner::worker_program();
  w.lease_ms = milliseconds(a.lease_s);
  w.poll_ms = milliseconds(a.poll_s);
  if (app.get_option("--max-idle")->count() > 0) w.max_idle_s = a.max_idle_s;
  if (!a.cpus.empty()) {
    w.cpus = cpu_list_from_text(a.cpus, "--cpus");
    check_cpus(w.cpus);
  }

  if (a.device != "cpu") w.gpu = gpu_of(a.device);

  const std::atomic<bool>& interrupted = note_interrupts();
  const trust::Keyring ring(trust::default_keyring_folder());
  tuner::SignedOnly permission(ring, a.trust, w.gpu);
  if (!a.rerun.empty()) return rerun(a, permission, interrupted);
  greet(a, permission, ring);
  const tuner::FleetTally tally =
      tuner::serve_jobs(w, permission, interrupted, [&](const std::string& text) {
        if (!a.quiet) say(text);
      });
  print(tally, interrupted, a.format);
  return interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble worker", [&] { return nimble::run(argc, argv); });
}
