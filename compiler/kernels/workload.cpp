// Canonical form of fused groups.
//
// Equal work must have an equal key, or tuning records would be found only by the model they were
// measured with. Three things differ between equal groups, and three steps remove them:
//
//  1. Leading axes. Where every operation of the group treats rows alike, the leading axes (b, n)
//     are one axis of b*n rows. `Collapse` tries the largest number of axes first; each operator
//     either has a rule there or forbids it. The contract's collapse_leading tells the VM.
//  2. Symbols. They become s0, s1, … in order of appearance. A symbol must be bound by a bare dim
//     of a parameter, so a compound dim whose symbols nothing has bound before becomes a symbol of
//     its own, and those that nothing binds later either are solved for where it is linear
//     (t = 2*n + 1: n = floordiv(t-1, 2)). What is left unbound is passed by the caller as an
//     extra scalar.
//  3. Names of variables: p0, p1, … for parameters, t0, t1, … for bindings.
#include "compiler/kernels/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "compiler/ir/op.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/host_ops.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

using ir::Atom;
using ir::Attrs;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Function;
using ir::Type;
using ir::VarRef;
using Ints = std::vector<int64_t>;

size_t rank(const Type& t) {
  return t->dims.size();
}

// One attempt to multiply the first `k` axes of all row-wise values into one.
class Collapse {
 public:
  Collapse(const Function& f, size_t k) : f_(f), k_(k) {}

  // The types and attributes after collapsing; false if some operation forbids it.
  bool run() {
    for (const Type& r : result_types()) {
      if (r->kind != ir::TypeKind::kTensor || rank(r) < k_) return false;
      if (rows_.empty()) rows_.assign(r->dims.begin(), r->dims.begin() + static_cast<long>(k_));
      if (!leads(r)) return false;
    }
    for (const VarRef& p : f_.parameters) {
      if (p->type->kind != ir::TypeKind::kTensor) return false;
      if (leads(p->type)) rowful_.insert(p.get());
    }
    for (const ir::Binding& b : f_.body->bindings)
      if (!binding(b)) return false;
    return rowful(f_.body->result);
  }

  bool rowful(const VarRef& v) const { return rowful_.contains(v.get()); }
  Type type(const VarRef& v) const {
    if (!rowful(v)) return v->type;
    if (v->type->kind == ir::TypeKind::kTuple) {
      std::vector<Type> elements;
      for (const Type& e : v->type->elements) elements.push_back(collapsed(e));
      return ir::tuple_type(std::move(elements));
    }
    return collapsed(v->type);
  }
  const Attrs& attrs(const Expr& e) const {
    const auto it = attrs_.find(&e);
    return it == attrs_.end() ? e.attrs : it->second;
  }

 private:
  std::vector<Type> result_types() const {
    const Type t = ir::type_of(f_.body->result);
    return t->kind == ir::TypeKind::kTuple ? t->elements : std::vector<Type>{t};
  }
  bool leads(const Type& t) const {
    return rank(t) >= k_ && std::equal(rows_.begin(), rows_.end(), t->dims.begin());
  }
  Type collapsed(const Type& t) const {
    Dim product = 1;
    for (const Dim& d : rows_) product = product * d;
    std::vector<Dim> dims = {product};
    dims.insert(dims.end(), t->dims.begin() + static_cast<long>(k_), t->dims.end());
    return ir::tensor_type(std::move(dims), t->dtype);
  }
  bool rowful(const Atom& a) const { return a.is_var() && rowful_.contains(a.var.get()); }
  // What number an axis has behind the rows' one axis; nothing if it is one of the rows.
  std::optional<int64_t> inner_axis(int64_t axis) const {
    if (axis < static_cast<int64_t>(k_)) return std::nullopt;
    return axis - static_cast<int64_t>(k_) + 1;
  }
  void keep(const VarRef& v) { rowful_.insert(v.get()); }

  // Counts the attribute `axis` or `axes` anew, unless it is one of the rows.
  bool shift_axes(const Expr& e) {
    Attrs a = attrs(e);
    const auto shift = [&](int64_t& axis) {
      const auto inner = inner_axis(axis);
      axis = inner.value_or(0);
      return inner.has_value();
    };
    const auto shift_all = [&](Ints& axes) { return std::all_of(axes.begin(), axes.end(), shift); };
    if (const auto axis = a.find("axis"); axis != a.end()) {
      if (!shift(std::get<int64_t>(axis->second))) return false;
    } else if (!shift_all(std::get<Ints>(a.at("axes")))) {
      return false;
    }
    attrs_[&e] = std::move(a);
    return true;
  }
  void set_shape(const Expr& e, const Type& t) {
    Attrs a = attrs(e);
    a["shape"] = collapsed(t)->dims;
    a.erase("allow_zero");
    attrs_[&e] = std::move(a);
  }

