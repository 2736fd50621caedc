// Drops bindings whose values nobody reads, and functions that no entry reaches. Pure until
// lowered, so every unused binding may go; what may fail at run time (assert_shape, memory.*)
// stays.
#include <set>

#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Binding;
using ir::Expr;
using ir::ExprKind;

bool has_effect(const Expr& e) {
  if (e.kind == ExprKind::kCall)
    return e.op == "assert_shape" || e.op == "memory.invoke_mut" || e.op == "memory.fatal" ||
           e.op == "memory.kill" || e.op == "write_row" || e.callee.has_value();
  if (e.kind != ExprKind::kIf) return false;
  for (const auto& branch : {e.then_block, e.else_block})
    for (const Binding& b : branch->bindings)
      if (has_effect(*b.value)) return true;
  return false;
}

ir::BlockRef sweep(const ir::BlockRef& block, UseCounts& uses, PassContext& context) {
  std::vector<Binding> kept;  // in reverse
  bool changed = false;
  for (size_t i = block->bindings.size(); i-- > 0;) {
    Binding b = block->bindings[i];
    if (uses[b.var.get()] == 0 && !has_effect(*b.value)) {
      visit_atoms(*b.value, [&](const ir::Atom& a) {
        if (a.is_var()) --uses[a.var.get()];
      });
      context.count("eliminate-dead.bindings");
      changed = true;
      continue;
    }
    if (b.value->kind == ExprKind::kIf) {
      auto copy = std::make_shared<Expr>(*b.value);
      copy->then_block = sweep(copy->then_block, uses, context);
      copy->else_block = sweep(copy->else_block, uses, context);
      if (copy->then_block != b.value->then_block || copy->else_block != b.value->else_block) {
        b.value = copy;
        changed = true;
      }
    }
    kept.push_back(std::move(b));
  }
  if (!changed) return block;
  auto out = std::make_shared<ir::Block>();
  out->bindings.assign(kept.rbegin(), kept.rend());
  out->result = block->result;
  return out;
}

void reach(const ir::Module& m, const std::string& name, std::set<std::string>& seen) {
  ir::FunctionRef f = m.find(name);
  if (!f || !seen.insert(name).second) return;
  visit_atoms(*f->body, [&](const ir::Atom& a) {
    if (a.is_global()) reach(m, a.global, seen);
  });
}

}  // namespace

ir::Module eliminate_dead(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  std::set<std::string> reached;
  for (const auto& [name, signature] : m.signatures) reach(m, name, reached);
  reach(m, "main", reached);
  if (!reached.empty())
    std::erase_if(out.functions, [&](const auto& f) { return !reached.count(f.first); });
  for (auto& [name, f] : out.functions) {
    UseCounts uses = count_uses(*f->body);
    ir::BlockRef body = sweep(f->body, uses, context);
    if (body == f->body) continue;
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = std::move(body);
    f = copy;
  }
  return out;
}

}  // namespace nimble::passes
