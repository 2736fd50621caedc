// Hoists input projections out of loops over time.
//
// A loop is a function that calls itself. If it takes row i of a parameter `xs` that its own calls
// pass on unchanged, and computes matmul(row, W) with constant W (and adds constant vectors), the
// same work for all rows is one matrix product ahead of the loop, where the weights are read once
// instead of once a step:
//
//   fn @loop(%i, %xs, …) { … take_row(%xs, %i) … matmul(%row, W) … add(%p, b) … @loop(…, %xs, …) }
//     ->  at each call from outside: let %ys = add(matmul(%xs, W), b);  @loop(…, %xs, …, %ys)
//         inside:                    take_row(%ys, %i)
#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/ir/entry.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Module;
using ir::Type;
using ir::Var;
using ir::VarRef;

// Parameters that every recursive call passes on unchanged; empty if the function is no loop.
std::vector<bool> invariant_parameters(const std::string& name, const ir::Function& f) {
  std::vector<bool> invariant(f.parameters.size(), true);
  bool loop = false;
  visit_bindings(*f.body, [&](const Binding& b) {
    if (!calls_function(*b.value, name)) return;
    loop = true;
    for (size_t i = 0; i < f.parameters.size(); ++i)
      if (!b.value->args[i].is_var() || b.value->args[i].var != f.parameters[i])
        invariant[i] = false;
  });
  return loop ? invariant : std::vector<bool>(f.parameters.size(), false);
}

// A value computed row by row from rows of one parameter.
struct Chain {
  size_t parameter = 0;
  Atom index;
  std::vector<const Binding*> steps;  // after take_row, in order
  bool has_product = false;
};

std::optional<Atom> other_operand(const Expr& e, const Atom& row) {
  if (e.args.size() != 2) return std::nullopt;
  for (size_t side : {size_t{0}, size_t{1}})
    if (e.args[side].is_var() && e.args[side].var == row.var) return e.args[1 - side];
  return std::nullopt;
}

// Whether the operator maps rows to rows: a product with a constant matrix, or a sum with a
// constant vector.
bool row_wise(const Expr& e, const Atom& row, bool* product) {
  auto other = other_operand(e, row);
  if (!other || !other->is_constant()) return false;
  size_t rank = other->constant->shape.size();
  if (e.op == "matmul")
    return *product = true,
           rank == 2 && e.args[1].is_constant() && !ir::attr_or(e.attrs, "transpose_a", false);
  return e.op == "add" && rank <= 1;
}

using Chains = std::unordered_map<const Var*, Chain>;

Chains find_chains(const ir::Function& f, const std::vector<bool>& invariant) {
  Chains chains;
  visit_bindings(*f.body, [&](const Binding& b) {
    const Expr& e = *b.value;
    if (e.kind != ExprKind::kCall || !b.var->type || b.var->type->kind != ir::TypeKind::kTensor)
      return;
    if (e.op == "take_row" && e.args[0].is_var()) {
      for (size_t i = 0; i < f.parameters.size(); ++i)
        if (invariant[i] && e.args[0].var == f.parameters[i] && b.var->type->dims.size() == 2)
          chains[b.var.get()] = {i, e.args[1], {}, false};
      return;
    }
    for (const Atom& a : e.args) {
      auto it = a.is_var() ? chains.find(a.var.get()) : chains.end();
      bool product = false;
      if (it == chains.end() || !row_wise(e, a, &product)) continue;
      Chain longer = it->second;
      longer.steps.push_back(&b);
      longer.has_product |= product;
      chains[b.var.get()] = std::move(longer);
      return;
    }
  });
  return chains;
}

