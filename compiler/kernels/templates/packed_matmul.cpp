#include "compiler/kernels/templates/packed_matmul.h"

#include <string>

#include "compiler/kernels/templates/knobs.h"

namespace nimble::kernels {

std::optional<PackedMatmul> analyse_packed_matmul(const Workload& w, const TargetInfo& t) {
  const bool rounds = w.anchor == "packed_groupwise_matmul";
  if (!rounds && w.anchor != "packed_matmul") return {};
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
  if (!rounds) return p;
  // Who rounds rows waits for the others, so nobody may leave early because of an index.
  const kir::BufferRef scales = parameter_buffer(w, p.frame, call.args[2]);
  const kir::BufferRef sums = parameter_buffer(w, p.frame, call.args[3]);
  if (!scales || !sums || has_index(w)) return {};
  p.rounded = RoundedRows::of(ir::groupwise_of(call.attrs), p.rows, p.lhs, scales, sums, t);
  p.lhs = p.rounded->values;
  p.dtype = DType::kI32;
  return p;
}

}  // namespace nimble::kernels
