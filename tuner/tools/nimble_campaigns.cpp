// nimble campaigns: campaigns that a service tunes on a fleet of machines.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include "compiler/tools/model_arguments.h"
#include "db/store/host_records.h"
#include "db/store/identifier.h"
#include "db/store/open_existing.h"
#include "db/store/place.h"
#include "tuner/measure/machine_lock.h"
#include "tuner/measure/runner.h"
#include "tuner/service/measuring.h"
#include "tuner/service/model_tasks.h"
#include "tuner/service/packing.h"
#include "tuner/service/progress.h"
#include "tuner/service/status.h"
#include "tuner/service/submission.h"
#include "tuner/service/tuning_machine.h"
#include "tuner/tools/campaign_status.h"
#include "tuner/tools/tune_arguments.h"
#include "tuner/trust/keyring.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"
#include "vm/arguments/subcommands.h"
#include "vm/arguments/table.h"
#include "vm/base/cpu.h"
#include "vm/base/file.h"
#include "vm/base/printable.h"
#include "vm/base/program.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kEpilogue[] =
    "A CAMPAIGN is named by its UUID or the first four characters of it, or more.\n\n"
    "Examples:\n"
    "  nimble campaigns submit model.onnx --db postgresql://me@host/tuning --budget 1h\n"
    "  nimble campaigns status --db tuning.db\n"
    "  nimble campaigns pause 3f2a --reason \"the machines are needed\" --db tuning.db\n\n"
    "The service is `nimble serve`, machines measure with `nimble worker --db`; docs/fleet.md has\n"
    "the whole.";

struct Arguments {
  std::string database, campaign, reason, duration, metrics, hardware, key, keys;
  size_t candidates = 16, sizes = 2;  // that are packed of each workload
  tuner::CampaignOptions options;
  tools::TuneArguments tune;
  Format format = Format::kTable;
  double wait_s = 0;
};

db::Campaign find(db::Store& store, const std::string& prefix) {
  return *store.campaign(
      db::the_one(store, db::Kind::kCampaign, prefix, "list them: nimble campaigns list"));
}

std::string short_of(const std::string& id) {
  return id.substr(0, 8);
}

// What the model consists of for the target. `cpu_kernels`: what of it a GPU leaves to the CPU.
tuner::Submission submission_from(const Arguments& a, const kernels::TargetInfo& target,
                                  int64_t last_cache_bytes, size_t* cpu_kernels) {
  std::vector<std::string> skipped;
  tuner::CampaignOptions options = a.options;
  options.last_cache_bytes = last_cache_bytes;
  tuner::ModelTasks model = tuner::tasks_of_model(options, target, &skipped);
  for (const std::string& s : skipped) std::cerr << "skipped " << s << '\n';
  *cpu_kernels = model.cpu_kernels;
  tuner::Submission s;
  s.tasks = std::move(model.tasks);
  s.policy = model.policy;
  s.threads = tuner::threads_of(a.options, target);
  s.target = target.level;
  s.top_k = a.options.top_k;
  s.only_hot = a.options.only_hot;
  s.search_end = a.options.search_end;
  s.seed = a.options.seed;
  return s;
}

// For a machine that is out of reach: compiles and signs all that is to be measured there.
int pack(const Arguments& a, const std::string& command) {
  const trust::SigningKey key =
      trust::Keyring(a.keys.empty() ? trust::default_keyring_folder() : a.keys).open(a.key);
  const std::atomic<bool>& interrupted = note_interrupts();
  const auto say = [](const std::string& text) { std::cerr << sayable(text) << '\n'; };
  const auto store = db::Store::open(a.database);
  size_t cpu_kernels = 0;
  const tuner::Submission s = submission_from(a, kernels::target_by_name(a.options.target),
                                              a.options.last_cache_bytes, &cpu_kernels);
  tuner::PackOptions options;
  options.candidates = a.candidates;
  options.key_name = a.key;
  options.program = tuner::worker_program();
  options.compile_threads = a.options.compile_threads;
  const tuner::MachineLock here("cpu", "packing " + db::printable_place(a.database), interrupted,
                                [&](const std::string& holder) { say("waiting: " + holder); });
  const auto backend = tuner::compiler_backend();
  const tuner::Packed packed =
      tuner::pack_campaign(*store, *backend, key, s, options, command, interrupted, say);
  std::cout << packed.campaign << '\n';
  const std::string database = shell_word(db::printable_place(a.database));
  std::cerr << fmt::format(
      "{} jobs of {} workloads{}\n"
      "there: nimble worker --db {} --device gpu --jobs-for {} --max-idle 0\n"
      "then here: nimble db import --db tuning.db {}\n",
      packed.jobs, packed.workloads,
      packed.left_out > 0 ? fmt::format(", {} left out", packed.left_out) : "", database,
      shell_word(tuner::any_gpu(kernels::target_by_name(s.target)).model_name), database);
  return kExitOk;
}

