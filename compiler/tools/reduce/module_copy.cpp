#include "compiler/tools/reduce/module_copy.h"

#include <set>

namespace nimble::reduce {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockRef;
using ir::Expr;
using ir::ExprKind;
using ir::Function;
using ir::FunctionRef;
using ir::Pattern;
using ir::VarRef;

namespace {

// Only for what a Cloner made: those objects are not const.
template <class T>
T& editable(const std::shared_ptr<const T>& p) {
  return const_cast<T&>(*p);
}

class Cloner {
 public:
  explicit Cloner(std::unordered_map<const ir::Var*, Atom> map = {}) : map_(std::move(map)) {}

  FunctionRef function(const FunctionRef& f) {
    auto out = std::make_shared<Function>(*f);
    for (VarRef& p : out->parameters) p = variable(p);
    out->body = block(f->body);
    return out;
  }

  BlockRef block(const BlockRef& b) {
    auto out = std::make_shared<Block>(*b);
    for (Binding& binding : out->bindings) {
      binding.value = expression(binding.value);  // before its variable: it is not in scope there
      binding.var = variable(binding.var);
    }
    out->result = atom(out->result);
    return out;
  }

 private:
  VarRef variable(const VarRef& v) {
    VarRef fresh = ir::make_var(v->name, v->type, v->location);
    map_[v.get()] = Atom(fresh);
    return fresh;
  }

  Atom atom(const Atom& a) const {
    if (!a.is_var()) return a;
    auto it = map_.find(a.var.get());
    return it == map_.end() ? a : it->second;
  }

  void pattern(Pattern* p) {
    if (p->var) p->var = variable(p->var);
    for (Pattern& field : p->fields) pattern(&field);
  }

  ir::ExprRef expression(const ir::ExprRef& e) {
    auto out = std::make_shared<Expr>(*e);
    for (Atom& a : out->args) a = atom(a);
    if (out->callee) out->callee = atom(*out->callee);
    if (out->primitive) out->primitive = function(out->primitive);
    if (out->then_block) out->then_block = block(out->then_block);
    if (out->else_block) out->else_block = block(out->else_block);
    for (ir::MatchCase& c : out->cases) {
      pattern(&c.pattern);
      c.body = block(c.body);
    }
    return out;
  }

  std::unordered_map<const ir::Var*, Atom> map_;
};

// Applies the visits of Copy to a function and all that is nested in it.
class Walker {
 public:
  std::function<void(Function&)> on_function;
  std::function<void(Atom&)> on_atom;
  const Copy::Visit* on_binding = nullptr;
  Scope scope;

  void function(Function& f) {
    if (on_function) on_function(f);
    const size_t outer = scope.parameters.size();
    scope.parameters.insert(scope.parameters.end(), f.parameters.begin(), f.parameters.end());
    block(editable(f.body));
    scope.parameters.resize(outer);
  }

 private:
  void block(Block& b) {
    const size_t outer = scope.bound.size();
    std::vector<Binding> kept;
    for (Binding& binding : b.bindings) {
      Expr& e = editable(binding.value);
      Fate fate = Fate::kKeep;
      const size_t before = kept.size();
      if (on_binding) fate = (*on_binding)(scope, binding.var, e, kept);
      for (size_t i = before; i < kept.size(); ++i) scope.bound.push_back(kept[i].var);
      if (fate == Fate::kDrop) continue;
      atoms(e);
      nested(e);
      scope.bound.push_back(binding.var);
      kept.push_back(binding);  // a visit may look at the module: leave it whole
    }
    b.bindings = std::move(kept);
    if (on_atom) on_atom(b.result);
    scope.bound.resize(outer);
  }

  void atoms(Expr& e) {
    if (!on_atom) return;
    for (Atom& a : e.args) on_atom(a);
    if (e.callee) on_atom(*e.callee);
  }

