// The verifier of memory plans. It walks a lowered function as the VM will run it and keeps, for
// each path, what is known of every name (a variable that holds a storage, a tensor or a value with
// tensors inside). Two notions carry it:
//
//   An *object* is a piece of memory: what one memory.alloc_storage makes, or what one parameter
//   brings. A name may lie in several objects (the result of an `if`), a call's result in all that
//   the call saw. Objects are never split: names in the same object are taken to overlap unless
//   their byte ranges are proved disjoint.
//
//   A name is *stale* once its bytes may have been given to another tensor, or overwritten through
//   another name. Nothing is wrong with that; reading a stale name is the fault. So no liveness is
//   needed here: the planner argues backwards from last uses, the verifier forwards from writes.
//
// A write through a row view updates the tensor viewed, which stays good (that is write_row);
// everything else in the object becomes stale. A tensor allocated in a tensor takes its memory
// over: the old name may still be read until the new one is written.
//
// Branches start from copies of the state and are joined: killed, freed and stale where any branch
// says so, ended where all do. A branch that ends in memory.fatal does not count. Functions that
// write into a parameter's memory are found as a least fixed point; at their calls the argument
// must be given away.
//
// The rules:
//   P1  a name is used only where its binding lies on every path before
//   P2  a name is not used, nor killed again, after it was killed or released
//   P3  a tensor is not used after the memory that it may lie in was freed
//   P4  what may be held elsewhere (by a tuple, a data value, a closure, a call) is not freed: such
//       storage is released; only what alloc_storage made is freed
//   P5  two tensors share bytes only if one is a declared view of the other, or takes its memory
//       over, or the other one is not read again
//   P6  a kernel writes only memory that the function allocated, or that every caller gives away
//   P7  a kernel's output overlaps an input or another output only where the kernel is
//       element-wise and both are the same elements
//   P8  a tensor fits its storage: proved, or left to the check that the VM makes at run time,
//       never refuted
//   P9  every storage and every tensor of a block ends on every path: killed, released, or given
//       out as the block's result
//   P10 a tensor that is a part of rows (attribute `part`) has the columns that it names: it begins
//       there, a kernel writes all of them and no other, reads no other, and reads what was written
#include "compiler/passes/analysis/verify_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/passes/analysis/plan_verifier.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::TypeKind;
using ir::Var;

PlanReport PlanVerifier::run() {
  size_t before;
  do {
    before = written_.size();
    for (const auto& [name, f] : module_.functions) function(name, *f);
  } while (written_.size() > before);
  report_ = {};
  reporting_ = true;
  for (const auto& [name, f] : module_.functions) function(name, *f);
  return std::move(report_);
}

void PlanVerifier::fault(const char* rule, const std::string& problem) {
  if (reporting_ && report_.faults.size() < 100)
    report_.faults.push_back(fmt::format("{}: {}: {}", where_, rule, problem));
}

void PlanVerifier::function(const std::string& name, const ir::Function& f) {
  function_ = name;
  entry_ = ir::is_entry(module_, name);
  dims_ = ir::dim_context(f);
  objects_.clear();
  names_.clear();
  visible_.clear();
  same_.clear();
  sizes_.clear();
  where_ = "@" + name;
  State state;
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    const Var* p = f.parameters[i].get();
    visible_.insert(p);
    if (!has_memory(p->type)) continue;
    names_[p].objects = {objects_.size()};
    objects_.push_back({nullptr, i, 0});
    if (p->type->kind == TypeKind::kTensor)
      names_[p].set_range(0, bytes_of(p->type->dtype, p->type->dims));
  }
  block(*f.body, state);
}

std::set<size_t> PlanVerifier::block(const Block& b, State& state) {
  const std::string outer = where_;
  for (const Binding& binding : b.bindings) {
    const std::string at = binding.value->location.str();
    where_ =
        fmt::format("@{}:%{}{}", function_, binding.var->name, at.empty() ? "" : " (" + at + ")");
    expression(binding, state);
    visible_.insert(binding.var.get());
  }
  where_ = outer;
  if (!state.stopped) {
    use(b.result, state);
    for (const Binding& binding : b.bindings) check_end(binding, b.result, state);
  }
  std::set<size_t> result = objects_of(b.result);
  for (const Binding& binding : b.bindings) visible_.erase(binding.var.get());
  return result;
}

void PlanVerifier::check_end(const Binding& binding, const Atom& result, const State& state) {
  const Expr& e = *binding.value;
  if (e.kind != ExprKind::kCall || !e.op.starts_with("memory.")) return;
  const Var* v = binding.var.get();
  const TypeKind kind = v->type ? v->type->kind : TypeKind::kScalar;
  if (kind != TypeKind::kStorage && kind != TypeKind::kTensor) return;
  if (state.ended.count(v) || (result.is_var() && same(result.var.get()) == v)) return;
  fault("P9", fmt::format("%{} is still there at the end of its block", v->name));
}