int submit(const Arguments& a, const std::string& command) {
  const auto store =
      db::Store::open(a.database);  // before the model is read: what fails here fails first
  const bool unnamed = a.hardware.empty() || a.hardware == "this";
  const bool native = a.options.target == "native";
  std::optional<kernels::TargetInfo> named;
  if (!native) named = kernels::target_by_name(a.options.target);
  const bool of_gpu = named && named->is_gpu();
  const db::Hardware hardware = !unnamed ? db::find_hardware(*store, a.hardware)
                                : of_gpu ? tuner::gpu_of_fleet(*store, *named)
                                         : db::host_hardware();
  // "native" is the level of the machine that will measure.
  const kernels::TargetInfo target = native && unnamed
                                         ? kernels::target_by_name("native")
                                         : tuner::target_on(a.options.target, hardware);
  if (!target.is_gpu() && unnamed && !host_cpu().has(target.level))
    throw Error(
        Status::kUnsupported, "--target " + a.options.target,
        fmt::format("this machine is of level {} and cannot run such code", host_cpu().level),
        "give --hardware, or a lower level");
  if (!target.is_gpu() && !unnamed && a.options.threads.empty())
    throw Error(Status::kInvalidArgument, "--hardware " + a.hardware,
                "how many threads such a machine has is not known here", "give --threads");
  size_t cpu_kernels = 0;
  const tuner::Submission s =
      submission_from(a, target, db::last_cache_bytes(hardware), &cpu_kernels);
  db::Uuid campaign;
  store->transaction([&] {
    campaign = tuner::submit(*store, s, store->put(hardware), a.options.budget_s, command);
  });
  std::cout << campaign << '\n';
  std::cerr << fmt::format("{} workloads for {}, {} machine-seconds\n",
                           s.tasks.size() * s.threads.size(), printable(hardware.model_name),
                           store->campaign(campaign)->budget_s);
  std::cerr << tools::beside_text(
      cpu_kernels, target.level,
      fmt::format("nimble campaigns submit {} --db {}",
                  tools::model_text(a.options.model, a.tune.shapes, a.options.import,
                                    a.options.precision, a.options.winograd),
                  shell_word(db::printable_place(a.database))));
  return kExitOk;
}

int list(const Arguments& a) {
  const auto store = db::open_to_read(a.database);
  std::vector<tuner::CampaignStatus> all;
  std::optional<db::Campaign> after;
  for (;;) {
    const std::vector<db::Campaign> page = store->campaigns(100, after);
    for (const db::Campaign& c : page) all.push_back(tuner::status_of(*store, c));
    if (page.size() < 100) break;
    after = page.back();
  }
  tools::campaign_table(all).print(std::cout, a.format);
  return kExitOk;
}

int status(const Arguments& a) {
  const auto store = db::open_to_read(a.database);
  tuner::FleetStatus fleet = tuner::fleet_status(*store);
  if (!a.campaign.empty()) fleet.campaigns = {tuner::status_of(*store, find(*store, a.campaign))};
  if (!a.metrics.empty()) write_file_atomically(a.metrics, tuner::open_metrics(fleet));
  print_report(
      std::cout, a.format,
      [&] {
        Json campaigns = Json::array();
        for (const tuner::CampaignStatus& s : fleet.campaigns)
          campaigns.push_back(tools::json_of(s));
        return Json{{"at", fleet.at_ms},
                    {"campaigns", campaigns},
                    {"workers", tools::worker_table(fleet).json()}};
      },
      [&] { return tools::campaign_table(fleet.campaigns); },
      [&] {
        std::cout << tools::campaign_table(fleet.campaigns).text("no campaign runs or waits\n");
        for (const tuner::CampaignStatus& s : fleet.campaigns) tools::print_campaign(std::cout, s);
        std::cout << "\nWorkers:\n" << tools::worker_table(fleet).text("none is alive\n", "  ");
      });
  return kExitOk;
}

