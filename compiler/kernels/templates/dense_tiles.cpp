// The template "dense_tiles": "dense" (dense.cpp) for targets with matrix registers, of operands of
// bf16, f16 or 8 bits, also where it rounds its rows to bytes. Rows of all sizes are its: with a
// single one, the columns' tiles are loaded as fast as vectors would load them, and a product of
// one row takes no longer than its load.
#include <utility>

#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/packed_matmul.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tiled_product.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::LoopKind;
using kir::StmtRef;

namespace {

struct Dense : TiledProduct {
  PackedMatmul matmul;
};

std::optional<Dense> analyse(const Workload& w, const TargetInfo& t) {
  auto matmul = analyse_packed_matmul(w, t);
  if (!matmul) return {};
  const auto fragment = tile_fragment_of(t, matmul->lhs->dtype, matmul->rhs->dtype, matmul->dtype);
  if (!fragment || !fits_tiles(matmul->layout, *fragment)) return {};
  Dense p;
  p.fragment = *fragment;
  p.lhs = matmul->lhs;
  p.rhs = matmul->rhs;
  p.layout = matmul->layout;
  p.k = p.depth = p.pitch = matmul->depth;
  p.n = matmul->columns;
  p.rows = matmul->rows;
  p.matmul = std::move(*matmul);
  p.lhs_at = [](const Dim&, const Dim&, const Dim&, const Dim&) { return Dim(0); };
  if (!p.matmul.rounded) return p;
  // The groups of a row are pieces of k.
  p.rounded = p.matmul.rounded;
  p.depth = p.pitch = p.rounded->form.group;
  p.taps = {p.rounded->form.groups(), 1};
  p.lhs_at = [rounded = *p.rounded](const Dim&, const Dim&, const Dim& i, const Dim&) {
    return rounded.place(0, i);
  };
  p.ahead = p.rounded->round();
  p.scratch = p.rounded->scratch();
  return p;
}

StmtRef store(const Workload& w, const Dense& p, const TiledRows& rows) {
  const Dim r = Dim::symbol("e_r");
  ColumnVectors columns{rows.vectors, rows.lanes, rows.column, {}};
  if (rows.masked) columns.valid = p.n - rows.column;
  StmtRef row =
      store_columns(w, p.matmul.frame, unflatten(rows.row + r, p.matmul.row_dims), columns,
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
  return lower_tiled(w, p->matmul.frame, *p, c, name);
}

}  // namespace nimble::kernels
