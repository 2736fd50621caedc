#include "compiler/kernels/collapse_rows.h"

#include <algorithm>

#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::kernels {

using ir::Atom;
using ir::Attrs;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::VarRef;
using Ints = std::vector<int64_t>;

namespace {

size_t rank(const Type& t) {
  return t->dims.size();
}

}  // namespace

bool CollapsedRows::run() {
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

Type CollapsedRows::type(const VarRef& v) const {
  if (!rowful(v)) return v->type;
  if (v->type->kind == ir::TypeKind::kTuple) {
    std::vector<Type> elements;
    for (const Type& e : v->type->elements) elements.push_back(collapsed(e));
    return ir::tuple_type(std::move(elements));
  }
  return collapsed(v->type);
}

const Attrs& CollapsedRows::attrs(const Expr& e) const {
  const auto it = attrs_.find(&e);
  return it == attrs_.end() ? e.attrs : it->second;
}

std::vector<Type> CollapsedRows::result_types() const {
  const Type t = ir::type_of(f_.body->result);
  return t->kind == ir::TypeKind::kTuple ? t->elements : std::vector<Type>{t};
}

bool CollapsedRows::leads(const Type& t) const {
  return rank(t) >= k_ && std::equal(rows_.begin(), rows_.end(), t->dims.begin());
}

Type CollapsedRows::collapsed(const Type& t) const {
  Dim product = 1;
  for (const Dim& d : rows_) product = product * d;
  std::vector<Dim> dims = {product};
  dims.insert(dims.end(), t->dims.begin() + static_cast<long>(k_), t->dims.end());
  return ir::tensor_type(std::move(dims), t->dtype);
}

std::optional<int64_t> CollapsedRows::inner_axis(int64_t axis) const {
  if (axis < static_cast<int64_t>(k_)) return std::nullopt;
  return axis - static_cast<int64_t>(k_) + 1;
}

bool CollapsedRows::shift_axes(const Expr& e) {
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

void CollapsedRows::set_shape(const Expr& e, const Type& t) {
  Attrs a = attrs(e);
  a["shape"] = collapsed(t)->dims;
  a.erase("allow_zero");
  attrs_[&e] = std::move(a);
}

bool CollapsedRows::binding(const ir::Binding& b) {
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

bool CollapsedRows::call(const Expr& e, ir::Rows rows, const Type& out) {
  const auto in = [&](size_t i) { return ir::type_of(e.args[i]); };
  const auto only_first_rowful = [&] {
    return rowful(e.args[0]) &&
           std::none_of(e.args.begin() + 1, e.args.end(), [&](const Atom& a) { return rowful(a); });
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
      return std::all_of(e.args.begin(), e.args.end(), [&](const Atom& a) { return rowful(a); }) &&
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

bool CollapsedRows::elementwise(const Expr& e, const Type& out) const {
  for (const Atom& a : e.args) {
    const size_t r = rank(ir::type_of(a));
    if (rowful(a) ? r != rank(out) : r + k_ > rank(out)) return false;
  }
  return true;
}

bool CollapsedRows::transpose(const Expr& e) {
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

bool CollapsedRows::pad(const Expr& e) {
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

}  // namespace nimble::kernels
