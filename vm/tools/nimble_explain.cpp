// nimble explain: which kernel runs for which operator at a shape, and on what evidence.
//
// It runs the model once per shape with the profiler on, so what it reports is what happened: the
// kernel, the values of its symbols, the way through its dispatch tree, the implementation at the
// leaf; and from the file's provenance the measurements that made the tree.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "vm/api/nimble.hpp"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/json_text.h"
#include "vm/executable/dispatch_text.h"
#include "vm/executable/executable.h"
#include "vm/executable/launch.h"
#include "vm/executable/reader.h"
#include "vm/executable/verifier.h"
#include "vm/tools/argument_forms.h"
#include "vm/tools/given_inputs.h"
#include "vm/tools/launch_text.h"
#include "vm/tools/load_arguments.h"
#include "vm/tools/shape_arguments.h"

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
  std::string model, entry, kernel;
  Format format = Format::kTable;
  std::vector<std::string> inputs, shapes, fixed;
  int threads = 0;
  bool no_native = false;
  uint64_t memory_limit = 0, fuel = 0;
  exec::LoadLimits load;
  RandomOptions random;
};

struct Row {
  std::string shape;
  Json call;  // of the profiler
  std::vector<std::string> path;
  Json evidence;  // of the table that decided; null if the schedule is the template's default
  std::vector<std::string> names;  // of the contract's symbols, and their values
  std::vector<int64_t> symbols;
  int32_t threads = 1;
  Json launch;  // on a GPU, else null
};

// The blocks of the call; null where native code of a GPU is not what ran.
Json launch_of(const exec::Kernel& k, const Json& call, const std::vector<int64_t>& symbols,
               int32_t threads) {
  const exec::Implementation& i = k.implementations[k.dispatch.choose(symbols, threads)];
  if (!i.launch || call.at("implementation") != i.symbol) return nullptr;
  return {{"grid", exec::grid_of(*i.launch, symbols)},
          {"threads", i.launch->threads},
          {"shared_bytes", i.launch->shared_bytes},
          {"steps", i.launch->steps ? Json(exec::steps_of(*i.launch, symbols)) : Json()}};
}

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

// Deeper than what any compiler stores.
constexpr int kDeepestEvidence = 100;

// The table of the evidence whose thread count decided. The file may say anything there.
Json evidence_for(const exec::Executable& e, const std::string& kernel, int32_t threads) {
  const auto it = e.provenance.kernels.find(kernel);
  if (it == e.provenance.kernels.end() || json_nesting(it->second) > kDeepestEvidence)
    return nullptr;
  const Json all = Json::parse(it->second, nullptr, false);
  if (!all.is_array()) return nullptr;
  const auto threads_of = [](const Json& table) {
    const auto found = table.find("threads");
    return found != table.end() && found->is_number_integer() ? found->get<int64_t>() : int64_t{0};
  };
  const Json* best = nullptr;
  for (const Json& table : all)
    if (table.is_object() &&
        (!best || (threads_of(table) <= threads && threads_of(table) > threads_of(*best))))
      best = &table;
  return best ? *best : Json();
}

