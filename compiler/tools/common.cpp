#include "compiler/tools/common.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/kernels/targets.h"
#include "compiler/tuned/layered.h"
#include "compiler/tuned/policy_class.h"
#include "db/store/gpu_records.h"
#include "db/store/host_records.h"
#include "db/store/place.h"
#include "vm/arguments/command_line.h"
#include "vm/base/device_number.h"
#include "vm/base/gpu_target.h"
#include "vm/base/printable.h"
#include "vm/base/text_table.h"
#include "vm/runtime/cuda_facts.h"

namespace nimble::tools {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::string part;
  for (char c : text + ",") {
    if (c != ',') {
      part += c;
    } else if (!part.empty()) {
      out.push_back(part);
      part.clear();
    }
  }
  return out;
}

std::map<std::string, int64_t> shapes_of(const std::vector<std::string>& texts) {
  std::map<std::string, int64_t> out;
  for (const std::string& s : texts)
    for (const auto& [symbol, value] : frontend::parse_shapes(s))
      if (!out.emplace(symbol, value).second)
        throw Error(Status::kInvalidArgument, "--shape " + s,
                    fmt::format("{} is given twice", symbol), "give each symbol once");
  return out;
}

namespace {

// What --target names. Error(kInvalidArgument).
Targets targets_of(const std::string& text) {
  Targets targets;
  for (const std::string& name : split(text)) {
    kernels::TargetInfo target = kernels::loaded_target_by_name(name);
    (target.is_gpu() ? targets.gpus : targets.cpus).push_back(std::move(target));
  }
  if (targets.cpus.empty())
    targets.cpus.push_back(
        kernels::loaded_target_by_name(targets.gpus.empty() ? text /* refuses it */ : "native"));
  std::stable_sort(targets.cpus.begin(), targets.cpus.end(),
                   [](const auto& x, const auto& y) { return kernels::is_lower_level(y, x); });
  for (size_t i = 1; i < targets.cpus.size(); ++i)
    if (!kernels::is_lower_level(targets.cpus[i], targets.cpus[i - 1]))
      throw Error(Status::kInvalidArgument, "--target " + text,
                  fmt::format("{} and {} are not two levels of one architecture",
                              targets.cpus[i - 1].level, targets.cpus[i].level),
                  "name each level once: x86-64-v4,x86-64-v3,x86-64-v2");
  targets.gpus = kernels::gpus_of_one_file(std::move(targets.gpus));
  return targets;
}

// Where kernels run that nothing else constrains: on the GPU that is a target.
// Error(kInvalidArgument) where --device says otherwise.
int32_t device_of(const ModelArguments& a, const Targets& targets) {
  const int32_t device = device_by_name(a.device).value_or(kCpuDevice);
  if (targets.gpus.empty()) {
    if (device != kCudaDevice) return device;
    throw Error(Status::kInvalidArgument, "--device " + a.device,
                "no architecture of a GPU is a target", "say which: --target sm_90a");
  }
  if (device == kStandInDevice)
    throw Error(
        Status::kInvalidArgument, "--device " + a.device,
        fmt::format("kernels for {} run on {}", targets.gpus[0].level, device_name(kCudaDevice)),
        "leave --device out");
  return kCudaDevice;
}

bool is_of_this_machine(const kernels::TargetInfo& target) {
  return kernels::target_row(target.level).architecture == kernels::Architecture::kPortable ||
         kernels::same_architecture(target, kernels::detect_host());
}

// Whether such hardware runs the target's code, and no better one that there is.
bool is_of(const db::Hardware& hardware, const kernels::TargetInfo& target) {
  const std::optional<int> capability = db::gpu_capability(hardware);
  if (target.is_gpu()) return capability && gpu_target(target.level)->runs_on(*capability);
  try {
    return !capability && kernels::target_of_isa(hardware.isa).level == target.level;
  } catch (const Error&) {  // of a future version
    return false;
  }
}

// Whose records serve a target that this machine is not of.
db::Hardware hardware_of(db::Store& store, const kernels::TargetInfo& target) {
  std::vector<db::Hardware> found;
  std::string list;
  for (const db::Hardware& h : store.hardware()) {
    if (!is_of(h, target)) continue;
    found.push_back(h);
    list +=
        fmt::format("{}{} {}", list.empty() ? "" : "; ", db::key_of(h).substr(0, 12), h.model_name);
  }
  if (found.size() > 1)
    throw Error(
        Status::kInvalidArgument, "--target " + target.level,
        fmt::format("the database has records of {} {}", found.size(),
                    target.is_gpu() ? "kinds of GPUs that run its code" : "machines of that level"),
        "say whose are used with --hardware: " + list);
  if (found.size() == 1) return found[0];
  db::Hardware none;  // it has no records, and each kernel is reported as untuned
  none.isa = target.level;
  return none;
}

// Whose records serve a GPU's target: this machine's GPU if it is one of it, whatever else the
// database knows.
db::Hardware gpu_of(db::Store& store, const kernels::TargetInfo& target) {
  try {
    if (db::Hardware here = db::gpu_hardware(rt::cuda_facts()); is_of(here, target)) return here;
  } catch (const Error& e) {  // there is none here: code for it is made anywhere
    if (e.status() == Status::kInvalidArgument) throw;
  }
  return hardware_of(store, target);
}

}  // namespace

