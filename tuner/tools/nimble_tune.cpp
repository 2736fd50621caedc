// nimble tune: runs or continues a tuning campaign for a model.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "compiler/tools/model_arguments.h"
#include "db/store/place.h"
#include "tuner/service/campaign.h"
#include "tuner/service/table_maker.h"
#include "tuner/tools/tune_arguments.h"
#include "tuner/tools/vendor_column.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"
#include "vm/arguments/table.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kAbout[] =
    "Tunes the kernels of a model on this machine and stores every measurement, and the dispatch\n"
    "tables chosen from them, in a database that `nimble compile --db` reads.\n\n"
    "The same command again continues the campaign with what is left of its budget, also after\n"
    "Ctrl-C or a crash; a larger --budget extends a finished one.\n\n";

constexpr char kEpilogue[] =
    "Examples:\n"
    "  nimble tune model.onnx --db tuning.db --budget 5m\n"
    "  nimble tune all-MiniLM-L6-v2/ --db tuning.db --trace lengths.tsv:pair --threads 1,2\n"
    "  nimble tune model.onnx --db tuning.db --target sm_90a\n"
    "  nimble tune model.onnx --db tuning.db --beside sm_90a\n\n"
    "The database can also be named by the environment variable NIMBLE_DB.";

std::string ns_text(const Json& value) {
  const double ns = value.is_number() ? value.get<double>() : 0;
  if (ns <= 0) return "-";
  return ns < 1e4 ? fmt::format("{:.0f} ns", ns) : fmt::format("{:.1f} us", ns / 1000);
}

Json json_of(const tuner::TaskReport& r) {
  Json j = {{"workload", r.workload},
            {"label", r.label},
            {"threads", r.threads},
            {"calls", r.calls},
            {"share", r.share},
            {"default_ns", r.default_ns},
            {"best_ns", r.best_ns},
            {"trials", r.trials},
            {"failed", r.failed},
            {"pruned", r.pruned},
            {"seeds", r.seeds},
            {"k", r.k},
            {"entries", r.entries},
            {"regret", r.regret},
            {"worst_regret", r.worst_regret},
            {"single_regret", r.single_regret},
            {"candidates", r.candidates},
            {"estimated", r.estimated},
            {"note", r.remark()}};
  if (r.best_ns > 0 && r.default_ns > 0) j["speed_up"] = r.default_ns / r.best_ns;
  if (r.table) j["table"] = *r.table;
  if (r.table) j["active"] = r.inactive.empty();
  Json searched_at = Json::array(), ranked = Json::array();
  for (const auto& [shape, share] : r.searched_at)
    searched_at.push_back({{"shape", shape}, {"share", share}});
  for (const auto& [round, correlation] : r.ranked) {
    Json& row = ranked.emplace_back();
    row["round"] = round;
    row["correlation"] = correlation;
  }
  if (!r.ranked.empty()) j["model_rank_correlation"] = r.ranked.back().second;
  j["rank_correlations"] = ranked;
  j["searched_at"] = searched_at;
  if (!r.search_ended.empty()) j["search_ended"] = r.search_ended;
  if (r.vendor) j["vendor"] = Json::parse(db::json_text(*r.vendor));
  if (!r.no_vendor.empty()) j["no_vendor"] = r.no_vendor;
  if (r.noise) j["noise"] = *r.noise;
  if (r.drift) j["drift"] = *r.drift;
  if (r.held_out_regret) j["held_out_regret"] = *r.held_out_regret;
  if (r.held_out_worst_regret) j["held_out_worst_regret"] = *r.held_out_worst_regret;
  if (r.held_out_single_regret) j["held_out_single_regret"] = *r.held_out_single_regret;
  return j;
}

// The rows of a report. Of a table that is not active they say how to make it so in `database`.
// Where nothing was searched, what the run would have counted is not known.
Json rows_of(const tuner::CampaignReport& report, const std::string& database) {
  Json rows = Json::array();
  for (const tuner::TaskReport& r : report.tasks) {
    Json& row = rows.emplace_back(json_of(r));
    if (r.note.empty() && !r.inactive.empty() && r.table)
      row["note"] = r.inactive + tuner::how_to_activate(*r.table, database);
    if (!report.nothing_to_do) continue;
    for (const char* of_the_run : {"candidates", "seeds"}) row[of_the_run] = nullptr;
    if (r.best_ns > 0) continue;
    for (const char* unknown :
         {"default_ns", "best_ns", "k", "regret", "worst_regret", "single_regret"})
      row[unknown] = nullptr;
  }
  return rows;
}

Table workload_table(const tuner::CampaignReport& report, const std::string& database) {
  const auto calls = [](const Json& n) { return fmt::format("{:.0f}", n.get<double>()); };
  Table table(
      {{"workload", ""},
       {"label", "workload"},
       "threads",
       {"calls", calls},
       {"share", cell::percent},
       {"default_ns", "default", ns_text},
       {"best_ns", "best", ns_text},
       {"speed_up", "speed-up",
        [](const Json& x) { return x.is_null() ? "-" : fmt::format("{:.2f}x", x.get<double>()); }},
       "trials",
       "failed",
       "k",
       "entries",
       {"regret", cell::percent},
       {"worst_regret", "worst", cell::percent},
       {"single_regret", "one config", cell::percent},
       {"held_out_regret", "unseen", cell::percent},
       tools::vendor_column(),
       "note"});
  const Json rows = rows_of(report, database);
  for (size_t i = 0; i < report.tasks.size(); ++i) {
    Json row = rows[i];
    // Nothing is known of what has no times.
    if (report.tasks[i].best_ns <= 0)
      for (const char* unknown : {"regret", "worst_regret", "single_regret"})
        row[unknown] = nullptr;
    table.add_object(std::move(row));
  }
  return table;
}

