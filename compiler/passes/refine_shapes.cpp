// The second shape analysis: removes dynamism that only the border between functions makes.
//
// Inference takes each function alone: its parameters' symbols may be anything, and what a
// recursive function returns is what it declares. Three facts about the whole module undo the
// damage:
//
//  1. A symbol that has the same value at every call is that value: a constant, or another of the
//     function's symbols. A recursive call counts like the others, with the symbol itself as its
//     own value, so that a loop keeps what its first call gives it. Entry functions and functions
//     used as values have callers that nobody sees: they stay as they are.
//  2. A dim of a result that is declared `?` is an expression of the parameters' symbols if the
//     return paths without recursion say so and, granted that, the others follow: the hypothesis
//     is written into the declaration and inference checks it, by the same induction by which it
//     trusts a declaration. It stands if no run-time check was needed.
//  3. An assert_shape whose sides became the same goes.
//
// It ends: each step removes a symbol or a `?`.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/substitute.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockRef;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Function;
using ir::FunctionRef;
using ir::Type;
using ir::Var;
using ir::VarRef;
using Dims = std::vector<Dim>;
using Values = std::map<std::string, Dim>;

void visit_dims(const Type& pattern, const Type& actual,
                const std::function<void(const Dim&, const Dim&)>& visit) {
  if (!pattern || !actual || pattern->kind != actual->kind ||
      pattern->dims.size() != actual->dims.size() ||
      pattern->elements.size() != actual->elements.size())
    return;
  for (size_t i = 0; i < pattern->dims.size(); ++i) visit(pattern->dims[i], actual->dims[i]);
  for (size_t i = 0; i < pattern->elements.size(); ++i)
    visit_dims(pattern->elements[i], actual->elements[i], visit);
}

void symbols_of(const Type& t, std::set<std::string>& out) {
  visit_dims(t, t, [&](const Dim& d, const Dim&) { out.merge(d.symbols()); });
}

struct Call {
  std::string caller;
  Values values;  // of the callee's symbols, in the caller's
};

// Every call of each function that only calls use.
class CallSites {
 public:
  explicit CallSites(const ir::Module& m) {
    std::set<std::string> open;
    for (const auto& [name, f] : m.functions) {
      if (ir::is_entry(m, name)) open.insert(name);
      visit_bindings(*f->body, [&, caller = name](const Binding& b) {
        const Expr& e = *b.value;
        for (const Atom& a : e.args)
          if (a.is_global()) open.insert(a.global);
        if (e.kind == ExprKind::kClosure && e.callee) open.insert(e.callee->global);
        if (e.kind != ExprKind::kCall || !e.callee || !e.callee->is_global()) return;
        const FunctionRef callee = m.find(e.callee->global);
        Call call{caller, {}};
        for (size_t i = 0; i < e.args.size(); ++i)
          visit_dims(callee->parameters[i]->type, ir::type_of(e.args[i]),
                     [&](const Dim& p, const Dim& a) {
                       if (auto s = p.as_symbol()) call.values.try_emplace(*s, a);
                     });
        calls_[e.callee->global].push_back(std::move(call));
      });
      visit_results(*f->body, open);
    }
    for (const std::string& name : open) calls_.erase(name);
  }

  const std::map<std::string, std::vector<Call>>& all() const { return calls_; }

 private:
  static void visit_results(const Block& b, std::set<std::string>& open) {
    if (b.result.is_global()) open.insert(b.result.global);
    for (const Binding& binding : b.bindings)
      for (const BlockRef& inner : ir::blocks_of(*binding.value)) visit_results(*inner, open);
  }
  std::map<std::string, std::vector<Call>> calls_;
};

// The value that symbol s has at each call, a constant or another symbol of `name`.
std::optional<Dim> value_at_every_call(const std::string& name, const std::string& s,
                                       const std::set<std::string>& symbols,
                                       const std::vector<Call>& calls) {
  const auto holds = [&](const Dim& value) {
    bool outside = false;
    for (const Call& c : calls) {
      auto it = c.values.find(s);
      if (it == c.values.end()) return false;
      Dim given = it->second, wanted = value.substitute(c.values);
      if (c.caller == name) {  // granted that it holds for this activation
        given = given.substitute({{s, value}});
        wanted = wanted.substitute({{s, value}});
      } else {
        outside = true;
      }
      if (!(given == wanted)) return false;
    }
    return outside;
  };
  for (const Call& c : calls) {
    if (c.caller == name) continue;
    auto it = c.values.find(s);
    if (it != c.values.end() && it->second.as_constant() && holds(it->second)) return it->second;
  }
  for (const std::string& other : symbols)
    if (other != s && holds(Dim::symbol(other))) return Dim::symbol(other);
  return std::nullopt;
}

class Refinement {
 public:
  Refinement(const ir::Module& m, PassContext& context)
      : module_(ir::infer_types(m)), context_(context) {}