Targets targets_of(const ModelArguments& a) {
  if (a.features.empty()) return targets_of(a.target);
  if (a.target.find(',') != std::string::npos)
    throw Error(Status::kInvalidArgument, "--features",
                fmt::format("{} names several levels", a.target),
                "give one, or leave --features out");
  std::vector<std::string> all;
  for (const std::string& text : a.features)
    for (std::string& f : split(text)) all.push_back(std::move(f));
  return {{kernels::target_with_features(a.target, all)}, {}};
}

passes::PassContext pass_context(const ModelArguments& a) {
  passes::PassContext context;
  const Targets targets = targets_of(a);
  context.target = targets.cpus.at(0);
  if (!targets.gpus.empty()) context.gpu = targets.gpus[0];
  context.device = device_of(a, targets);
  context.precision = a.precision;
  context.winograd = a.winograd;
  return context;
}

CLI::Validator one_target() {
  return read_by(kernels::target_by_name);
}

std::string machine_target_names() {
  return fmt::format("native, {}", fmt::join(kernels::machine_levels(), ", "));
}

void add_import_arguments(CLI::App& app, frontend::ImportOptions& options) {
  app.add_option("--random-input", options.random_input,
                 "Give the model one more input of this name, an i64 scalar that its random\n"
                 "operators' numbers depend on (default: none, and every run draws the same)");
  frontend::DecodeOptions& o = options.decode;
  app.add_option("--decode", o.choice,
                 "Of a model of one decoding step: the whole loop, whose states stay inside and\n"
                 "grow in place (docs/decoding.md): greedy or sample")
      ->check(CLI::IsMember({"greedy", "sample"}));
  app.add_option_function<std::vector<std::string>>(
      "--decode-state",
      [&o](const std::vector<std::string>& texts) {
        for (const std::string& t : texts) o.states.push_back(frontend::parse_state(t));
      },
      "Which input is an output of the step before: INPUT=OUTPUT, with one * on each side or\n"
      "none (default: past_key_values.*=present.* and the like)");
  app.add_option("--decode-end", o.end_token, "The token that ends a sequence (default: none)")
      ->check(number_from_zero());
  app.add_option("--decode-context", o.context,
                 "Positions that the decoder has (default: no limit)")
      ->check(number_above_zero());
  app.add_option("--decode-top-k", o.top_k, "Sample among so many of the most likely tokens")
      ->check(number_above_zero())
      ->capture_default_str();
}

