// Bytecode of one lowered function.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "compiler/emit/kernel_set.h"
#include "compiler/ir/expr.h"
#include "vm/executable/executable.h"

namespace nimble::emit {

// What the functions of one executable share while it is emitted.
struct EmitContext {
  exec::Executable& out;
  KernelSet& kernels;
  std::map<std::string, uint32_t> function_index;  // of bytecode functions, by name
  std::map<std::pair<const ir::Tensor*, int32_t>, uint32_t> constant_index;  // by device
  std::map<std::string, uint32_t> scalar_index;  // by the program's text
  std::map<std::string, uint32_t> text_index;
  uint32_t bytecode_functions = 0;
  const ir::Module* module = nullptr;  // for the tags of constructors

  // A constant as a device reads it.
  uint32_t constant(const ir::TensorRef& t, bool hot, int32_t device);
  // An Invoke index: scalar functions come after all bytecode functions.
  uint32_t scalar_function(exec::DimProgram p);
  uint32_t text(const std::string& s);
};

exec::BytecodeFunction emit_function(const std::string& name, const ir::Function& f,
                                     EmitContext& context);

}  // namespace nimble::emit