  bool binding(const ir::Binding& b) {
    const Expr& e = *b.value;
    bool any = false, all = true;
    for (const Atom& a : e.args) {
      if (a.is_global()) return false;
      (rowful(a) ? any : all) = rowful(a);
    }
    if (e.kind == ExprKind::kTuple || e.kind == ExprKind::kAtom) {
      if (any && !all) return false;
      if (any) keep(b.var);
      return true;
    }
    const ir::OpInfo* op = e.kind == ExprKind::kCall ? ir::find_op(e.op) : nullptr;
    if (op == nullptr) return false;
    if (op->rows() == ir::Rows::kFill) {
      if (any || !leads(b.var->type)) return !any;
      set_shape(e, b.var->type);
      keep(b.var);
      return true;
    }
    if (!any) return true;
    if (b.var->type->kind != ir::TypeKind::kTensor || !leads(b.var->type)) return false;
    if (!call(e, op->rows(), b.var->type)) return false;
    keep(b.var);
    return true;
  }

  bool call(const Expr& e, ir::Rows rows, const Type& out) {
    const auto in = [&](size_t i) { return ir::type_of(e.args[i]); };
    const auto only_first_rowful = [&] {
      return rowful(e.args[0]) && std::none_of(e.args.begin() + 1, e.args.end(),
                                               [&](const Atom& a) { return rowful(a); });
    };
    switch (rows) {
      case ir::Rows::kMixed:
      case ir::Rows::kFill:
        return false;
      case ir::Rows::kPointwise:
        return elementwise(e, out);
      case ir::Rows::kAxes:
        return only_first_rowful() && shift_axes(e);
      case ir::Rows::kResultAxes:
        return std::all_of(e.args.begin(), e.args.end(),
                           [&](const Atom& a) { return rowful(a); }) &&
               shift_axes(e);
      case ir::Rows::kShape:
      case ir::Rows::kBroadcast:
        // Extents aligned at the end are the operand's in front if there are as many.
        if (e.args.size() != 1) return false;
        if (rows == ir::Rows::kBroadcast && rank(in(0)) != rank(out)) return false;
        set_shape(e, out);
        return true;
      case ir::Rows::kPermutation:
        return transpose(e);
      case ir::Rows::kPads:
        return pad(e);
      case ir::Rows::kIndex: {
        const int64_t axis = ir::attr_or<int64_t>(e.attrs, "axis", 0);
        const bool by_rows = !rowful(e.args[0]) && rowful(e.args[1]);
        if (by_rows) return axis == 0 || axis == -static_cast<int64_t>(rank(in(0)));
        return only_first_rowful() && inner_axis(axis) && shift_axes(e);
      }
      case ir::Rows::kProduct:
        return only_first_rowful() && rank(in(1)) == 2 && rank(in(0)) > k_ &&
               !ir::attr_or<bool>(e.attrs, "transpose_a", false);
      case ir::Rows::kPackedProduct:
        return only_first_rowful() && rank(in(0)) > k_;
    }
    NIMBLE_UNREACHABLE("rows of {}", e.op);
  }

  bool elementwise(const Expr& e, const Type& out) const {
    for (const Atom& a : e.args) {
      const size_t r = rank(ir::type_of(a));
      if (rowful(a) ? r != rank(out) : r + k_ > rank(out)) return false;
    }
    return true;
  }
  bool transpose(const Expr& e) {
    Ints axes = ir::attr<Ints>(e.attrs, "axes"), inner = {0};
    for (size_t i = 0; i < axes.size(); ++i) {
      if (i < k_ && axes[i] != static_cast<int64_t>(i)) return false;
      if (i >= k_) inner.push_back(axes[i] - static_cast<int64_t>(k_) + 1);
    }
    Attrs a = attrs(e);
    a["axes"] = std::move(inner);
    attrs_[&e] = std::move(a);
    return true;
  }
  bool pad(const Expr& e) {
    Attrs a = attrs(e);
    for (const char* name : {"before", "after"}) {
      std::vector<Dim> v = ir::attr<std::vector<Dim>>(e.attrs, name);
      for (size_t i = 0; i < k_; ++i)
        if (!v[i].is_constant(0)) return false;
      v.erase(v.begin(), v.begin() + static_cast<long>(k_) - 1);
      a[name] = std::move(v);
    }
    attrs_[&e] = std::move(a);
    return true;
  }

