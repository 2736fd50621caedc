#include "compiler/kernels/templates/packed_matmul.h"

#include <string>

namespace nimble::kernels {

std::optional<PackedMatmul> analyse_packed_matmul(const Workload& w) {
  if (w.anchor != "packed_matmul") return {};
  PackedMatmul p;
  p.frame = make_frame(w);
  if (!has_elementwise_epilogue(w, p.frame)) return {};
  const ir::Expr& call = *p.frame.anchor->value;
  p.lhs = parameter_buffer(w, p.frame, call.args[0]);
  p.rhs = parameter_buffer(w, p.frame, call.args[1]);
  if (!p.lhs || !p.rhs || p.lhs == p.rhs) return {};
  const auto layout = ir::parse_layout(ir::attr<std::string>(call.attrs, "layout"));
  if (!layout) return {};
  p.layout = *layout;
  p.dtype = p.frame.anchor->var->type->dtype;
  p.depth = ir::attr<int64_t>(call.attrs, "k");
  p.columns = ir::attr<int64_t>(call.attrs, "n");
  p.row_dims = row_dims(p.frame);
  p.rows = count_of(p.row_dims);
  return p;
}

}  // namespace nimble::kernels