std::vector<Row> explain(const Options& o, const api::Model& model, const exec::Executable& e) {
  api::SessionOptions session_options;
  session_options.threads = o.threads;
  session_options.memory_limit = o.memory_limit;
  session_options.fuel = o.fuel;
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
      Row row{text_of(shape), call, {}, nullptr, {}, {}, session.threads()};
      const int32_t threads = session.threads();
      for (const exec::Kernel& k : e.kernels) {
        if (k.name != call.at("name")) continue;
        std::vector<int64_t> symbols;
        for (const std::string& s : k.contract.symbols)
          symbols.push_back(call.at("shape").value(s, int64_t{0}));
        row.path = path_of(k, symbols, threads);
        row.evidence = evidence_for(e, k.name, threads);
        row.names = k.contract.symbols;
        row.launch = launch_of(k, call, symbols, threads);
        row.symbols = std::move(symbols);
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

// Null where it is not there: what a file says need not be so.
Json field(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() ? Json() : *it;
}

// Whether an entry's region has the row's shape in it.
bool serves(const Json& entry, const Row& r) {
  const auto range = entry.find("range");
  if (range == entry.end() || !range->is_object()) return true;
  for (const auto& [name, ends] : range->items()) {
    const auto feature = exec::feature_from_text(name, r.names);
    if (!feature || !ends.is_array() || ends.size() != 2) return false;
    const int64_t at = exec::value_of(*feature, r.symbols, r.threads);
    if (ends[0].is_number_integer() && at < ends[0].get<int64_t>()) return false;
    if (ends[1].is_number_integer() && at > ends[1].get<int64_t>()) return false;
  }
  return true;
}

// The entry whose candidate ran: native ones have its number in their name ("k0_matmul_c2…"), a
// vendor's routine has its name in the configuration. Entries of one configuration share its
// kernel: of these the one that serves the shape, a person's before the tuner's.
const Json* entry_of(const Row& r) {
  if (!r.evidence.is_object() || !r.evidence.contains("entries")) return nullptr;
  const auto implementation = r.call.value("implementation", std::string());
  const std::string head = r.call.at("name").get<std::string>() + "_c";
  std::optional<uint64_t> candidate;
  if (implementation.starts_with(head)) {
    uint64_t number = 0;
    const char* last = implementation.data() + implementation.size();
    if (std::from_chars(implementation.data() + head.size(), last, number).ec == std::errc())
      candidate = number;
  }
  const auto config = r.call.value("config", std::string());
  const Json* first = nullptr;
  const Json* best = nullptr;
  for (const Json& entry : r.evidence.at("entries")) {
    if (!entry.is_object() || !entry.contains("config")) continue;
    const Json& c = entry.at("config");
    if (first) {
      if (c != first->at("config") || field(entry, "template") != field(*first, "template"))
        continue;
    } else if (candidate && entry.contains("candidate")) {
      if (entry.at("candidate") != *candidate) continue;
    } else if (c.dump() != config && !(c.is_object() && c.value("routine", "") == implementation)) {
      continue;
    }
    if (!first) first = &entry;
    if (!serves(entry, r)) continue;
    if (!best || (field(entry, "override") == true && field(*best, "override") != true))
      best = &entry;
  }
  return best ? best : first;
}

std::string us_text(double ns) {
  return fmt::format("{:.1f} us", ns / 1000);
}

std::string at_text(const Row& r, const std::vector<int64_t>& values) {
  std::string out;
  for (size_t i = 0; i < values.size() && i < r.names.size(); ++i)
    out += fmt::format("{}{}={}", i ? " " : "", r.names[i], values[i]);
  return out;
}

// What tuning measured of the entry at the row's shape; between two sizes of the one symbol that
// differs, on the line through them; else the nearest size, said to be another.
std::string expected_text(const Row& r, const Json& entry) {
  struct Point {
    std::vector<int64_t> at;
    double ns = 0;
  };
  std::vector<Point> points;
  if (const auto measured = entry.find("measured"); measured != entry.end())
    for (const Json& p : *measured)
      points.push_back({p.at(0).get<std::vector<int64_t>>(), p.at(1).get<double>()});
  std::erase_if(points, [&](const Point& p) { return p.at.size() != r.symbols.size(); });
  if (points.empty()) return "not measured";
  for (const Point& p : points)
    if (p.at == r.symbols) return "measured here " + us_text(p.ns);
  for (size_t s = 0; s < r.symbols.size(); ++s) {
    const Point *below = nullptr, *above = nullptr;
    for (const Point& p : points) {
      std::vector<int64_t> moved = p.at;
      moved[s] = r.symbols[s];
      if (moved != r.symbols) continue;
      if (p.at[s] < r.symbols[s] && (!below || p.at[s] > below->at[s])) below = &p;
      if (p.at[s] > r.symbols[s] && (!above || p.at[s] < above->at[s])) above = &p;
    }
    if (!below || !above) continue;
    const auto from = static_cast<double>(below->at[s]);
    const double part =
        (static_cast<double>(r.symbols[s]) - from) / (static_cast<double>(above->at[s]) - from);
    return fmt::format("expected about {}, between {}={} and {}",
                       us_text(below->ns + part * (above->ns - below->ns)), r.names[s],
                       below->at[s], above->at[s]);
  }
  const auto distance = [&](const Point& p) {
    double sum = 0;
    for (size_t i = 0; i < p.at.size(); ++i)
      sum += std::fabs(std::log1p(static_cast<double>(p.at[i])) -
                       std::log1p(static_cast<double>(r.symbols[i])));
    return sum;
  };
  const Point& nearest =
      *std::min_element(points.begin(), points.end(),
                        [&](const Point& a, const Point& b) { return distance(a) < distance(b); });
  return fmt::format("not measured here; {} at {}", us_text(nearest.ns), at_text(r, nearest.at));
}

std::string described(const Row& r) {
  if (!r.evidence.is_object()) return "default schedule (untuned)";
  std::string out = "default schedule (untuned)";
  if (r.evidence.contains("table"))
    out = fmt::format("table {} v{}", r.evidence.at("table").get<std::string>().substr(0, 8),
                      r.evidence.at("version").get<int64_t>());
  const auto policy_class = r.evidence.value("class", std::string());
  if (!policy_class.empty()) out += ", " + policy_class;
  if (const auto threads = r.evidence.value("threads", int64_t{0}); threads != r.threads)
    out += fmt::format(", of {} thread{} (the nearest to {})", threads, threads == 1 ? "" : "s",
                       r.threads);
  const Json* entry = entry_of(r);
  if (!entry) return out;
  if (entry->value("override", false))
    out += fmt::format(", override {}: {}", entry->value("id", std::string()).substr(0, 8),
                       entry->value("reason", std::string()));
  if (entry->value("stale", false)) out += ", stale (not the code that was measured)";
  out += ", " + expected_text(r, *entry);
  if (entry->contains("regret"))
    out += fmt::format(", regret {:.1f} %", 100 * entry->at("regret").get<double>());
  return out;
}

std::string evidence_text(const Row& r) {
  try {
    return described(r);
  } catch (const Json::exception&) {
    return "records that no compiler wrote";
  }
}

// That decided; null without one, and for records that no compiler wrote.
Json entry_json(const Row& r) {
  try {
    const Json* entry = entry_of(r);
    return entry ? *entry : Json();
  } catch (const Json::exception&) {
    return nullptr;
  }
}

void print(const Options& o, const std::vector<Row>& rows) {
  using Cell = Table::Json;
  const auto words = [](const Cell& path) {
    const auto list = path.get<std::vector<std::string>>();
    return list.empty() ? "only one" : fmt::format("{}", fmt::join(list, ", "));
  };
  Table table({"shape",
               {"operators", "operators"},
               {"count", "calls"},
               {"us_each", "us each",
                [](const Cell& us) { return fmt::format("{:.1f}", us.get<double>()); }},
               {"symbols", "symbols"},
               {"path", words},
               {"kernel", ""},
               {"implementation", "kernel"},
               {"config", "configuration"},
               launch_column(std::any_of(rows.begin(), rows.end(),
                                         [](const Row& r) { return !r.launch.is_null(); })),
               {"summary", "evidence"}});
  for (const Row& r : rows) {
    const auto count = r.call.at("count").get<int64_t>();
    table.add_object(
        {{"shape", r.shape},
         {"operators", r.call.at("source").get<std::string>()},
         {"kernel", r.call.at("name").get<std::string>()},
         {"implementation", r.call.at("implementation").get<std::string>()},
         {"config", r.call.value("config", "")},
         {"launch", r.launch},
         {"symbols", symbols_text(r.call.at("shape"))},
         {"count", count},
         {"us_each", r.call.at("total_ns").get<double>() / 1000 / static_cast<double>(count)},
         {"call", r.call},
         {"path", r.path},
         {"evidence", r.evidence},
         {"entry", entry_json(r)},
         {"summary", evidence_text(r)}});
  }
  table.print(std::cout, o.format, "(no kernel ran)");
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble explain");
  app.add_option("MODEL", o.model, "The .nimble file; its native code is run")->required();
  app.add_flag("--no-native", o.no_native, "Run and time the checked, portable form of kernels");
  app.add_option("--shapes", o.shapes, "DIM=VALUE,VALUE,…: the shapes to explain")
      ->check(shapes_form());
  app.add_option("-i,--input", o.inputs, "An input, NAME=VALUE; once per input")
      ->check(input_form())
      ->type_name("INPUT");
  app.add_option("--set", o.fixed, "DIM=VALUE for dims that stay")->check(extent_form());
  app.add_option("--entry", o.entry, "Entry point (default: the first)");
  app.add_option("--kernel", o.kernel, "Only this kernel, or this chain of operators");
  app.add_option("--threads", o.threads, "Threads (default: all that the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--int-range", o.random.int_range, "Random integer inputs are below this")
      ->check(number_above_zero())
      ->capture_default_str();
  app.add_option("--memory-limit", o.memory_limit,
                 "Bytes of tensors, scratch and calls of a run, also as 512MiB (default: no limit)")
      ->transform(ByteSize())
      ->envname("NIMBLE_MEMORY_LIMIT");
  app.add_option("--fuel", o.fuel,
                 "Instructions that a run may take, and steps of --no-native kernels\n(default: "
                 "no limit)")
      ->check(whole_number())
      ->envname("NIMBLE_FUEL");
  add_load_limits(app, &o.load);
  add_format(app, &o.format, "The answer");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  const exec::Executable executable = exec::read(o.model, {!o.no_native, o.load});
  exec::verify(executable, o.model, o.load.verification_steps);
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