Json json_of(const tuner::Spending& s) {
  return {{"wall_s", s.wall_s},
          {"seconds", s.seconds},
          {"working_share", s.working_share()},
          {"candidates", s.candidates},
          {"candidates_per_minute", s.candidates_per_minute()},
          {"told_errors", s.told_errors}};
}

// "of 90.1 s: 62 % compile, 29 % time, …; 143 candidates, 95 a minute; …"
std::string text_of(const tuner::Spending& s) {
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [name, seconds] : s.seconds)
    if (seconds >= 0.005 * s.wall_s) parts.emplace_back(-seconds, name);
  std::sort(parts.begin(), parts.end());
  std::string out = fmt::format("spent {:.1f} s:", s.wall_s);
  for (const auto& [seconds, name] : parts)
    out += fmt::format(" {:.0f}% {},", -100 * seconds / s.wall_s, name);
  out += fmt::format(" {} candidates, {:.0f} a minute", s.candidates, s.candidates_per_minute());
  for (size_t i = 0; i < s.told_errors.size(); ++i)
    out += fmt::format("{} {:+.0f}%", i == 0 ? "; time left told at thirds off by" : ",",
                       100 * s.told_errors[i]);
  return out;
}

void print(const tuner::CampaignReport& report, Format format, const std::string& database) {
  const auto table = [&] { return workload_table(report, database); };
  print_report(
      std::cout, format,
      [&] {
        return Json{{"campaign", report.campaign},
                    {"budget_s", report.budget_s},
                    {"consumed_s", report.consumed_s},
                    {"spending", json_of(report.spending)},
                    {"interrupted", report.interrupted},
                    {"nothing_to_do", report.nothing_to_do},
                    {"ended", report.ended},
                    {"resumed", report.resumed},
                    {"skipped", report.skipped},
                    {"cpu_kernels", report.cpu_kernels},
                    {"workloads", rows_of(report, database)}};
      },
      table, [&] { std::cout << table().text(); });
}

// "nothing was searched: the campaign is finished. Stored are …"
std::string stored_text(const tuner::CampaignReport& report) {
  int64_t trials = 0;
  size_t active = 0;
  for (const tuner::TaskReport& r : report.tasks) {
    trials += r.trials;
    active += r.table && r.inactive.empty();
  }
  return fmt::format(
      "nothing was searched: the campaign is finished; stored are {} trials and active tables of "
      "{} of {} workloads, as listed; a larger --budget goes on",
      trials, active, report.tasks.size());
}

int run(int argc, char** argv) {
  CLI::App app{std::string(kAbout) + tuner::kBudgetRule, "nimble tune"};
  app.footer(kEpilogue);
  tuner::CampaignOptions options;
  tools::TuneArguments arguments;
  Format format = Format::kTable;
  arguments.add_model(app, options);
  app.add_option("--db", options.database, "The database, a file or a URL; made if it is missing")
      ->check(read_by(db::require_place))
      ->envname("NIMBLE_DB")
      ->required();
  arguments.add_campaign(app, options);
  app.add_flag("--random-search", options.random_search,
               "Draw every candidate, whatever was learnt: what a search by the cost model is "
               "compared with");
  app.add_option("--jobs", options.compile_threads, "Compilations at a time, between measurements")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  add_format(app, &format, "The report");
  app.add_flag("--quiet", options.quiet, "No progress on stderr");
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale, kExitInterrupted}))
    return *code;
  arguments.read(options);
  options.command = tools::command_of("nimble tune", argc, argv);

  const std::atomic<bool>& interrupted = note_interrupts();
  const auto backend = tuner::compiler_backend();
  const tuner::CampaignReport report = tuner::run_campaign(options, *backend, interrupted);
  const std::string place = db::printable_place(options.database);
  print(report, format, place);
  if (!options.quiet) {
    std::cerr << fmt::format("campaign {}: {} of {} used{}\n", report.campaign.substr(0, 8),
                             tuner::duration_text(report.consumed_s),
                             tuner::duration_text(report.budget_s),
                             report.nothing_to_do   ? "; " + stored_text(report)
                             : report.interrupted   ? "; interrupted, the same command continues it"
                             : report.ended.empty() ? ""
                                                    : "; " + report.ended);
    if (report.spending.wall_s > 0) std::cerr << text_of(report.spending) << '\n';
    int64_t pruned = 0;
    for (const tuner::TaskReport& r : report.tasks) pruned += r.pruned;
    if (pruned > 0)
      std::cerr << fmt::format(
          "{} of the failed trials compiled and were not measured: their code does not fit a "
          "multiprocessor, spills many registers or leaves schedulers idle\n",
          pruned);
    const std::string model = tools::model_text(options.model, arguments.shapes, options.import,
                                                options.precision, options.winograd);
    const std::string database = shell_word(place);
    std::cerr << tools::beside_text(report.cpu_kernels, options.target,
                                    fmt::format("nimble tune {} --db {}", model, database));
    std::string target = options.beside;
    if (options.target != "native") target += (target.empty() ? "" : ",") + options.target;
    std::cerr << fmt::format(
        "next: nimble compile {0}{2} --db {1} -o model.nimble\n"
        "      nimble dispatch show --db {1}\n"
        "      nimble db top --db {1}\n",
        model, database, target.empty() ? "" : " --target " + target);
  }
  return report.interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_database_program("nimble tune", [&] { return nimble::run(argc, argv); });
}
