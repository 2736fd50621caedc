// Tensors that a loop grows.
//
// `concat(%acc, %rows)` along axis 0, in a loop whose parameter %acc is dead afterwards, becomes
// append: lower-memory writes the rows behind the old data where the storage of %acc has room, and
// else moves to a storage of twice the size, so n steps copy a number of bytes linear in n. Only
// loops profit: a tensor that is extended once has no room to spare, and doubling would waste it.
//
// A loop may begin with a tensor that is not its own: an input of the program, a constant, a value
// that is read again behind the loop. Where that alone keeps %acc from growing in place, the call
// that enters the loop passes a copy; the loop would have made one in its first step.
#include <memory>
#include <optional>
#include <set>

#include "compiler/ir/axes.h"
#include "compiler/passes/analysis/ownership.h"
#include "compiler/passes/analysis/recursion.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Expr;

// The number of the parameter that a binding extends by rows, if it does.
std::optional<size_t> extended_parameter(const Binding& b, const ir::Function& f) {
  const Expr& e = *b.value;
  if (e.kind != ir::ExprKind::kCall || e.op != "concat" || e.args.size() < 2) return {};
  if (!e.args[0].is_var() || ir::axis_of(e) != 0) return {};
  for (size_t i = 0; i < f.parameters.size(); ++i)
    if (f.parameters[i] == e.args[0].var) return i;
  return {};
}

struct Site {
  std::string function;
  size_t parameter;
  ir::VarRef result;
};

std::vector<Site> sites_of(const ir::Module& m, const Recursion& recursion) {
  std::vector<Site> sites;
  for (const auto& [name, f] : m.functions) {
    if (!recursion.calls(name, name)) continue;
    visit_bindings(*f->body, [&, &name = name, &f = f](const Binding& b) {
      if (const auto i = extended_parameter(b, *f)) sites.push_back({name, *i, b.var});
    });
  }
  return sites;
}

// The module with a copy for `site` wherever its loop is entered; its variables are m's.
ir::Module enter_with_copy(const ir::Module& m, const Site& site, const Recursion& recursion) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    if (recursion.calls(site.function, name)) continue;
    Rewriter rewriter([&](const Binding& b, ir::BlockBuilder& to) -> std::optional<Atom> {
      const Expr& e = *b.value;
      if (e.kind != ir::ExprKind::kCall || !e.callee || !e.callee->is_global() ||
          e.callee->global != site.function || is_empty_constant(e.args[site.parameter]))
        return {};
      const Atom& a = e.args[site.parameter];
      const ir::Type type = ir::type_of(a);
      const ir::VarRef own = to.call("cast", {a}, {{"dtype", type->dtype}}, "own", e.location);
      own->type = type;
      auto call = std::make_shared<Expr>(e);
      call->args[site.parameter] = own;
      to.append({b.var, call});
      return Atom(b.var);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

bool is_consumed(const Ownership& ownership, const Site& site) {
  return ownership.consumable(Binding{site.result, nullptr}, 0);
}

}  // namespace

ir::Module grow_tensors(const ir::Module& m, PassContext& context) {
  const Recursion recursion(m);
  const std::vector<Site> sites = sites_of(m, recursion);
  if (sites.empty()) return m;
  ir::Module out = m;
  auto ownership = std::make_unique<Ownership>(out);
  std::set<ir::VarRef> appends;
  for (const Site& site : sites) {
    if (!is_consumed(*ownership, site)) {
      ir::Module copied = enter_with_copy(out, site, recursion);
      auto then = std::make_unique<Ownership>(copied);
      if (!is_consumed(*then, site)) continue;
      out = std::move(copied);
      ownership = std::move(then);
      context.count("grow-tensors.copies");
    }
    appends.insert(site.result);
  }
  for (auto& [name, f] : out.functions) {
    Rewriter rewriter([&](const Binding& b, ir::BlockBuilder& to) -> std::optional<Atom> {
      if (!appends.count(b.var)) return {};
      auto append = std::make_shared<Expr>(*b.value);
      append->op = "append";
      append->attrs["axis"] = int64_t{0};
      to.append({b.var, append});
      context.count("grow-tensors.appends");
      return Atom(b.var);
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
