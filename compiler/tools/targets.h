// What the compiler's programs make of --target, --features and --device, and of the other
// arguments that say how a model is compiled.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/tools/model_arguments.h"

namespace nimble::tools {

// What --target and --features say: the CPU's levels, the highest first (this machine where only a
// GPU is named), and architectures of GPUs, in the table's order. Error(kInvalidArgument).
struct Targets {
  std::vector<kernels::TargetInfo> cpus, gpus;
};
Targets targets_of(const ModelArguments& a);
// Of --target alone.
Targets targets_of(const std::string& text);
// Targets, device, precision and tiles of what the arguments ask for.
passes::PassContext pass_context(const ModelArguments& a);
driver::CompileOptions compile_options(const ModelArguments& a, tuned::TunedSource* tuned);
// Checks the name of one target.
CLI::Validator one_target();
// "native, x86-64-v2, …": the targets of machine code that are loaded.
std::string machine_target_names();

}  // namespace nimble::tools
