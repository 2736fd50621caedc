// nimble compile: a model in, one executable file out.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "compiler/ir/text.h"
#include "compiler/kernels/targets.h"
#include "compiler/tools/model_arguments.h"
#include "compiler/tools/records.h"
#include "compiler/tools/targets.h"
#include "db/store/place.h"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/cpu.h"
#include "vm/base/device_number.h"
#include "vm/base/file.h"
#include "vm/base/json_text.h"
#include "vm/base/text_table.h"
#include "vm/executable/writer.h"

namespace nimble {
namespace {

using Json = Table::Json;

constexpr char kAbout[] =
    "Compiles a model to one executable file that `nimble run`, the C interface and every other\n"
    "program of the runtime load without a compiler.\n\n"
    "With --db each kernel is dispatched as the tuning database says; a workload that it does not\n"
    "know gets its template's default schedule and is reported. A record counts as exact while "
    "its\n"
    "kernel's code is what was measured, else as stale: it is used, and reported.\n\n"
    "Examples:\n"
    "  nimble compile model.onnx -o model.nimble\n"
    "  nimble compile all-MiniLM-L6-v2/ --db tuning.db -o minilm.nimble\n"
    "  nimble compile model.onnx --db fleet.db --hardware 'Xeon Gold 6430' -o model.nimble\n"
    "  nimble compile model.onnx --shape n=128 --target x86-64-v3 -o model.nimble\n"
    "  nimble compile model.onnx --target x86-64-v4,x86-64-v3,x86-64-v2 -o model.nimble\n"
    "  nimble compile model.onnx --target portable -o model.nimble\n"
    "  nimble compile model.onnx --target sm_90a,x86-64-v3 -o model.nimble\n"
    "  nimble compile model.onnx --precision bf16 -o model.nimble\n"
    "  nimble compile model.onnx --knobs 'dense={\"rows\":4}' -o model.nimble\n"
    "  nimble compile --batch list.tsv --portable off";

struct Options {
  tools::ModelArguments model;
  std::string output, batch, portable = "on";
  std::vector<std::string> knobs;
  Format format = Format::kTable;
  int jobs = 2;
  bool quiet = false, strict = false;
};

Table kernel_table(const driver::CompileReport& r) {
  Table table({"kernel", "source", "template", "implementations", "code_bytes", "outcome", "reason",
               "threads", "workload", "device"});
  for (const driver::KernelReport& k : r.kernels)
    table.add({k.kernel, k.source, k.template_name, k.implementations, k.code_bytes,
               tools::name_of(k.outcome), k.reason, k.threads, k.workload,
               std::string(device_name(k.device))});
  return table;
}

Json json_of(const Options& o, const driver::CompileReport& r) {
  Json passes = Json::array(), images = Json::array();
  for (const passes::PassTiming& p : r.passes)
    passes.push_back({{"pass", p.pass}, {"ms", p.milliseconds}});
  for (const auto& [target, bytes] : r.images)
    images.push_back({{"target", target}, {"bytes", bytes}});
  return {{"output", o.output},
          {"class", r.policy_class},
          {"gpu_class", r.gpu_class.empty() ? Json() : Json(r.gpu_class)},
          {"kernels", kernel_table(r).json()},
          {"passes", passes},
          {"statistics", r.statistics},
          {"images", images},
          {"cached", r.cached},
          {"ms",
           {{"passes", r.passes_ms},
            {"lowering", r.lower_ms},
            {"portable_forms", r.portable_ms},
            {"code_generation", r.codegen_ms},
            {"linking", r.link_ms},
            {"total", r.total_ms}}}};
}

// What runs where, if any kernel is a GPU's.
void print_placement(const driver::CompileReport& r) {
  const auto count = [&](const char* what) {
    const auto it = r.statistics.find(what);
    return it == r.statistics.end() ? 0 : it->second;
  };
  const bool gpu = std::any_of(r.kernels.begin(), r.kernels.end(),
                               [](const auto& k) { return k.device == kCudaDevice; });
  if (!gpu) return;
  std::map<std::string, int64_t> on_cpu;  // by source
  size_t here = 0;
  for (const driver::KernelReport& k : r.kernels)
    if (k.device == kCpuDevice) ++on_cpu[k.source], ++here;
  fmt::print("  {} kernels on {}, {} on the CPU; {} copies between them\n", r.kernels.size() - here,
             device_name(kCudaDevice), here, count("place-devices.copies"));
  for (const auto& [source, kernels] : on_cpu)
    fmt::print("    on the CPU: {}{}\n", source,
               kernels > 1 ? fmt::format(" ({} kernels)", kernels) : "");
}

void print_for_people(const Options& o, const driver::CompileReport& r) {
  using Outcome = tuned::Lookup::Outcome;
  size_t tuned = 0, stale = 0, fallback = 0, fixed = 0, untuned = 0, untuned_of_gpu = 0;
  std::set<int64_t> threads;
  uint64_t code = 0;
  size_t implementations = 0;
  for (const driver::KernelReport& k : r.kernels) {
    tuned += k.outcome == Outcome::kTuned;
    stale += k.outcome == Outcome::kStale;
    fallback += k.outcome == Outcome::kFallback;
    fixed += k.outcome == Outcome::kFixed;
    const bool gpu = k.device == kCudaDevice;
    if (!gpu) threads.insert(k.threads.begin(), k.threads.end());
    if (k.outcome == Outcome::kUntuned || k.outcome == Outcome::kMismatch)
      ++(gpu ? untuned_of_gpu : untuned);
    code += k.code_bytes;
    implementations += k.implementations;
  }
  fmt::print(
      "{}: {} kernels ({} tuned, {} stale, {}{} by default schedule{}), {} variants, {} KiB of "
      "code, {:.1f} s\n",
      o.output, r.kernels.size(), tuned, stale,
      fallback
          ? fmt::format("{} by records of another class than {}{}, ", fallback, r.policy_class,
                        r.gpu_class.empty() ? "" : fmt::format(" ({} on the GPU)", r.gpu_class))
          : "",
      untuned + untuned_of_gpu, fixed ? fmt::format(", {} without any", fixed) : "",
      implementations, code >> 10, r.total_ms / 1000);
  if (r.images.size() > 1) {
    std::string images;
    for (const auto& [target, bytes] : r.images)
      images += fmt::format("{}{} ({} KiB)", images.empty() ? "" : ", ", target, bytes >> 10);
    fmt::print("  code for {}: a load takes the first that the machine runs\n", images);
  }
  if (r.cached > 0) fmt::print("  the code of {} variants was compiled before\n", r.cached);
  print_placement(r);
  const bool asked = !o.model.databases.empty();
  if (!threads.empty())
    fmt::print(
        "tuned for {} thread{}; a run with another number uses the nearest below, else the least\n",
        fmt::join(threads, ", "), *threads.rbegin() > 1 ? "s" : "");
  for (const driver::KernelReport& k : r.kernels) {
    std::string reason = k.reason;
    if (asked && reason.empty() && k.outcome == Outcome::kUntuned) reason = "no tuning record";
    if (!reason.empty()) fmt::print("  {} ({}): {}\n", k.kernel, k.source, reason);
  }
  const auto [cpus, gpus] = tools::targets_of(o.model);
  const std::string& level = cpus.at(0).level;
  // Portable forms are measured nowhere.
  const bool portable = kernels::target_row(level).architecture == kernels::Architecture::kPortable;
  const size_t measurable = !gpus.empty() ? (kernels::gpu_of_records(gpus) ? untuned_of_gpu : 0)
                            : portable    ? 0
                                          : untuned;
  if (measurable > 0)
    fmt::print("{} kernel{} no tuning record; `{}` would measure {}{}\n", measurable,
               measurable == 1 ? " has" : "s have", tools::tune_command(o.model),
               measurable == 1 ? "it" : "them",
               gpus.empty() && !host_cpu().has(level) ? " on a machine of that level" : "");
}

// Adds knobs of a template; those that it has already stay but for the same ones.
void add_knobs(const std::string& text, driver::CompileOptions& options) {
  auto [name, knobs] = tools::parse_knobs(text);
  kernels::Config& taken = options.knobs[name];
  for (auto& [knob, value] : knobs) taken.insert_or_assign(knob, std::move(value));
}

driver::CompileOptions compile_options(const Options& o, tuned::TunedSource* tuned) {
  driver::CompileOptions options = tools::compile_options(o.model, tuned);
  options.compile_threads = o.jobs;
  options.portable = o.portable == "on";
  for (const std::string& text : o.knobs) add_knobs(text, options);
  return options;
}

// The executable is written over nothing that it is made from.
void refuse_to_overwrite(const tools::ModelArguments& model, const std::string& output) {
  const auto refuse = [&](const char* what) {
    throw Error(Status::kInvalidArgument, output, fmt::format("is {}", what), "name another file");
  };
  if (is_same_file(output, model.model)) refuse("the model itself");
  if (is_same_file(output, ir::side_file_of(model.model))) refuse("the file of its constants");
  for (const std::string& database : model.databases)
    if (is_same_file(output, database)) refuse("the tuning database");
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out;
  std::stringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) out.push_back(field);
  return out;
}

// Many models in one process, for test suites and experiments: "MODEL<tab>OUTPUT[<tab>KNOBS…]", a
// line of JSON out at once, so that a driver on two pipes knows after which model the compiler
// died.
int run_batch(Options& o) {
  std::ifstream file;
  if (o.batch != "-") {
    file.open(o.batch);
    if (!file)
      throw Error(Status::kNotFound, o.batch, "cannot be opened", "name a file, or - for stdin");
  }
  std::istream& lines = o.batch == "-" ? std::cin : file;
  std::unique_ptr<tuned::TunedSource> tuned = tools::open_database(o.model);
  const driver::CompileOptions common = compile_options(o, tuned.get());
  bool all = true;
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 2)
      throw Error(Status::kInvalidArgument, fmt::format("{}:{}", o.batch, number),
                  fmt::format("'{}' has no tab", line), "write MODEL<tab>OUTPUT");
    Json row = {{"model", fields[0]}, {"output", fields[1]}, {"status", "ok"}};
    try {
      o.model.model = fields[0];
      refuse_to_overwrite(o.model, fields[1]);
      driver::CompileOptions options = common;
      for (size_t i = 2; i < fields.size(); ++i) add_knobs(fields[i], options);
      driver::CompileReport report;
      const exec::Executable e = driver::compile(tools::import(o.model), options, &report);
      row["ms"] = report.total_ms;
      if (o.strict && !tools::require_tuned("nimble compile", o.model, report)) {
        all = false;
        row["status"] = "stale";
      } else {
        exec::write(e, fields[1]);
      }
    } catch (const Error& e) {
      all = false;
      row["status"] = name_of(e.status());
      row["place"] = e.place();
      row["problem"] = e.problem();
      row["remedy"] = e.remedy();
    }
    fmt::print("{}\n", json_text(row, -1));
    std::fflush(stdout);
  }
  return all ? kExitOk : kExitFailure;
}

