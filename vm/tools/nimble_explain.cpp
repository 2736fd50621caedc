// nimble explain: which kernel runs for which operator at a shape, and on what evidence.
//
// It runs the model once per shape with the profiler on, so what it reports is what happened: the
// kernel, the values of its symbols, the way through its dispatch tree, the implementation at the
// leaf; and from the file's provenance the measurements that made the tree.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "vm/api/nimble.hpp"
#include "vm/base/program.h"
#include "vm/executable/executable.h"
#include "vm/executable/reader.h"
#include "vm/tools/given_inputs.h"
#include "vm/tools/load_arguments.h"
#include "vm/tools/shape_arguments.h"
#include "vm/tools/text_table.h"

namespace nimble {
namespace {

using Json = nlohmann::json;

constexpr char kAbout[] =
    "Tells which kernel a model runs for which operators at given shapes, the way through the\n"
    "kernel's dispatch tree, and the tuning records behind that tree.\n\n"
    "It runs the model: on random inputs, and on those that --input NAME=VALUE gives, written as\n"
    "for nimble run.\n\n"
    "Example: nimble explain model.nimble --shapes n=16,37 --set b=1 --threads 2";

struct Options {
  std::string model, entry, format = "table", kernel;
  std::vector<std::string> inputs, shapes, fixed;
  int threads = 0;
  bool no_native = false;
  exec::LoadLimits load;
  RandomOptions random;
};

struct Row {
  std::string shape;
  Json call;  // of the profiler
  std::vector<std::string> path;
  Json evidence;  // of the table that decided; null if the schedule is the template's default
};

std::string feature_text(const exec::DispatchFeature& f, const std::vector<std::string>& names) {
  using Kind = exec::DispatchFeature::Kind;
  switch (f.kind) {
    case Kind::kSymbol:
      return names[f.a];
    case Kind::kCeilDiv:
      return fmt::format("ceil({} / {})", names[f.a], f.t);
    case Kind::kMod:
      return fmt::format("{} mod {}", names[f.a], f.t);
    case Kind::kProduct:
      return fmt::format("{} * {}", names[f.a], names[f.b]);
    case Kind::kThreads:
      return "threads";
  }
  return {};
}

// The decisions that the VM made at these symbols.
std::vector<std::string> path_of(const exec::Kernel& k, const std::vector<int64_t>& symbols,
                                 int32_t threads) {
  std::vector<std::string> path;
  const std::vector<exec::DispatchNode>& nodes = k.dispatch.nodes;
  for (size_t at = 0; nodes[at].test != exec::DispatchNode::Test::kLeaf;) {
    const exec::DispatchNode& n = nodes[at];
    // The subtree under `at` with only its two children as leaves tells which way it goes.
    exec::DispatchTree step{{n, {}, {}}};
    step.nodes[0].yes = 1;
    step.nodes[0].no = 2;
    step.nodes[1].yes = 1;
    const bool yes = step.choose(symbols, threads) == 1;
    const char* op =
        n.test == exec::DispatchNode::Test::kEqual ? (yes ? "==" : "!=") : (yes ? "<=" : ">");
    path.push_back(
        fmt::format("{} {} {}", feature_text(n.feature, k.contract.symbols), op, n.threshold));
    at = yes ? n.yes : n.no;
  }
  return path;
}

// The table of the evidence whose thread count decided.
Json evidence_for(const exec::Executable& e, const std::string& kernel, int32_t threads) {
  const auto it = e.provenance.kernels.find(kernel);
  if (it == e.provenance.kernels.end()) return nullptr;
  const Json all = Json::parse(it->second, nullptr, false);
  if (!all.is_array()) return nullptr;
  Json best;
  for (const Json& table : all)
    if (best.is_null() || (table.value("threads", 0) <= threads &&
                           table.value("threads", 0) > best.value("threads", 0)))
      best = table;
  return best;
}

std::vector<Row> explain(const Options& o, const api::Model& model, const exec::Executable& e) {
  api::SessionOptions session_options;
  session_options.threads = o.threads;
  const std::vector<api::Port> ports = model.inputs(o.entry);
  const std::vector<api::Type> types = model.types();
  const GivenInputs given = parse_given(o.inputs, ports, types, o.random);
  for (const api::Port& p : ports)
    if (p.type_index >= 0 && !given.has(p.name))
      throw Error(Status::kInvalidArgument, fmt::format("{}: input {}", o.model, p.name),
                  fmt::format("it is a {}, for which there are no random values", p.type),
                  fmt::format("give one: --input '{}=…'", p.name));
  std::vector<Row> rows;
  std::set<std::string> seen;  // kernels and chains that ran
  for (const ShapeValues& shape : shape_combinations(o.shapes, o.fixed)) {
    check_names(shape, ports, o.model);
    api::Session session(model, session_options);
    session.set_profiling(true);
    session.run_values(
        GivenInputs{complete_inputs(ports, given.tensors, shape, o.random, o.model), given.values}
            .all(),
        o.entry);
    const Json profile = Json::parse(session.profile_json());
    for (const Json& call : profile.at("kernels")) {
      seen.insert(call.at("name").get<std::string>());
      seen.insert(call.at("source").get<std::string>());
      if (!o.kernel.empty() && call.at("name") != o.kernel && call.at("source") != o.kernel)
        continue;
      Row row{text_of(shape), call, {}, nullptr};
      const int32_t threads = session.threads();
      for (const exec::Kernel& k : e.kernels) {
        if (k.name != call.at("name")) continue;
        std::vector<int64_t> symbols;
        for (const std::string& s : k.contract.symbols)
          symbols.push_back(call.at("shape").value(s, int64_t{0}));
        row.path = path_of(k, symbols, threads);
        row.evidence = evidence_for(e, k.name, threads);
      }
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty() && !o.kernel.empty())
    throw Error(Status::kNotFound, "--kernel " + o.kernel, "no such kernel or chain ran",
                fmt::format("name one of {}", fmt::join(seen, ", ")));
  return rows;
}

std::string symbols_text(const Json& shape) {
  std::string out;
  for (const auto& [name, value] : shape.items())
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, value.get<int64_t>());
  return out;
}

std::string evidence_text(const Row& r) {
  if (r.evidence.is_null()) return "default schedule (untuned)";
  const std::string config = r.call.value("config", "");
  for (const Json& entry : r.evidence.at("entries")) {
    if (entry.at("config").dump() != config) continue;
    std::string out =
        fmt::format("table {} v{}", r.evidence.at("table").get<std::string>().substr(0, 8),
                    r.evidence.at("version").get<int64_t>());
    if (entry.value("override", false)) out += ", override: " + entry.value("reason", "");
    if (entry.contains("expected_ns"))
      out += fmt::format(", expected {:.1f} us", entry.at("expected_ns").get<double>() / 1000);
    if (entry.contains("regret"))
      out += fmt::format(", regret {:.1f} %", 100 * entry.at("regret").get<double>());
    return out;
  }
  return fmt::format("table {}", r.evidence.at("table").get<std::string>().substr(0, 8));
}

void print(const Options& o, const std::vector<Row>& rows) {
  if (o.format == "json") {
    Json out = Json::array();
    for (const Row& r : rows)
      out.push_back(
          {{"shape", r.shape}, {"call", r.call}, {"path", r.path}, {"evidence", r.evidence}});
    fmt::print("{}\n", out.dump(2));
    return;
  }
  TextTable table({"shape", "operators", "calls", "us each", "symbols", "path", "kernel",
                   "configuration", "evidence"});
  for (const Row& r : rows) {
    const auto count = r.call.at("count").get<int64_t>();
    const double us = r.call.at("total_ns").get<double>() / 1000 / static_cast<double>(count);
    table.add({r.shape, r.call.at("source").get<std::string>(), std::to_string(count),
               fmt::format("{:.1f}", us), symbols_text(r.call.at("shape")),
               r.path.empty() ? "only one" : fmt::format("{}", fmt::join(r.path, ", ")),
               r.call.at("implementation").get<std::string>(), r.call.value("config", ""),
               evidence_text(r)});
  }
  fmt::print("{}", table.str());
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble explain");
  app.add_option("MODEL", o.model, "The .nimble file; its native code is run")->required();
  app.add_flag("--no-native", o.no_native, "Run and time the checked, portable form of kernels");
  app.add_option("--shapes", o.shapes, "DIM=VALUE,VALUE,…: the shapes to explain");
  app.add_option("-i,--input", o.inputs, "An input, NAME=VALUE; once per input")
      ->type_name("INPUT");
  app.add_option("--set", o.fixed, "DIM=VALUE for dims that stay");
  app.add_option("--entry", o.entry, "Entry point (default: the first)");
  app.add_option("--kernel", o.kernel, "Only this kernel, or this chain of operators");
  app.add_option("--threads", o.threads, "Threads (default: all that the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--int-range", o.random.int_range, "Random integer inputs are below this")
      ->capture_default_str();
  add_load_limits(app, &o.load);
  app.add_option("--format", o.format, "Of the answer")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kExitOk : kExitUsage;
  }
  const exec::Executable executable = exec::read(o.model, {true, !o.no_native, o.load});
  const api::Model model(
      o.model, {!o.no_native, false, o.load.memory, o.load.constants, o.load.verification_steps});
  try {
    print(o, explain(o, model, executable));
  } catch (const api::Error& e) {
    rethrow_with_range(e, o.random);
  }
  return kExitOk;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble explain", [&] { return nimble::main_of(argc, argv); });
}
