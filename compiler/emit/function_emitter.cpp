// One pass over a function in administrative normal form: each binding becomes at most a few
// instructions. Every variable has a register of its own until share_registers.cpp renames them;
// memory.kill frees what is dead. Integer constants are loaded once, at the function's entry.
//
// Scalar arithmetic: a run of adjacent scalar bindings becomes one scalar function with as many
// results as variables, so a loop's counter and condition cost a single instruction.
//
// A match reads the tag once, as an unboxed scalar, and finds its case by If. A type of two
// constructors needs no more than that; for more, one scalar function compares the tag with all
// thresholds of a binary search ahead of it.
#include "compiler/emit/function_emitter.h"

#include <algorithm>
#include <functional>

#include "compiler/emit/function_emitter_walk.h"
#include "compiler/emit/scalar_code.h"
#include "compiler/emit/share_registers.h"
#include "compiler/emit/source_note.h"
#include "compiler/ir/entry.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::emit {

using exec::DimOp;
using exec::DimProgram;
using exec::Opcode;
using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Var;

namespace {

bool ends_life(const Expr& e) {
  return e.op == "memory.kill" || e.op == "memory.release";
}

}  // namespace

exec::BytecodeFunction FunctionEmitter::run(const std::string& name) {
  out_.name = name;
  if (!ir::is_entry(*context_.module, name)) out_.origin = source_place(f_.location);
  out_.parameters = static_cast<uint32_t>(f_.parameters.size());
  for (const ir::VarRef& p : f_.parameters) registers_[p.get()] = next_++;
  block_tail(*f_.body);
  insert_prologue();
  out_.registers = next_;
  share_registers(&out_, [&](int64_t function) { return context_.results_of(function); });
  return std::move(out_);
}

int64_t FunctionEmitter::integer(int64_t v) {
  auto [it, is_new] = integers_.emplace(v, 0);
  if (is_new) it->second = fresh();
  return it->second;
}

int64_t FunctionEmitter::define(const ir::VarRef& v) {
  return registers_[v.get()] = static_cast<uint32_t>(fresh());
}

int64_t FunctionEmitter::operand(const Atom& a, bool hot) {
  if (a.is_var()) {
    auto it = registers_.find(a.var.get());
    NIMBLE_CHECK(it != registers_.end(), "%{} has no register", a.var->name);
    return it->second;
  }
  NIMBLE_CHECK(a.is_constant(), "a function as an operand");
  if (ir::is_scalar(ir::type_of(a)) && !force_tensor_) return integer(a.constant->integer(0));
  int64_t r = fresh();
  emit(Opcode::kLoadConst, {r, context_.constant(a.constant, hot, device_)});
  return r;
}

void FunctionEmitter::append_list(std::vector<int64_t>& operands, const std::vector<Atom>& atoms,
                                  size_t from) {
  operands.push_back(static_cast<int64_t>(atoms.size() - from));
  for (size_t i = from; i < atoms.size(); ++i) operands.push_back(operand(atoms[i]));
}

void FunctionEmitter::note(const Binding& b) {
  if (ends_life(*b.value)) return;
  out_.notes.push_back({static_cast<uint32_t>(here()), source_note(*b.value)});
}

void FunctionEmitter::insert_prologue() {
  std::vector<exec::Instruction> prologue;
  for (auto [value, r] : integers_) prologue.push_back({Opcode::kLoadConsti, {r, value}});
  auto shift = static_cast<int64_t>(prologue.size());
  for (exec::Instruction& i : out_.code) {
    if (i.op == Opcode::kGoto) i.operands[0] += shift;
    if (i.op == Opcode::kIf) {
      i.operands[1] += shift;
      i.operands[2] += shift;
    }
  }
  for (exec::SourceNote& n : out_.notes) n.instruction += static_cast<uint32_t>(shift);
  out_.code.insert(out_.code.begin(), prologue.begin(), prologue.end());
  // Several bindings may start at one instruction (aliases): the last one says most.
  std::vector<exec::SourceNote> kept;
  for (exec::SourceNote& n : out_.notes) {
    if (n.instruction >= out_.code.size()) continue;
    if (!kept.empty() && kept.back().instruction == n.instruction) kept.pop_back();
    kept.push_back(std::move(n));
  }
  out_.notes = std::move(kept);
}

