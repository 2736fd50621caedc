// nimble campaigns: campaigns that a service tunes on a fleet of machines.
#include <fmt/format.h>
#include <fmt/ranges.h>
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
#include "db/store/place.h"
#include "tuner/measure/machine_lock.h"
#include "tuner/measure/runner.h"
#include "tuner/service/measuring.h"
#include "tuner/service/model_tasks.h"
#include "tuner/service/packing.h"
#include "tuner/service/status.h"
#include "tuner/service/submission.h"
#include "tuner/service/task_state.h"
#include "tuner/service/tuning_machine.h"
#include "tuner/tools/tune_arguments.h"
#include "tuner/tools/vendor_column.h"
#include "tuner/trust/keyring.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"
#include "vm/arguments/subcommands.h"
#include "vm/arguments/table.h"
#include "vm/base/cpu.h"
#include "vm/base/file.h"
#include "vm/base/json_text.h"
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

std::unique_ptr<db::Store> open(const Arguments& a, bool write, bool create = false) {
  db::OpenOptions options;
  options.create = create;
  options.read_only = !write;
  return db::Store::open(a.database, options);
}

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
  const auto store = open(a, true, true);
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
  const auto store = open(a, true, true);  // before the model is read: what fails here fails first
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

const db::MachineVerdict* verdict_of(const tuner::CampaignStatus& s, const db::Uuid& machine) {
  for (const db::MachineVerdict& v : s.verdicts)
    if (v.machine == machine) return &v;
  return nullptr;
}

// What a service told of a task. One of another version, or whoever else may write there, may tell
// anything: what is no JSON, or deeper than any service's, stays text.
Json detail_of(const db::Task& task) {
  constexpr int kDeepest = 8;
  Json out = json_nesting(task.detail) > kDeepest ? Json(Json::value_t::discarded)
                                                  : Json::parse(task.detail, nullptr, false);
  return out.is_discarded() ? Json(task.detail) : out;
}

// What people should know of a machine's times; empty: nothing.
std::string verdict_text(const db::MachineVerdict* v) {
  if (!v) return "";
  if (v->set_aside)
    return fmt::format("; set aside: {:.0f}% apart from others of its kind", 100 * v->apart);
  return v->slowness > 1.05 ? fmt::format("; {:.2f} x as slow as others", v->slowness) : "";
}

// The vendor's routines beside ours, in all tasks together: nothing while none was compared.
std::optional<db::VendorStanding> vendor_of(const tuner::CampaignStatus& s) {
  std::vector<db::VendorStanding> all;
  for (const db::Task& t : s.tasks)
    if (std::optional<db::VendorStanding> known = db::vendor_standing_of(t.detail))
      all.push_back(std::move(*known));
  if (all.empty()) return std::nullopt;
  return db::sum_of(all);
}

Json json_of(const tuner::CampaignStatus& s) {
  Json tasks = Json::array(), machines = Json::array(), requests = Json::array();
  const std::optional<db::VendorStanding> vendor = vendor_of(s);
  for (const db::Task& t : s.tasks)
    tasks.push_back({{"task", t.uuid},
                     {"workload", t.workload},
                     {"label", t.label},
                     {"share", t.share ? Json(*t.share) : Json()},
                     {"calls", t.calls},
                     {"phase", t.phase},
                     {"since", t.phase_since},
                     {"detail", detail_of(t)}});
  for (const db::Consumption& c : s.machines) {
    machines.push_back(
        {{"machine", c.machine}, {"host", c.hostname}, {"consumed_s", c.consumed_s}});
    if (const db::MachineVerdict* v = verdict_of(s, c.machine))
      machines.back().update({{"set_aside", v->set_aside},
                              {"apart", v->apart},
                              {"noise", v->noise},
                              {"slowness", v->slowness}});
  }
  for (const db::Control& c : s.requests)
    requests.push_back({{"request", std::string(name_of(c.request))},
                        {"by", c.requested_by},
                        {"reason", c.reason},
                        {"at", c.created_at}});
  return {{"campaign", s.campaign.uuid},
          {"state", std::string(name_of(s.campaign.state))},
          {"served", s.served},
          {"budget_s", s.campaign.budget_s},
          {"consumed_s", s.campaign.consumed_s},
          {"trials", s.trials.trials},
          {"queued", s.trials.queued},
          {"claimed", s.trials.claimed},
          {"ok", s.trials.ok},
          {"failed", s.trials.failed},
          {"jobs_queued", s.jobs.queued},
          {"jobs_claimed", s.jobs.claimed},
          {"created_at", s.campaign.created_at},
          {"updated_at", s.campaign.updated_at},
          {"command", s.campaign.command},
          {"tasks", tasks},
          {"machines", machines},
          {"requests", requests},
          {"vendor", vendor ? Json::parse(db::json_text(*vendor)) : Json()}};
}