void add_precision_argument(CLI::App& app, passes::Precision& precision) {
  std::string help = "What is computed in which numbers (docs/running.md):";
  for (const passes::PrecisionInfo& i : passes::all_precisions())
    help += fmt::format("\n{}: {}", i.name, i.summary);
  app.add_option_function<std::string>(
         "--precision",
         [&precision](const std::string& name) { precision = passes::precision_by_name(name); },
         help)
      ->check(read_by(passes::precision_by_name))
      ->default_str(std::string(passes::name_of(passes::Precision{})));
}

void add_winograd_argument(CLI::App& app, int64_t& winograd) {
  app.add_option(
         "--winograd", winograd,
         "Make convolutions of 3 x 3 taps in f32, where it pays, by Winograd's tiles of at\n"
         "most 2 x 2 or 4 x 4 pixels: fewer multiplications, other rounding errors, larger\n"
         "ones (docs/running.md); 0: by none")
      ->check(CLI::IsMember({0, 2, 4}))
      ->capture_default_str();
}

std::string model_text(const std::string& model, const std::vector<std::string>& shapes,
                       const frontend::ImportOptions& options, passes::Precision precision,
                       int64_t winograd) {
  std::string out = shell_word(model);
  for (const std::string& s : shapes) out += " --shape " + shell_word(s);
  if (precision != passes::Precision{})
    out += fmt::format(" --precision {}", passes::name_of(precision));
  if (winograd != 0) out += fmt::format(" --winograd {}", winograd);
  if (!options.random_input.empty()) out += " --random-input " + shell_word(options.random_input);
  const frontend::DecodeOptions& decode = options.decode;
  if (decode.choice.empty()) return out;
  const frontend::DecodeOptions plain;
  out += " --decode " + decode.choice;
  for (const auto& [in, next] : decode.states)
    out += " --decode-state " + shell_word(in + "=" + next);
  if (decode.end_token != plain.end_token) out += fmt::format(" --decode-end {}", decode.end_token);
  if (decode.context != plain.context) out += fmt::format(" --decode-context {}", decode.context);
  if (decode.top_k != plain.top_k) out += fmt::format(" --decode-top-k {}", decode.top_k);
  return out;
}

void add_model_arguments(CLI::App& app, ModelArguments& a, bool required) {
  app.add_option("MODEL", a.model,
                 "ONNX file, Hugging Face folder (config.json and safetensors) or text IR (.nir)")
      ->required(required);
  app.add_option("--shape", a.shapes, kShapeHelp)->check(read_by(frontend::parse_shapes));
  add_import_arguments(app, a.import);
  app.add_option(
         "--target", a.target,
         fmt::format(
             "One of {};\n"
             "native is this machine. Of nimble compile also several levels,\n"
             "x86-64-v4,x86-64-v2: the file has code for each and takes the best that a machine\n"
             "runs; schedules are tuned for the highest, the others have the default ones.\n"
             "sm_… are NVIDIA's GPUs (docs/cuda.md): kernels run there, and on the CPU, which\n"
             "may be named beside, sm_90a,x86-64-v3, what the GPU has no kernels for; with\n"
             "compute_80 (beside or alone) also on GPUs that are newer, whose driver compiles\n"
             "them at load",
             fmt::join(kernels::loaded_target_names(), ", ")))
      ->capture_default_str()
      ->check(read_by([](const std::string& text) { return targets_of(text); }));
  app.add_option(
         "--features", a.features,
         "What the target's CPU has beyond its level, separated by commas, as in\n"
         "--target aarch64-linux --features dotprod,i8mm,bf16: means the highest level that\n"
         "has no more than that (the level's own name says the same)")
      ->allow_extra_args(false)
      ->type_name("LIST");
  app.add_option(
         "--device", a.device,
         "Where what nothing else constrains runs: cpu or stand-in (docs/devices.md); where a\n"
         "GPU is a target, there")
      ->check(CLI::IsMember(std::vector<std::string>(kDeviceNames.begin(), kDeviceNames.end())))
      ->capture_default_str();
  add_precision_argument(app, a.precision);
  add_winograd_argument(app, a.winograd);
  app.add_option(
         "--db", a.databases,
         "Tuning database, a file or a URL; default: the environment's NIMBLE_DB. Of several,\n"
         "as --db mine.db --db shipped.db, the first that has exact records of a workload, or\n"
         "an override, serves it")
      ->allow_extra_args(false)
      ->type_name("FILE|URL")
      ->envname("NIMBLE_DB");
  app.add_option(
      "--hardware", a.hardware,
      "Whose records of the database are used: the beginning of a fingerprint or a part\n"
      "of the processor's or GPU's name, as nimble db show hardware lists them (default:\n"
      "this machine's, or, for a target that is not its own, the only one of its level;\n"
      "--target says what instructions may be used)");
  std::vector<std::string> classes = tuned::policy_classes();
  classes.insert(classes.begin(), "auto");
  app.add_option(
         "--policy", a.policy,
         "Records measured with operands where: cached, warm, weights-cold or cold as nimble tune\n"
         "--policy says; auto: as the size of the model's weights implies. Others stand in,\n"
         "reported")
      ->check(CLI::IsMember(classes))
      ->capture_default_str();
  app.add_option("--disable-pass,--disable", a.disabled,
                 "Leave a pass out (may be given more than once)");
  app.add_option("--crash-dir", a.crash_folder,
                 "Where a crash leaves its reproducer ('': nowhere); default: the environment's "
                 "NIMBLE_CRASH_DIR, else this folder");
}

