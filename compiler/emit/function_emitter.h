// Bytecode of one lowered function.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/expr.h"
#include "vm/executable/executable.h"

namespace nimble::emit {

// The index of the kernel that computes a group for a call at `place`; `constant_parameter` says
// which of its arguments are constants.
using KernelIndex = std::function<uint32_t(
    const ir::FunctionRef& group, std::vector<bool> constant_parameter, const std::string& place)>;

// What the functions of one executable share while it is emitted.
struct EmitContext {
  exec::Executable& out;
  KernelIndex kernel_index;
  std::map<std::string, uint32_t> function_index;  // of bytecode functions, by name
  std::map<std::pair<const ir::Tensor*, int32_t>, uint32_t> constant_index;  // by device
  std::map<std::string, uint32_t> scalar_index;  // by the program's text
  std::map<std::string, uint32_t> text_index;
  uint32_t bytecode_functions = 0;
  const ir::Module* module = nullptr;                           // for the tags of constructors
  std::unordered_multimap<size_t, uint32_t> constants_by_hash;  // of their bytes

  // A constant as a device reads it. Equal tensors are one constant: two products with the same
  // weights would else hold two packed copies, in the file and in the caches.
  uint32_t constant(const ir::TensorRef& t, bool hot, int32_t device);
  // An Invoke index: scalar functions come after all bytecode functions.
  uint32_t scalar_function(exec::DimProgram p);
  // How many registers the Invoke of such an index writes.
  uint32_t results_of(int64_t function) const;
  uint32_t text(const std::string& s);
};

exec::BytecodeFunction emit_function(const std::string& name, const ir::Function& f,
                                     EmitContext& context);

}  // namespace nimble::emit