  void nested(Expr& e) {
    if (e.primitive && e.kind == ExprKind::kFunction) function(editable(e.primitive));
    if (e.primitive && e.kind != ExprKind::kFunction) {  // a group sees nothing from outside
      Scope saved;
      std::swap(saved, scope);
      scope.function = saved.function;
      function(editable(e.primitive));
      std::swap(saved, scope);
    }
    if (e.then_block) block(editable(e.then_block));
    if (e.else_block) block(editable(e.else_block));
    for (ir::MatchCase& c : e.cases) {
      const size_t outer = scope.bound.size();
      for (VarRef& v : ir::variables_of(c.pattern)) scope.bound.push_back(std::move(v));
      block(editable(c.body));
      scope.bound.resize(outer);
    }
  }
};

void walk(ir::Module& m, Walker walker) {
  for (auto& [name, f] : m.functions) {
    walker.scope = Scope{&name, {}, {}};
    walker.function(editable(f));
  }
}

ir::AttrValue replaced(const ir::AttrValue& value,
                       const std::function<ir::Dim(const ir::Dim&)>& replace) {
  if (const ir::Dim* d = std::get_if<ir::Dim>(&value)) return replace(*d);
  if (const auto* dims = std::get_if<std::vector<ir::Dim>>(&value)) {
    std::vector<ir::Dim> out;
    for (const ir::Dim& d : *dims) out.push_back(replace(d));
    return out;
  }
  return value;
}

ir::Type replaced(const ir::Type& t, const std::function<ir::Dim(const ir::Dim&)>& replace) {
  if (!t) return t;
  ir::TypeNode node = *t;
  for (ir::Dim& d : node.dims)
    if (!d.is_any()) d = replace(d);
  for (ir::Type& e : node.elements) e = replaced(e, replace);
  return std::make_shared<const ir::TypeNode>(std::move(node));
}

void called_functions(const Block& b, std::set<std::string>* out) {
  auto see = [&](const Atom& a) {
    if (a.is_global()) out->insert(a.global);
  };
  see(b.result);
  for (const Binding& binding : b.bindings) {
    for (const Atom& a : binding.value->args) see(a);
    if (binding.value->callee) see(*binding.value->callee);
    for (const BlockRef& nested : ir::blocks_of(*binding.value)) called_functions(*nested, out);
  }
}

}  // namespace

Copy::Copy(const ir::Module& m) : module_(m) {
  for (auto& [name, f] : module_.functions) f = Cloner().function(f);
}

void Copy::visit_bindings(const Visit& visit) {
  Walker walker;
  walker.on_binding = &visit;
  walk(module_, std::move(walker));
}

void Copy::visit_functions(const std::function<void(const std::string&, Function&)>& visit) {
  for (auto& [name, f] : module_.functions) {
    Walker walker;
    walker.on_function = [&, &global = name](Function& inner) { visit(global, inner); };
    walker.function(editable(f));
  }
}

void Copy::visit_atoms(const std::function<void(Atom&)>& visit) {
  Walker walker;
  walker.on_atom = visit;
  walk(module_, std::move(walker));
}

void Copy::replace_dims(const std::string& function,
                        const std::function<ir::Dim(const ir::Dim&)>& replace) {
  const Visit in_binding = [&](Scope&, const VarRef& v, Expr& e, std::vector<Binding>&) {
    v->type = replaced(v->type, replace);
    for (auto& [name, value] : e.attrs) value = replaced(value, replace);
    return Fate::kKeep;
  };
  for (auto& [name, f] : module_.functions) {
    if (name != function) continue;
    Walker walker;
    walker.on_binding = &in_binding;
    walker.on_function = [&](Function& inner) {
      for (const VarRef& p : inner.parameters) p->type = replaced(p->type, replace);
      inner.result_type = replaced(inner.result_type, replace);
      for (auto& [attribute, value] : inner.attrs) value = replaced(value, replace);
    };
    walker.function(editable(f));
  }
}

void Copy::finish() {
  if (substitutes_.empty()) return;
  visit_atoms([&](Atom& a) {
    // A substitute may itself have been substituted since.
    for (size_t hops = 0; a.is_var() && hops <= substitutes_.size(); ++hops) {
      auto it = substitutes_.find(a.var.get());
      if (it == substitutes_.end()) break;
      a = it->second;
    }
  });
  substitutes_.clear();
}

void Copy::forget_types() {
  std::set<std::string> recursive;
  for (const auto& [name, f] : module_.functions)
    if (is_recursive(module_, name)) recursive.insert(name);
  visit_functions([&](const std::string& name, Function& f) {
    if (!recursive.count(name)) f.result_type = nullptr;
  });
  visit_bindings([](Scope&, const VarRef& v, Expr&, std::vector<Binding>&) {
    v->type = nullptr;
    return Fate::kKeep;
  });
}

BlockRef Copy::copy_of(const BlockRef& b, std::unordered_map<const ir::Var*, Atom> map) {
  return Cloner(std::move(map)).block(b);
}

std::unordered_map<const ir::Var*, int> uses(Copy& copy) {
  std::unordered_map<const ir::Var*, int> out;
  copy.visit_atoms([&](Atom& a) {
    if (a.is_var()) ++out[a.var.get()];
  });
  return out;
}

bool is_recursive(const ir::Module& m, const std::string& name) {
  std::set<std::string> reached;
  std::vector<std::string> open = {name};
  while (!open.empty()) {
    const FunctionRef f = m.find(open.back());
    open.pop_back();
    if (!f) continue;
    std::set<std::string> called;
    called_functions(*f->body, &called);
    for (const std::string& c : called)
      if (reached.insert(c).second) open.push_back(c);
  }
  return reached.count(name) > 0;
}

}  // namespace nimble::reduce
