// The template "batch_matmul": numpy's matmul of any two tensors, either side transposed, batch
// axes broadcast, all extents constant or symbolic; the element-wise operators that follow are
// fused behind it. The right-hand side is packed into scratch at each call.
//
// Products of two run-time tensors. A panel of the right-hand side, all k deep, is packed into
// the thread's own scratch, then all row tiles pass over it (tile.h). Packing reads each element
// of the panel once and costs as much as about two rows of the product; with few rows, or when
// the right-hand rows are contiguous, a configuration may read in place instead.
//
// Work is split over (batch, panel) or, for narrow results, over (batch, group of row tiles).
#include <algorithm>

#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/matmul_operands.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;

namespace {

struct Product : MatmulOperands {
  DType dtype{};
  int lanes = 0;
};

std::optional<Product> analyse(const Workload& w, const TargetInfo& t) {
  auto operands = analyse_matmul(w, make_frame(w));
  if (!operands) return {};
  Product p;
  static_cast<MatmulOperands&>(p) = std::move(*operands);
  p.dtype = p.lhs->dtype;
  if (size_of(p.dtype) < 4 || p.rhs->dtype != p.dtype) return {};
  p.lanes = lanes_of(t, p.dtype);
  return p;
}

class BatchLowering {
 public:
  BatchLowering(const Workload& w, const Product& p, const Config& c, int residue)
      : w_(w),
        p_(p),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        vectors_(static_cast<int>(knob_int(c, "vectors"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        width_(vectors_ * p.lanes),
        pack_(knob_text(c, "pack") == "yes"),
        split_rows_(knob_text(c, "split") == "rows"),
        group_tiles_(std::max<int64_t>(1, knob_int(c, "block_rows") / rows_)),
        tiles_(p.m, rows_, knob_text(c, "tails"), residue, "m_") {
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.dtype, rows_ * vectors_, p.lanes);
    panel_ = kb::buffer("panel", Scope::kRegister, p.dtype, vectors_, p.lanes);
    sums_ = thread_scratch("sums", p.dtype, Dim(rows_) * width_);
    if (pack_) packed_ = thread_scratch("packed", p.dtype, ir::max(p.k, 1) * width_);
  }

  kir::Function run(const std::string& name) {
    const Dim panels = ir::ceildiv(p_.n, width_);
    const Dim batches = count_of(p_.batch);
    // A unit of work: one panel of one product, or one group of row tiles of one product.
    const Dim unit = Dim::symbol("unit");
    const Dim groups = ir::ceildiv(tiles_.count(), group_tiles_);
    const Dim per_batch = split_rows_ ? groups : panels, at_least_one = ir::max(per_batch, 1);
    const bool single = p_.batch.empty();
    std::vector<StmtRef> work = {
        kb::let_index("batch", kb::index(single ? Dim(0) : ir::floordiv(unit, at_least_one))),
        kb::let_index("part", kb::index(single ? unit : ir::mod(unit, at_least_one)))};
    coordinates_ = unflatten(Dim::symbol("batch"), p_.batch);
    work.push_back(kb::let_index(
        "lhs_at", kb::index(batch_offset(w_, p_.lhs_batch, p_.batch, coordinates_, p_.m * p_.k))));
    work.push_back(kb::let_index(
        "rhs_at", kb::index(batch_offset(w_, p_.rhs_batch, p_.batch, coordinates_, p_.k * p_.n))));
    const Dim part = Dim::symbol("part"), p = Dim::symbol("p");
    if (split_rows_) {
      const Dim begin = part * group_tiles_;
      work.push_back(kb::loop(LoopKind::kSerial, "p", 0, panels,
                              panel_body(p, begin, ir::min(tiles_.count() - begin, group_tiles_))));
    } else {
      work.push_back(kb::let_index("p", kb::index(part)));
      work.push_back(panel_body(p, 0, tiles_.count()));
    }
    std::vector<StmtRef> body = tiles_.prologue();
    body.push_back(
        kb::loop(LoopKind::kThread, "unit", 0, batches * per_batch, kb::seq(std::move(work))));
    std::vector<BufferRef> scratch = {sums_};
    if (packed_) scratch.push_back(packed_);
    return make_function(w_, p_.frame, name, std::move(scratch), {accumulators_, panel_},
                         kb::seq(std::move(body)));
  }

 private:
  // Whether the columns of a panel may lie beyond the matrix.
  bool partial() const { return w_.facts.divisible(p_.n, width_) != ir::Proof::kYes; }

  StmtRef panel_body(const Dim& p, const Dim& first_tile, const Dim& tile_count) {
    StmtRef tiles = tiles_.for_each(
        first_tile, tile_count, [&](const RowTiles::Tile& t) { return tile(t, p); },
        [&](const RowTiles::Tile& t) { return epilogue(t, p); });
    return pack_ ? kb::seq({pack(p), std::move(tiles)}) : tiles;
  }

  StmtRef pack(const Dim& p) {
    const Dim k = Dim::symbol("pk"), v = Dim::symbol("pv");
    const Dim column = p * width_ + v * p_.lanes;
    // Transposed, a panel's row is a column of the stored matrix: a strided load, whose lines
    // serve the next rows too.
    const Dim at =
        Dim::symbol("rhs_at") + (p_.transpose_rhs ? column * p_.k + k : k * p_.n + column);
    const std::optional<Dim> valid = partial() ? std::optional<Dim>(p_.n - column) : std::nullopt;
    kir::ValueRef value =
        kb::load_strided(p_.rhs, at, p_.transpose_rhs ? p_.k : Dim(1), p_.lanes, valid);
    return kb::loop(LoopKind::kSerial, "pk", 0, p_.k,
                    kb::loop(LoopKind::kUnroll, "pv", 0, vectors_,
                             kb::store(packed_, k * width_ + v * p_.lanes, std::move(value))));
  }

  StmtRef tile(const RowTiles::Tile& t, const Dim& p) {
    RegisterTile product;
    product.rows = t.rows;
    product.vectors = vectors_;
    product.lanes = p_.lanes;
    product.dtype = p_.dtype;
    product.unroll = unroll_;
    product.accumulators = accumulators_;
    product.panel = panel_;
    product.lhs = p_.lhs;
    product.rhs = pack_ ? packed_ : p_.rhs;
    const Dim lhs_at = Dim::symbol("lhs_at"), rhs_at = Dim::symbol("rhs_at");
    product.lhs_index = [&, lhs_at](const Dim& r, const Dim& k) {
      const Dim row = tiles_.row_of(t, r);
      return lhs_at + (p_.transpose_lhs ? k * p_.m + row : row * p_.k + k);
    };
    product.rhs_index = [&, rhs_at](const Dim& v, const Dim& k) {
      if (pack_) return k * width_ + v * p_.lanes;
      return rhs_at + k * p_.n + p * width_ + v * p_.lanes;
    };
    if (!pack_ && partial())
      product.rhs_valid = [&](const Dim& v) -> std::optional<Dim> {
        return p_.n - p * width_ - v * p_.lanes;
      };
    product.k_extent = p_.k;
    return kb::seq(
        {tile_zero(product, "i_"), tile_product(product, "i_"),
         keep_sums(accumulators_, t.rows, vectors_, sums_,
                   [&](const Dim& r, const Dim& v) { return r * width_ + v * p_.lanes; })});
  }

  StmtRef epilogue(const RowTiles::Tile& t, const Dim& p) {
    const Dim r = Dim::symbol("e_r");
    std::vector<Dim> coordinates = coordinates_;
    for (const Dim& d : unflatten(t.row + r, p_.row_dims)) coordinates.push_back(d);
    std::vector<StmtRef> all;
    if (p_.vector_rhs) {
      all.push_back(store_results(w_, p_.frame, kb::load(sums_, r * width_, 1), coordinates, 1,
                                  std::nullopt, "e_"));
    } else {
      coordinates.push_back(0);
      for (int v = 0; v < vectors_; ++v) {
        const Dim column = p * width_ + v * p_.lanes;
        coordinates.back() = column;
        const std::optional<Dim> valid =
            partial() ? std::optional<Dim>(p_.n - column) : std::nullopt;
        StmtRef stores =
            store_results(w_, p_.frame, kb::load(sums_, r * width_ + v * p_.lanes, p_.lanes),
                          coordinates, p_.lanes, valid, "e" + std::to_string(v) + "_");
        const bool may_be_beyond = partial() && v > 0;
        all.push_back(may_be_beyond ? kb::if_then(kb::lt(column, p_.n), std::move(stores))
                                    : std::move(stores));
      }
    }
    return kb::loop(LoopKind::kSerial, "e_r", 0, t.valid, kb::seq(std::move(all)));
  }

  const Workload& w_;
  const Product& p_;
  int rows_, vectors_, unroll_;
  int64_t width_;
  bool pack_, split_rows_;
  int64_t group_tiles_;
  RowTiles tiles_;
  BufferRef accumulators_, panel_, sums_, packed_;
  std::vector<Dim> coordinates_;  // of the current product, one per axis of Product::batch
};

}  // namespace

bool BatchMatmulTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> BatchMatmulTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for batch_matmul", w.key);
  Knob vectors{"vectors", {}};
  const auto n = p->n.as_constant();
  for (int64_t v = 1; v <= max_tile_vectors(t); ++v)
    if (v == 1 || !n || (v - 1) * p->lanes < *n) vectors.choices.emplace_back(v);
  Knob rows = int_knob("rows", {1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 16});
  rows.tile = true;
  return {std::move(vectors),
          std::move(rows),
          int_knob("unroll", {1, 2, 4, 8}),
          int_knob("block_rows", {16, 32, 64, 128}),
          {"pack", {"yes", "no"}},
          {"split", {"columns", "rows"}},
          tails_knob(/*residues=*/true)};
}

bool BatchMatmulTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  const int64_t vectors = knob_int(c, "vectors"), rows = knob_int(c, "rows");
  if (vectors < 1 || vectors > max_tile_vectors(t)) return false;
  if (rows < 1 || rows > max_tile_rows(t, vectors)) return false;
  if (knob_int(c, "unroll") < 1 || knob_int(c, "block_rows") < rows) return false;
  if (p->transpose_rhs && knob_text(c, "pack") != "yes") return false;  // lanes run along n
  return has_tails(c, p->m);
}

Config BatchMatmulTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for batch_matmul", w.key);
  int64_t vectors = std::min(2, max_tile_vectors(t));
  const auto n = p->n.as_constant(), m = p->m.as_constant();
  if (n) vectors = ir::parse_layout(dense_layout(t, p->dtype, *n))->width / p->lanes;
  const int64_t rows = default_tile_rows(t, vectors);
  const bool few_rows = m && *m < 16;
  const bool narrow = n && *n <= 2 * vectors * p->lanes && p->batch.empty();
  return {{"vectors", vectors},
          {"rows", rows},
          {"unroll", int64_t{4}},
          {"block_rows", int64_t{32}},
          {"pack", few_rows && !p->transpose_rhs ? "no" : "yes"},
          {"split", narrow ? "rows" : "columns"},
          {"tails", kTailsEven}};
}

Lowered BatchMatmulTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                   const std::string& name) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of batch_matmul", to_json(c));
  return kernels_of_tails(w, c, p->m, name, [&](int residue, const std::string& one) {
    return BatchLowering(w, *p, c, residue).run(one);
  });
}

}  // namespace nimble::kernels
