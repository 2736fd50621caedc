// The template "dense_tiles": "dense" (dense.cpp) for targets with matrix registers, of operands of
// bf16 or 8 bits. Rows of all sizes are its: with a single one, the columns' tiles are loaded as
// fast as vectors would load them, and a product of one row takes no longer than its load.
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tiled_product.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::LoopKind;
using kir::StmtRef;

namespace {

struct Dense : TiledProduct {
  Frame frame;
  std::vector<Dim> row_dims;  // the result's axes but the last
};

std::optional<Dense> analyse(const Workload& w, const TargetInfo& t) {
  if (w.anchor != "packed_matmul") return {};
  Dense p;
  p.frame = make_frame(w);
  if (!has_elementwise_epilogue(w, p.frame)) return {};
  const ir::Expr& call = *p.frame.anchor->value;
  p.lhs = parameter_buffer(w, p.frame, call.args[0]);
  p.rhs = parameter_buffer(w, p.frame, call.args[1]);
  if (!p.lhs || !p.rhs || p.lhs == p.rhs) return {};
  const auto fragment =
      tile_fragment_of(t, p.lhs->dtype, p.rhs->dtype, p.frame.anchor->var->type->dtype);
  const auto layout = ir::parse_layout(ir::attr<std::string>(call.attrs, "layout"));
  if (!fragment || !layout || !fits_tiles(*layout, *fragment)) return {};
  p.fragment = *fragment;
  p.layout = *layout;
  p.k = p.depth = p.pitch = ir::attr<int64_t>(call.attrs, "k");
  p.n = ir::attr<int64_t>(call.attrs, "n");
  p.row_dims = row_dims(p.frame);
  p.rows = count_of(p.row_dims);
  p.lhs_at = [](const Dim&, const Dim&, const Dim&, const Dim&) { return Dim(0); };
  return p;
}

StmtRef store(const Workload& w, const Dense& p, const TiledRows& rows) {
  const Dim r = Dim::symbol("e_r");
  ColumnVectors columns{rows.vectors, rows.lanes, rows.column, {}};
  if (rows.masked) columns.valid = p.n - rows.column;
  StmtRef row =
      store_columns(w, p.frame, unflatten(rows.row + r, p.row_dims), columns,
                    [&](int v, const Dim&, const std::optional<Dim>&) { return rows.sum(r, v); });
  return kb::loop(LoopKind::kSerial, "e_r", 0, rows.count, std::move(row));
}

}  // namespace

bool DenseTilesTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> DenseTilesTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for dense_tiles", w.key);
  return tiled_knobs(*p);
}

bool DenseTilesTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  return p && valid_tiled_config(*p, c);
}

Config DenseTilesTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for dense_tiles", w.key);
  return default_tiled_config(*p, t);
}

Lowered DenseTilesTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                  const std::string& name) const {
  auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid_tiled_config(*p, c), "configuration {} of dense_tiles", to_json(c));
  p->store = [&](const TiledRows& rows) { return store(w, *p, rows); };
  return lower_tiled(w, p->frame, *p, c, name);
}

}  // namespace nimble::kernels
