// Edits that make what is left plainer: parameters, operands, attributes, extents, constants.
#include <algorithm>
#include <set>

#include "compiler/ir/op.h"
#include "compiler/tools/reduce/edits.h"

namespace nimble::reduce {

using ir::Atom;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::VarRef;

namespace {

template <class T>
void erase_at(std::vector<T>* list, const std::set<size_t>& gone) {
  std::vector<T> kept;
  for (size_t i = 0; i < list->size(); ++i)
    if (!gone.count(i)) kept.push_back((*list)[i]);
  *list = std::move(kept);
}

// The integers from `low` on that occur as extents.
std::set<int64_t> extents(Copy& copy, int64_t low) {
  std::set<int64_t> out;
  auto see = [&](const Dim& d) {
    if (const auto c = d.as_constant(); c && *c >= low) out.insert(*c);
    return d;
  };
  for (const auto& [name, f] : copy.module().functions) copy.replace_dims(name, see);
  copy.visit_atoms([&](Atom& a) {
    if (!a.is_constant()) return;
    for (const int64_t extent : a.constant->shape) see(Dim(extent));
  });
  return out;
}

// A constant with extents `from` become `to`: its values are repeated or cut off.
ir::TensorRef resized(const ir::TensorRef& t, int64_t from, int64_t to) {
  std::vector<int64_t> shape = t->shape;
  std::replace(shape.begin(), shape.end(), from, to);
  if (shape == t->shape) return t;
  uint8_t* data = nullptr;
  auto out = ir::Tensor::make(t->dtype, std::move(shape), &data);
  out->name = t->name;
  if (!t->bytes.empty())
    for (size_t i = 0; i < out->bytes.size(); ++i) data[i] = t->bytes[i % t->bytes.size()];
  return out;
}

template <class Smaller>
void shrink_extents(Copy& copy, Sites& sites, int64_t low, Smaller smaller) {
  for (const int64_t from : extents(copy, low)) {
    if (!sites.wants()) continue;
    const int64_t to = smaller(from);
    for (const auto& [name, f] : copy.module().functions)
      copy.replace_dims(name, [&](const Dim& d) { return d.is_constant(from) ? Dim(to) : d; });
    copy.visit_atoms([&](Atom& a) {
      if (a.is_constant()) a.constant = resized(a.constant, from, to);
    });
  }
}

void fix_symbols(Copy& copy, Sites& sites, int64_t value) {
  for (const auto& [name, f] : copy.module().functions) {
    std::set<std::string> symbols;
    for (const VarRef& p : f->parameters) {
      if (!p->type || p->type->kind != ir::TypeKind::kTensor) continue;
      for (const Dim& d : p->type->dims)
        if (!d.is_any()) symbols.merge(d.symbols());
    }
    for (const std::string& s : symbols) {
      if (!sites.wants()) continue;
      copy.replace_dims(name, [&](const Dim& d) { return d.substitute({{s, Dim(value)}}); });
      const_cast<ir::Function&>(*f).attrs.erase("range." + s);
    }
  }
}

}  // namespace

// A site is a parameter of a global function. What reads it gets a stand-in.
void drop_parameters(Copy& copy, Sites& sites) {
  ir::Module& m = copy.module();
  std::map<std::string, std::set<size_t>> gone;
  for (auto& [name, f] : m.functions) {
    for (size_t i = 0; i < f->parameters.size(); ++i)
      if (sites.wants()) gone[name].insert(i);
    if (!gone.count(name)) continue;
    auto& function = const_cast<ir::Function&>(*f);
    const std::vector<VarRef> before = function.parameters;
    erase_at(&function.parameters, gone[name]);
    for (const size_t i : gone[name])
      if (std::optional<Atom> a = stand_in({&name, function.parameters, {}}, before[i]->type))
        copy.substitute(before[i], *a);
    if (auto s = m.signatures.find(name); s != m.signatures.end()) {
      erase_at(&s->second.input_names, gone[name]);
      erase_at(&s->second.input_defaults, gone[name]);
    }
  }
  if (gone.empty()) return;
  copy.visit_bindings([&](Scope&, const VarRef&, Expr& e, std::vector<Binding>&) {
    if (e.callee && e.callee->is_global())
      if (auto it = gone.find(e.callee->global); it != gone.end()) erase_at(&e.args, it->second);
    return Fate::kKeep;
  });
}

// Where a binding has the type of one of its operands, that operand may stand for it.
void forward_operands(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope&, const VarRef& v, Expr& e, std::vector<Binding>&) {
    if (!v->type) return Fate::kKeep;
    for (const Atom& a : e.args) {
      const ir::Type type = ir::type_of(a);
      if (!type || !ir::equal(type, v->type)) continue;
      if (!sites.wants()) return Fate::kKeep;
      copy.substitute(v, a);
      return Fate::kDrop;
    }
    return Fate::kKeep;
  });
}

