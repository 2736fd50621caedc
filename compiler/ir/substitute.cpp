#include "compiler/ir/substitute.h"

namespace nimble::ir {
namespace {

class Substitution {
 public:
  explicit Substitution(const std::map<std::string, Dim>& values) : values_(values) {}

  FunctionRef apply(const Function& f) {
    auto out = std::make_shared<Function>(f);
    for (VarRef& p : out->parameters) p = fresh(p);
    out->result_type = substitute(f.result_type, values_);
    out->body = block(*f.body);
    return out;
  }

 private:
  VarRef fresh(const VarRef& v) {
    VarRef now = make_var(v->name, v->type ? substitute(v->type, values_) : nullptr, v->location);
    map_[v.get()] = now;
    return now;
  }
  Atom atom(const Atom& a) const {
    if (!a.is_var()) return a;
    auto it = map_.find(a.var.get());
    return it == map_.end() ? a : Atom(it->second);
  }
  void pattern(Pattern& p) {
    if (p.var) p.var = fresh(p.var);
    for (Pattern& f : p.fields) pattern(f);
  }
  BlockRef block(const Block& b) {
    auto out = std::make_shared<Block>();
    for (const Binding& binding : b.bindings) {
      ExprRef e = expr(*binding.value);
      out->bindings.push_back({fresh(binding.var), std::move(e)});
    }
    out->result = atom(b.result);
    out->location = b.location;
    return out;
  }
  ExprRef expr(const Expr& e) {
    auto out = std::make_shared<Expr>(e);
    for (Atom& a : out->args) a = atom(a);
    if (out->callee) out->callee = atom(*out->callee);
    for (auto& [name, value] : out->attrs) {
      if (auto* d = std::get_if<Dim>(&value)) *d = d->substitute(values_);
      if (auto* all = std::get_if<std::vector<Dim>>(&value))
        for (Dim& d : *all) d = d.substitute(values_);
    }
    if (e.primitive) out->primitive = apply(*e.primitive);
    if (e.then_block) out->then_block = block(*e.then_block);
    if (e.else_block) out->else_block = block(*e.else_block);
    for (MatchCase& c : out->cases) {
      pattern(c.pattern);
      c.body = block(*c.body);
    }
    return out;
  }

  const std::map<std::string, Dim>& values_;
  std::map<const Var*, VarRef> map_;
};

}  // namespace

FunctionRef substitute(const Function& f, const std::map<std::string, Dim>& values) {
  return Substitution(values).apply(f);
}

}  // namespace nimble::ir
