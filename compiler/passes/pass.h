// Passes: what a pass is, and the registry made from Passes.def.
//
// A pass is a function from module to module. Pipeline.cpp lists them in order; every optional
// pass can be disabled; each can be printed after, timed, and is followed by the IR verifier when
// asked.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/target.h"
#include "compiler/kernels/workload.h"
#include "compiler/passes/precision.h"

namespace nimble::passes {

struct PassContext {
  kernels::TargetInfo target;
  int64_t fold_limit_bytes = int64_t{1} << 30;  // larger constants are not folded
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