// Whether only calls from outside start the loop: no closure of it is made (such a caller cannot
// pass a new parameter), and the loop reaches no other function that starts it again (that one's
// every step would compute the projections of all rows).
bool starts_from_outside(const Module& m, const std::string& loop) {
  std::set<std::string> reached, callers;
  bool closure = false;
  std::vector<std::string> work = {loop};
  while (!work.empty()) {
    const std::string name = work.back();
    work.pop_back();
    const ir::FunctionRef f = m.find(name);
    if (!f || !reached.insert(name).second) continue;
    visit_atoms(*f->body, [&](const Atom& a) {
      if (a.is_global()) work.push_back(a.global);
    });
  }
  for (const auto& [name, f] : m.functions)
    visit_bindings(*f->body, [&, caller = name](const Binding& b) {
      const Expr& e = *b.value;
      if (calls_function(e, loop) && caller != loop) callers.insert(caller);
      closure |= e.kind == ExprKind::kClosure && e.callee->global == loop;
      for (const Atom& a : e.args) closure |= a.is_global() && a.global == loop;
    });
  return !closure && std::none_of(callers.begin(), callers.end(),
                                  [&](const std::string& c) { return reached.count(c) > 0; });
}

class Hoist {
 public:
  Hoist(Module& m, PassContext& context) : module_(m), context_(context) {}

  void run(const std::string& name) {
    ir::FunctionRef f = module_.find(name);
    std::vector<bool> invariant = invariant_parameters(name, *f);
    Chains chains = find_chains(*f, invariant);
    // The longest chains: values with a product that no longer chain extends.
    std::unordered_map<const Var*, bool> extended;
    for (const auto& [v, c] : chains)
      for (size_t i = 0; i + 1 < c.steps.size(); ++i) extended[c.steps[i]->var.get()] = true;
    std::vector<std::pair<VarRef, Chain>> hoisted;
    visit_bindings(*f->body, [&](const Binding& b) {
      auto it = chains.find(b.var.get());
      if (it != chains.end() && it->second.has_product && !extended.count(b.var.get()))
        hoisted.emplace_back(b.var, it->second);
    });
    for (const auto& [v, chain] : hoisted) apply(name, v, chain);
  }

 private:
  static Type with_rows(const Type& row, const Dim& rows) {
    std::vector<Dim> dims = {rows};
    dims.insert(dims.end(), row->dims.begin(), row->dims.end());
    return ir::tensor_type(dims, row->dtype);
  }

  void apply(const std::string& name, const VarRef& v, const Chain& chain) {
    ir::FunctionRef f = module_.find(name);
    const Dim rows = f->parameters[chain.parameter]->type->dims[0];
    VarRef all = ir::make_var(v->name + "_all", with_rows(v->type, rows), v->location);
    auto loop = std::make_shared<ir::Function>(*f);
    loop->parameters.push_back(all);
    Rewriter inside([&](const Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
      if (b.var == v) {
        o.append({v, ir::make_call("take_row", {all, chain.index}, {}, v->location)});
        return Atom(v);
      }
      if (!calls_function(*b.value, name)) return std::nullopt;
      auto call = std::make_shared<Expr>(*b.value);
      call->args.push_back(all);
      o.append({b.var, call});
      return Atom(b.var);
    });
    module_.set(name, inside.rewrite(loop));

    for (auto& [caller, function] : module_.functions) {
      if (caller == name) continue;
      Rewriter outside([&](const Binding& b, ir::BlockBuilder& o) -> std::optional<Atom> {
        if (!calls_function(*b.value, name)) return std::nullopt;
        Atom value = b.value->args[chain.parameter];
        const Var* current = nullptr;
        for (const Binding* step : chain.steps) {
          auto e = std::make_shared<Expr>(*step->value);
          for (Atom& a : e->args) {
            bool is_row = current ? (a.is_var() && a.var.get() == current) : a.is_var();
            if (is_row) a = value;
          }
          VarRef next = o.bind(e, step->var->name + "_all");
          next->type = with_rows(step->var->type, ir::type_of(value)->dims[0]);
          value = next;
          current = step->var.get();
        }
        auto call = std::make_shared<Expr>(*b.value);
        call->args.push_back(value);
        o.append({b.var, call});
        return Atom(b.var);
      });
      function = outside.rewrite(function);
    }
    context_.count("hoist-projections.hoisted");
  }

  Module& module_;
  PassContext& context_;
};

}  // namespace

ir::Module hoist_projections(const ir::Module& m, PassContext& context) {
  Module out = m;
  Hoist hoist(out, context);
  for (const auto& [name, f] : m.functions)
    if (!ir::is_entry(m, name) && starts_from_outside(m, name)) hoist.run(name);
  return out;
}

}  // namespace nimble::passes
