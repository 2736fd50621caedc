// From a module to an executable: the compiler's one entry.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/target.h"
#include "compiler/passes/pipeline.h"
#include "compiler/tuned/tuned.h"
#include "vm/executable/executable.h"

namespace nimble::driver {

struct CompileOptions {
  kernels::TargetInfo target;  // the CPU
  // Lower levels of the same architecture, each with an image of its own in the file, from which
  // the load takes the best that the machine runs. What is measured and packed is so for `target`:
  // here every kernel has its template's default schedule.
  std::vector<kernels::TargetInfo> more_targets;
  // Architectures of GPUs (kernels::gpus_of_one_file): kernels are theirs unless no template of
  // theirs takes them, and `device` is kCudaDevice then. Each gets an image of its own; schedules
  // are chosen for the first one.
  std::vector<kernels::TargetInfo> gpus;
  int32_t device = 0;                // vm/base/device_number.h: what nothing constrains runs there
  passes::Precision precision = {};  // what is computed in narrower numbers than the model says
  int64_t winograd = 0;              // tiles of convolutions, as of passes::PassContext
  passes::PipelineOptions pipeline;
  tuned::TunedSource* tuned = nullptr;  // null: every kernel gets its template's default schedule
  // The class of measuring policy whose records are asked for (compiler/tuned/policy_class.h);
  // empty: what the model implies.
  std::string policy_class;
  // A person's experiment: knobs of a template, by its name, that replace those of its default
  // configuration in each kernel without a record. Further levels keep the default. Of "vendor",
  // without knobs: a vendor's routine runs such kernels wherever it serves calls of any size.
  std::map<std::string, kernels::Config> knobs;
  int compile_threads = 2;
  int optimize = 2;
  // Each kernel also in the form that the checked interpreter runs. The target "portable" has
  // nothing else, whatever this says.
  bool portable = true;
  std::function<void(const std::string&)> progress;  // one line a step; may be empty
};

struct KernelReport {
  std::string kernel, source, workload, template_name, evidence;
  tuned::Lookup::Outcome outcome = tuned::Lookup::Outcome::kUntuned;
  std::string reason;
  std::vector<int64_t> threads;  // counts that have a table; others use the nearest below
  int32_t device = 0;            // where it runs
  size_t implementations = 0;
  uint64_t code_bytes = 0;
  // Of a GPU's kernel, the most of any implementation: registers and spilled bytes (stores and
  // loads) of a thread, as the first target's assembler says (0 registers: nothing, as of what a
  // driver assembles), and a block's shared memory.
  int registers = 0;
  int64_t spill_bytes = 0, shared_bytes = 0;
};
struct CompileReport {
  std::vector<KernelReport> kernels;
  // Whose records were asked for, for the CPU's kernels and for the GPU's, if there may be any.
  std::string policy_class, gpu_class;
  std::vector<passes::PassTiming> passes;
  std::map<std::string, int64_t> statistics;
  std::vector<std::pair<std::string, uint64_t>> images;  // target, bytes
  size_t cached = 0;                                     // functions whose code was compiled before
  double passes_ms = 0, lower_ms = 0, portable_ms = 0, codegen_ms = 0, link_ms = 0, total_ms = 0;
};

// Error(kInvalidArgument) also where `knobs` names no template, one that makes no kernel without a
// record, no knob of it, or what no kernel can have.
exec::Executable compile(const ir::Module& module, const CompileOptions& options,
                         CompileReport* report = nullptr);

// The distinct workloads of a module after the passes, apart by device, with the number of calls of
// each, in order of first appearance: what `nimble check` lists and `nimble tune` tunes.
struct WorkloadUse {
  kernels::Workload workload;
  std::string source;  // "matmul+add+gelu"
  int64_t calls = 0;
  int32_t device = 0;
  // A call of it: the primitive as the model wrote it, with the model's symbols.
  ir::FunctionRef primitive;
};
std::vector<WorkloadUse> workloads_of(const ir::Module& lowered);

// The class of measuring policy that a module's constants imply (compiler/tuned/policy_class.h),
// for the hardware whose records are asked for.
std::string implied_policy(const ir::Module& lowered, const tuned::TunedSource* tuned,
                           const kernels::TargetInfo& target);

}  // namespace nimble::driver
