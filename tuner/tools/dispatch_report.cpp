#include "tuner/tools/dispatch_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tuner/tools/heat_map.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"
#include "vm/base/file.h"
#include "vm/base/printable.h"

namespace nimble::tools {
namespace {

using Json = Table::Json;

constexpr char kFooter[] =
    "Regrets are shares of the time of the fastest candidate known at a shape: \"tree\" is what\n"
    "the table's choice loses to the best of its own configurations, \"pool\" what that one loses\n"
    "to the best of all, and \"regret\" both together; each as the median over the shapes and "
    "what\n"
    "95 % of them do not exceed. \"A/A\" is what the default schedule loses to itself when the\n"
    "luckier of two runs is taken: regrets of that size are noise. \"foretold\" is what the table\n"
    "claimed, from the shapes that it was made at.\n\n"
    "With --searches the candidates of a search from nothing at that very shape take part where "
    "it\n"
    "was made; JSON tells the regret without them as \"unsearched\".\n\n"
    "Shapes that the database has times of are left out. The same command with --file goes on\n"
    "where it stopped.\n\n"
    "Example:\n"
    "  nimble dispatch report model.onnx --db tuning.db --budget 20m --range n=1..512 \\\n"
    "      --range b=1..16 --file report.json --heat-map report.svg";

// SYMBOL=FIRST..LAST. Error(kInvalidArgument).
std::pair<std::string, tuner::SizeRange> range_of(const std::string& text) {
  const auto refuse = [&]() -> std::pair<std::string, tuner::SizeRange> {
    throw Error(Status::kInvalidArgument, "--range",
                fmt::format("\"{}\" is no range of sizes", printable(text)),
                fmt::format("write SYMBOL=FIRST..LAST, from 1 to {}, for example n=1..512",
                            tuner::kLargestSize));
  };
  const size_t equals = text.find('='), dots = text.find("..");
  if (equals == std::string::npos || equals == 0 || dots == std::string::npos || dots < equals)
    return refuse();
  const auto number = [&](const std::string& digits) -> int64_t {
    char* end = nullptr;
    const long long value = std::strtoll(digits.c_str(), &end, 10);
    return digits.empty() || *end != '\0' ? 0 : value;
  };
  const tuner::SizeRange range = {number(text.substr(equals + 1, dots - equals - 1)),
                                  number(text.substr(dots + 2))};
  if (range.least < 1 || range.most < range.least || range.most > tuner::kLargestSize)
    return refuse();
  return {text.substr(0, equals), range};
}

std::string two_shares(const Json& s) {
  return s.is_null() ? "-"
                     : fmt::format("{:.1f}% / {:.1f}%", 100 * s.at("median").get<double>(),
                                   100 * s.at("p95").get<double>());
}

Table table_of(const tuner::DispatchReport& report) {
  Table out({{"label", "workload"},
             "threads",
             {"table", cell::short_id},
             "pool",
             "candidates",
             "shapes",
             "searched",
             {"regret", "regret", two_shares},
             {"tree_regret", "tree", two_shares},
             {"pool_regret", "pool loses", two_shares},
             {"noise", "A/A", two_shares},
             {"foretold", cell::percent},
             "note"});
  for (const tuner::WorkloadRegret& w : report.workloads) {
    Json row = {{"label", w.label},
                {"threads", w.threads},
                {"table", nullptr},
                {"pool", w.pool},
                {"candidates", w.candidates},
                {"shapes", w.shapes.size()},
                {"note", w.note},
                {"searched", std::count_if(w.shapes.begin(), w.shapes.end(), [](const auto& s) {
                   return s.unsearched.has_value();
                 })}};
    if (!w.table.empty()) row["table"] = w.table;
    if (w.note.empty() && w.table.empty()) row["note"] = "no active table: the default schedule";
    if (w.note.empty() && !w.overrides.empty())
      row["note"] = fmt::format("{}with {} override{}", w.table.empty() ? "no active table, " : "",
                                w.overrides.size(), w.overrides.size() > 1 ? "s" : "");
    if (w.failed > 0 && w.note.empty()) row["note"] = fmt::format("{} shapes failed", w.failed);
    if (!w.shapes.empty()) {
      const auto add = [&](const char* name, const tuner::RegretSummary& s) {
        row[name] = {{"median", s.median}, {"p95", s.p95}, {"worst", s.worst}};
      };
      add("regret", summary_of(w.shapes, &tuner::ShapeRegret::regret));
      add("tree_regret", summary_of(w.shapes, &tuner::ShapeRegret::tree_regret));
      add("pool_regret", summary_of(w.shapes, &tuner::ShapeRegret::pool_regret));
      std::vector<double> noise, foretold;
      for (const tuner::ShapeRegret& s : w.shapes) {
        noise.push_back(s.noise);
        if (s.foretold) foretold.push_back(*s.foretold);
      }
      add("noise", tuner::summary_of(std::move(noise)));
      if (!foretold.empty()) row["foretold"] = tuner::summary_of(std::move(foretold)).median;
    }
    out.add_object(std::move(row));
  }
  return out;
}

}  // namespace

void DispatchReportCommand::add(CLI::App& sub, const std::string& database) {
  database_ = &database;
  tuner::CampaignOptions& o = options_.campaign;
  arguments_.add_model(sub, o);
  arguments_.budget = "10m";
  arguments_.add_measuring(sub, o);
  sub.add_option("--shapes", options_.shapes.count, "Shapes of the model to draw")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  sub.add_option("--range", ranges_,
                 "Sizes of a symbol: n=1..512 (default: 1..512, of a batch 1..16)")
      ->check(read_by(range_of));
  sub.add_option("--seed", options_.shapes.seed, "Another seed is other shapes")
      ->capture_default_str();
  sub.add_option("--top-k", o.top_k, "Candidates of earlier campaigns that run at every shape")
      ->capture_default_str()
      ->check(number_above_zero());
  sub.add_option("--look", look_,
                 "Time for the first look at a shape, about: of large shapes fewer candidates take "
                 "part, those that were good elsewhere")
      ->capture_default_str()
      ->check(read_by(tuner::parse_duration));
  sub.add_option("--searches", options_.searches,
                 "Shapes of each workload at which a search from nothing is made, too, once all "
                 "shapes are measured")
      ->capture_default_str()
      ->check(number_from_zero());
  sub.add_option("--search-trials", options_.search_trials, "Configurations of each such search")
      ->capture_default_str()
      ->check(number_above_zero());
  sub.add_option("--file", options_.file, "Keep the report here, and go on from it (JSON)");
  sub.add_option("--heat-map", heat_map_, "Draw it here (SVG)");
  add_format(sub, &format_, "The report");
  sub.add_flag("--quiet", o.quiet, "No progress on stderr");
  sub.footer(kFooter);
}

int DispatchReportCommand::run() {
  options_.campaign.database = *database_;
  arguments_.read(options_.campaign);
  options_.look_s = tuner::parse_duration(look_);
  for (const std::string& text : ranges_)
    if (const auto range = range_of(text); !options_.shapes.ranges.insert(range).second)
      throw Error(Status::kInvalidArgument, "--range " + printable(text),
                  fmt::format("{} has a range already", printable(range.first)),
                  "give one for each symbol");
  const std::atomic<bool>& interrupted = note_interrupts();
  const auto backend = tuner::compiler_backend();
  const tuner::DispatchReport report = report_dispatch(options_, *backend, interrupted);
  if (!heat_map_.empty()) write_file_atomically(heat_map_, heat_map(report));
  print_report(
      std::cout, format_, [&] { return Json::parse(tuner::text_of(report, "")); },
      [&] { return table_of(report); }, [&] { std::cout << table_of(report).text(); });
  if (!options_.campaign.quiet && !report.complete)
    std::cerr << (options_.file.empty()
                      ? "the budget ended before all shapes were measured; --file lets it go on\n"
                      : "not all shapes are measured; the same command with a larger --budget "
                        "goes on\n");
  return report.interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace nimble::tools