std::string user() {
  const char* name = std::getenv("USER");
  return name && *name ? name : "unknown";
}

int control(const Arguments& a, db::ControlRequest request) {
  const auto store = db::open_to_write(a.database);
  const db::Campaign campaign = find(*store, a.campaign);
  if (!tuner::is_submitted(campaign))
    throw Error(Status::kUnsupported, "campaign " + short_of(campaign.uuid),
                "is one of nimble tune, which no service attends to",
                "interrupt it where it runs; the same command continues it");
  if (!campaign.resumable())
    throw Error(Status::kInvalidArgument, "campaign " + short_of(campaign.uuid),
                fmt::format("is {}", name_of(campaign.state)),
                "a larger budget extends it: nimble campaigns budget");
  const db::Uuid asked = store->request({{}, campaign.uuid, request, user(), a.reason});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(a.wait_s);
  do {
    for (const db::Control& c : store->requests(campaign.uuid))
      if (c.uuid == asked && c.accepted) {
        if (!*c.accepted)
          throw Error(Status::kInvalidArgument, "campaign " + short_of(campaign.uuid),
                      "the service refused: " + printable(c.answer));
        std::cout << fmt::format("done{}{}\n", c.answer.empty() ? "" : ": ", printable(c.answer));
        return kExitOk;
      }
    if (a.wait_s > 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (std::chrono::steady_clock::now() < deadline);
  if (a.wait_s > 0)
    throw Error(Status::kExhausted, "campaign " + short_of(campaign.uuid),
                "no service has answered; the request stands",
                "see whether nimble serve runs on this database");
  std::cout << "asked; the service answers when it comes to it (nimble campaigns status)\n";
  return kExitOk;
}

int budget(const Arguments& a) {
  const double budget_s = tuner::parse_duration(a.duration);
  const auto store = db::open_to_write(a.database);
  const db::Campaign campaign = find(*store, a.campaign);
  if (budget_s <= campaign.budget_s)
    throw Error(
        Status::kInvalidArgument, a.duration,
        fmt::format("is no more than the {} that it has", tuner::duration_text(campaign.budget_s)),
        "a budget is only ever raised; to end a campaign: nimble campaigns stop");
  tuner::extend(*store, campaign, budget_s);
  return kExitOk;
}

// What became faster or slower is a question to the database; `words` as nimble db diff takes them.
int diff(const std::vector<std::string>& words) {
  const std::string program = program_of("db");
  if (program.empty())
    throw Error(Status::kNotFound, "nimble-db", "is not beside this program",
                "install nimble anew");
  std::vector<std::string> all = {program, "diff"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  throw Error(Status::kIo, program, std::strerror(errno));
}

int run(int argc, char** argv) {
  CLI::App app{
      "Campaigns that a service (nimble serve) tunes on a fleet of machines (nimble worker --db).\n"
      "The database is where all of them meet.",
      "nimble campaigns"};
  app.require_subcommand(1);
  app.footer(kEpilogue);
  Arguments a;
  const auto command = [&](const char* name, const char* about, const char* example) {
    CLI::App* sub = app.add_subcommand(name, about);
    sub->footer(fmt::format("Example:\n  {}", example));
    return sub;
  };
  const auto database = [&](CLI::App* sub) {
    sub->add_option("--db", a.database, "The database, a file or a URL")
        ->check(read_by(db::require_place))
        ->envname("NIMBLE_DB")
        ->type_name("FILE|URL")
        ->required();
  };
  const auto campaign = [&](CLI::App* sub, bool required) {
    auto* option = sub->add_option("campaign", a.campaign, "Which; four characters are enough")
                       ->type_name("CAMPAIGN");
    if (required) option->required();
  };
  CLI::App* submit_command =
      command("submit", "Store what a model's campaign consists of; print its UUID",
              "nimble campaigns submit model.onnx --db tuning.db --budget 1h");
  a.tune.add_model(*submit_command, a.options);
  database(submit_command);
  submit_command
      ->add_option("--hardware", a.hardware,
                   "The kind of machine that is to measure: the beginning of a fingerprint or part "
                   "of the processor's or GPU's name, as nimble db show hardware lists them "
                   "(default: this; of a GPU's --target the database's only such GPU, too)")
      ->type_name("KIND");
  a.tune.add_campaign(*submit_command, a.options);
  CLI::App* pack_command = command(
      "pack", "Compile and sign candidates for a machine with a GPU that reaches no service",
      "nimble campaigns pack model.onnx --db packed.db --target sm_90a --key planner");
  a.tune.add_model(*pack_command, a.options);
  database(pack_command);
  pack_command->add_option("--key", a.key, "The key that signs candidates (nimble keys list)")
      ->required()
      ->type_name("NAME");
  pack_command->add_option("--keys", a.keys, "Where keys lie; default: NIMBLE_KEYS, ~/.config/…")
      ->type_name("FOLDER");
  pack_command
      ->add_option("--candidates", a.candidates,
                   "Drawn configurations of each workload, beside its default one")
      ->capture_default_str()
      ->check(CLI::Range(size_t{1}, size_t{10'000}));
  pack_command->add_option("--jobs", a.options.compile_threads, "Compilations at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  pack_command->add_option("--sizes", a.sizes, "Sizes that each workload is measured at, at most")
      ->capture_default_str()
      ->check(CLI::Range(size_t{1}, tuner::kMostRepresentatives));
  a.tune.add_target(*pack_command, a.options);
  a.tune.add_sizes(*pack_command, a.options);
  pack_command->add_option("--seed", a.options.seed, "Another seed draws others")
      ->capture_default_str();
  CLI::App* list_command = command("list", "List all campaigns, the newest first",
                                   "nimble campaigns list --db tuning.db");
  database(list_command);
  add_format(*list_command, &a.format);
  CLI::App* status_command = command("status", "Tell what campaigns and workers do now",
                                     "nimble campaigns status --db tuning.db --format json");
  database(status_command);
  campaign(status_command, false);
  status_command
      ->add_option("--metrics", a.metrics,
                   "Write it as OpenMetrics text, too, in one step; for a textfile collector")
      ->type_name("FILE");
  add_format(*status_command, &a.format);
  const std::pair<const char*, const char*> kControls[] = {
      {"pause", "Give a campaign no more machines until it is resumed"},
      {"resume", "Let a paused campaign go on"},
      {"stop", "End a campaign: no more search; what is known is verified and becomes tables"},
      {"cancel", "End a campaign at once; its measurements stay, no tables are made"}};
  std::vector<std::pair<CLI::App*, db::ControlRequest>> controls;
  for (const auto& [name, about] : kControls) {
    CLI::App* sub =
        command(name, about, fmt::format("nimble campaigns {} 3f2a --db tuning.db", name).c_str());
    database(sub);
    campaign(sub, true);
    sub->add_option("--reason", a.reason, "For those who wonder")->type_name("TEXT");
    sub->add_option("--wait", a.wait_s, "Seconds to wait for the service's answer")
        ->type_name("SECONDS")
        ->check(number_from_zero());
    controls.emplace_back(sub, *db::control_request_from_name(name));
  }
  CLI::App* budget_command = command("budget", "Raise a campaign's budget; a finished one goes on",
                                     "nimble campaigns budget 3f2a 2h --db tuning.db");
  database(budget_command);
  campaign(budget_command, true);
  budget_command->add_option("budget", a.duration, "Machine-seconds in all: 90s, 5m, 1h")
      ->required()
      ->type_name("DURATION")
      ->check(read_by(tuner::parse_duration));
  CLI::App* diff_command =
      command("diff", "Compare two campaigns at the shapes that both have: nimble db diff",
              "nimble campaigns diff 3f2a 77b0 --db tuning.db");
  diff_command->prefix_command();
  if (const auto code = parse_arguments(app, argc, argv, {kExitRegression, kExitStale}))
    return *code;
  if (*diff_command) return diff(diff_command->remaining());
  if (*submit_command) {
    a.tune.read(a.options);
    return submit(a, tools::command_of("nimble campaigns", argc, argv));
  }
  if (*pack_command) {
    a.options.search_shapes = a.sizes;
    a.tune.read(a.options);
    return pack(a, tools::command_of("nimble campaigns", argc, argv));
  }
  if (*list_command) return list(a);
  if (*status_command) return status(a);
  if (*budget_command) return budget(a);
  for (const auto& [sub, request] : controls)
    if (*sub) return control(a, request);
  return kExitFailure;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble campaigns", [&] { return nimble::run(argc, argv); });
}