void FunctionEmitter::block_tail(const Block& b) {
  size_t end = b.bindings.size();
  while (end > 0 && ends_life(*b.bindings[end - 1].value)) --end;
  const Binding* last = end ? &b.bindings[end - 1] : nullptr;
  bool returned = last && b.result.is_var() && b.result.var == last->var;
  if (returned && last->value->kind == ExprKind::kIf) {
    bindings(b, end - 1);
    note(*last);
    branch(*last->value, [&](const Block& side) {
      block_tail(side);
      return false;
    });
    return;
  }
  if (returned && last->value->kind == ExprKind::kMatch) {
    bindings(b, end - 1);
    note(*last);
    match(*last->value, [&](const Block& side) {
      block_tail(side);
      return false;
    });
    return;
  }
  if (returned && last->value->kind == ExprKind::kCall && last->value->callee) {
    bindings(b, end);  // the VM reuses the frame for a call that is returned at once
  } else {
    bindings(b, b.bindings.size());
  }
  if (fatal_) return void(fatal_ = false);
  force_tensor_ = is_entry();
  int64_t r = operand(b.result);
  force_tensor_ = false;
  emit(Opcode::kRet, {r});
}

bool FunctionEmitter::is_entry() const {
  return f_.result_type && !(f_.result_type->kind == ir::TypeKind::kScalar);
}

void FunctionEmitter::bindings(const Block& b, size_t count) {
  for (size_t i = 0; i < count;) {
    size_t end = i;
    while (end < count && is_scalar_code(*b.bindings[end].value)) ++end;
    if (end > i) {
      scalar_run(b, i, end);
      i = end;
      continue;
    }
    binding(b.bindings[i]);
    if (fatal_) return;
    ++i;
  }
}

template <class Side>
void FunctionEmitter::branch(const Expr& e, const Side& side) {
  int64_t condition = operand(e.args[0]);
  size_t at = out_.code.size();
  emit(Opcode::kIf, {condition, 0, 0});
  out_.code[at].operands[1] = here();
  const auto offsets = offsets_;
  bool falls = side(*e.then_block);
  offsets_ = offsets;
  size_t jump = out_.code.size();
  if (falls) emit(Opcode::kGoto, {0});
  out_.code[at].operands[2] = here();
  side(*e.else_block);
  offsets_ = offsets;
  if (falls) out_.code[jump].operands[0] = here();
}

void FunctionEmitter::if_value(const Binding& b) {
  int64_t to = define(b.var);
  bool ends[2] = {false, false};
  int which = 0;
  auto side = [&](const Block& block) {
    bindings(block, block.bindings.size());
    if (fatal_) {
      fatal_ = false;
      ends[which++] = true;
      return false;
    }
    const int64_t from = operand(block.result);
    emit(Opcode::kMove, {to, from});
    // The branch's own name for its result would keep it alive as long as the frame.
    for (const Binding& inner : block.bindings)
      if (block.result.is_var() && inner.var == block.result.var &&
          inner.value->kind != ExprKind::kAtom && inner.var->type->kind == ir::TypeKind::kTensor)
        emit(Opcode::kFreeTensor, {from});
    ++which;
    return true;
  };
  // A branch that ends in Fatal needs no jump over the other; both ending leaves no way on.
  branch(*b.value, side);
  fatal_ = ends[0] && ends[1];
}

