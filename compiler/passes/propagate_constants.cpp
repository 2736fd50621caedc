// Loop-invariant constants. A parameter of an inner function that receives the same constant at
// every call (its own recursive calls may pass the parameter on) is that constant: the weights of
// a loop written as a recursive function become constants in its body, where they can be packed.
#include <algorithm>
#include <set>
#include <string>

#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;
using ir::Module;

// The one constant that parameter `index` of `callee` ever receives, or nothing.
std::optional<Atom> only_constant(const Module& m, const std::string& callee, size_t index) {
  std::optional<Atom> value;
  bool ok = true;
  for (const auto& [name, f] : m.functions) {
    visit_bindings(*f->body, [&, caller = name, function = f](const ir::Binding& b) {
      const Expr& e = *b.value;
      for (const Atom& a : e.args)
        if (a.is_global() && a.global == callee) ok = false;  // a function value: unknown callers
      if (!e.callee || !e.callee->is_global() || e.callee->global != callee) return;
      // A closure is a call that gives the captured values and leaves the rest to unknown callers.
      if (index >= e.args.size()) {
        ok = false;
        return;
      }
      const Atom& arg = e.args[index];
      if (caller == callee && arg.is_var() && arg.var == function->parameters[index]) return;
      if (!arg.is_constant() || (value && value->constant != arg.constant)) ok = false;
      if (arg.is_constant()) value = arg;
    });
  }
  return ok ? value : std::nullopt;
}

Module without_parameter(const Module& m, const std::string& callee, size_t index, Atom value) {
  Module out = m;
  for (auto& [name, f] : out.functions) {
    Rewriter rewriter([&](const ir::Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      const Expr& e = *b.value;
      if (!e.callee || !e.callee->is_global() || e.callee->global != callee) return std::nullopt;
      auto call = std::make_shared<Expr>(e);
      call->args.erase(call->args.begin() + static_cast<std::ptrdiff_t>(index));
      o.append({b.var, call});
      return Atom(b.var);
    });
    if (name == callee) rewriter.substitute(f->parameters[index], value);
    auto copy = std::make_shared<ir::Function>(*rewriter.rewrite(f));
    if (name == callee)
      copy->parameters.erase(copy->parameters.begin() + static_cast<std::ptrdiff_t>(index));
    f = copy;
  }
  return out;
}

// A symbol that only this parameter's type binds would be lost with it.
bool binds_a_symbol_alone(const ir::Function& f, size_t index) {
  std::set<std::string> here, others;
  auto collect = [](const ir::Type& t, std::set<std::string>& into) {
    if (t && t->kind == ir::TypeKind::kTensor)
      for (const ir::Dim& d : t->dims)
        if (auto s = d.as_symbol()) into.insert(*s);
  };
  for (size_t i = 0; i < f.parameters.size(); ++i)
    collect(f.parameters[i]->type, i == index ? here : others);
  return !std::includes(others.begin(), others.end(), here.begin(), here.end());
}

bool well_typed(const Module& m) {
  return ir::infer_module(m).diagnostics.empty();
}

// With `check`, a constant with which the module is no longer well typed stays an argument: the
// function's checks fail for it, and the call may never run.
Module propagate(const Module& m, int64_t* done, bool check) {
  Module out = m;
  *done = 0;
  for (const auto& [name, original] : m.functions) {
    if (ir::is_entry(m, name)) continue;
    for (size_t i = original->parameters.size(); i-- > 0;) {
      if (binds_a_symbol_alone(*out.find(name), i)) continue;
      std::optional<Atom> value = only_constant(out, name, i);
      if (!value) continue;
      Module attempt = without_parameter(out, name, i, *value);
      if (check && !well_typed(attempt)) continue;
      out = std::move(attempt);
      ++*done;
    }
  }
  return out;
}

}  // namespace

ir::Module propagate_constants(const ir::Module& m, PassContext& context) {
  // All at once first: a constant that contradicts what its function checks is rare.
  int64_t done = 0;
  ir::Module out = propagate(m, &done, false);
  if (done > 0 && !well_typed(out)) out = propagate(m, &done, true);
  context.count("propagate-constants.parameters", done);
  return out;
}

}  // namespace nimble::passes
