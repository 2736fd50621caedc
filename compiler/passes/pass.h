// Passes: what a pass is, and the registry made from Passes.def.
//
// A pass is a function from module to module. Pipeline.cpp lists them in order; every optional
// pass can be disabled; each can be printed after, timed, and is followed by the IR verifier when
// asked.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/target.h"

namespace nimble::passes {

struct PassContext {
  kernels::TargetInfo target;
  int64_t fold_limit_bytes = int64_t{1} << 30;  // larger constants are not folded
  // What passes report of themselves: "fuse.groups" -> 37.
  std::map<std::string, int64_t> statistics;
  int32_t device = 0;  // of the compilation: what nothing constrains runs there
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