template <class Side>
void FunctionEmitter::match(const Expr& e, const Side& side) {
  const int64_t object = operand(e.args[0]);
  const ir::DataType& data = *context_.module->find_data(e.args[0].var->type->name);
  std::vector<size_t> case_of_tag(data.constructors.size(), e.cases.size() - 1);
  for (size_t i = 0; i < e.cases.size(); ++i)
    if (e.cases[i].pattern.kind == ir::Pattern::Kind::kConstructor)
      case_of_tag[static_cast<size_t>(tag_of(e.cases[i].pattern.constructor))] = i;
  const std::vector<TagNode> nodes = plan_tag_switch(case_of_tag);
  const std::vector<int64_t> conditions = tag_conditions(nodes, object);
  std::vector<int64_t> starts(e.cases.size(), -1);
  std::vector<size_t> jumps;  // to the end
  auto body = [&](size_t which) {
    if (starts[which] >= 0) return emit(Opcode::kGoto, {starts[which]});
    starts[which] = here();
    const std::vector<ir::Pattern>& fields = e.cases[which].pattern.fields;
    for (size_t i = 0; i < fields.size(); ++i)
      if (fields[i].kind == ir::Pattern::Kind::kVar)
        emit(Opcode::kGetField, {define(fields[i].var), object, static_cast<int64_t>(i)});
    const auto offsets = offsets_;
    const bool falls = side(*e.cases[which].body);
    offsets_ = offsets;
    if (!falls) return;
    jumps.push_back(out_.code.size());
    emit(Opcode::kGoto, {0});
  };
  std::function<void(size_t)> visit = [&](size_t n) {
    if (nodes[n].leaf) return body(nodes[n].which);
    const size_t at = out_.code.size();
    emit(Opcode::kIf, {conditions[n], here() + 1, 0});
    visit(nodes[n].from);
    out_.code[at].operands[2] = here();
    visit(nodes[n].below);
  };
  visit(0);
  if (!jumps.empty() && jumps.back() + 1 == out_.code.size()) {  // the last one falls through
    out_.code.pop_back();
    jumps.pop_back();
  }
  for (size_t at : jumps) out_.code[at].operands[0] = here();
}

int64_t FunctionEmitter::tag_of(const std::string& constructor) const {
  return context_.module->find_constructor(constructor).second;
}

std::vector<int64_t> FunctionEmitter::tag_conditions(const std::vector<TagNode>& nodes,
                                                     int64_t object) {
  std::vector<int64_t> out(nodes.size(), -1);
  if (nodes[0].leaf) return out;
  const int64_t tag = fresh();
  emit(Opcode::kGetTag, {tag, object});
  DimProgram p{1, 0, {}};
  const int64_t base = next_;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].leaf) continue;
    if (nodes[i].threshold == 1) {
      out[i] = tag;  // at least 1: not zero
      continue;
    }
    out[i] = base + p.results++;
    p.code.insert(p.code.end(),
                  {{DimOp::kConst, nodes[i].threshold}, {DimOp::kArg, 0}, {DimOp::kLe, 0}});
  }
  if (p.results == 0) return out;
  fresh(p.results);
  emit(Opcode::kInvoke, {base, context_.scalar_function(std::move(p)), 1, tag});
  return out;
}

void FunctionEmitter::match_value(const Binding& b) {
  const int64_t to = define(b.var);
  bool goes_on = false;
  match(*b.value, [&](const Block& block) {
    bindings(block, block.bindings.size());
    if (fatal_) return fatal_ = false;
    emit(Opcode::kMove, {to, operand(block.result)});
    return goes_on = true;
  });
  fatal_ = !goes_on;
}

bool FunctionEmitter::is_scalar_code(const Expr& e) {
  return e.kind == ExprKind::kCall &&
         (e.op == "memory.invoke_shape" || (e.op != "size" && passes::is_scalar_op(e)));
}

