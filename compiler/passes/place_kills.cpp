// Where a value's life ends.
//
// Backwards over each block, the ordinary liveness: a value dies at the binding that uses it last.
// A storage counts as used where anything that lies in it is. Three ends are told apart:
//   memory.kill of a tensor (or a tuple, a data value, …) drops a reference; the VM counts them.
//   memory.kill of a storage frees its memory, whoever else refers to it: for storages that the
//     function keeps to itself.
//   memory.release of a storage drops the reference only: for those that escape (MemorySurvey);
//     their memory dies with the last tensor in it.
//
// What dies within a branch dies on each path by itself: after its last use in the branches that
// use it, at the start of those that do not. So a branch that calls its own function again holds
// only what it needs afterwards, however deep the recursion goes. A value that is the result of a
// branch, or what is matched, dies after the whole expression.
#include "compiler/passes/place_kills.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/builder.h"
#include "compiler/passes/analysis/memory_survey.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::TypeKind;
using ir::Var;
using ir::VarRef;

using VarSet = std::unordered_set<const Var*>;

class Killer {
 public:
  Killer(const ir::Function& f, const MemorySurvey& survey) : survey_(survey) {
    for (const MemorySurvey::Storage& s : survey.storages)
      if (!s.escapes) owned_.insert(s.var.get());
    for (const VarRef& p : f.parameters) order_.emplace(p.get(), order_.size());
    visit_bindings(*f.body, [this](const Binding& b) {
      order_.emplace(b.var.get(), order_.size());
      for (const ir::MatchCase& c : b.value->cases)
        for (const VarRef& p : ir::variables_of(c.pattern)) order_.emplace(p.get(), order_.size());
    });
  }

  // `live`: what is used after the block. `mine`: what this block is to end, besides its own
  // bindings. `dead`: what it is to end at its start.
  ir::BlockRef run(const Block& b, VarSet live, const std::vector<VarRef>& mine,
                   const std::vector<VarRef>& dead) {
    std::unordered_map<const Var*, VarRef> ours;
    for (const VarRef& v : mine) ours[v.get()] = v;
    for (const Binding& binding : b.bindings)
      if (holds_memory(binding.var->type) && binding.value->kind != ExprKind::kAtom)
        ours[binding.var.get()] = binding.var;
    VarSet used;
    use(b.result, used);
    live.merge(used);

    std::vector<std::vector<VarRef>> ends(b.bindings.size());
    std::vector<ir::ExprRef> values(b.bindings.size());
    for (size_t i = b.bindings.size(); i-- > 0;) {
      const Binding& binding = b.bindings[i];
      const Expr& e = *binding.value;
      values[i] = binding.value;
      const Var* v = binding.var.get();
      if (ours.count(v) && !live.count(v)) ends[i].push_back(binding.var);  // nobody reads it
      std::vector<VarRef> dying;
      VarSet now;
      visit_atoms(e, [&](const Atom& a) { use(a, now); });
      for (const Var* u : now)
        if (auto it = ours.find(u); it != ours.end() && !live.count(u)) dying.push_back(it->second);
      if (ir::blocks_of(e).empty())
        ends[i].insert(ends[i].end(), dying.begin(), dying.end());
      else
        values[i] = into_branches(e, live, dying, ends[i]);
      live.merge(now);
    }
    ir::BlockBuilder out;
    end(dead, out);
    for (size_t i = 0; i < b.bindings.size(); ++i) {
      out.append({b.bindings[i].var, values[i]});
      end(ends[i], out);
    }
    return out.finish(b.result);
  }

 private:
  // The variable, and the storages of this function's own that it lies in.
  void use(const Atom& a, VarSet& out) const {
    if (!a.is_var()) return;
    out.insert(a.var.get());
    auto it = survey_.held.find(a.var.get());
    if (it == survey_.held.end()) return;
    for (size_t s : it->second)
      if (owned_.count(survey_.storages[s].var.get())) out.insert(survey_.storages[s].var.get());
  }

  ir::ExprRef into_branches(const Expr& e, const VarSet& live, const std::vector<VarRef>& dying,
                            std::vector<VarRef>& after) {
    VarSet pinned;  // read by the expression itself, or handed on by a branch
    for (const Atom& a : e.args) use(a, pinned);
    const std::vector<ir::BlockRef> nested = ir::blocks_of(e);
    for (const ir::BlockRef& n : nested) use(n->result, pinned);
    std::vector<VarRef> sunk;
    for (const VarRef& v : dying) (pinned.count(v.get()) ? after : sunk).push_back(v);
    // What ends after the expression must outlive the branches.
    VarSet beyond = live;
    for (const VarRef& v : after) beyond.insert(v.get());

    size_t k = 0;
    auto branch = [&](const ir::BlockRef& n) {
      std::vector<VarRef> mine, dead;
      VarSet used;
      visit_atoms(*n, [&](const Atom& a) { use(a, used); });
      for (const VarRef& v : sunk) (used.count(v.get()) ? mine : dead).push_back(v);
      if (e.kind == ExprKind::kMatch)
        for (const VarRef& p : ir::variables_of(e.cases[k].pattern))
          if (holds_memory(p->type) && used.count(p.get())) mine.push_back(p);
      ++k;
      return run(*n, beyond, mine, dead);
    };
    auto copy = std::make_shared<Expr>(e);
    if (copy->then_block) copy->then_block = branch(copy->then_block);
    if (copy->else_block) copy->else_block = branch(copy->else_block);
    for (ir::MatchCase& c : copy->cases) c.body = branch(c.body);
    return copy;
  }

  // Tensors before the storages that they lie in, else in the order of their definitions.
  void end(std::vector<VarRef> dying, ir::BlockBuilder& out) const {
    auto key = [this](const VarRef& v) {
      return std::pair(v->type->kind == TypeKind::kStorage, order_.at(v.get()));
    };
    std::sort(dying.begin(), dying.end(),
              [&](const VarRef& a, const VarRef& b) { return key(a) < key(b); });
    for (const VarRef& v : dying) {
      const bool release = v->type->kind == TypeKind::kStorage && !owned_.count(v.get());
      VarRef u = out.call(release ? "memory.release" : "memory.kill", {v}, {}, "u");
      u->type = ir::tuple_type({});
    }
  }

  const MemorySurvey& survey_;
  VarSet owned_;  // storages whose memory the function frees
  std::unordered_map<const Var*, size_t> order_;
};

}  // namespace

ir::FunctionRef place_kills(const ir::FunctionRef& f, bool entry) {
  const MemorySurvey survey(*f);
  std::vector<VarRef> mine;
  if (!entry)  // a user's tensors stay whatever we do
    for (const VarRef& p : f->parameters)
      if (holds_memory(p->type)) mine.push_back(p);
  auto copy = std::make_shared<ir::Function>(*f);
  // Parameters that nobody reads go at once.
  VarSet used;
  visit_atoms(*f->body, [&](const Atom& a) {
    if (a.is_var()) used.insert(a.var.get());
  });
  std::vector<VarRef> dead;
  std::erase_if(mine, [&](const VarRef& p) {
    if (used.count(p.get())) return false;
    dead.push_back(p);
    return true;
  });
  copy->body = Killer(*f, survey).run(*f->body, {}, mine, dead);
  return copy;
}

}  // namespace nimble::passes
