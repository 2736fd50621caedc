// The arguments of the compiler's programs that name a model and how it is compiled.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/frontend.h"
#include "compiler/kernels/template.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/support/crash.h"

namespace nimble::tools {

struct ModelArguments {
  std::string model;
  std::vector<std::string> shapes, disabled;
  frontend::ImportOptions import;  // but for its shapes, which are texts here
  std::string target = "native", device = "cpu";
  std::vector<std::string> features;  // of the target's CPU beyond its level's
  passes::Precision precision = {};
  int64_t winograd = 0;
  std::vector<std::string> databases;     // what counts more first
  std::string hardware, policy = "auto";  // whose records of it
  std::string crash_folder = passes::default_crash_folder();
};

inline constexpr char kShapeHelp[] = "Fix a symbolic dim: n=128 (may be given more than once)";
// The parts of a text between its commas; those that are empty are left out.
std::vector<std::string> split(const std::string& text);
// The values of --shape, each symbol once. Error(kInvalidArgument).
std::map<std::string, int64_t> shapes_of(const std::vector<std::string>& texts);
// --random-input, --decode and what belongs to it.
void add_import_arguments(CLI::App& app, frontend::ImportOptions& options);
// --precision.
void add_precision_argument(CLI::App& app, passes::Precision& precision);
// --winograd.
void add_winograd_argument(CLI::App& app, int64_t& winograd);
// The arguments of a shell that name the same model to another program: MODEL, --shape, --decode
// and what belongs to it, --random-input, --precision, --winograd. Without them that program would
// make other workloads of it.
std::string model_text(const std::string& model, const std::vector<std::string>& shapes,
                       const frontend::ImportOptions& options, passes::Precision precision,
                       int64_t winograd);
// MODEL, --decode, --random-input, --shape, --target, --features, --device, --precision,
// --winograd, --db, --hardware, --policy, --disable-pass, --crash-dir.
void add_model_arguments(CLI::App& app, ModelArguments& a, bool required = true);
// From here on a crash leaves a reproducer.
ir::Module import(const ModelArguments& a);
// What a text says of knobs, TEMPLATE={"knob":value,…}: for CompileOptions.
// Error(kInvalidArgument).
std::pair<std::string, kernels::Config> parse_knobs(const std::string& text);

}  // namespace nimble::tools
