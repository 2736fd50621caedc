// The leading axes of a fused group as one axis of rows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/traits.h"

namespace nimble::kernels {

// One attempt to multiply the first `k` axes of all row-wise values of a group into one.
class CollapsedRows {
 public:
  CollapsedRows(const ir::Function& f, size_t k) : f_(f), k_(k) {}

  // Finds the types and attributes after collapsing; false if some operation forbids it.
  bool run();

  bool rowful(const ir::VarRef& v) const { return rowful_.contains(v.get()); }
  ir::Type type(const ir::VarRef& v) const;
  const ir::Attrs& attrs(const ir::Expr& e) const;

 private:
  std::vector<ir::Type> result_types() const;
  bool leads(const ir::Type& t) const;
  ir::Type collapsed(const ir::Type& t) const;
  bool rowful(const ir::Atom& a) const { return a.is_var() && rowful_.contains(a.var.get()); }
  // What number an axis has behind the rows' one axis; nothing if it is one of the rows.
  std::optional<int64_t> inner_axis(int64_t axis) const;
  void keep(const ir::VarRef& v) { rowful_.insert(v.get()); }
  // Counts the attribute `axis` or `axes` anew, unless it is one of the rows.
  bool shift_axes(const ir::Expr& e);
  void set_shape(const ir::Expr& e, const ir::Type& t);
  // What each kind of binding and of operator allows.
  bool binding(const ir::Binding& b);
  bool call(const ir::Expr& e, ir::Rows rows, const ir::Type& out);
  bool elementwise(const ir::Expr& e, const ir::Type& out) const;
  bool transpose(const ir::Expr& e);
  bool pad(const ir::Expr& e);

  const ir::Function& f_;
  size_t k_;
  std::vector<ir::Dim> rows_;
  std::set<const ir::Var*> rowful_;
  std::map<const ir::Expr*, ir::Attrs> attrs_;
};

}  // namespace nimble::kernels
