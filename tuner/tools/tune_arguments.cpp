#include "tuner/tools/tune_arguments.h"

#include <fmt/format.h>

#include <cstdlib>

#include "compiler/tools/model_arguments.h"
#include "compiler/tools/targets.h"
#include "vm/arguments/command_line.h"
#include "vm/base/printable.h"
#include "vm/base/text_table.h"
#include "vm/base/url.h"

namespace nimble::tools {
namespace {

// SYMBOL=SIZE of --fix. Error(kInvalidArgument).
std::pair<std::string, int64_t> fixed_symbol(const std::string& text) {
  const size_t equals = text.find('=');
  char* end = nullptr;
  const long value = equals == std::string::npos ? 0 : std::strtol(&text[equals + 1], &end, 10);
  if (equals == std::string::npos || value < 1 || *end != '\0')
    throw Error(Status::kInvalidArgument, "--fix",
                fmt::format("\"{}\" fixes nothing", printable(text)),
                "write SYMBOL=SIZE, for example b=4");
  if (value > tuner::kLargestSize)
    throw Error(Status::kInvalidArgument, "--fix",
                fmt::format("{} is larger than any extent", value),
                fmt::format("{} is the most", tuner::kLargestSize));
  return {text.substr(0, equals), value};
}

}  // namespace

void TuneArguments::add_model(CLI::App& app, tuner::CampaignOptions& options) {
  app.add_option("model", options.model, "ONNX file, Hugging Face folder or text IR")->required();
  app.add_option("--shape", shapes, kShapeHelp)->check(read_by(frontend::parse_shapes));
  add_import_arguments(app, options.import);
  add_precision_argument(app, options.precision);
  add_winograd_argument(app, options.winograd);
}

void TuneArguments::add_budget(CLI::App& app, tuner::CampaignOptions& options) {
  app.add_option("--budget", budget,
                 "Time to spend, in all runs together: 90s, 5m, 1h; a number alone is in seconds")
      ->capture_default_str()
      ->check(read_by(tuner::parse_duration));
  add_target(app, options);
}

void TuneArguments::add_target(CLI::App& app, tuner::CampaignOptions& options) {
  app.add_option("--target", options.target,
                 machine_target_names() +
                     "; or one of an NVIDIA GPU that measures, such as sm_90a: the kernels that "
                     "run there (docs/cuda.md)")
      ->capture_default_str()
      ->check(one_target());
}

void TuneArguments::add_measuring(CLI::App& app, tuner::CampaignOptions& options) {
  add_budget(app, options);
  app.add_option("--threads", options.threads, "Thread counts: 1,2 (default: all cores)")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app.add_option(
         "--policy", policy,
         "Where kernels find their operands: cached (one copy of everything), warm (weights "
         "rotate over 16 MiB, the rest is as the last run left it), weights-cold (weights rotate "
         "over 512 MiB), cold (everything rotates over 512 MiB), or auto: cached for a model of "
         "at most 1 MiB of weights, weights-cold where the last cache does not hold them, else "
         "warm. Records of one are never compared with records of another")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cached", "warm", "weights-cold", "cold"}));
}

void TuneArguments::add_sizes(CLI::App& app, tuner::CampaignOptions& options) {
  app.add_option("--trace", options.trace,
                 "Sizes that the model will meet: FILE:COLUMN, FILE:COLUMN,COLUMN for sizes that "
                 "are met together "
                 "(default: the columns that are called like the model's symbols)");
  app.add_option(
         "--trace-symbol", options.trace_symbols,
         "The model's symbols that the columns are of, in their order (default: those called "
         "like them; of one column n, or the first length)")
      ->delimiter(',');
  app.add_option("--fix", fixed, "A symbol that has one value: b=4")->check(read_by(fixed_symbol));
  app.add_option("--size", size,
                 "Search at this size alone; sizes reach from 1 to 256 or four times this")
      ->check(CLI::Range(1, 1 << 20));
}

void TuneArguments::add_campaign(CLI::App& app, tuner::CampaignOptions& options) {
  add_measuring(app, options);
  add_sizes(app, options);
  app.add_option("--beside", options.beside,
                 "Tune the kernels that a file for this GPU's target (sm_90a) leaves to the CPU, "
                 "where these run; without it those of a file for the CPU alone")
      ->check(read_by([](const std::string& name) {
        if (!kernels::target_by_name(name).is_gpu())
          throw Error(Status::kInvalidArgument, "--beside", name + " is no GPU's target",
                      "give the target that the model is compiled for, such as sm_90a");
      }))
      ->type_name("TARGET");
  app.add_option("--top-k", options.top_k, "Configurations to cross-evaluate, per workload")
      ->capture_default_str()
      ->check(number_above_zero());
  app.add_option("--only-hot", only_hot, "Tune what makes up this share of the model's time")
      ->capture_default_str()
      ->check(read_by(tuner::parse_share));
  app.add_option("--seed", options.seed, "Another seed is another campaign")->capture_default_str();
  app.add_option("--search-shapes", search_shapes,
                 "Shapes that each workload is searched at, at most: as many as it takes to stand "
                 "for those that it meets and as the budget has time for (default: 5)")
      ->check(CLI::Range(size_t{1}, tuner::kMostRepresentatives))
      ->excludes("--size");
  app.add_option("--patience", options.search_end.patience,
                 "A workload's search ends after so many configurations that gained less than 1 %")
      ->capture_default_str()
      ->check(number_above_zero());
  app.add_option("--max-trials", options.search_end.max_trials,
                 "Configurations that a workload's search tries, at most")
      ->capture_default_str()
      ->check(number_above_zero());
}

void TuneArguments::read(tuner::CampaignOptions& options) const {
  options.budget_s = tuner::parse_duration(budget);
  if (search_shapes) options.search_shapes = *search_shapes;
  if (size) options.representative = *size, options.search_shapes = 0;
  options.only_hot = tuner::parse_share(only_hot);
  options.import.shapes = shapes_of(shapes);
  if (policy != "auto") options.policy_class = policy;
  for (const std::string& text : fixed)
    if (const auto symbol = fixed_symbol(text); !options.fixed.insert(symbol).second)
      throw Error(Status::kInvalidArgument, "--fix " + printable(text),
                  fmt::format("{} has a value already", printable(symbol.first)),
                  "fix each symbol once");
}

std::string beside_text(size_t cpu_kernels, const std::string& target, const std::string& command) {
  if (cpu_kernels == 0) return "";
  return fmt::format(
      "{} kernel{} of the model run{} on the CPU beside {} and {} not tuned by this campaign; to "
      "tune {}: {} --beside {}\n",
      cpu_kernels, cpu_kernels == 1 ? "" : "s", cpu_kernels == 1 ? "s" : "", target,
      cpu_kernels == 1 ? "is" : "are", cpu_kernels == 1 ? "it" : "them", command, target);
}

std::string command_of(const std::string& program, int argc, char** argv) {
  std::string out = program;
  for (int i = 1; i < argc; ++i) out += " " + shell_word(without_password(argv[i]));
  return out;
}

}  // namespace nimble::tools