std::string seconds(const Json& s) {
  return s.is_null() ? "-" : tuner::duration_text(s.get<double>());
}

Table campaign_table(const std::vector<tuner::CampaignStatus>& campaigns) {
  Table table(
      {{"campaign", cell::short_id},
       "state",
       {"consumed_s", "used", seconds},
       {"budget_s", "budget", seconds},
       "trials",
       "ok",
       "failed",
       {"jobs_queued", "waiting"},
       {"jobs_claimed", "measured"},
       {"created_at", "created", cell::time},
       {"command", "command", [](const Json& c) { return printable(c.get<std::string>()); }}});
  for (const tuner::CampaignStatus& s : campaigns) table.add_object(json_of(s));
  return table;
}

Table task_table(const tuner::CampaignStatus& s) {
  Table table({{"task", ""},
               {"label", "workload", [](const Json& l) { return printable(l.get<std::string>()); }},
               {"share", cell::percent},
               "phase",
               {"since", cell::time},
               {"best", "over default",
                [](const Json& ratio) {
                  return ratio.is_null() ? "-" : fmt::format("{:.2f} ×", 1 / ratio.get<double>());
                }},
               "trials",
               "failed",
               "pruned",
               tools::vendor_column(),
               {"spent_s", "used", seconds}});
  const Json all = json_of(s);
  for (size_t i = 0; i < s.tasks.size(); ++i) {
    const tuner::TaskState state = tuner::task_state_from_json(s.tasks[i].detail);
    Json t = all["tasks"][i];
    t["best"] = state.best_ratio > 0 ? Json(state.best_ratio) : Json();
    t["trials"] = state.trials;
    t["failed"] = state.failed;
    t["pruned"] = state.pruned;
    t["spent_s"] = state.spent_s;
    if (state.vendor) t["vendor"] = Json::parse(db::json_text(*state.vendor));
    table.add_object(std::move(t));
  }
  return table;
}

// Why a task has no faster schedule, or no verified one; empty: there is nothing to say.
std::string note_of(const db::Task& task) {
  return tuner::task_state_from_json(task.detail).note;
}

constexpr size_t kMostReasons = 8;

// What people should know of it: how much it says, and where to look.
void print_vendor(const tuner::CampaignStatus& s) {
  if (const std::optional<db::VendorStanding> all = vendor_of(s)) {
    std::string text =
        fmt::format("the vendor's routines took part in {} of {} cases", all->sizes, all->of);
    if (all->failed > 0) text += fmt::format(", and were wrong or broke off in {}", all->failed);
    if (all->sizes > 0) text += fmt::format("; wins: {}", db::text_of(*all));
    std::cout << "  " << text << '\n';
  }
  std::map<std::string, int> missing;  // tasks, by the reason
  for (const db::Task& t : s.tasks) {
    const tuner::TaskState state = tuner::task_state_from_json(t.detail);
    if (state.vendor && !state.vendor->ours_behind.empty()) {
      std::vector<std::string> sizes;
      for (const db::Dims& size : state.vendor->ours_behind) sizes.push_back(db::text_of(size));
      std::cout << fmt::format("  {}: ours takes over 5% more at {}\n", printable(t.label),
                               printable(fmt::format("{}", fmt::join(sizes, "; "))));
    }
    const bool everywhere = state.vendor && state.vendor->sizes == state.vendor->of;
    if (!state.no_vendor.empty() && !everywhere) ++missing[state.no_vendor];
  }
  size_t told = 0;
  for (const auto& [why, tasks] : missing)
    if (told++ < kMostReasons)
      std::cout << fmt::format("  no vendor's routine for {} of {} workloads: {}\n", tasks,
                               s.tasks.size(), printable(why));
}

