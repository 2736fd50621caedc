// nimble check: what of a model nimble can do, and what of it is tuned, before anything is built.
#include <fmt/format.h>

#include <iostream>

#include "compiler/ir/entry.h"
#include "compiler/kernels/targets.h"
#include "compiler/tools/model_arguments.h"
#include "compiler/tools/records.h"
#include "compiler/tools/targets.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kAbout[] =
    "Says of a model: its signature, which operators nimble covers, which workloads its kernels\n"
    "are, and which of those a tuning database knows.\n\n"
    "Whether a record is exact shows once its kernel is generated: --require-tuned does that, as\n"
    "nimble compile does.\n\n"
    "It fails if some operator is unsupported, and with --require-tuned ends with 5 if a workload "
    "has\n"
    "no exact record.\n\n"
    "Examples:\n"
    "  nimble check model.onnx\n"
    "  nimble check all-MiniLM-L6-v2/ --db tuning.db --format json\n"
    "  nimble check --operators";

struct Options {
  tools::ModelArguments model;
  Format format = Format::kTable;
  bool require_tuned = false, operators = false;
};

struct WorkloadRow {
  driver::WorkloadUse use;
  std::string template_name;  // empty: nothing serves it
  Json config, knobs;         // the template's default configuration; the choices of each knob
  tuned::Lookup lookup;
};

// The workloads after the passes, each with its template and what the database knows of it.
std::vector<WorkloadRow> workloads(const Options& o, const ir::Module& m,
                                   tuned::TunedSource* tuned) {
  passes::PassContext context = tools::pass_context(o.model);
  passes::PipelineOptions pipeline;
  pipeline.disabled.insert(o.model.disabled.begin(), o.model.disabled.end());
  ir::Module lowered = passes::run_pipeline(m, context, pipeline);
  // As driver::compile asks.
  const bool gpu_has_records = kernels::gpu_of_records(tools::targets_of(o.model).gpus) != nullptr;
  std::vector<WorkloadRow> rows;
  for (driver::WorkloadUse& use : driver::workloads_of(lowered)) {
    WorkloadRow row{std::move(use), {}, Json::object(), Json::object(), {}};
    const kernels::TargetInfo& target = context.target_of(row.use.device);
    if (const kernels::Template* t = kernels::template_for(row.use.workload, target)) {
      row.template_name = t->name();
      row.config = Json::parse(kernels::to_json(t->default_config(row.use.workload, target)));
      for (const kernels::Knob& knob : t->knobs(row.use.workload, target))
        for (const kernels::KnobValue& value : knob.choices)
          std::visit([&](const auto& v) { row.knobs[knob.name].push_back(v); }, value);
    }
    if (tuned && (gpu_has_records || !target.is_gpu()))
      row.lookup =
          tuned->find(row.use.workload, target,
                      o.model.policy == "auto" ? driver::implied_policy(lowered, tuned, target)
                                               : o.model.policy);
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

Table operator_table(const frontend::Coverage& c) {
  Table table({{"op", ""},
               {"domain", ""},
               {"operator", "operator"},
               {"count", "nodes"},
               {"supported", [](const Json& b) { return b.get<bool>() ? "yes" : "no"; }},
               "reason",
               {"first_node", ""}});
  for (const auto& r : c.rows)
    table.add({r.op, r.domain, r.domain.empty() ? r.op : r.domain + "." + r.op, r.count,
               r.supported, r.reason, r.first_node});
  return table;
}

Table workload_table(const std::vector<WorkloadRow>& rows) {
  Table table({{"source", "workload"},
               "calls",
               {"template", [](const Json& t) { return t == "" ? "none" : t.get<std::string>(); }},
               {"outcome", "tuning"},
               "reason",
               {"workload", ""},
               {"device", ""},
               {"default", ""},
               {"knobs", ""}});
  for (const WorkloadRow& r : rows)
    table.add({r.use.source, r.use.calls, r.template_name, tools::name_of(r.lookup.outcome),
               r.lookup.reason, r.use.workload.key, std::string(device_name(r.use.device)),
               r.config, r.knobs});
  return table;
}

void print(const Options& o, const frontend::Coverage& c, const std::string& signature,
           const std::vector<WorkloadRow>& rows) {
  print_report(
      std::cout, o.format,
      [&] {
        return Json{{"model", o.model.model},
                    {"format", c.format},
                    {"supported", c.complete()},
                    {"signature", signature},
                    {"operators", operator_table(c).json()},
                    {"workloads", workload_table(rows).json()}};
      },
      [&] { return operator_table(c); },
      [&] {
        std::cout << signature << operator_table(c).text("") << '\n'
                  << workload_table(rows).text("");
      });
  std::cout.flush();
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
  add_format(app, &o.format, "The report (of csv: the operators)");
  app.add_flag("--require-tuned", o.require_tuned,
               "Generate the kernels; exit code 5 if a workload has no exact tuning record");
  app.add_flag("--operators", o.operators,
               "Instead of a MODEL: every ONNX operator and version, supported or why not")
      ->excludes(app.get_option("MODEL"));
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale})) return *code;
  if (!o.operators && o.model.model.empty()) return usage_error(app, "MODEL is required");
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
