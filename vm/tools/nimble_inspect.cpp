// nimble inspect: what is in an executable file. It reads the file with every check of the loader
// but runs nothing of it, so that it may be used on files that nobody trusts yet.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/device_number.h"
#include "vm/base/gpu_target.h"
#include "vm/base/json_text.h"
#include "vm/executable/disassembler.h"
#include "vm/executable/opcodes.h"
#include "vm/executable/reader.h"
#include "vm/executable/verifier.h"
#include "vm/tools/launch_text.h"
#include "vm/tools/load_arguments.h"

namespace nimble {
namespace {

using Json = Table::Json;
using exec::Executable;

struct Arguments {
  std::string file;
  Format format = Format::kTable;
  bool portable = false, signature = false, disassemble = false, kernels = false,
       provenance = false, verify = false;
  int64_t max_constant = 64;
  exec::LoadLimits load;
};

// A name that a file tells once and refers to many times, as it is referred to.
std::string reference(const std::string& name) {
  constexpr size_t kLongest = 200;
  return name.size() > kLongest ? name.substr(0, kLongest) + "…" : name;
}

// Of a port that is no tensor. Nothing has verified the file.
std::string type_name(const Executable& e, const exec::Port& port) {
  const auto index = static_cast<size_t>(port.type);
  return index < e.types.size() ? reference(e.types[index].name) : "<no such type>";
}

std::string shape_text(const std::vector<std::string>& dims) {
  return fmt::format("({})", fmt::join(dims, ", "));
}

// --- Summary and signature ----------------------------------------------------------------------

Json summary_json(const Executable& e, const std::string& file) {
  int64_t constant_bytes = 0, instructions = 0;
  for (const exec::Constant& c : e.constants)
    constant_bytes += static_cast<int64_t>(c.bytes.size());
  for (const exec::BytecodeFunction& f : e.functions)
    instructions += static_cast<int64_t>(f.code.size());
  Json images = Json::array();
  for (const exec::NativeImage& i : e.images)
    images.push_back({{"target", i.target},
                      {"device", device_name(i.device)},
                      {"features", i.features},
                      {"bytes", i.bytes.size()}});
  return {{"file", file},
          {"file_bytes", std::filesystem::file_size(file)},
          {"functions", e.functions.size()},
          {"scalar_functions", e.scalar_functions.size()},
          {"instructions", instructions},
          {"constants", e.constants.size()},
          {"constant_bytes", constant_bytes},
          {"kernels", e.kernels.size()},
          {"images", images}};
}

Table summary_table(const Json& s) {
  Table table({"what", "value"});
  for (const auto& [key, value] : s.items())
    if (key != "images") table.add({key, value});
  for (const Json& i : s["images"]) {
    const auto device = i["device"].get<std::string>();
    const auto features = i["features"].get<std::vector<std::string>>();
    const auto target = i["target"].get<std::string>();
    const auto gpu = gpu_target(target);
    table.add(
        {"image " + target,
         fmt::format("{} bytes{}{}{}", i["bytes"].get<int64_t>(),
                     device == device_name(kCpuDevice) ? "" : ", for " + device,
                     gpu && gpu->assembly ? ", compiled by the driver at load" : "",
                     features.empty() ? "" : fmt::format(", needs {}", fmt::join(features, " ")))});
  }
  return table;
}

Json ports_json(const Executable& e, const std::vector<exec::Port>& ports) {
  Json out = Json::array();
  for (const exec::Port& p : ports)
    out.push_back({{"name", p.name},
                   {"dtype", name_of(p.dtype)},
                   {"dims", p.dims},
                   {"extents", p.extents},
                   {"default", p.default_fill.empty() ? Json(nullptr) : Json(p.default_fill)}});
  for (size_t i = 0; i < ports.size(); ++i)
    if (ports[i].type >= 0) out[i] = {{"name", ports[i].name}, {"type", type_name(e, ports[i])}};
  return out;
}

Json signature_json(const Executable& e) {
  Json out = Json::array();
  for (const exec::EntryPoint& p : e.entries)
    out.push_back({{"entry", p.name},
                   {"inputs", ports_json(e, p.inputs)},
                   {"outputs", ports_json(e, p.outputs)}});
  return out;
}

Table signature_table(const Executable& e) {
  Table table({"entry", "port", "name", "dtype", "shape", "default"});
  for (const exec::EntryPoint& p : e.entries) {
    auto add = [&](const char* kind, const exec::Port& port) {
      if (port.type >= 0)
        table.add({reference(p.name), kind, port.name, type_name(e, port), "", ""});
      else
        table.add({reference(p.name), kind, port.name, name_of(port.dtype), shape_text(port.dims),
                   port.default_fill});
    };
    for (const exec::Port& i : p.inputs) add("input", i);
    for (const exec::Port& o : p.outputs) add("output", o);
  }
  return table;
}

// --- Kernels ------------------------------------------------------------------------------------

const char* kind_text(exec::ImplementationKind kind) {
  switch (kind) {
    case exec::ImplementationKind::kNative:
      return "native";
    case exec::ImplementationKind::kVendor:
      return "vendor";
    case exec::ImplementationKind::kHost:
      return "host";
    case exec::ImplementationKind::kPortable:
      return "portable";
  }
  return "unknown";
}

std::string argument_text(const exec::KernelArgument& a, const exec::KernelContract& c) {
  auto symbol = [&](uint32_t i) {
    return i < c.symbols.size() ? reference(c.symbols[i]) : "<unknown>";
  };
  if (a.kind == exec::KernelArgument::Kind::kScalar) return "scalar " + symbol(a.symbol);
  if (a.kind == exec::KernelArgument::Kind::kData) return "data";
  std::string dims;
  for (const exec::DimProgram& d : a.dims) {
    uint32_t index = 0;
    dims += (dims.empty() ? "" : ", ") + (d.is_argument(&index) ? symbol(index) : d.str());
  }
  const char* access = a.access == exec::Access::kIn    ? "in"
                       : a.access == exec::Access::kOut ? "out"
                                                        : "inout";
  return fmt::format("{} {} ({})", access, name_of(a.dtype), dims);
}

Json launch_json(const exec::Implementation& i) {
  if (!i.launch) return nullptr;
  Json grid = Json::array();
  for (const exec::DimProgram& p : i.launch->grid) grid.push_back(p.str());
  Json out = {{"grid", grid},
              {"threads", i.launch->threads},
              {"shared_bytes", i.launch->shared_bytes},
              {"alignment", i.launch->alignment},
              {"steps", i.launch->steps ? Json(i.launch->steps->str()) : Json()}};
  for (const exec::TensorMap& m : i.launch->maps) {
    Json axes = Json::array();
    for (const exec::TensorMap::Axis& a : m.axes)
      axes.push_back({{"extent", a.extent.str()}, {"box", a.box}});
    out["tensor_maps"].push_back({{"tensor", m.argument}, {"axes", axes}});
  }
  return out;
}

Json portable_json(const exec::Kernel& k) {
  if (!k.portable) return nullptr;
  return {{"template", k.portable->template_name},
          {"config", k.portable->config},
          {"instructions", k.portable->code.size()},
          {"values", k.portable->values.size()}};
}

Json kernels_json(const Executable& e) {
  Json out = Json::array();
  for (const exec::Kernel& k : e.kernels) {
    Json arguments = Json::array(), implementations = Json::array(), required = Json::array();
    for (const exec::DimProgram& p : k.contract.requirements) required.push_back(p.str());
    for (const exec::KernelArgument& a : k.contract.arguments)
      arguments.push_back(argument_text(a, k.contract));
    for (const exec::Implementation& i : k.implementations)
      implementations.push_back({{"kind", kind_text(i.kind)},
                                 {"symbol", i.symbol},
                                 {"template", i.template_name},
                                 {"config", i.config},
                                 {"max_threads", i.max_threads},
                                 {"divisible", i.divisible},
                                 {"code_hash", fmt::format("{:016x}", i.code_hash)},
                                 {"launch", launch_json(i)}});
    out.push_back({{"name", k.name},
                   {"source", k.source},
                   {"workload", k.workload},
                   {"device", device_name(k.device)},
                   {"symbols", k.contract.symbols},
                   {"arguments", arguments},
                   {"requirements", required},
                   {"scratch_bytes", k.contract.scratch_bytes.str()},
                   {"dispatch", k.dispatch.str(k.contract.symbols)},
                   {"implementations", implementations},
                   {"portable", portable_json(k)}});
  }
  return out;
}

std::string indented(const std::string& text, const std::string& indent) {
  std::string out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out += indent + line + "\n";
  return out;
}

void print_kernels(const Executable& e) {
  for (const exec::Kernel& k : e.kernels) {
    fmt::print("{}{}{}\n", k.name, k.source.empty() ? "" : ": ", k.source);
    if (!k.workload.empty()) fmt::print("  workload {}\n", k.workload);
    if (k.device != kCpuDevice) fmt::print("  on the {}\n", device_name(k.device));
    for (const exec::KernelArgument& a : k.contract.arguments)
      fmt::print("  {}\n", argument_text(a, k.contract));
    for (const exec::DimProgram& p : k.contract.requirements)
      fmt::print("  requires {}\n", p.str());
    const bool launched =
        std::any_of(k.implementations.begin(), k.implementations.end(),
                    [](const exec::Implementation& i) { return i.launch.has_value(); });
    Table table(
        {{"number", "no"}, "kind", "symbol", "template", "config", launch_column(launched)});
    for (size_t i = 0; i < k.implementations.size(); ++i) {
      const exec::Implementation& x = k.implementations[i];
      table.add({i, kind_text(x.kind), x.symbol, x.template_name, x.config, launch_json(x)});
    }
    if (k.portable)
      table.add({nullptr, "portable", fmt::format("{} instructions", k.portable->code.size()),
                 k.portable->template_name, k.portable->config, nullptr});
    std::fputs(table.text("", "  ").c_str(), stdout);
    if (k.implementations.size() > 1)
      std::fputs(indented(k.dispatch.str(k.contract.symbols), "    ").c_str(), stdout);
  }
}

// One row per implementation of each kernel.
Table implementation_table(const Executable& e) {
  Table table({"kernel", "source", "workload", "device", "kind", "symbol", "template", "config",
               "max_threads", "divisible", "code_hash", launch_column(true)});
  for (const exec::Kernel& k : e.kernels) {
    for (const exec::Implementation& i : k.implementations)
      table.add({k.name, k.source, k.workload, device_name(k.device), kind_text(i.kind), i.symbol,
                 i.template_name, i.config, i.max_threads, i.divisible,
                 fmt::format("{:016x}", i.code_hash), launch_json(i)});
    if (k.portable)
      table.add({k.name, k.source, k.workload, device_name(k.device), "portable", nullptr,
                 k.portable->template_name, k.portable->config, nullptr, nullptr, nullptr,
                 nullptr});
  }
  return table;
}

Json portable_texts(const Executable& e) {
  Json out = Json::object();
  for (const exec::Kernel& k : e.kernels)
    if (k.portable) out[k.name] = exec::disassemble(*k.portable, k.contract);
  return out;
}

void print_portable(const Executable& e) {
  for (const exec::Kernel& k : e.kernels)
    if (k.portable)
      fmt::print("{}: {}\n{}", k.name, k.source, exec::disassemble(*k.portable, k.contract));
}

// --- Code, provenance, verification --------------------------------------------------------------

Json code_json(const Executable& e) {
  Json out = Json::array();
  for (const exec::BytecodeFunction& f : e.functions) {
    Json code = Json::array(), notes = Json::array();
    for (const exec::Instruction& i : f.code) code.push_back(exec::disassemble(i));
    for (const exec::SourceNote& n : f.notes)
      notes.push_back({{"instruction", n.instruction}, {"text", n.text}});
    out.push_back({{"name", f.name},
                   {"origin", f.origin},
                   {"parameters", f.parameters},
                   {"registers", f.registers},
                   {"code", code},
                   {"notes", notes}});
  }
  for (const exec::ScalarFunction& f : e.scalar_functions)
    out.push_back({{"name", f.name},
                   {"parameters", f.program.arguments},
                   {"results", f.program.results},
                   {"program", f.program.str()}});
  return out;
}

// Deeper than what any compiler stores.
constexpr int kDeepestEvidence = 100;

Json provenance_json(const exec::Provenance& p) {
  Json kernels = Json::object();
  for (const auto& [name, text] : p.kernels) {
    // What the compiler stored as JSON stays JSON; anything else stays text.
    Json evidence =
        json_nesting(text) <= kDeepestEvidence ? Json::parse(text, nullptr, false) : Json(text);
    kernels[name] = evidence.is_discarded() ? Json(text) : evidence;
  }
  return {{"compiler", p.compiler}, {"toolchain", p.toolchain}, {"model", p.model},
          {"database", p.database}, {"options", p.options},     {"kernels", kernels}};
}

Table provenance_table(const exec::Provenance& p) {
  Table table({"what", "value"});
  table.add({"compiler", p.compiler});
  table.add({"toolchain", p.toolchain});
  table.add({"model", p.model});
  table.add({"database", p.database.empty() ? "none" : p.database});
  for (const auto& [name, value] : p.options) table.add({"option " + name, value});
  for (const auto& [name, text] : p.kernels) table.add({"kernel " + name, text});
  return table;
}

Table violation_table(const std::vector<exec::Violation>& found) {
  Table table({"where", "rule", "asks", "message"});
  for (const exec::Violation& v : found)
    table.add({v.where, fmt::format("R{}", v.rule), exec::rule_sentence(v.rule), v.message});
  return table;
}

Json verify_json(const std::vector<exec::Violation>& found,
                 const exec::VerificationEffort& effort) {
  return {{"sound", found.empty()},
          {"rules", exec::kRuleCount},
          {"steps", effort.steps},
          {"step_budget", effort.budget},
          {"violations", violation_table(found).json()}};
}

void print_verify(const std::vector<exec::Violation>& found, const exec::VerificationEffort& effort,
                  const Executable& e) {
  if (found.empty())
    fmt::print(
        "sound: {} functions, {} kernels and {} constants keep all {} rules, by {} of {} steps\n",
        e.functions.size(), e.kernels.size(), e.constants.size(), exec::kRuleCount, effort.steps,
        effort.budget);
  for (const exec::Violation& v : found)
    fmt::print("{}: breaks rule R{} ({}): {}\n", v.where, v.rule, exec::rule_sentence(v.rule),
               v.message);
}

int run(int argc, char** argv) {
  CLI::App app{"Show the signature, code, kernels and provenance of an executable file.",
               "nimble inspect"};
  Arguments args;
  app.add_option("file", args.file, "The executable file")->required()->type_name("FILE");
  app.add_flag("--signature", args.signature, "Inputs and outputs of each entry point");
  app.add_flag("--disassemble", args.disassemble, "The bytecode, in the assembler's language");
  app.add_flag("--kernels", args.kernels, "Contracts, implementations and dispatch of kernels");
  app.add_flag("--portable", args.portable, "The portable form of each kernel, as text");
  app.add_flag("--provenance", args.provenance, "What the file was made from, and why so");
  app.add_flag("--verify", args.verify, "Check the rules of the bytecode verifier");
  app.add_option("--max-constant", args.max_constant,
                 "Show the values of constants of at most so many elements (64)")
      ->check(whole_number())
      ->type_name("N");
  add_load_limits(app, &args.load);
  add_format(app, &args.format, "What is chosen (as csv: one choice of those that are tables)");
  app.footer(
      "Without a choice: a summary and the signature.\n\n"
      "Examples:\n"
      "  nimble inspect model.nimble --signature\n"
      "  nimble inspect model.nimble --kernels --format json\n"
      "  nimble inspect model.nimble --verify\n\n"
      "--verify fails on an unsound file.");
  if (const auto code = parse_arguments(app, argc, argv)) return *code;
  const int chosen = args.signature + args.portable + args.disassemble + args.kernels +
                     args.provenance + args.verify;
  if (args.format == Format::kCsv && (chosen > 1 || args.portable || args.disassemble))
    return usage_error(app,
                       "CSV is one table: choose --signature, --kernels, --provenance or --verify, "
                       "or nothing for the summary");
  const bool summary = chosen == 0;
  const Executable e = exec::read(args.file, {false, args.load});
  exec::VerificationEffort effort;
  const std::vector<exec::Violation> found =
      args.verify ? exec::find_violations(e, 100, args.load.verification_steps, &effort)
                  : std::vector<exec::Violation>();

  const auto json = [&] {
    Json out = Json::object();
    if (summary) out["summary"] = summary_json(e, args.file);
    if (summary || args.signature) out["signature"] = signature_json(e);
    if (args.kernels) out["kernels"] = kernels_json(e);
    if (args.portable) out["portable"] = portable_texts(e);
    if (args.disassemble) out["functions"] = code_json(e);
    if (args.provenance) out["provenance"] = provenance_json(e.provenance);
    if (args.verify) out["verification"] = verify_json(found, effort);
    return out;
  };
  const auto csv = [&] {
    return summary          ? summary_table(summary_json(e, args.file))
           : args.signature ? signature_table(e)
           : args.kernels   ? implementation_table(e)
           : args.verify    ? violation_table(found)
                            : provenance_table(e.provenance);
  };
  print_report(std::cout, args.format, json, csv, [&] {
    const auto print = [](const std::string& text) { std::fputs(text.c_str(), stdout); };
    if (summary) print(summary_table(summary_json(e, args.file)).text());
    if (summary || args.signature) print(signature_table(e).text("(no entry point)"));
    if (args.kernels) print_kernels(e);
    if (args.portable) print_portable(e);
    if (args.disassemble) print(exec::disassemble(e, {args.max_constant, true}));
    if (args.provenance) print(provenance_table(e.provenance).text());
    if (args.verify) print_verify(found, effort, e);
  });
  return found.empty() ? kExitOk : kExitFailure;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble inspect", [&] { return nimble::run(argc, argv); });
}
