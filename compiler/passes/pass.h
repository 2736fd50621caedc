// Passes: what a pass is, and the registry made from Passes.def.
//
// A pass is a function from module to module. Pipeline.cpp lists them in order; every optional
// pass can be disabled; each can be printed after, timed, and is followed by the IR verifier when
// asked.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/target.h"
#include "compiler/kernels/workload.h"
#include "compiler/passes/precision.h"
#include "vm/base/device_number.h"

namespace nimble::passes {

// What folding constants may cost a compilation, where few bytes of a program can ask for any
// amount of work. Operations are those of Ops.def's `flops`, elements read and elements written.
struct FoldLimits {
  int64_t bytes = int64_t{1} << 30;  // of one result
  // Of one operator beyond reading its operands and writing its result, which the bytes bound.
  double flops = 0x1p32;
  // In all: so many for any program, and so many for each byte of its constants, so that each of a
  // model's weights may be transposed, scaled, converted and packed, however large it is.
  double operations = 0x1p33, per_constant_byte = 32;
  // Of one operator, that count for nothing: extents depend on such.
  double free = 4096;
};

struct PassContext {
  kernels::TargetInfo target;  // the CPU
  // Where there is one, kernels are its unless no template of a GPU takes them.
  std::optional<kernels::TargetInfo> gpu;
  const kernels::TargetInfo& kernel_target() const { return gpu ? *gpu : target; }
  // Whether constant operands of products and cells are laid out for its kernels; a GPU's read them
  // as the model has them.
  bool packs_weights() const { return !kernel_target().is_gpu(); }
  // The machine that runs kernels on a device (device_number.h).
  const kernels::TargetInfo& target_of(int64_t device) const {
    return gpu && device == kCudaDevice ? *gpu : target;
  }
  // The machine that runs a function's kernels: where its author put them, else kernel_target().
  const kernels::TargetInfo& target_in(const ir::Function& f) const {
    const auto device = f.attrs.find("device");
    return device == f.attrs.end() ? kernel_target() : target_of(std::get<int64_t>(device->second));
  }
  // What --target says to name both; "" if nothing was chosen.
  std::string target_names() const { return gpu ? gpu->level + "," + target.level : target.level; }
  FoldLimits fold;
  std::optional<double> fold_left;  // operations; unset until constants are folded first
  // What passes report of themselves: "fuse.groups" -> 37.
  std::map<std::string, int64_t> statistics;
  int32_t device = 0;        // of the compilation: what nothing constrains runs there
  Precision precision = {};  // its policy; the first of the table: that of the model
  // Pixels along an axis of the tiles by which convolutions may be made (compiler/ir/winograd.h),
  // at most; 0: none are.
  int64_t winograd = 0;
  // Of the groups that `fuse` tries, and of those that later stages lower and emit.
  std::shared_ptr<kernels::WorkloadCache> workloads = std::make_shared<kernels::WorkloadCache>();
  void count(const std::string& what, int64_t by = 1) { statistics[what] += by; }
};

// Whether a pass can be disabled: without the required ones some modules do not reach the emitter;
// all others only make them better.
enum class Need { kOptional, kRequired };

struct PassInfo {
  std::string_view name;
  ir::Module (*run)(const ir::Module&, PassContext&);
  std::string_view summary;
  Need need = Need::kOptional;
};
const std::vector<PassInfo>& all_passes();
const PassInfo* find_pass(std::string_view name);  // null if there is none

}  // namespace nimble::passes
