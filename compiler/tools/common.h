// What the compiler's programs share: model and database arguments, compile options.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/frontend/frontend.h"
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
// Checks the name of one target.
CLI::Validator one_target();
// "native, x86-64-v2, …": the targets of machine code that are loaded.
std::string machine_target_names();
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
// A database of a newer schema, or one that is no nimble database at all.
class IncompatibleDatabase : public Error {
 public:
  explicit IncompatibleDatabase(const Error& e) : Error(e) {}
};
// As run_program; an incompatible database ends with kExitStale.
int run_compiler_program(const char* name, const std::function<int()>& body);

// What --target and --features say: the CPU's levels, the highest first (this machine where only a
// GPU is named), and architectures of GPUs, in the table's order. Error(kInvalidArgument).
struct Targets {
  std::vector<kernels::TargetInfo> cpus, gpus;
};
Targets targets_of(const ModelArguments& a);
// Targets, device, precision and tiles of what the arguments ask for.
passes::PassContext pass_context(const ModelArguments& a);
// Null without --db. The databases must exist; they are opened read-only. Records are those of
// --hardware, else of this machine; for a target of another architecture those of the database's
// only hardware that is of the target's level. Error(kInvalidArgument) if it has several. The same
// for the GPU's target, if there is just one: --hardware may name the GPU in place of the CPU.
std::unique_ptr<tuned::TunedSource> open_database(const ModelArguments& a);
// The database to tune into that a remedy names: the first, or an example; for a shell.
std::string database_word(const ModelArguments& a);
// What a text says of knobs, TEMPLATE={"knob":value,…}: for CompileOptions.
// Error(kInvalidArgument).
std::pair<std::string, kernels::Config> parse_knobs(const std::string& text);
driver::CompileOptions compile_options(const ModelArguments& a, tuned::TunedSource* tuned);
std::string_view name_of(tuned::Lookup::Outcome outcome);
// The kernels of a report that lack an exact record, one line each on stderr, named, with the
// reason and a remedy. False if there are any: what --require-tuned refuses.
bool require_tuned(const char* program, const ModelArguments& a,
                   const driver::CompileReport& report);

}  // namespace nimble::tools