void simplify_operands(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope& scope, const VarRef&, Expr& e, std::vector<Binding>&) {
    for (Atom& a : e.args) {
      const bool bound = a.is_var() && std::any_of(scope.bound.begin(), scope.bound.end(),
                                                   [&](const VarRef& v) { return v == a.var; });
      if (!bound) continue;
      std::optional<Atom> plainer = stand_in(scope, a.var->type);
      if (plainer && sites.wants()) a = *plainer;
    }
    return Fate::kKeep;
  });
}

void drop_operands(Copy& copy, Sites& sites) {
  copy.visit_bindings([&](Scope&, const VarRef&, Expr& e, std::vector<Binding>&) {
    if (e.kind != ExprKind::kCall || e.op.empty()) return Fate::kKeep;
    const ir::OpInfo* op = ir::find_op(e.op);
    if (!op) return Fate::kKeep;
    std::set<size_t> gone;
    for (size_t i = static_cast<size_t>(op->min_args); i < e.args.size(); ++i)
      if (sites.wants()) gone.insert(i);
    erase_at(&e.args, gone);
    return Fate::kKeep;
  });
}

void drop_attributes(Copy& copy, Sites& sites) {
  copy.visit_functions([&](const std::string&, ir::Function& f) {
    std::erase_if(f.attrs, [&](const auto& a) { return a.first != "primitive" && sites.wants(); });
  });
  copy.visit_bindings([&](Scope&, const VarRef&, Expr& e, std::vector<Binding>&) {
    const ir::OpInfo* op = e.op.empty() ? nullptr : ir::find_op(e.op);
    if (!op) return Fate::kKeep;
    for (const ir::AttrSpec& a : op->attrs)
      if (!a.required && e.attrs.count(a.name) && sites.wants()) e.attrs.erase(a.name);
    return Fate::kKeep;
  });
}

void drop_names(Copy& copy, Sites& sites) {
  ir::Module& m = copy.module();
  if (!m.source.empty() && sites.wants()) m.source.clear();
  std::erase_if(m.signatures, [&](const auto& s) { return s.first == "main" && sites.wants(); });
  copy.visit_bindings([&](Scope&, const VarRef&, Expr& e, std::vector<Binding>&) {
    if (!e.location.source_name.empty() && sites.wants()) e.location.source_name.clear();
    return Fate::kKeep;
  });
}

void drop_data_types(Copy& copy, Sites& sites) {
  std::vector<ir::DataType> kept;
  for (const ir::DataType& d : copy.module().data_types) {
    if (sites.wants()) continue;
    kept.push_back(d);
    std::erase_if(kept.back().constructors, [&](const ir::Constructor&) { return sites.wants(); });
  }
  copy.module().data_types = std::move(kept);
}

void fix_symbols_at_one(Copy& copy, Sites& sites) {
  fix_symbols(copy, sites, 1);
}
void fix_symbols_at_two(Copy& copy, Sites& sites) {
  fix_symbols(copy, sites, 2);
}

void shrink_extents_to_one(Copy& copy, Sites& sites) {
  shrink_extents(copy, sites, 2, [](int64_t) { return 1; });
}
void shrink_extents_to_two(Copy& copy, Sites& sites) {
  shrink_extents(copy, sites, 3, [](int64_t) { return 2; });
}
void halve_extents(Copy& copy, Sites& sites) {
  shrink_extents(copy, sites, 4, [](int64_t from) { return from / 2; });
}

void zero_constants(Copy& copy, Sites& sites) {
  copy.visit_atoms([&](Atom& a) {
    if (!a.is_constant()) return;
    const auto& bytes = a.constant->bytes;
    const bool zero = std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
    if (zero || !sites.wants()) return;
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(a.constant->dtype, a.constant->shape, &data);
    t->name = a.constant->name;
    a.constant = t;
  });
}

}  // namespace nimble::reduce