  const Function& f_;
  size_t k_;
  std::vector<Dim> rows_;
  std::set<const ir::Var*> rowful_;
  std::map<const Expr*, Attrs> attrs_;
};

// ---------------------------------------------------------------- symbols

// t = a*n + rest with n not in rest: n = floordiv(t - rest, a).
std::optional<Dim> solve(const Dim& compound, const std::string& symbol, const Dim& t) {
  int64_t coefficient = 0;
  Dim rest = 0;
  for (const Dim::Term& term : compound.terms()) {
    Dim product = term.coefficient;
    bool contains = false;
    for (const Dim& atom : term.atoms) {
      product = product * atom;
      contains |= atom.symbols().contains(symbol);
    }
    if (!contains) {
      rest = rest + product;
      continue;
    }
    if (coefficient != 0 || term.atoms.size() != 1 || term.atoms[0].as_symbol() != symbol)
      return std::nullopt;
    coefficient = term.coefficient;
  }
  if (coefficient == 0) return std::nullopt;
  if (coefficient < 0) return ir::floordiv(rest - t, -coefficient);
  return ir::floordiv(t - rest, coefficient);
}

class Symbols {
 public:
  // Learns what the parameters' dims bind; `scalar(i)`: parameter i is an unboxed integer.
  void bind(const std::vector<Type>& parameters, const std::set<int64_t>& scalars) {
    std::set<std::string> bound;
    for (size_t i = 0; i < parameters.size(); ++i)
      for (const Dim& d : parameters[i]->dims)
        if (auto s = d.as_symbol()) bound.insert(*s);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (scalars.contains(static_cast<int64_t>(i))) {
        scalar_symbols_.push_back(next());
        continue;
      }
      for (const Dim& d : parameters[i]->dims) {
        if (auto s = d.as_symbol()) {
          if (!renamed_.contains(*s)) {
            const std::string name = next();
            renamed_.emplace(*s, Dim::symbol(name));
          }
          continue;
        }
        if (whole_.contains(d)) continue;
        // Symbols that nothing binds, and those that a later dim binds: collapsed rows 4*n may
        // stand in front of the n that explains them, and the VM binds in order.
        std::set<std::string> unbound;
        bool readable = true;
        for (const std::string& s : d.symbols()) {
          if (!bound.contains(s)) unbound.insert(s);
          readable &= renamed_.contains(s);
        }
        if (readable) continue;
        const std::string name = next();
        whole_.emplace(d, Dim::symbol(name));
        if (unbound.size() == 1) compound_.emplace_back(d, *unbound.begin());
      }
    }
    // Solving needs the other symbols' final names, which stand now.
    for (const auto& [d, symbol] : compound_) {
      if (renamed_.contains(symbol)) continue;
      if (auto value = solve(d, symbol, whole_.at(d)))
        solved_.emplace(symbol, value->substitute(renamed_));
    }
    for (auto& [symbol, value] : solved_) renamed_.emplace(symbol, value);
  }

  Dim rewrite(const Dim& d) {
    const auto it = whole_.find(d);
    if (it != whole_.end()) return it->second;
    for (const std::string& s : d.symbols()) {
      if (renamed_.contains(s)) continue;
      const std::string name = next();  // nothing binds it: the caller passes it
      renamed_.emplace(s, Dim::symbol(name));
      extra_.emplace_back(Dim::symbol(s), name);
    }
    return d.substitute(renamed_);
  }
  Type rewrite(const Type& t) {
    if (t->kind == ir::TypeKind::kData) return t;
    if (t->kind == ir::TypeKind::kTuple) {
      std::vector<Type> elements;
      for (const Type& e : t->elements) elements.push_back(rewrite(e));
      return ir::tuple_type(std::move(elements));
    }
    std::vector<Dim> dims;
    for (const Dim& d : t->dims) dims.push_back(rewrite(d));
    return ir::tensor_type(std::move(dims), t->dtype);
  }
  // Attributes of `e`, in which its offsets are no extents.
  Attrs rewrite(const Expr& e, Attrs attrs) {
    const std::vector<std::string_view>& offsets = ir::traits_of(e).offsets;
    for (auto& [name, value] : attrs) {
      const bool plain = std::find(offsets.begin(), offsets.end(), name) == offsets.end();
      if (auto* d = std::get_if<Dim>(&value)) *d = plain ? rewrite(*d) : rewrite_offset(*d);
      if (auto* all = std::get_if<std::vector<Dim>>(&value))
        for (Dim& d : *all) d = plain ? rewrite(d) : rewrite_offset(d);
    }
    return attrs;
  }

  // A new symbol of the contract.
  std::string next() {
    names_.push_back(fmt::format("s{}", names_.size()));
    return names_.back();
  }

  const std::vector<std::string>& names() const { return names_; }
  // Of them, those whose values may be negative.
  const std::vector<std::string>& offsets() const { return offsets_; }
  const std::vector<std::string>& scalar_symbols() const { return scalar_symbols_; }
  const std::vector<std::pair<Dim, std::string>>& extra() const { return extra_; }

 private:
  // A value that parameters do not bind is passed whole, so that what its symbols are (elements of
  // tensors, perhaps negative) is nobody's concern here.
  Dim rewrite_offset(const Dim& d) {
    const std::set<std::string> symbols = d.symbols();
    if (std::all_of(symbols.begin(), symbols.end(),
                    [&](const std::string& s) { return renamed_.contains(s); }))
      return d.substitute(renamed_);
    auto [it, is_new] = passed_.try_emplace(d);
    if (is_new) {
      offsets_.push_back(next());
      it->second = Dim::symbol(offsets_.back());
      extra_.emplace_back(d, offsets_.back());
    }
    return it->second;
  }

  std::vector<std::string> names_, scalar_symbols_, offsets_;
  std::map<Dim, Dim> passed_;
  std::map<std::string, Dim> renamed_, solved_;
  std::map<Dim, Dim> whole_;
  std::vector<std::pair<Dim, std::string>> compound_;
  std::vector<std::pair<Dim, std::string>> extra_;
};