ir::Module import(const ModelArguments& a) {
  passes::install_crash_handler(a.crash_folder);
  frontend::ImportOptions options = a.import;
  options.shapes = shapes_of(a.shapes);
  ir::Module m = frontend::import_model(a.model, options);
  m.source = a.model;
  return m;
}

std::unique_ptr<tuned::TunedSource> open_database(const ModelArguments& a) {
  if (a.databases.empty()) {
    if (!a.hardware.empty())
      throw Error(Status::kInvalidArgument, "--hardware " + a.hardware,
                  "says whose records are used, but there is no database", "give --db");
    return nullptr;
  }
  db::OpenOptions options;
  options.create = false;
  options.read_only = true;
  std::vector<std::unique_ptr<tuned::TunedSource>> sources;
  std::optional<Error> unknown;  // hardware that a database has no records of
  const Targets targets = targets_of(a);
  const kernels::TargetInfo& target = targets.cpus.at(0);
  for (const std::string& place : a.databases) {
    try {
      std::shared_ptr<db::Store> store = db::Store::open(place, options);
      std::optional<db::Hardware> named, gpu;
      if (!a.hardware.empty()) named = db::find_hardware(*store, a.hardware);
      // It is the GPU's name or the CPU's; the other's is found as without.
      if (named && db::gpu_capability(*named)) {
        if (targets.gpus.empty() || !is_of(*named, targets.gpus[0]))
          throw Error(Status::kInvalidArgument, "--hardware " + a.hardware,
                      fmt::format("{} is a GPU, which runs no code of --target {}",
                                  printable(named->model_name), a.target),
                      "name the hardware that the code is for");
        std::swap(named, gpu);
      }
      if (const kernels::TargetInfo* one = kernels::gpu_of_records(targets.gpus); one && !gpu)
        gpu = gpu_of(*store, *one);
      const db::Hardware hardware = named                        ? *named
                                    : is_of_this_machine(target) ? db::host_hardware()
                                                                 : hardware_of(*store, target);
      sources.push_back(tuned::database_source(std::move(store), hardware, std::move(gpu)));
    } catch (const Error& e) {
      if (e.status() == Status::kIncompatible) throw IncompatibleDatabase(e);
      // Of several databases not each has records of every machine.
      if (e.place() != "--hardware " + a.hardware || e.status() != Status::kNotFound) throw;
      unknown = e;
    }
  }
  if (sources.empty()) throw *unknown;
  return tuned::layered_source(std::move(sources));
}

std::string database_word(const ModelArguments& a) {
  return a.databases.empty() ? "tuning.db" : shell_word(db::printable_place(a.databases[0]));
}

