// In-place updates in a functional program.
//
// write_row(x, i, v) means "x with row i replaced". It may overwrite x when nobody can see the
// old x any more. That holds when
//   (1) x's memory is owned by this function: x is the fresh result of an operator, a parameter
//       that every caller gives away, or such a value under other extents, and
//   (2) no alias of x that is defined so far on this path is live after the write.
// Aliases are found in a graph of views, copies, tuples, data values, closures and what comes out
// of them; the result of a call may be any part of what the call saw, but its arguments are no
// aliases of each other for that. Only variables that the walk has passed count on the way, in the
// block itself, around it, and in branches that lie behind: one defined later cannot hold the old
// value, nor one of the other branch. Liveness follows the structure: after binding i of a
// block come the bindings i+1 …, the block's result and whatever is live after the enclosing
// expression; the other branch of an `if` is another path.
//
// A parameter is given away when at each call the argument satisfies (1) and (2) itself. That is
// a greatest fixed point: start from "every parameter of a function that is not an entry" and
// drop those that a call refutes, until nothing changes. A loop's accumulator (a recursive
// function's parameter, made by `full`, passed on by write_row) stays unique.
#include "compiler/passes/analysis/ownership.h"

#include <functional>

#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Var;

// Which variables may hold the same memory, as a graph: a view and its operand are the same; the
// result of a call sees its arguments.
class Aliases {
 public:
  void same(const Var* a, const Var* b) {
    same_[a].push_back(b);
    same_[b].push_back(a);
  }
  void sees(const Var* a, const Var* b) {
    sees_[a].push_back(b);
    seen_[b].push_back(a);
  }

  // The variables that may share memory with v by way of those in `walked`, v among them: what v
  // sees, and what sees v. Two that one value sees do not share for that.
  using Set = std::unordered_set<const Var*>;
  Set sharing(const Var* v, const Set& walked) const {
    Set out = reach(v, sees_, walked);
    out.merge(reach(v, seen_, walked));
    return out;
  }

 private:
  using Edges = std::unordered_map<const Var*, std::vector<const Var*>>;
  Set reach(const Var* v, const Edges& direction, const Set& walked) const {
    Set reached = {v};
    std::vector<const Var*> work = {v};
    while (!work.empty()) {
      const Var* at = work.back();
      work.pop_back();
      for (const Edges* edges : {&same_, &direction})
        if (auto it = edges->find(at); it != edges->end())
          for (const Var* to : it->second)
            if (walked.count(to) && reached.insert(to).second) work.push_back(to);
    }
    return reached;
  }
  Edges same_, sees_, seen_;
};

bool shares_memory(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kAtom:
    case ExprKind::kTuple:
    case ExprKind::kGetField:
    case ExprKind::kConstruct:
    case ExprKind::kClosure:
      return true;
    case ExprKind::kCall:
      return ir::traits_of(e).memory != ir::Memory::kOwn ||
             ir::traits_of(e).placement;  // to where it lies already it is no copy
    default:
      return false;
  }
}

// The value that `e` is under another name or other extents: its whole memory, nothing else.
const Var* renamed(const Expr& e) {
  const bool whole = e.kind == ExprKind::kAtom || ir::traits_of(e).memory == ir::Memory::kView;
  return whole && e.args[0].is_var() ? e.args[0].var.get() : nullptr;
}

}  // namespace

bool is_empty_constant(const Atom& a) {
  return a.is_constant() && a.constant->elements() == 0;
}

