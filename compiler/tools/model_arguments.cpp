#include "compiler/tools/model_arguments.h"

#include <fmt/ranges.h>

#include "compiler/kernels/targets.h"
#include "compiler/tools/targets.h"
#include "compiler/tuned/policy_class.h"
#include "db/store/place.h"
#include "vm/arguments/command_line.h"
#include "vm/base/device_number.h"
#include "vm/base/printable.h"
#include "vm/base/text_table.h"

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
         "none (default: past_key_values.*=present.* and the like)")
      ->check(read_by(frontend::parse_state));
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
      ->check(read_by(db::require_place))
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
                 "Leave a pass out (may be given more than once)")
      ->check(read_by([](const std::string& name) {
        passes::PipelineOptions options;
        options.disabled = {name};
        passes::check_pass_names(options);
      }));
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

std::pair<std::string, kernels::Config> parse_knobs(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw Error(Status::kInvalidArgument, printable(text), "is not TEMPLATE=JSON",
                "write gpu_matmul={\"block_rows\":32}");
  try {
    return {text.substr(0, equals), kernels::config_from_json(text.substr(equals + 1))};
  } catch (const Error& e) {  // of a record it would be damage; here somebody mistyped it
    throw Error(Status::kInvalidArgument, printable(text), e.problem(), e.remedy());
  }
}

}  // namespace nimble::tools