int run(Options& o) {
  refuse_to_overwrite(o.model, o.output);
  std::unique_ptr<tuned::TunedSource> tuned = tools::open_database(o.model);
  driver::CompileOptions options = compile_options(o, tuned.get());
  if (!o.quiet && isatty(STDERR_FILENO))
    options.progress = [](const std::string& text) { fmt::print(stderr, "{} …\n", text); };
  ir::Module m = tools::import(o.model);
  driver::CompileReport report;
  exec::Executable e = driver::compile(m, options, &report);
  if (o.strict && !tools::require_tuned("nimble compile", o.model, report)) return kExitStale;
  exec::write(e, o.output);
  print_report(
      std::cout, o.format, [&] { return json_of(o, report); }, [&] { return kernel_table(report); },
      [&] { print_for_people(o, report); });
  return kExitOk;
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble compile");
  tools::add_model_arguments(app, o.model, false);
  CLI::Option* output = app.add_option("-o,--output", o.output, "The executable file to write");
  CLI::Option* batch = app.add_option(
      "--batch", o.batch,
      "Instead of MODEL and -o: a file (-: standard input) with lines\n"
      "MODEL<tab>OUTPUT, which may go on with <tab>TEMPLATE=JSON of --knobs; prints a\n"
      "line of JSON for each");
  batch->excludes(output)->excludes(app.get_option("MODEL"));
  app.add_option("-j,--jobs", o.jobs, "Threads that generate code")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  add_format(app, &o.format, "The report (of csv: the kernels)");
  app.add_option("--portable", o.portable,
                 "Each kernel also in the portable form, which runs checked and on any CPU\n"
                 "(nimble run --no-native)")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option(
         "--knobs", o.knobs,
         "TEMPLATE=JSON, as dense={\"rows\":4}: to try out a configuration by hand. The\n"
         "kernels of that template that have no tuning record get its default\n"
         "configuration with these knobs replaced (nimble check --format json lists knobs\n"
         "and defaults; docs/tuning.md). vendor={}: those that a vendor's library computes\n"
         "at any size run its routine")
      ->allow_extra_args(false)
      ->type_name("TEMPLATE=JSON")
      ->check(read_by(tools::parse_knobs));
  app.add_flag("-q,--quiet", o.quiet, "No progress");
  app.add_flag(
      "--require-tuned", o.strict,
      "Write nothing and end with exit code 5 if a kernel has no exact tuning record: none,\n"
      "one of other code than is generated now, or one of another class of policy");
  if (const auto code = parse_arguments(app, argc, argv, {kExitStale})) return *code;
  if (batch->empty() && o.model.model.empty()) return usage_error(app, "MODEL is required");
  if (batch->empty() && o.output.empty()) return usage_error(app, "--output is required");
  if (!batch->empty()) return run_batch(o);
  return run(o);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::tools::run_compiler_program("nimble compile",
                                             [&] { return nimble::main_of(argc, argv); });
}
