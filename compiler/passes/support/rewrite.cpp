#include "compiler/passes/support/rewrite.h"

#include "compiler/ir/op.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockRef;
using ir::Expr;
using ir::ExprKind;
using ir::ExprRef;

Atom Rewriter::resolve(const Atom& a) const {
  Atom out = a;
  while (out.is_var()) {
    auto it = map_.find(out.var.get());
    if (it == map_.end()) break;
    out = it->second;
  }
  return out;
}

ExprRef Rewriter::rewrite(const ExprRef& e) {
  auto copy = std::make_shared<Expr>(*e);
  bool changed = false;
  auto same = [](const Atom& a, const Atom& b) {
    return a.kind == b.kind && a.var == b.var && a.constant == b.constant && a.global == b.global;
  };
  for (Atom& a : copy->args) {
    Atom r = resolve(a);
    if (!same(r, a)) changed = true;
    a = std::move(r);
  }
  if (copy->callee) {
    Atom r = resolve(*copy->callee);
    if (!same(r, *copy->callee)) changed = true;
    copy->callee = std::move(r);
  }
  return map_blocks(changed ? ExprRef(copy) : e, [this](const BlockRef& b) { return rewrite(b); });
}

BlockRef Rewriter::rewrite(const BlockRef& b) {
  ir::BlockBuilder out;
  bool changed = false;
  for (const Binding& binding : b->bindings) {
    Binding now{binding.var, rewrite(binding.value)};
    changed |= now.value != binding.value;
    if (std::optional<Atom> replacement = hook_(now, out)) {
      changed = true;
      if (!(replacement->is_var() && replacement->var == binding.var))
        map_[binding.var.get()] = std::move(*replacement);
    } else {
      out.append(std::move(now));
    }
  }
  Atom result = resolve(b->result);
  changed |= result.kind != b->result.kind || result.var != b->result.var;
  changed_ |= changed;
  return changed ? out.finish(std::move(result)) : b;
}

ir::FunctionRef Rewriter::rewrite(const ir::FunctionRef& f) {
  BlockRef body = rewrite(f->body);
  if (body == f->body) return f;
  auto copy = std::make_shared<ir::Function>(*f);
  copy->body = std::move(body);
  return copy;
}

ir::Module rewrite_module(const ir::Module& m, const Rewriter::Hook& hook) {
  return rewrite_module(m, [&](const ir::Function&, const Binding& b, ir::BlockBuilder& out) {
    return hook(b, out);
  });
}

ir::Module rewrite_module(const ir::Module& m, const FunctionHook& hook) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    const ir::FunctionRef of = f;
    Rewriter rewriter([&](const Binding& b, ir::BlockBuilder& made) { return hook(*of, b, made); });
    f = rewriter.rewrite(of);
  }
  return out;
}

void visit_atoms(const Expr& e, const std::function<void(const Atom&)>& visit) {
  for (const Atom& a : e.args) visit(a);
  if (e.callee) visit(*e.callee);
  for (const BlockRef& nested : ir::blocks_of(e)) visit_atoms(*nested, visit);
}

void visit_atoms(const Block& b, const std::function<void(const Atom&)>& visit) {
  for (const Binding& binding : b.bindings) visit_atoms(*binding.value, visit);
  visit(b.result);
}

int64_t constant_bytes(const ir::Module& m) {
  std::set<const ir::Tensor*> seen;
  int64_t bytes = 0;
  for (const auto& [name, f] : m.functions)
    visit_atoms(*f->body, [&](const Atom& a) {
      if (a.is_constant() && seen.insert(a.constant.get()).second)
        bytes += static_cast<int64_t>(a.constant->bytes.size());
    });
  return bytes;
}

void visit_bindings(const Block& b, const std::function<void(const Binding&)>& visit) {
  for (const Binding& binding : b.bindings) {
    visit(binding);
    for (const BlockRef& nested : ir::blocks_of(*binding.value)) visit_bindings(*nested, visit);
  }
}

ExprRef map_blocks(const ExprRef& e, const std::function<BlockRef(const BlockRef&)>& f) {
  if (e->kind != ExprKind::kIf && e->kind != ExprKind::kMatch && e->kind != ExprKind::kFunction)
    return e;
  auto copy = std::make_shared<Expr>(*e);
  bool changed = false;
  auto map = [&](BlockRef& b) {
    BlockRef now = f(b);
    changed |= now != b;
    b = std::move(now);
  };
  if (e->kind == ExprKind::kIf) {
    map(copy->then_block);
    map(copy->else_block);
  } else if (e->kind == ExprKind::kFunction) {
    auto literal = std::make_shared<ir::Function>(*e->primitive);
    map(literal->body);
    copy->primitive = std::move(literal);
  }
  for (ir::MatchCase& c : copy->cases) map(c.body);
  return changed ? ExprRef(copy) : e;
}

UseCounts count_uses(const Block& b) {
  UseCounts uses;
  visit_atoms(b, [&](const Atom& a) {
    if (a.is_var()) ++uses[a.var.get()];
  });
  return uses;
}

Definitions definitions_of(const ir::Function& f) {
  Definitions out;
  visit_bindings(*f.body, [&](const Binding& b) { out[b.var.get()] = b.value.get(); });
  return out;
}

const Expr* definition(const Definitions& d, const Atom& a, std::string_view op) {
  if (!a.is_var()) return nullptr;
  auto it = d.find(a.var.get());
  if (it == d.end() || it->second->kind != ExprKind::kCall || it->second->op.empty())
    return nullptr;
  return op.empty() || it->second->op == op ? it->second : nullptr;
}

bool calls_function(const Expr& e, std::string_view name) {
  return e.kind == ExprKind::kCall && e.callee && e.callee->is_global() && e.callee->global == name;
}

bool decides_shapes(const ir::Expr& e) {
  const ir::OpInfo* op = e.op.empty() ? nullptr : ir::find_op(e.op);
  return op && op->shape_mode != ir::ShapeMode::kDataIndependent && !e.attrs.count("count");
}

std::optional<double> constant_value(const Atom& a) {
  if (!a.is_constant() || a.constant->elements() != 1) return std::nullopt;
  return a.constant->value(0);
}

}  // namespace nimble::passes
