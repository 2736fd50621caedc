// The walk of the emitter over a function; function_emitter.cpp tells how it works. What operators
// become that are left after lowering is in function_emitter_operators.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/emit/function_emitter.h"
#include "compiler/emit/tag_switch.h"
#include "vm/executable/opcodes.h"

namespace nimble::emit {

class FunctionEmitter {
 public:
  FunctionEmitter(const ir::Function& f, EmitContext& context) : f_(f), context_(context) {}
  exec::BytecodeFunction run(const std::string& name);  // once

 private:
  using Opcode = exec::Opcode;
  using Atom = ir::Atom;
  using Binding = ir::Binding;
  using Block = ir::Block;
  using Expr = ir::Expr;
  using Var = ir::Var;

  // ---------------------------------------------------------------- function_emitter.cpp

  int64_t fresh(int64_t count = 1) {
    int64_t r = next_;
    next_ += static_cast<uint32_t>(count);
    return r;
  }
  int64_t integer(int64_t v);
  int64_t define(const ir::VarRef& v);
  int64_t operand(const Atom& a, bool hot = false);
  void emit(Opcode op, std::vector<int64_t> operands) {
    out_.code.push_back({op, std::move(operands)});
  }
  int64_t here() const { return static_cast<int64_t>(out_.code.size()); }
  void append_list(std::vector<int64_t>& operands, const std::vector<Atom>& atoms, size_t from = 0);
  void note(const Binding& b);
  // Integer constants are loaded first, so that a jump never skips them. Targets move with them.
  void insert_prologue();
  // Emits a block whose value is the function's.
  void block_tail(const Block& b);
  bool is_entry() const;
  void bindings(const Block& b, size_t count);
  // If: `side` emits a branch and says whether control leaves it at its end.
  template <class Side>
  void branch(const Expr& e, const Side& side);
  void if_value(const Binding& b);
  // Match: `side` emits a case's body and says whether control goes on at its end.
  template <class Side>
  void match(const Expr& e, const Side& side);
  int64_t tag_of(const std::string& constructor) const;
  // For each node that asks, the register of its answer.
  std::vector<int64_t> tag_conditions(const std::vector<TagNode>& nodes, int64_t object);
  void match_value(const Binding& b);
  static bool is_scalar_code(const Expr& e);
  void scalar_run(const Block& b, size_t begin, size_t end);
  void binding(const Binding& b);
  // AllocADT, AllocClosure, Invoke, InvokeClosure: `first` (a tag, function or closure), then the
  // expression's operands.
  void with_operands(Opcode op, const Binding& b, int64_t first);
  void call(const Binding& b);

  // ---------------------------------------------------------------- function_emitter_operators.cpp

  // What each operator becomes that is left after lowering and is no scalar code.
  using Rule = void (FunctionEmitter::*)(const Binding&);
  static Rule rule_of(const std::string& op);
  void alloc_storage(const Binding& b);
  void alloc_tensor(const Binding& b);
  void shape_of(const Binding& b);
  void reshape(const Binding& b);
  void read_scalar(const Binding& b);
  void storage_of(const Binding& b);
  void capacity(const Binding& b);
  void release(const Binding& b);
  void kill(const Binding& b);
  void fatal(const Binding& b);
  // Of a constant each device has its own, from the load on.
  void device_copy(const Binding& b);
  // A tensor of these dims in a storage or another tensor, at an offset in bytes.
  void tensor_in(const Binding& b, int64_t storage, int64_t offset, std::vector<Atom> dims);
  void row_view(const Binding& b);
  void invoke_packed(const Binding& b);

  const ir::Function& f_;
  EmitContext& context_;
  exec::BytecodeFunction out_;
  uint32_t next_ = 0;
  bool fatal_ = false;         // the instruction just emitted was Fatal
  bool force_tensor_ = false;  // a rank-0 constant is wanted as a tensor
  int32_t device_ = 0;         // where constants are wanted
  std::unordered_map<const Var*, uint32_t> registers_;
  std::unordered_map<const Var*, int64_t> spread_;  // tuples that only exist as registers
  std::map<int64_t, int64_t> integers_;
  // Offsets of rows that were computed on the way here, by the registers of index and row bytes.
  std::map<std::pair<int64_t, int64_t>, int64_t> offsets_;
};

}  // namespace nimble::emit