void FunctionEmitter::scalar_run(const Block& b, size_t begin, size_t end) {
  constexpr size_t kMaxCode = 96;  // operands are recomputed, not stored: keep trees small
  note(b.bindings[begin]);
  std::unordered_map<const Var*, ScalarCode> code;
  std::vector<int64_t> inputs;
  std::map<int64_t, int64_t> input_index;
  std::vector<std::pair<const Binding*, ScalarCode>> results;
  auto flush = [&] {
    if (results.empty()) return;
    DimProgram p{static_cast<uint32_t>(inputs.size()), 0, {}};
    int64_t base = next_;
    for (auto& [binding, instructions] : results) {
      const Expr& e = *binding->value;
      registers_[binding->var.get()] = static_cast<uint32_t>(base + p.results);
      if (e.op == "memory.invoke_shape") spread_[binding->var.get()] = base + p.results;
      p.results +=
          e.op == "memory.invoke_shape"
              ? static_cast<uint32_t>(ir::attr<std::vector<ir::Dim>>(e.attrs, "results").size())
              : 1;
      p.code.insert(p.code.end(), instructions.begin(), instructions.end());
    }
    fresh(p.results);
    std::vector<int64_t> operands = {base, context_.scalar_function(std::move(p)),
                                     static_cast<int64_t>(inputs.size())};
    operands.insert(operands.end(), inputs.begin(), inputs.end());
    emit(Opcode::kInvoke, std::move(operands));
    results.clear();
    code.clear();
    inputs.clear();
    input_index.clear();
  };
  auto input = [&](int64_t r) {
    auto [it, is_new] = input_index.emplace(r, static_cast<int64_t>(inputs.size()));
    if (is_new) inputs.push_back(r);
    return it->second;
  };
  auto operand_code = [&](const Atom& a) -> ScalarCode {
    if (a.is_constant()) return {{DimOp::kConst, a.constant->integer(0)}};
    if (auto it = code.find(a.var.get()); it != code.end()) return it->second;
    return {{DimOp::kArg, input(operand(a))}};
  };
  for (size_t i = begin; i < end; ++i) {
    const Binding& binding = b.bindings[i];
    const Expr& e = *binding.value;
    bool large = false;
    for (const Atom& a : e.args)
      if (a.is_var())
        if (auto it = code.find(a.var.get()); it != code.end())
          large |= it->second.size() > kMaxCode;
    if (large) flush();
    if (e.op == "memory.invoke_shape") {
      ScalarCode extents;
      const auto& names = ir::attr<std::vector<std::string>>(e.attrs, "symbols");
      for (const ir::Dim& d : ir::attr<std::vector<ir::Dim>>(e.attrs, "results"))
        append_code(extents, d.to_program(names).code,
                    [&](size_t k) { return operand_code(e.args[k]); });
      results.emplace_back(&binding, std::move(extents));
      flush();  // its fields are read by get_field from consecutive registers
      continue;
    }
    // Each operand is asked for once and in order: that numbers the function's arguments.
    std::vector<ScalarCode> args;
    for (const Atom& a : e.args) args.push_back(operand_code(a));
    ScalarCode& own = code[binding.var.get()];
    append_code(own, scalar_code(e), [&](size_t k) -> const ScalarCode& { return args[k]; });
    results.emplace_back(&binding, own);
  }
  flush();
}

void FunctionEmitter::binding(const Binding& b) {
  const Expr& e = *b.value;
  if (e.kind != ExprKind::kGetField && e.kind != ExprKind::kAtom) note(b);
  switch (e.kind) {
    case ExprKind::kAtom:
      registers_[b.var.get()] = static_cast<uint32_t>(operand(e.args[0]));
      return;
    case ExprKind::kTuple:
      with_operands(Opcode::kAllocADT, b, 0);
      return;
    case ExprKind::kGetField:
      if (auto it = spread_.find(e.args[0].var.get()); it != spread_.end()) {
        registers_[b.var.get()] = static_cast<uint32_t>(it->second + e.index);
      } else {
        int64_t object = operand(e.args[0]);
        emit(Opcode::kGetField, {define(b.var), object, e.index});
      }
      return;
    case ExprKind::kIf:
      if_value(b);
      return;
    case ExprKind::kCall:
      if (e.callee)
        call(b);
      else
        (this->*rule_of(e.op))(b);
      return;
    case ExprKind::kMatch:
      match_value(b);
      return;
    case ExprKind::kConstruct:
      with_operands(Opcode::kAllocADT, b, tag_of(e.constructor));
      return;
    case ExprKind::kClosure:
      with_operands(Opcode::kAllocClosure, b, context_.function_index.at(e.callee->global));
      return;
    case ExprKind::kFunction:
      NIMBLE_UNREACHABLE("convert-closures leaves no literal");
  }
}

void FunctionEmitter::with_operands(Opcode op, const Binding& b, int64_t first) {
  std::vector<int64_t> list;
  append_list(list, b.value->args);
  std::vector<int64_t> operands = {define(b.var), first};
  operands.insert(operands.end(), list.begin(), list.end());
  emit(op, std::move(operands));
}

void FunctionEmitter::call(const Binding& b) {
  const Atom& callee = *b.value->callee;
  if (callee.is_global())
    with_operands(Opcode::kInvoke, b, context_.function_index.at(callee.global));
  else
    with_operands(Opcode::kInvokeClosure, b, operand(callee));
}

exec::BytecodeFunction emit_function(const std::string& name, const ir::Function& f,
                                     EmitContext& context) {
  return FunctionEmitter(f, context).run(name);
}

}  // namespace nimble::emit
