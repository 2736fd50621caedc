#include "compiler/kernels/templates/matmul_operands.h"

#include <utility>

namespace nimble::kernels {

using kir::Dim;

std::optional<MatmulOperands> analyse_matmul(const Workload& w, Frame frame) {
  if (w.anchor != "matmul") return {};
  MatmulOperands p;
  p.frame = std::move(frame);
  if (!has_elementwise_epilogue(w, p.frame)) return {};
  const ir::Expr& call = *p.frame.anchor->value;
  p.lhs = parameter_buffer(w, p.frame, call.args[0]);
  p.rhs = parameter_buffer(w, p.frame, call.args[1]);
  if (!p.lhs || !p.rhs) return {};
  p.sum = p.frame.anchor->var->type->dtype;
  std::vector<Dim> a = ir::type_of(call.args[0])->dims, b = ir::type_of(call.args[1])->dims;
  if (a.empty() || b.empty()) return {};
  p.transpose_lhs = ir::attr_or(call.attrs, "transpose_a", false) && a.size() > 1;
  p.transpose_rhs = ir::attr_or(call.attrs, "transpose_b", false) && b.size() > 1;
  const std::vector<Dim>& result = p.frame.anchor->var->type->dims;
  const bool row_lhs = a.size() == 1;
  p.vector_rhs = b.size() == 1;
  if (row_lhs) a.insert(a.begin(), Dim(1));
  if (p.vector_rhs) b.push_back(Dim(1));
  p.m = a[a.size() - (p.transpose_lhs ? 1 : 2)];
  p.k = a[a.size() - (p.transpose_lhs ? 2 : 1)];
  p.n = b[b.size() - (p.transpose_rhs ? 2 : 1)];
  p.lhs_batch.assign(a.begin(), a.end() - 2);
  p.rhs_batch.assign(b.begin(), b.end() - 2);
  const size_t inner = (row_lhs ? 0 : 1) + (p.vector_rhs ? 0 : 1);
  p.batch.assign(result.begin(), result.end() - static_cast<int64_t>(inner));
  if (!row_lhs) p.row_dims = {p.m};
  if (p.rhs_batch.empty() && !p.transpose_lhs && !row_lhs) {
    // One right-hand matrix for all: the batch is only more rows.
    p.row_dims.insert(p.row_dims.begin(), p.batch.begin(), p.batch.end());
    p.m = count_of(p.row_dims);
    p.batch.clear();
    p.lhs_batch.clear();
  }
  return p;
}

Dim batch_offset(const Workload& w, const std::vector<Dim>& own, const std::vector<Dim>& batch,
                 const std::vector<Dim>& coordinates, const Dim& matrix) {
  Dim offset = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const size_t at = batch.size() - own.size() + i;
    Dim c = coordinates[at];
    if (own[i].is_constant(1)) {
      c = 0;
    } else if (w.facts.equal(own[i], batch[at]) != ir::Proof::kYes) {
      c = c * ir::min(ir::max(own[i] - 1, 0), 1);  // an extent of 1 has stride 0
    }
    offset = offset * own[i] + c;
  }
  return offset * matrix;
}

}  // namespace nimble::kernels
