#include "tuner/tools/dispatch_verify.h"

#include <fmt/format.h>

#include <iostream>

#include "vm/arguments/command_line.h"
#include "vm/arguments/interrupt.h"

namespace nimble::tools {
namespace {

using Json = Table::Json;

constexpr char kFooter[] =
    "The draft's configurations, those of the table that is active in its place and the default\n"
    "schedule run side by side at the sizes of the workload. If the draft is not slower by the\n"
    "weighted mean it becomes active; else it stays a draft, and the exit code is 4. Without a\n"
    "comparison, for lack of time or because a configuration fails, the exit code is 1. To\n"
    "activate it all the same: nimble dispatch activate TABLE --reason ...\n\n"
    "Example:\n"
    "  nimble dispatch verify 77c0 model.onnx --db tuning.db --trace lengths.tsv:n";

Json json_of(const tuner::TableTrial& trial, const db::Uuid& table) {
  Json j = {{"table", table},
            {"workload", trial.label},
            {"campaign", trial.campaign},
            {"active", trial.result.active},
            {"verdict", trial.result.reason},
            {"compared_with", nullptr},
            {"shapes", 0},
            {"ratio", nullptr},
            {"worst_ratio", nullptr},
            {"noise", trial.noise ? Json(*trial.noise) : Json()},
            {"interrupted", trial.interrupted}};
  if (const auto& c = trial.result.comparison) {
    j["compared_with"] = c->rival ? *c->rival : "default schedule";
    j["shapes"] = c->shapes;
    j["ratio"] = c->ratio;
    j["worst_ratio"] = c->worst_ratio;
  }
  return j;
}

}  // namespace

void DispatchVerifyCommand::add(CLI::App& sub, const std::string& database) {
  database_ = &database;
  tuner::CampaignOptions& o = options_.campaign;
  arguments_.add_model(sub, o);
  arguments_.budget = "2m";
  arguments_.add_budget(sub, o);
  arguments_.add_sizes(sub, o);
  sub.add_flag("--only-tell", only_tell_, "Do not activate it, however it compares");
  add_format(sub, &format_, "The verdict");
  sub.add_flag("--quiet", o.quiet, "No progress on stderr");
  sub.footer(kFooter);
}

int DispatchVerifyCommand::run(const db::Uuid& table, const std::string& command) {
  tuner::CampaignOptions& o = options_.campaign;
  o.database = *database_;
  o.command = command;
  arguments_.read(o);
  options_.table = table;
  options_.activate = !only_tell_;
  const auto backend = tuner::compiler_backend();
  const tuner::TableTrial trial = tuner::try_table(options_, *backend, note_interrupts());
  const tuner::TriedDraft& r = trial.result;
  Table rows({{"table", cell::short_id},
              "workload",
              {"campaign", cell::short_id},
              "active",
              {"compared_with", "compared with", cell::short_id},
              "shapes",
              {"ratio", "time over it"},
              {"worst_ratio", "at worst"},
              {"noise", "A/A", cell::percent},
              {"verdict", ""},
              {"interrupted", ""}});
  rows.add_object(json_of(trial, table));
  print_report(
      std::cout, format_, [&] { return json_of(trial, table); }, [&] { return rows; },
      [&] {
        if (trial.interrupted)
          std::cout << "interrupted: the table stays as it was\n";
        else
          std::cout << fmt::format("{}: table {} {}: {}\n", trial.label, table.substr(0, 8),
                                   r.active ? "is active now" : "is not active", r.reason);
      });
  if (trial.interrupted) return kExitInterrupted;
  if (!r.comparison) return r.active ? kExitOk : kExitFailure;
  return r.comparison->ratio > 1 ? kExitRegression : kExitOk;
}

}  // namespace nimble::tools
