#include "compiler/passes/analysis/memory_survey.h"

#include <algorithm>

#include "compiler/ir/op.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::ExprKind;
using ir::TypeKind;
using ir::Var;

bool holds_memory(const ir::Type& t) {
  if (!t || t->kind == TypeKind::kScalar) return false;
  if (t->kind != TypeKind::kTuple) return true;
  return std::any_of(t->elements.begin(), t->elements.end(), holds_memory);
}

namespace {

// Whether the value may lie in its operands' memory.
bool aliases(const Expr& e) {
  return e.kind != ExprKind::kCall || ir::traits_of(e).memory != ir::Memory::kOwn;
}

bool lets_escape(const Expr& e) {
  return e.kind == ExprKind::kTuple || e.kind == ExprKind::kConstruct ||
         e.kind == ExprKind::kClosure || (e.kind == ExprKind::kCall && e.callee);
}

}  // namespace

MemorySurvey::MemorySurvey(const ir::Function& f) {
  for (const ir::VarRef& p : f.parameters) introductions.push_back({p.get(), 0, 0});
  blocks.push_back({});
  walk(*f.body, 0, true);
  if (!f.body->result.is_var()) return;
  touch(f.body->result, true);
}

void MemorySurvey::touch(const Atom& a, bool escape) {
  if (!a.is_var()) return;
  auto it = held.find(a.var.get());
  if (it == held.end()) return;
  for (size_t s : it->second) {
    storages[s].last = clock_;
    storages[s].escapes |= escape;
  }
}

void MemorySurvey::merge(const Var* into, const Atom& from) {
  if (!from.is_var()) return;
  auto it = held.find(from.var.get());
  if (it == held.end()) return;
  const std::vector<size_t> more = it->second;  // `into` may be new to the map
  std::vector<size_t>& all = held[into];
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

void MemorySurvey::walk(const ir::Block& b, size_t id, bool tail) {
  for (size_t i = 0; i < b.bindings.size(); ++i) {
    const Binding& binding = b.bindings[i];
    const Expr& e = *binding.value;
    const Var* v = binding.var.get();
    ++clock_;
    for (const Atom& a : e.args) touch(a, lets_escape(e));
    if (e.callee) touch(*e.callee, true);
    const bool last =
        tail && i + 1 == b.bindings.size() && b.result.is_var() && b.result.var.get() == v;
    if (e.kind == ExprKind::kCall && e.callee) calls.push_back({clock_, *e.callee, last});
    if (e.kind == ExprKind::kCall && e.op == "memory.alloc_storage") {
      held[v] = {storages.size()};
      storages.push_back({binding.var, &e, id, i, clock_, clock_, false});
      continue;
    }
    const std::vector<ir::BlockRef> nested = ir::blocks_of(e);
    const size_t begin = clock_;
    for (size_t k = 0; k < nested.size(); ++k) {
      const size_t inner = blocks.size(), first = storages.size();
      blocks.push_back({id, i, blocks[id].depth + 1, begin});
      if (e.kind == ExprKind::kMatch)
        for (const ir::VarRef& p : ir::variables_of(e.cases[k].pattern)) {
          introductions.push_back({p.get(), inner, clock_});
          merge(p.get(), e.args[0]);
        }
      walk(*nested[k], inner, last);
      merge(v, nested[k]->result);
      if (!nested[k]->result.is_var()) continue;
      auto out = held.find(nested[k]->result.var.get());
      if (out == held.end()) continue;
      for (size_t s : out->second) storages[s].escapes |= s >= first;
    }
    ++clock_;
    if (nested.empty() && aliases(e))
      for (const Atom& a : e.args) merge(v, a);
    if (e.kind != ExprKind::kCall || e.callee) introductions.push_back({v, id, clock_});
  }
  ++clock_;
  touch(b.result, false);
}

}  // namespace nimble::passes