void PlanVerifier::join(const std::vector<State>& ends, State& state) {
  bool any = false;
  for (const State& end : ends) {
    if (end.stopped) continue;
    if (!any) {
      state = end;
      any = true;
      continue;
    }
    state.killed.insert(end.killed.begin(), end.killed.end());
    std::erase_if(state.ended, [&](const Var* v) { return !end.ended.count(v); });
    state.stale.insert(end.stale.begin(), end.stale.end());
    for (auto& [whole, columns] : state.written)
      std::erase_if(columns, [&, number = whole](const auto& c) {
        const auto other = end.written.find(number);
        return other == end.written.end() ||
               std::find(other->second.begin(), other->second.end(), c) == other->second.end();
      });
    state.freed.insert(end.freed.begin(), end.freed.end());
    state.held.insert(end.held.begin(), end.held.end());
  }
  if (!any) state.stopped = true;
}

void PlanVerifier::expression(const Binding& binding, State& state) {
  const Expr& e = *binding.value;
  const Var* v = binding.var.get();
  switch (e.kind) {
    case ExprKind::kAtom:
      use(e.args[0], state);
      if (e.args[0].is_var()) same_[v] = same(e.args[0].var.get());
      return;
    case ExprKind::kIf:
    case ExprKind::kMatch:
      return branches(binding, state);
    case ExprKind::kGetField:
      use(e.args[0], state);
      return derive(v, e);
    case ExprKind::kFunction:
    case ExprKind::kTuple:
    case ExprKind::kConstruct:
    case ExprKind::kClosure:
      for (const Atom& a : e.args) use(a, state);
      if (e.kind == ExprKind::kClosure) use(*e.callee, state);
      hold(e, state);
      return derive(v, e);
    case ExprKind::kCall:
      break;
  }
  if (e.callee) {
    call(e, state);
    derive(v, e);
  } else if (e.op == "memory.kill" || e.op == "memory.release") {
    kill(e, state);
  } else if (e.op == "memory.alloc_storage") {
    names_[v].objects = {objects_.size()};
    objects_.push_back({v, 0, ir::attr<Dim>(e.attrs, "bytes")});
  } else if (e.op == "memory.alloc_tensor") {
    alloc_tensor(v, e, state);
  } else if (e.op == "memory.invoke_mut") {
    invoke(e, state);
  } else {
    for (const Atom& a : e.args) use(a, state);
    if (e.op == "memory.fatal") state.stopped = true;
    if (e.op == "size") sizes_[v] = ir::attr<Dim>(e.attrs, "value");
    if (e.op == "memory.read_scalar" && e.attrs.contains("symbol"))
      sizes_[v] = Dim::symbol(ir::attr<std::string>(e.attrs, "symbol"));
    if (e.op == "memory.row_view" || e.op == "memory.reshape") view(v, e);
    if (e.op == "memory.storage_of") derive(v, e);
    if (e.op == "device_copy") {  // memory of its own, which nothing else has
      names_[v].objects = {objects_.size()};
      objects_.push_back({v, 0, ir::byte_size(v->type)});
    }
  }
}

void PlanVerifier::derive(const Var* v, const Expr& e) {
  if (!has_memory(v->type)) return;
  Name& name = names_[v];
  for (const Atom& a : e.args) name.objects.merge(objects_of(a));
  if (e.callee) name.objects.merge(objects_of(*e.callee));
}

void PlanVerifier::hold(const Expr& e, State& state) {
  for (const Atom& a : e.args) state.held.merge(objects_of(a));
}

void PlanVerifier::branches(const Binding& binding, State& state) {
  const Expr& e = *binding.value;
  use(e.args[0], state);
  const std::vector<ir::BlockRef> nested = ir::blocks_of(e);
  std::vector<State> ends(nested.size(), state);
  std::set<size_t> results;
  for (size_t i = 0; i < nested.size(); ++i) {
    std::vector<ir::VarRef> bound;
    if (e.kind == ExprKind::kMatch) bound = ir::variables_of(e.cases[i].pattern);
    for (const ir::VarRef& p : bound) {
      visible_.insert(p.get());
      if (has_memory(p->type)) names_[p.get()].objects = objects_of(e.args[0]);
    }
    std::set<size_t> result = block(*nested[i], ends[i]);
    for (const ir::VarRef& p : bound) visible_.erase(p.get());
    if (!ends[i].stopped) results.merge(result);
  }
  join(ends, state);
  if (has_memory(binding.var->type)) names_[binding.var.get()].objects = std::move(results);
}

PlanReport verify_plan(const ir::Module& m) {
  return PlanVerifier(m).run();
}

}  // namespace nimble::passes
