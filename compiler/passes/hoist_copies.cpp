// Copies of loop-invariant values leave their loop.
//
// A loop is a recursive function, and what does not change in it is a parameter that each recursive
// call passes on unchanged. If the body needs such a parameter on a device other than its own (two
// kernels on different devices read one matrix), the copy would be made at every step. So the
// function takes the value twice: the second parameter lies where the body needs it, recursive
// calls pass it on, and every other caller gives its argument twice. Placement, run again, then
// finds the copy at the callers, where it may leave the next loop in the same way. Each step takes
// a copy out of one loop, and loops nest finitely, so it ends.
//
// Only direct recursion is looked at: around functions that call each other in turn a copy stays.
#include <map>

#include "compiler/ir/builder.h"
#include "compiler/passes/place_devices.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Expr;
using ir::Function;
using ir::VarRef;

// Whether a function calls itself and every such call passes parameter k in its own place. A
// function that is also a value has callers that are not seen.
bool is_invariant(const ir::Module& m, const std::string& name, const Function& f, size_t k) {
  bool recursive = false, kept = true;
  visit_bindings(*f.body, [&](const Binding& b) {
    const Expr& e = *b.value;
    if (!e.callee || !e.callee->is_global() || e.callee->global != name) return;
    recursive = true;
    kept &= e.kind == ir::ExprKind::kCall && e.args[k].is_var() && e.args[k].var == f.parameters[k];
  });
  for (const auto& [other, g] : m.functions) {
    visit_bindings(*g->body, [&](const Binding& b) {
      for (const Atom& a : b.value->args) kept &= !a.is_global() || a.global != name;
      kept &= b.value->kind != ir::ExprKind::kClosure || b.value->callee->global != name;
    });
    kept &= !g->body->result.is_global() || g->body->result.global != name;
  }
  return recursive && kept;
}

struct Candidate {
  std::string function;
  size_t parameter = 0;
  int32_t device = 0;
};

std::optional<Candidate> find(const ir::Module& m, const DeviceAnalysis& a) {
  for (const DeviceUse& u : a.uses()) {
    // A result is read once, when the loop is over.
    if (!u.var || !u.atom.is_var() || u.at.is_tuple) continue;
    const std::string& name = u.scope->function;
    if (a.is_entry(name)) continue;
    const auto targets = copy_targets(u, a);
    if (!targets) continue;
    const ir::FunctionRef f = m.find(name);
    for (size_t k = 0; k < f->parameters.size(); ++k)
      if (f->parameters[k] == u.atom.var && u.atom.var->type->kind == ir::TypeKind::kTensor &&
          is_invariant(m, name, *f, k))
        return Candidate{name, k, (*targets)[0]};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ir::Module> hoist_copy(const ir::Module& m, const DeviceAnalysis& a) {
  const std::optional<Candidate> found = find(m, a);
  if (!found) return std::nullopt;
  const Candidate& c = *found;
  const VarRef original = m.find(c.function)->parameters[c.parameter];
  // What the second parameter replaces: every use that wants it on the device.
  std::map<const ir::Var*, std::vector<size_t>> replaced;
  for (const DeviceUse& u : a.uses()) {
    if (!u.var || !u.atom.is_var() || u.atom.var != original) continue;
    const auto targets = copy_targets(u, a);
    if (targets && (*targets)[0] == c.device) replaced[u.var].push_back(u.operand);
  }
  const VarRef second = ir::make_var(original->name + "_there", original->type, original->location);
  const VarRef there = ir::make_var(second->name, original->type, original->location);

  ir::Module out = rewrite_module(m, [&](const Binding& b, ir::BlockBuilder& to) {
    const Expr& e = *b.value;
    std::optional<Atom> none;
    const bool calls = e.callee && e.callee->is_global() && e.callee->global == c.function;
    const auto it = replaced.find(b.var.get());
    if (!calls && it == replaced.end()) return none;
    auto now = std::make_shared<Expr>(e);
    if (it != replaced.end()) {
      for (size_t i : it->second) now->args[i] = there;
      // An explicit copy: it is made already.
      if (e.op == "device_copy") now->op = "on_device", now->attrs.erase("from");
    }
    if (calls) {
      const Atom& argument = e.args[c.parameter];
      const bool own = argument.is_var() && argument.var == original;
      now->args.push_back(own ? Atom(there) : argument);
    }
    to.append({b.var, std::move(now)});
    return std::optional<Atom>(b.var);
  });
  auto f = std::make_shared<Function>(*out.find(c.function));
  f->parameters.push_back(second);
  auto body = std::make_shared<ir::Block>(*f->body);
  body->bindings.insert(
      body->bindings.begin(),
      {there, ir::make_call("on_device", {second}, {{"device", int64_t{c.device}}})});
  f->body = std::move(body);
  out.set(c.function, std::move(f));
  return out;
}

}  // namespace nimble::passes
