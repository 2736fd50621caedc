// nimble check: what of a model nimble can do, and what of it is tuned, before anything is built.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/ir/entry.h"
#include "compiler/kernels/targets.h"
#include "compiler/tools/common.h"
#include "compiler/tuned/policy_class.h"
#include "vm/arguments/command_line.h"
#include "vm/base/json_text.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using Json = nlohmann::json;

constexpr char kAbout[] =
    "Says of a model: its signature, which operators nimble covers, which workloads its kernels\n"
    "are, and which of those a tuning database knows.\n\n"
    "Whether a record is exact shows once its kernel is generated: --require-tuned does that, as\n"
    "nimble compile does.\n\n"
    "Exit codes: 0 supported; 1 some operator is unsupported; 5 with --require-tuned, a workload\n"
    "has no exact record.\n\n"
    "Examples:\n"
    "  nimble check model.onnx\n"
    "  nimble check all-MiniLM-L6-v2/ --db tuning.db --format json\n"
    "  nimble check --operators";

struct Options {
  tools::ModelArguments model;
  std::string format = "table";
  bool require_tuned = false, operators = false;
};

struct WorkloadRow {
  driver::WorkloadUse use;
  std::string template_name;  // empty: nothing serves it
  tuned::Lookup lookup;
};

// The workloads after the passes, each with its template and what the database knows of it.
std::vector<WorkloadRow> workloads(const Options& o, const ir::Module& m,
                                   tuned::TunedSource* tuned) {
  passes::PassContext context;
  context.target = kernels::loaded_target_by_name(o.model.target);
  passes::PipelineOptions pipeline;
  pipeline.disabled.insert(o.model.disabled.begin(), o.model.disabled.end());
  ir::Module lowered = passes::run_pipeline(m, context, pipeline);
  const std::string policy_class = o.model.policy == "auto"
                                       ? tuned::implied_policy(driver::constant_bytes(lowered))
                                       : o.model.policy;
  std::vector<WorkloadRow> rows;
  for (driver::WorkloadUse& use : driver::workloads_of(lowered)) {
    WorkloadRow row{std::move(use), {}, {}};
    if (const kernels::Template* t = kernels::template_for(row.use.workload, context.target))
      row.template_name = t->name();
    if (tuned) row.lookup = tuned->find(row.use.workload, context.target, policy_class);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string signature_of(const ir::Module& m) {
  std::string out;
  for (const auto& [name, f] : m.functions) {
    if (!ir::is_entry(m, name)) continue;
    out += "@" + name + "(";
    for (size_t i = 0; i < f->parameters.size(); ++i)
      out += fmt::format("{}{}: {}", i ? ", " : "", f->parameters[i]->name,
                         ir::str(f->parameters[i]->type));
    out += ") -> " + ir::str(f->result_type) + "\n";
  }
  return out;
}

Json operators_json(const frontend::Coverage& c) {
  Json rows = Json::array();
  for (const auto& r : c.rows)
    rows.push_back({{"op", r.op},
                    {"domain", r.domain},
                    {"count", r.count},
                    {"supported", r.supported},
                    {"reason", r.reason},
                    {"first_node", r.first_node}});
  return rows;
}

void print(const Options& o, const frontend::Coverage& c, const std::string& signature,
           const std::vector<WorkloadRow>& rows) {
  if (o.format == "json") {
    Json list = Json::array();
    for (const WorkloadRow& r : rows)
      list.push_back({{"source", r.use.source},
                      {"calls", r.use.calls},
                      {"template", r.template_name},
                      {"outcome", tools::name_of(r.lookup.outcome)},
                      {"reason", r.lookup.reason},
                      {"workload", r.use.workload.key}});
    fmt::print("{}\n", json_text(Json{{"model", o.model.model},
                                      {"format", c.format},
                                      {"supported", c.complete()},
                                      {"signature", signature},
                                      {"operators", operators_json(c)},
                                      {"workloads", list}}));
    return;
  }
  TextTable operators({"operator", "nodes", "supported", "reason"});
  for (const auto& r : c.rows)
    operators.add({r.domain.empty() ? r.op : r.domain + "." + r.op, std::to_string(r.count),
                   r.supported ? "yes" : "no", r.reason});
  if (o.format == "csv") {
    fmt::print("{}", operators.csv());
    return;
  }
  fmt::print("{}{}\n", signature, operators.str());
  if (rows.empty()) return;
  TextTable workloads({"workload", "calls", "template", "tuning"});
  for (const WorkloadRow& r : rows) {
    std::string tuning(tools::name_of(r.lookup.outcome));
    if (!r.lookup.reason.empty()) tuning += ": " + r.lookup.reason;
    workloads.add({r.use.source, std::to_string(r.use.calls),
                   r.template_name.empty() ? "none" : r.template_name, tuning});
  }
  fmt::print("{}", workloads.str());
}

int run(Options& o) {
  frontend::Coverage coverage = frontend::coverage(o.model.model);
  if (!coverage.complete()) {
    print(o, coverage, {}, {});
    fmt::print(stderr, "nimble check: error: {}: some operators are not supported; see the table\n",
               o.model.model);
    return kExitFailure;
  }
  std::unique_ptr<tuned::TunedSource> tuned = tools::open_database(o.model);
  ir::Module m = tools::import(o.model);
  std::vector<WorkloadRow> rows = workloads(o, m, tuned.get());
  print(o, coverage, signature_of(m), rows);
  for (const WorkloadRow& r : rows)
    if (r.template_name.empty()) {
      fmt::print(stderr, "nimble check: error: no kernel template serves {}\n", r.use.source);
      return kExitFailure;
    }
  if (o.require_tuned) {
    driver::CompileOptions options = tools::compile_options(o.model, tuned.get());
    options.portable = false;
    driver::CompileReport report;
    driver::compile(m, options, &report);
    if (!tools::require_tuned("nimble check", o.model, report)) return kExitStale;
  }
  return kExitOk;
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble check");
  tools::add_model_arguments(app, o.model, false);
  app.add_option("--format", o.format, "table, json, or csv (the operators alone)")
      ->check(CLI::IsMember({"table", "json", "csv"}))
      ->capture_default_str();
  app.add_flag("--require-tuned", o.require_tuned,
               "Generate the kernels; exit code 5 if a workload has no exact tuning record");
  app.add_flag("--operators", o.operators,
               "Instead of a MODEL: every ONNX operator and version, supported or why not")
      ->excludes(app.get_option("MODEL"));
  try {
    app.parse(argc, argv);
    if (!o.operators && o.model.model.empty()) throw CLI::RequiredError("MODEL");
  } catch (const CLI::ParseError& e) {
    return exit_of_arguments(app, e);
  }
  if (o.operators) {
    fmt::print("{}", frontend::onnx_operator_list());
    return kExitOk;
  }
  return run(o);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::tools::run_compiler_program("nimble check",
                                             [&] { return nimble::main_of(argc, argv); });
}
