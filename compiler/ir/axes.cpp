#include "compiler/ir/axes.h"

#include "compiler/ir/op.h"

namespace nimble::ir {

void count_axes_from_front(Expr& call, const Type& operand, const Type& result) {
  const auto axis = call.attrs.find("axis"), axes = call.attrs.find("axes");
  if (axis == call.attrs.end() && axes == call.attrs.end()) return;
  const OpInfo* op = find_op(call.op);
  if (!op) return;
  const Type& of = op->rows() == Rows::kResultAxes ? result : operand;
  const auto rank = static_cast<int64_t>(of->dims.size());
  if (axis != call.attrs.end()) {
    auto& a = std::get<int64_t>(axis->second);
    a = axis_from_front(a, rank);
  }
  if (axes != call.attrs.end())
    for (int64_t& a : std::get<std::vector<int64_t>>(axes->second)) a = axis_from_front(a, rank);
}

}  // namespace nimble::ir