  ir::Module run() {
    while (fix_parameter()) {
    }
    for (size_t i = 0; i < module_.functions.size(); ++i) refine_result(i);
    return drop_asserts();
  }

 private:
  // Gives one symbol of one function its value.
  bool fix_parameter() {
    const CallSites sites(module_);
    for (const auto& [name, calls] : sites.all()) {
      const FunctionRef f = module_.find(name);
      std::set<std::string> symbols;
      for (const VarRef& p : f->parameters)
        visit_dims(p->type, p->type, [&](const Dim& d, const Dim&) {
          if (auto s = d.as_symbol()) symbols.insert(*s);
        });
      for (const std::string& s : symbols) {
        const auto value = value_at_every_call(name, s, symbols, calls);
        if (!value || contradicted_.contains({name, s})) continue;
        ir::Module attempt = module_;
        attempt.set(name, ir::substitute(*f, {{s, *value}}));
        try {
          module_ = ir::infer_types(attempt);
        } catch (const Error&) {
          // What the function checks fails at this value. Its calls may never run: they keep the
          // check.
          contradicted_.insert({name, s});
          continue;
        }
        context_.count("refine-shapes.symbols");
        return true;
      }
    }
    return false;
  }

  static int64_t asserts_in(const ir::Module& m) {
    int64_t n = 0;
    for (const auto& [name, f] : m.functions)
      visit_bindings(*f->body, [&](const Binding& b) { n += b.value->op == "assert_shape"; });
    return n;
  }

  // The types that return paths without a call give.
  static void base_types(const Block& b, std::vector<Type>& out) {
    if (!b.result.is_var()) {
      out.push_back(ir::type_of(b.result));
      return;
    }
    for (const Binding& binding : b.bindings) {
      if (binding.var != b.result.var) continue;
      const Expr& e = *binding.value;
      if (e.kind == ExprKind::kCall && e.callee) return;
      if (e.kind == ExprKind::kIf) {
        base_types(*e.then_block, out);
        base_types(*e.else_block, out);
        return;
      }
    }
    out.push_back(b.result.var->type);
  }

  // Tries, for each unknown dim of a recursive function's result, what a base path gives.
  void refine_result(size_t index) {
    const auto [name, f] = module_.functions[index];
    if (ir::is_entry(module_, name) || !f->result_type) return;
    std::set<std::string> bound, all;
    for (const VarRef& p : f->parameters) symbols_of(p->type, bound);
    symbols_of(f->result_type, all);
    std::set<std::string> unknown;
    std::set_difference(all.begin(), all.end(), bound.begin(), bound.end(),
                        std::inserter(unknown, unknown.end()));
    if (unknown.empty()) return;
    std::vector<Type> bases;
    base_types(*f->body, bases);
    for (const std::string& s : unknown) {
      std::set<Dim> candidates;
      for (const Type& base : bases)
        visit_dims(f->result_type, base, [&](const Dim& d, const Dim& given) {
          const std::set<std::string> used = given.symbols();
          if (d.as_symbol() == s &&
              std::includes(bound.begin(), bound.end(), used.begin(), used.end()))
            candidates.insert(given);
        });
      if (candidates.size() == 1) try_result(index, s, *candidates.begin());
    }
  }

  void try_result(size_t index, const std::string& symbol, const Dim& value) {
    ir::Module attempt = module_;
    auto f = std::make_shared<Function>(*module_.functions[index].second);
    f->result_type = ir::substitute(f->result_type, {{symbol, value}});
    attempt.functions[index].second = f;
    try {
      ir::Module typed = ir::infer_types(attempt);
      if (asserts_in(typed) > asserts_in(module_)) return;
      module_ = std::move(typed);
      context_.count("refine-shapes.results");
    } catch (const Error&) {
      // The hypothesis contradicts another path: the dim is unknown indeed.
    }
  }

  ir::Module drop_asserts() {
    for (auto& [name, f] : module_.functions) {
      const ir::DimContext facts = ir::dim_context(*f);  // elements of tensors may be negative
      Rewriter rewriter([&](const Binding& b, ir::BlockBuilder&) -> std::optional<Atom> {
        if (b.value->op != "assert_shape") return std::nullopt;
        const auto& left = ir::attr<Dims>(b.value->attrs, "left");
        const auto& right = ir::attr<Dims>(b.value->attrs, "right");
        for (size_t i = 0; i < left.size(); ++i)
          if (facts.equal(left[i], right[i]) != ir::Proof::kYes) return std::nullopt;
        context_.count("refine-shapes.asserts");
        return b.value->args[0];
      });
      f = rewriter.rewrite(f);
    }
    return module_;
  }

  ir::Module module_;
  PassContext& context_;
  std::set<std::pair<std::string, std::string>> contradicted_;  // function, symbol
};

}  // namespace

ir::Module refine_shapes(const ir::Module& m, PassContext& context) {
  return Refinement(m, context).run();
}

}  // namespace nimble::passes