int run_compiler_program(const char* name, const std::function<int()>& body) {
  return run_program(name, [&]() -> int {
    try {
      return body();
    } catch (const IncompatibleDatabase& e) {
      print_error(name, e.what());
      return kExitStale;
    }
  });
}

std::pair<std::string, kernels::Config> parse_knobs(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw Error(Status::kInvalidArgument, printable(text), "is not TEMPLATE=JSON",
                "write gpu_matmul={\"block_rows\":32}");
  return {text.substr(0, equals), kernels::config_from_json(text.substr(equals + 1))};
}

driver::CompileOptions compile_options(const ModelArguments& a, tuned::TunedSource* tuned) {
  driver::CompileOptions options;
  const Targets targets = targets_of(a);
  options.target = targets.cpus.at(0);
  options.more_targets.assign(targets.cpus.begin() + 1, targets.cpus.end());
  options.gpus = targets.gpus;
  options.device = device_of(a, targets);
  options.precision = a.precision;
  options.winograd = a.winograd;
  options.pipeline.disabled.insert(a.disabled.begin(), a.disabled.end());
  options.tuned = tuned;
  if (a.policy != "auto") options.policy_class = a.policy;
  return options;
}

std::string_view name_of(tuned::Lookup::Outcome outcome) {
  using Outcome = tuned::Lookup::Outcome;
  switch (outcome) {
    case Outcome::kTuned:
      return "tuned";
    case Outcome::kStale:
      return "stale";
    case Outcome::kFallback:
      return "fallback";
    case Outcome::kMismatch:
      return "mismatch";
    case Outcome::kUntuned:
      return "untuned";
    case Outcome::kFixed:
      return "fixed";
  }
  return "untuned";
}

bool require_tuned(const char* program, const ModelArguments& a,
                   const driver::CompileReport& report) {
  using Outcome = tuned::Lookup::Outcome;
  constexpr size_t kMostLines = 20;
  size_t lacking = 0, of_gpu = 0, of_cpu = 0;
  for (const driver::KernelReport& k : report.kernels) {
    if (k.outcome == Outcome::kTuned || k.outcome == Outcome::kFixed) continue;
    ++(is_gpu(k.device) ? of_gpu : of_cpu);
    if (++lacking <= kMostLines)
      fmt::print(stderr, "{}: error: {} ({}): {}: {}\n", program, k.kernel, k.source,
                 name_of(k.outcome), k.reason.empty() ? "no tuning record" : k.reason);
  }
  if (lacking == 0) return true;
  if (lacking > kMostLines) fmt::print(stderr, "… and {} more\n", lacking - kMostLines);
  const std::string text = model_text(a.model, a.shapes, a.import, a.precision, a.winograd);
  const std::string policy = a.policy == "auto" ? "" : " --policy " + a.policy;
  const Targets targets = targets_of(a);
  if (of_gpu > 0)
    fmt::print(
        stderr,
        "{}: error: {} of {} kernels have no exact record of the GPU and class ({}); tune on "
        "a machine that has it: nimble tune {} --target {} --db {}{}\n",
        program, of_gpu, report.kernels.size(), report.gpu_class, text, targets.gpus[0].level,
        database_word(a), policy);
  // What is beside a GPU's kernels is of no model for the CPU alone: nothing tunes it.
  if (of_cpu > 0 && !targets.gpus.empty())
    fmt::print(stderr,
               "{}: error: {} of {} kernels run on the CPU beside the GPU's and have no exact "
               "record; compile without --require-tuned\n",
               program, of_cpu, report.kernels.size());
  if (of_cpu > 0 && targets.gpus.empty())
    fmt::print(
        stderr,
        "{}: error: {} of {} kernels have no exact record of this machine and class ({}); tune "
        "again: nimble tune {} --db {}{}\n",
        program, of_cpu, report.kernels.size(), report.policy_class, text, database_word(a),
        policy);
  return false;
}

}  // namespace nimble::tools
