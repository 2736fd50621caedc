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
#include <unordered_map>

#include "compiler/emit/scalar_code.h"
#include "compiler/emit/share_registers.h"
#include "compiler/emit/source_note.h"
#include "compiler/emit/tag_switch.h"
#include "compiler/ir/entry.h"
#include "compiler/kernels/template.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/support/rewrite.h"
#include "vm/executable/opcodes.h"

namespace nimble::emit {
namespace {

using exec::DimOp;
using exec::DimProgram;
using exec::Opcode;
using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Var;

// A packed matrix is read in full at each run; an embedding table is not.
constexpr size_t kHotBytes = 16 << 10;

bool gathers_from(const ir::Function& group, size_t parameter) {
  for (const Binding& b : group.body->bindings)
    if (b.value->op == "gather" && b.value->args[0].is_var() &&
        b.value->args[0].var == group.parameters[parameter])
      return true;
  return false;
}

bool ends_life(const Expr& e) {
  return e.op == "memory.kill" || e.op == "memory.release";
}

class Emitter {
 public:
  Emitter(const ir::Function& f, EmitContext& context) : f_(f), context_(context) {}

  exec::BytecodeFunction run(const std::string& name) {
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

 private:
  // ---- registers and operands

  int64_t fresh(int64_t count = 1) {
    int64_t r = next_;
    next_ += static_cast<uint32_t>(count);
    return r;
  }

  int64_t integer(int64_t v) {
    auto [it, is_new] = integers_.emplace(v, 0);
    if (is_new) it->second = fresh();
    return it->second;
  }

  int64_t define(const ir::VarRef& v) {
    return registers_[v.get()] = static_cast<uint32_t>(fresh());
  }

  int64_t operand(const Atom& a, bool hot = false) {
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

  void emit(Opcode op, std::vector<int64_t> operands) {
    out_.code.push_back({op, std::move(operands)});
  }
  int64_t here() const { return static_cast<int64_t>(out_.code.size()); }

  void append_list(std::vector<int64_t>& operands, const std::vector<Atom>& atoms,
                   size_t from = 0) {
    operands.push_back(static_cast<int64_t>(atoms.size() - from));
    for (size_t i = from; i < atoms.size(); ++i) operands.push_back(operand(atoms[i]));
  }

  void note(const Binding& b) {
    if (ends_life(*b.value)) return;
    out_.notes.push_back({static_cast<uint32_t>(here()), source_note(*b.value)});
  }

  // Integer constants are loaded first, so that a jump never skips them. Targets move with them.
  void insert_prologue() {
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

  // ---- blocks

  // Emits a block whose value is the function's.
  void block_tail(const Block& b) {
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

  bool is_entry() const {
    return f_.result_type && !(f_.result_type->kind == ir::TypeKind::kScalar);
  }

  void bindings(const Block& b, size_t count) {
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

  // If: `side` emits a branch and says whether control leaves it at its end.
  template <class Side>
  void branch(const Expr& e, const Side& side) {
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

  void if_value(const Binding& b) {
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

  // ---- match

  // Match: `side` emits a case's body and says whether control goes on at its end.
  template <class Side>
  void match(const Expr& e, const Side& side) {
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

  int64_t tag_of(const std::string& constructor) const {
    return context_.module->find_constructor(constructor).second;
  }

  // For each node that asks, the register of its answer.
  std::vector<int64_t> tag_conditions(const std::vector<TagNode>& nodes, int64_t object) {
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

  void match_value(const Binding& b) {
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

  // ---- scalar code

  static bool is_scalar_code(const Expr& e) {
    return e.kind == ExprKind::kCall &&
           (e.op == "memory.invoke_shape" || (e.op != "size" && passes::is_scalar_op(e)));
  }

  void scalar_run(const Block& b, size_t begin, size_t end) {
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

  // ---- single bindings

  void binding(const Binding& b) {
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

  // AllocADT, AllocClosure, Invoke, InvokeClosure: `first` (a tag, function or closure), then the
  // expression's operands.
  void with_operands(Opcode op, const Binding& b, int64_t first) {
    std::vector<int64_t> list;
    append_list(list, b.value->args);
    std::vector<int64_t> operands = {define(b.var), first};
    operands.insert(operands.end(), list.begin(), list.end());
    emit(op, std::move(operands));
  }

  void call(const Binding& b) {
    const Atom& callee = *b.value->callee;
    if (callee.is_global())
      with_operands(Opcode::kInvoke, b, context_.function_index.at(callee.global));
    else
      with_operands(Opcode::kInvokeClosure, b, operand(callee));
  }

  // What each operator becomes that is left after lowering and is no scalar code.
  using Rule = void (Emitter::*)(const Binding&);
  static Rule rule_of(const std::string& op) {
    static const std::map<std::string_view, Rule> kRules = {
        {"memory.alloc_storage", &Emitter::alloc_storage},
        {"memory.alloc_tensor", &Emitter::alloc_tensor},
        {"memory.row_view", &Emitter::row_view},
        {"memory.invoke_mut", &Emitter::invoke_packed},
        {"memory.shape_of", &Emitter::shape_of},
        {"memory.reshape", &Emitter::reshape},
        {"memory.read_scalar", &Emitter::read_scalar},
        {"memory.storage_of", &Emitter::storage_of},
        {"memory.capacity", &Emitter::capacity},
        {"memory.release", &Emitter::release},
        {"memory.kill", &Emitter::kill},
        {"memory.fatal", &Emitter::fatal},
        {"device_copy", &Emitter::device_copy},
    };
    const auto it = kRules.find(op);
    NIMBLE_CHECK(it != kRules.end(), "operator {} after lowering", op);
    return it->second;
  }

  void alloc_storage(const Binding& b) {
    const Expr& e = *b.value;
    const int64_t bytes = operand(e.args[0]);
    emit(Opcode::kAllocStorage, {define(b.var), bytes, ir::attr<int64_t>(e.attrs, "alignment"),
                                 ir::attr<int64_t>(e.attrs, "device")});
  }

  void alloc_tensor(const Binding& b) {
    const std::vector<Atom>& args = b.value->args;
    tensor_in(b, operand(args[0]), operand(args[1]), {args.begin() + 2, args.end()});
  }

  void shape_of(const Binding& b) {
    const auto rank = ir::attr<int64_t>(b.value->attrs, "rank");
    const int64_t tensor = operand(b.value->args[0]);
    const int64_t base = fresh(rank);
    spread_[b.var.get()] = base;
    emit(Opcode::kShapeOf, {base, rank, tensor});
  }

  void reshape(const Binding& b) {
    force_tensor_ = true;
    const int64_t tensor = operand(b.value->args[0]);
    force_tensor_ = false;
    std::vector<int64_t> dims;
    append_list(dims, b.value->args, 1);
    std::vector<int64_t> operands = {define(b.var), tensor};
    operands.insert(operands.end(), dims.begin(), dims.end());
    emit(Opcode::kReshapeTensor, std::move(operands));
  }

  void read_scalar(const Binding& b) {
    const Expr& e = *b.value;
    const int64_t value = operand(e.args[0]);
    if (ir::is_scalar(ir::type_of(e.args[0])) && e.attrs.count("symbol"))
      registers_[b.var.get()] = static_cast<uint32_t>(value);  // a register already
    else
      emit(Opcode::kGetElement, {define(b.var), value, ir::attr_or<int64_t>(e.attrs, "index", 0)});
  }

  void storage_of(const Binding& b) {
    const int64_t tensor = operand(b.value->args[0]);
    emit(Opcode::kGetStorage, {define(b.var), tensor});
  }

  void capacity(const Binding& b) {
    const int64_t storage = operand(b.value->args[0]);
    emit(Opcode::kGetCapacity, {define(b.var), storage});
  }

  void release(const Binding& b) { emit(Opcode::kFreeTensor, {operand(b.value->args[0])}); }

  void kill(const Binding& b) {
    const Atom& dead = b.value->args[0];
    const int64_t r = operand(dead);
    switch (dead.var->type->kind) {
      case ir::TypeKind::kStorage:
        return emit(Opcode::kFreeStorage, {r});
      case ir::TypeKind::kTensor:
        return emit(Opcode::kFreeTensor, {r});
      default:
        return emit(Opcode::kLoadConsti, {r, 0});  // any other value dies by being overwritten
    }
  }

  void fatal(const Binding& b) {
    const Expr& e = *b.value;
    std::vector<int64_t> operands = {context_.text(ir::attr<std::string>(e.attrs, "message"))};
    append_list(operands, e.args);
    emit(Opcode::kFatal, std::move(operands));
    fatal_ = true;
  }

  // Of a constant each device has its own, from the load on.
  void device_copy(const Binding& b) {
    const Atom& x = b.value->args[0];
    const auto device = ir::attr<int64_t>(b.value->attrs, "device");
    if (x.is_constant()) {
      emit(Opcode::kLoadConst,
           {define(b.var), context_.constant(x.constant, false, static_cast<int32_t>(device))});
      return;
    }
    int64_t tensor = operand(x);
    emit(Opcode::kDeviceCopy, {define(b.var), tensor, device});
  }

  // A tensor of these dims in a storage or another tensor, at an offset in bytes.
  void tensor_in(const Binding& b, int64_t storage, int64_t offset, std::vector<Atom> dims) {
    auto dtype = static_cast<int64_t>(ir::attr<DType>(b.value->attrs, "dtype"));
    bool fixed =
        std::all_of(dims.begin(), dims.end(), [](const Atom& a) { return a.is_constant(); });
    std::vector<int64_t> shape;
    for (const Atom& a : dims) shape.push_back(fixed ? a.constant->integer(0) : operand(a));
    std::vector<int64_t> operands = {define(b.var), storage, offset, dtype,
                                     static_cast<int64_t>(shape.size())};
    operands.insert(operands.end(), shape.begin(), shape.end());
    emit(fixed ? Opcode::kAllocTensor : Opcode::kAllocTensorReg, std::move(operands));
  }

  void row_view(const Binding& b) {
    const Expr& e = *b.value;
    // Offset = index * bytes of a row; the VM checks that the row lies inside.
    DimProgram product{2, 1, {{DimOp::kArg, 0}, {DimOp::kArg, 1}, {DimOp::kMul, 0}}};
    int64_t tensor = operand(e.args[0]);
    int64_t index = operand(e.args[1]), bytes = operand(e.args[2]);
    const auto [known, added] = offsets_.try_emplace({index, bytes}, 0);
    if (added) {
      known->second = fresh();
      emit(Opcode::kInvoke,
           {known->second, context_.scalar_function(std::move(product)), 2, index, bytes});
    }
    const int64_t offset = known->second;
    tensor_in(b, tensor, offset, {e.args.begin() + 3, e.args.end()});
  }

  void invoke_packed(const Binding& b) {
    const Expr& e = *b.value;
    const ir::Function& group = *e.primitive;
    std::vector<bool> constant;
    for (size_t i = 0; i < group.parameters.size(); ++i)
      constant.push_back(e.args[i].is_constant());
    uint32_t kernel = context_.kernel_index(e.primitive, constant, out_.name);
    auto scalars = ir::attr_or<std::vector<int64_t>>(group.attrs, "scalars", {});
    std::vector<int64_t> operands = {kernel, static_cast<int64_t>(e.args.size())};
    device_ = static_cast<int32_t>(ir::attr_or<int64_t>(group.attrs, "device", 0));
    for (size_t i = 0; i < e.args.size(); ++i) {
      bool scalar =
          std::find(scalars.begin(), scalars.end(), static_cast<int64_t>(i)) != scalars.end();
      bool hot = e.args[i].is_constant() && e.args[i].constant->bytes.size() >= kHotBytes &&
                 i < group.parameters.size() && !gathers_from(group, i);
      force_tensor_ = !scalar && i < group.parameters.size();
      operands.push_back(operand(e.args[i], hot));
      force_tensor_ = false;
    }
    device_ = 0;
    emit(Opcode::kInvokePacked, std::move(operands));
  }

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

}  // namespace

exec::BytecodeFunction emit_function(const std::string& name, const ir::Function& f,
                                     EmitContext& context) {
  return Emitter(f, context).run(name);
}

}  // namespace nimble::emit
