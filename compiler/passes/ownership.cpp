// In-place updates in a functional program.
//
// write_row(x, i, v) means "x with row i replaced". It may overwrite x when nobody can see the
// old x any more. That holds when
//   (1) x's memory is owned by this function: x is the fresh result of an operator, or a
//       parameter that every caller gives away, and
//   (2) no alias of x that is defined so far on this path is live after the write.
// Aliases are the classes of a union-find over views, copies, tuples and their fields. Liveness
// follows the structure: after binding i of a block come the bindings i+1 …, the block's result
// and whatever is live after the enclosing expression. A variable defined later on the path
// cannot hold the old value, and the other branch of an `if` is another path.
//
// A parameter is given away when at each call the argument satisfies (1) and (2) itself. That is
// a greatest fixed point: start from "every parameter of a function that is not an entry" and
// drop those that a call refutes, until nothing changes. A loop's accumulator (a recursive
// function's parameter, made by `full`, passed on by write_row) stays unique.
#include "compiler/passes/ownership.h"

#include <functional>

#include "compiler/passes/lower_memory.h"
#include "compiler/passes/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Var;

class Aliases {
 public:
  const Var* find(const Var* v) {
    auto it = parent_.find(v);
    if (it == parent_.end() || it->second == v) return v;
    return it->second = find(it->second);
  }
  void merge(const Var* a, const Var* b) { parent_[find(a)] = find(b); }

 private:
  std::unordered_map<const Var*, const Var*> parent_;
};

bool shares_memory(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kAtom:
    case ExprKind::kTuple:
    case ExprKind::kGetField:
      return true;
    case ExprKind::kCall:
      return !e.op.empty() && (is_view_op(e.op) || e.op == "take_row" || e.op == "assert_shape");
    default:
      return false;
  }
}

}  // namespace

Ownership::Ownership(const ir::Module& m) : module_(m) {
  for (const auto& [name, f] : m.functions) {
    if (m.signatures.count(name) || name == "main") continue;
    for (size_t i = 0; i < f->parameters.size(); ++i) unique_parameters_.insert({name, i});
  }
  do {
    changed_ = false;
    consumable_.clear();
    for (const auto& [name, f] : m.functions) analyse(name, *f);
  } while (changed_);
}

bool Ownership::consumable(const Binding& binding, size_t arg) const {
  auto it = consumable_.find(binding.var.get());
  return it != consumable_.end() && it->second.count(arg);
}

bool Ownership::drop_parameters(const std::string& function) {
  return std::erase_if(unique_parameters_, [&](const auto& p) { return p.first == function; }) > 0;
}

void Ownership::analyse(const std::string& name, const ir::Function& f) {
  Aliases aliases;
  std::function<void(const Block&)> collect = [&](const Block& b) {
    for (const Binding& binding : b.bindings) {
      const Expr& e = *binding.value;
      if (shares_memory(e))
        for (const Atom& a : e.args)
          if (a.is_var()) aliases.merge(binding.var.get(), a.var.get());
      if (e.kind == ExprKind::kIf) {
        for (const auto& branch : {e.then_block, e.else_block}) {
          collect(*branch);
          if (branch->result.is_var()) aliases.merge(binding.var.get(), branch->result.var.get());
        }
      }
    }
  };
  collect(*f.body);

  std::unordered_set<const Var*> owned;    // fresh results and unique parameters
  std::unordered_set<const Var*> defined;  // on the current path
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    defined.insert(f.parameters[i].get());
    if (unique_parameters_.count({name, i})) owned.insert(f.parameters[i].get());
  }

  // Whether operand `arg` of `e` satisfies (1) and (2), `live` being read after it.
  auto gives_away = [&](const Expr& e, size_t arg, const std::unordered_set<const Var*>& live) {
    const Atom& a = e.args[arg];
    if (!a.is_var() || !owned.count(a.var.get())) return false;
    const Var* root = aliases.find(a.var.get());
    for (size_t i = 0; i < e.args.size(); ++i)
      if (i != arg && e.args[i].is_var() && aliases.find(e.args[i].var.get()) == root) return false;
    for (const Var* v : live)
      if (defined.count(v) && aliases.find(v) == root) return false;
    return true;
  };

  std::function<void(const Block&, const std::unordered_set<const Var*>&)> walk =
      [&](const Block& b, const std::unordered_set<const Var*>& live_out) {
        // live_after[i]: variables read after binding i.
        std::vector<std::unordered_set<const Var*>> live_after(b.bindings.size());
        std::unordered_set<const Var*> live = live_out;
        if (b.result.is_var()) live.insert(b.result.var.get());
        for (size_t i = b.bindings.size(); i-- > 0;) {
          live_after[i] = live;
          visit_atoms(*b.bindings[i].value, [&](const Atom& a) {
            if (a.is_var()) live.insert(a.var.get());
          });
        }
        std::vector<const Var*> here;
        for (size_t i = 0; i < b.bindings.size(); ++i) {
          const Binding& binding = b.bindings[i];
          const Expr& e = *binding.value;
          // A function used as a value may be called from anywhere: its parameters are shared.
          for (const Atom& a : e.args)
            if (a.is_global()) changed_ |= drop_parameters(a.global);
          if (e.kind == ExprKind::kIf) {
            walk(*e.then_block, live_after[i]);
            walk(*e.else_block, live_after[i]);
          } else if (e.kind == ExprKind::kCall && e.callee) {
            for (size_t k = 0; k < e.args.size(); ++k) {
              if (gives_away(e, k, live_after[i])) {
                consumable_[binding.var.get()].insert(k);
              } else if (e.callee->is_global() && unique_parameters_.erase({e.callee->global, k})) {
                changed_ = true;
              }
            }
          } else if (e.kind == ExprKind::kCall && e.op == "write_row") {
            if (gives_away(e, 0, live_after[i])) consumable_[binding.var.get()].insert(0);
          }
          if (e.kind == ExprKind::kCall && !e.callee && !shares_memory(e))
            owned.insert(binding.var.get());
          defined.insert(binding.var.get());
          here.push_back(binding.var.get());
        }
        for (const Var* v : here) defined.erase(v);
      };
  walk(*f.body, {});
}

}  // namespace nimble::passes
