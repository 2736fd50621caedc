// Tensors that a loop grows.
//
// `concat(%acc, %rows)` along axis 0, in a loop whose parameter %acc is dead afterwards, becomes
// append: lower-memory writes the rows behind the old data where the storage of %acc has room, and
// else moves to a storage of twice the size, so n steps copy a number of bytes linear in n. Only
// loops profit: a tensor that is extended once has no room to spare, and doubling would waste it.
#include <functional>
#include <set>

#include "compiler/passes/ownership.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/recursion.h"
#include "compiler/passes/rewrite.h"

namespace nimble::passes {

using ir::Expr;

ir::Module grow_tensors(const ir::Module& m, PassContext& context) {
  const Ownership ownership(m);
  const Recursion recursion(m);
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    if (!recursion.calls(name, name)) continue;
    std::set<const ir::Var*> parameters;
    for (const ir::VarRef& p : f->parameters) parameters.insert(p.get());
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& to) -> std::optional<ir::Atom> {
      const Expr& e = *b.value;
      if (e.kind != ir::ExprKind::kCall || e.op != "concat" || e.args.size() < 2) return {};
      if (!e.args[0].is_var() || !parameters.count(e.args[0].var.get())) return {};
      const auto axis = ir::attr<int64_t>(e.attrs, "axis");
      const auto rank = static_cast<int64_t>(b.var->type->dims.size());
      if ((axis != 0 && axis != -rank) || !ownership.consumable(b, 0)) return {};
      auto append = std::make_shared<Expr>(e);
      append->op = "append";
      append->attrs["axis"] = int64_t{0};
      to.append({b.var, append});
      context.count("grow-tensors.appends");
      return ir::Atom(b.var);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