Ownership::Ownership(const ir::Module& m) {
  for (const auto& [name, f] : m.functions) {
    if (ir::is_entry(m, name)) continue;
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
      auto merge = [&](const Var* v, const Atom& a) {
        if (a.is_var() && !is_scalar(a.var->type)) aliases.same(v, a.var.get());
      };
      if (shares_memory(e) && !is_scalar(binding.var->type)) {
        for (const Atom& a : e.args) merge(binding.var.get(), a);
      } else if (e.kind == ExprKind::kCall && e.callee && !is_scalar(binding.var->type)) {
        auto may_return = [&](const Atom& a) {
          if (a.is_var() && !is_scalar(a.var->type)) aliases.sees(binding.var.get(), a.var.get());
        };
        for (const Atom& a : e.args) may_return(a);
        may_return(*e.callee);
      }
      for (const ir::MatchCase& c : e.cases)
        for (const ir::VarRef& v : ir::variables_of(c.pattern))
          if (!is_scalar(v->type)) merge(v.get(), e.args[0]);
      for (const ir::BlockRef& nested : ir::blocks_of(e)) {
        collect(*nested);
        merge(binding.var.get(), nested->result);
      }
    }
  };
  collect(*f.body);

  std::unordered_set<const Var*> owned;    // fresh results, unique parameters, other names of them
  std::unordered_set<const Var*> defined;  // on the current path
  Aliases::Set walked;                     // so far, on any path
  for (size_t i = 0; i < f.parameters.size(); ++i) {
    defined.insert(f.parameters[i].get());
    walked.insert(f.parameters[i].get());
    if (unique_parameters_.count({name, i})) owned.insert(f.parameters[i].get());
  }

  // Whether operand `arg` of `e` satisfies (1) and (2), `live` being read after it.
  auto gives_away = [&](const Expr& e, size_t arg, const std::unordered_set<const Var*>& live) {
    const Atom& a = e.args[arg];
    if (!a.is_var() || !owned.count(a.var.get())) return false;
    const Aliases::Set sharing = aliases.sharing(a.var.get(), walked);
    for (size_t i = 0; i < e.args.size(); ++i)
      if (i != arg && e.args[i].is_var() && sharing.count(e.args[i].var.get())) return false;
    for (const Var* v : live)
      if (defined.count(v) && sharing.count(v)) return false;
    return true;
  };

  std::function<void(const Block&, const std::unordered_set<const Var*>&)> walk =
      [&](const Block& b, const std::unordered_set<const Var*>& live_out) {
        // live_after[i]: variables read after binding i, but for those defined later: they hold
        // nothing yet, and in a long block they are most.
        std::vector<std::unordered_set<const Var*>> live_after(b.bindings.size());
        std::unordered_set<const Var*> live = live_out;
        if (b.result.is_var()) live.insert(b.result.var.get());
        for (size_t i = b.bindings.size(); i-- > 0;) {
          live_after[i] = live;
          live.erase(b.bindings[i].var.get());
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
          if (e.kind == ExprKind::kClosure) changed_ |= drop_parameters(e.callee->global);
          for (const ir::MatchCase& c : e.cases)
            for (const ir::VarRef& v : ir::variables_of(c.pattern)) {
              defined.insert(v.get());
              walked.insert(v.get());
              here.push_back(v.get());
            }
          if (const std::vector<ir::BlockRef> branches = ir::blocks_of(e); !branches.empty()) {
            // They exclude each other: what one has passed holds nothing in its sibling.
            const Aliases::Set ahead = walked;
            Aliases::Set behind = walked;
            for (const ir::BlockRef& nested : branches) {
              walked = ahead;
              walk(*nested, live_after[i]);
              behind.merge(walked);
            }
            walked = std::move(behind);
          }
          if (e.kind == ExprKind::kCall && e.callee) {
            for (size_t k = 0; k < e.args.size(); ++k) {
              if (is_empty_constant(e.args[k])) continue;  // lower-memory makes it a fresh tensor
              if (gives_away(e, k, live_after[i])) {
                consumable_[binding.var.get()].insert(k);
              } else if (e.callee->is_global() && unique_parameters_.erase({e.callee->global, k})) {
                changed_ = true;
              }
            }
          } else if (e.kind == ExprKind::kCall && e.primitive) {
            for (size_t k = 0; k < e.args.size(); ++k)
              if (gives_away(e, k, live_after[i])) consumable_[binding.var.get()].insert(k);
          } else if (ir::traits_of(e).in_place) {
            if (gives_away(e, 0, live_after[i])) consumable_[binding.var.get()].insert(0);
          }
          const bool fresh = e.kind == ExprKind::kCall && !e.callee && !shares_memory(e);
          if (fresh || owned.count(renamed(e))) owned.insert(binding.var.get());
          defined.insert(binding.var.get());
          walked.insert(binding.var.get());
          here.push_back(binding.var.get());
        }
        for (const Var* v : here) defined.erase(v);
      };
  walk(*f.body, {});
}

}  // namespace nimble::passes