// ---------------------------------------------------------------- the anchor

int weight(const Expr& e) {
  const ir::OpInfo* info = ir::find_op(e.op);
  if (info == nullptr) return -1;
  switch (info->fusion) {
    case ir::FusionKind::kAnchor:
      return 3;
    case ir::FusionKind::kOpaque:
    case ir::FusionKind::kData:
    case ir::FusionKind::kOutside:
      return 3;
    case ir::FusionKind::kReduction:
      return 2;
    case ir::FusionKind::kInjective:
      return info->traits.anchors ? 1 : 0;
    case ir::FusionKind::kElementwise:
      return 0;
  }
  return 0;
}

std::string attr_text(const ir::AttrValue& v) {
  struct Text {
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(int64_t i) const { return fmt::format("{}", i); }
    std::string operator()(double d) const { return fmt::format("{}", d); }
    std::string operator()(const std::string& s) const { return s; }
    std::string operator()(DType t) const { return std::string(name_of(t)); }
    std::string operator()(const Dim& d) const { return d.str(); }
    std::string operator()(const std::vector<Dim>& all) const {
      std::string out;
      for (const Dim& d : all) out += (out.empty() ? "" : ", ") + d.str();
      return "[" + out + "]";
    }
    std::string operator()(const Ints& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
    std::string operator()(const std::vector<double>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(const std::vector<std::string>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
  };
  return std::visit(Text{}, v);
}

void choose_anchor(Workload& w) {
  const ir::Binding* best = nullptr;
  int best_weight = -1;
  for (const ir::Binding& b : w.group->body->bindings) {
    if (b.value->kind != ExprKind::kCall) continue;
    const int x = weight(*b.value);
    if (x > best_weight) {
      best = &b;
      best_weight = x;
    }
  }
  w.anchor = best_weight > 0 ? best->value->op : "elementwise";
  if (best == nullptr) {
    w.anchor_key = w.anchor;
    return;
  }
  std::string operands;
  for (const Atom& a : best->value->args)
    operands += (operands.empty() ? "" : ", ") + ir::str(ir::type_of(a));
  std::string attrs;
  for (const auto& [name, value] : best->value->attrs)
    attrs += fmt::format(" {}={}", name, attr_text(value));
  w.anchor_key =
      fmt::format("{}({}){} -> {}", best->value->op, operands, attrs, ir::str(best->var->type));
}

void require_inferred(const Function& f) {
  for (const VarRef& p : f.parameters) NIMBLE_CHECK(p->type, "parameter {} has no type", p->name);
  for (const ir::Binding& b : f.body->bindings) {
    NIMBLE_CHECK(b.var->type, "{} has no type", b.var->name);
    NIMBLE_CHECK(b.value->kind == ExprKind::kCall || b.value->kind == ExprKind::kTuple ||
                     b.value->kind == ExprKind::kAtom || b.value->kind == ExprKind::kGetField,
                 "a group holds calls and tuples only");
  }
}

}  // namespace

Workload make_workload(const Function& primitive, std::vector<bool> constant_parameter) {
  require_inferred(primitive);
  std::set<int64_t> scalars;
  for (int64_t i : ir::attr_or<Ints>(primitive.attrs, "scalars", {})) scalars.insert(i);

  // 1. Leading axes.
  std::optional<Collapse> collapse;
  const Type result = ir::type_of(primitive.body->result);
  const Type& first = result->kind == ir::TypeKind::kTuple ? result->elements.at(0) : result;
  for (size_t k = rank(first); k >= 2; --k) {
    Collapse attempt(primitive, k);
    if (!attempt.run()) continue;
    collapse.emplace(std::move(attempt));
    break;
  }
  const auto type_of = [&](const VarRef& v) { return collapse ? collapse->type(v) : v->type; };

  // 2. Symbols.
  Symbols symbols;
  std::vector<Type> parameter_types;
  for (const VarRef& p : primitive.parameters) parameter_types.push_back(type_of(p));
  symbols.bind(parameter_types, scalars);

  // 3. Names; the new function.
  Workload w;
  auto group = std::make_shared<Function>();
  std::map<const ir::Var*, VarRef> renamed;
  const auto atom = [&](const Atom& a) { return a.is_var() ? Atom(renamed.at(a.var.get())) : a; };
  for (size_t i = 0; i < primitive.parameters.size(); ++i) {
    VarRef p = ir::make_var(fmt::format("p{}", i), symbols.rewrite(parameter_types[i]));
    renamed.emplace(primitive.parameters[i].get(), p);
    group->parameters.push_back(std::move(p));
  }
  auto body = std::make_shared<ir::Block>();
  for (const ir::Binding& b : primitive.body->bindings) {
    auto e = std::make_shared<Expr>(*b.value);
    e->attrs = symbols.rewrite(*b.value, collapse ? collapse->attrs(*b.value) : b.value->attrs);
    e->location = {};
    for (Atom& a : e->args) a = atom(a);
    VarRef v =
        ir::make_var(fmt::format("t{}", body->bindings.size()), symbols.rewrite(type_of(b.var)));
    renamed.emplace(b.var.get(), v);
    body->bindings.push_back({std::move(v), std::move(e)});
  }
  body->result = atom(primitive.body->result);
  group->result_type = ir::type_of(body->result);
  group->body = std::move(body);
  if (!scalars.empty()) {
    group->attrs["scalars"] = Ints(scalars.begin(), scalars.end());
    group->attrs["scalar_symbols"] = symbols.scalar_symbols();
  }

  // A host operator is told its parameters by scalars.
  std::vector<std::pair<Dim, std::string>> host;
  if (const HostOp* op = host_op_of(primitive))
    for (const Dim& value : op->parameters(*primitive.body->bindings[0].value))
      host.emplace_back(value, symbols.next());

  // The contract.
  w.contract.symbols = symbols.names();
  const auto symbol_number = [&](const std::string& name) {
    const auto it = std::find(symbols.names().begin(), symbols.names().end(), name);
    return static_cast<uint32_t>(it - symbols.names().begin());
  };
  const auto tensor = [&](const Type& t, exec::Access access, bool collapsed) {
    exec::KernelArgument a;
    a.dtype = t->dtype;
    a.access = access;
    for (const Dim& d : t->dims) a.dims.push_back(d.to_program(symbols.names()));
    a.collapse_leading = collapsed;
    w.contract.arguments.push_back(std::move(a));
  };
  const auto scalar = [&](const std::string& symbol) {
    exec::KernelArgument a;
    a.kind = exec::KernelArgument::Kind::kScalar;
    a.dtype = DType::kI64;
    a.symbol = symbol_number(symbol);
    w.contract.arguments.push_back(std::move(a));
  };
  size_t next_scalar = 0;
  for (size_t i = 0; i < group->parameters.size(); ++i) {
    if (scalars.contains(static_cast<int64_t>(i))) {
      scalar(symbols.scalar_symbols()[next_scalar++]);
      continue;
    }
    if (group->parameters[i]->type->kind == ir::TypeKind::kData) {
      w.contract.arguments.emplace_back().kind = exec::KernelArgument::Kind::kData;
      continue;
    }
    tensor(group->parameters[i]->type, exec::Access::kIn,
           collapse && collapse->rowful(primitive.parameters[i]));
  }
  for (const auto& [value, name] : host) {
    scalar(name);
    w.extra_scalars.push_back(value);
  }
  for (const auto& [value, name] : symbols.extra()) {
    scalar(name);
    w.extra_scalars.push_back(value);
  }
  const Type& r = group->result_type;
  for (const Type& t : r->kind == ir::TypeKind::kTuple ? r->elements : std::vector<Type>{r})
    tensor(t, exec::Access::kOut, collapse.has_value());

  w.group = std::move(group);
  w.constant_parameter = std::move(constant_parameter);
  w.constant_parameter.resize(w.group->parameters.size(), false);
  w.key = ir::print(*w.group, "group");
  for (const auto* names : {&symbols.offsets(), &symbols.scalar_symbols()})
    for (const std::string& s : *names) w.facts.set(s, {INT64_MIN, INT64_MAX, 1});
  choose_anchor(w);
  return w;
}

std::string source_of(const ir::Function& group) {
  std::string s;
  for (const ir::Binding& b : group.body->bindings)
    if (!b.value->op.empty()) s += (s.empty() ? "" : "+") + b.value->op;
  return s;
}

std::string Workload::identity() const {
  std::string out = key;
  for (bool c : constant_parameter) out += c ? 'c' : 'v';
  return out;
}

// ---------------------------------------------------------------- the cache

namespace {

// A group as it is written, its variables numbered: what make_workload reads, and nothing else.
std::string text_of(const Function& f) {
  std::string out;
  std::map<const ir::Var*, size_t> number;
  const auto name = [&](const VarRef& v) {
    out += fmt::format("%{}: {}", number.emplace(v.get(), number.size()).first->second,
                       ir::str(v->type));
  };
  const auto attributes = [&](const Attrs& attrs) {
    for (const auto& [key, value] : attrs)
      out += fmt::format(" {}={}:{}", key, value.index(), attr_text(value));
  };
  const auto operand = [&](const Atom& a) {
    if (a.is_var()) {
      out += fmt::format(" %{}", number.at(a.var.get()));
    } else if (a.is_global()) {
      out += " @" + a.global;
    } else {
      out += fmt::format(" {}[{}]", name_of(a.constant->dtype), fmt::join(a.constant->shape, ","));
      out.append(reinterpret_cast<const char*>(a.constant->bytes.data()), a.constant->bytes.size());
    }
  };
  attributes(f.attrs);
  for (const VarRef& p : f.parameters) name(p), out += '\n';
  for (const ir::Binding& b : f.body->bindings) {
    out += fmt::format("{} {}.{}", static_cast<int>(b.value->kind), b.value->op, b.value->index);
    for (const Atom& a : b.value->args) operand(a);
    attributes(b.value->attrs);
    out += " -> ";
    name(b.var);
    out += '\n';
  }
  operand(f.body->result);
  return out;
}

}  // namespace

WorkloadRef WorkloadCache::find_or_make(const Function& primitive, const std::string& text) {
  WorkloadRef& known = known_[text];
  if (!known) {
    known = std::make_shared<const Workload>(make_workload(primitive));
    ++made_;
  }
  return known;
}

const std::vector<exec::DimProgram>& WorkloadCache::requirements(const Workload& w) {
  const auto [it, fresh] = requirements_.try_emplace(w.key);
  if (fresh) it->second = requirements_of(w);
  return it->second;
}

WorkloadRef WorkloadCache::of(const Function& primitive,
                              const std::vector<bool>& constant_parameter) {
  require_inferred(primitive);
  ++asked_;
  const std::string text = text_of(primitive);
  WorkloadRef plain = find_or_make(primitive, text);
  if (std::find(constant_parameter.begin(), constant_parameter.end(), true) ==
      constant_parameter.end())
    return plain;
  std::string with_constants = text + '\n';
  for (bool c : constant_parameter) with_constants += c ? 'c' : 'v';
  WorkloadRef& known = known_[with_constants];
  if (!known) {
    auto w = std::make_shared<Workload>(*plain);
    w->constant_parameter = constant_parameter;
    w->constant_parameter.resize(w->group->parameters.size(), false);
    known = std::move(w);
  }
  return known;
}

}  // namespace nimble::kernels
