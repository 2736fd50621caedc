#include "compiler/passes/support/host_values.h"

#include <algorithm>

#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::ExprKind;
using ir::Type;

// As many integers as typing follows (RelationContext::contents).
constexpr int64_t kFew = 64;

bool is_few_integers(const Type& t) {
  if (!t || t->kind != ir::TypeKind::kTensor || !(is_int(t->dtype) || t->dtype == DType::kBool))
    return false;
  const auto count = ir::element_count(t).as_constant();
  return count && *count <= kFew;
}

}  // namespace

std::unordered_set<const ir::Var*> host_values(const ir::Function& f, bool entry) {
  std::unordered_set<const ir::Var*> out;
  for (const ir::VarRef& p : f.parameters)
    if (entry || is_scalar(p->type)) out.insert(p.get());
  const auto is_there = [&](const Atom& a) { return a.is_var() && out.contains(a.var.get()); };
  const auto stays = [&](const Binding& b) {
    const Expr& e = *b.value;
    if (e.kind == ExprKind::kAtom) return is_there(e.args[0]);
    if (e.kind != ExprKind::kCall) return is_scalar(b.var->type);
    if (e.op.empty()) return is_scalar(b.var->type) && !e.primitive;
    const ir::OpInfo* op = ir::find_op(e.op);
    if (!op || is_scalar_op(e) || kernels::find_host_op(e.op) ||
        op->shape_mode != ir::ShapeMode::kDataIndependent)
      return true;
    if (op->traits.placement) return false;
    if (op->traits.memory != ir::Memory::kOwn) return is_there(e.args[0]);
    if (!is_few_integers(b.var->type)) return false;
    if (op->fusion == ir::FusionKind::kOutside) return true;  // shape code
    return std::any_of(e.args.begin(), e.args.end(), [](const Atom& a) { return a.is_var(); }) &&
           std::all_of(e.args.begin(), e.args.end(), [&](const Atom& a) {
             return a.is_constant() || (is_there(a) && is_few_integers(a.var->type));
           });
  };
  visit_bindings(*f.body, [&](const Binding& b) {
    if (stays(b)) out.insert(b.var.get());
  });
  return out;
}

}  // namespace nimble::passes