Table worker_table(const tuner::FleetStatus& fleet) {
  Table table({{"worker", cell::short_id},
               "name",
               "host",
               "state",
               {"job", cell::short_id},
               {"load", "others' load"},
               {"heard_s", "heard of", [](const Json& s) { return seconds(s) + " ago"; }},
               "message"});
  for (const db::LiveWorker& w : fleet.workers) {
    Json row = {{"worker", w.worker.uuid},
                {"name", printable(w.worker.name)},
                {"host", printable(w.hostname)},
                {"hardware", w.hardware},
                {"version", w.worker.version},
                {"state", "registered"},
                {"heard_s", static_cast<double>(fleet.at_ms - w.worker.started_at) / 1e3},
                {"message", ""}};
    if (w.heartbeat) {
      row["state"] = std::string(name_of(w.heartbeat->state));
      row["load"] = w.heartbeat->load;
      row["heard_s"] = static_cast<double>(fleet.at_ms - w.heartbeat->at) / 1e3;
      row["message"] = printable(w.heartbeat->message);
      if (w.heartbeat->job) row["job"] = *w.heartbeat->job;
    }
    table.add_object(std::move(row));
  }
  return table;
}

int list(const Arguments& a) {
  const auto store = open(a, false);
  std::vector<tuner::CampaignStatus> all;
  std::optional<db::Campaign> after;
  for (;;) {
    const std::vector<db::Campaign> page = store->campaigns(100, after);
    for (const db::Campaign& c : page) all.push_back(tuner::status_of(*store, c));
    if (page.size() < 100) break;
    after = page.back();
  }
  campaign_table(all).print(std::cout, a.format);
  return kExitOk;
}

int status(const Arguments& a) {
  const auto store = open(a, false);
  tuner::FleetStatus fleet = tuner::fleet_status(*store);
  if (!a.campaign.empty()) fleet.campaigns = {tuner::status_of(*store, find(*store, a.campaign))};
  if (!a.metrics.empty()) write_file_atomically(a.metrics, tuner::open_metrics(fleet));
  print_report(
      std::cout, a.format,
      [&] {
        Json campaigns = Json::array();
        for (const tuner::CampaignStatus& s : fleet.campaigns) campaigns.push_back(json_of(s));
        return Json{
            {"at", fleet.at_ms}, {"campaigns", campaigns}, {"workers", worker_table(fleet).json()}};
      },
      [&] { return campaign_table(fleet.campaigns); },
      [&] {
        std::cout << campaign_table(fleet.campaigns).text("no campaign runs or waits\n");
        for (const tuner::CampaignStatus& s : fleet.campaigns) {
          if (!s.tasks.empty())
            std::cout << fmt::format("\n{}:\n", short_of(s.campaign.uuid))
                      << task_table(s).text("", "  ");
          for (const db::Task& t : s.tasks)
            if (const std::string note = note_of(t); !note.empty())
              std::cout << fmt::format("  {}: {}\n", printable(t.label), printable(note));
          print_vendor(s);
          for (const db::Consumption& c : s.machines)
            std::cout << fmt::format("  {} used {}{}\n", printable(c.hostname),
                                     tuner::duration_text(c.consumed_s),
                                     verdict_text(verdict_of(s, c.machine)));
          for (const db::Control& c : s.requests)
            std::cout << fmt::format("  {} was asked for by {}{}{}; no service has answered yet\n",
                                     name_of(c.request), printable(c.requested_by),
                                     c.reason.empty() ? "" : ": ", printable(c.reason));
        }
        std::cout << "\nWorkers:\n" << worker_table(fleet).text("none is alive\n", "  ");
      });
  return kExitOk;
}

std::string user() {
  const char* name = std::getenv("USER");
  return name && *name ? name : "unknown";
}

int control(const Arguments& a, db::ControlRequest request) {
  const auto store = open(a, true);
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
  const auto store = open(a, true);
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
