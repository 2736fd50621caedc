// The template "dense": a matrix with any number of rows times a packed constant matrix
// (packed_matmul), with the element-wise operators that follow fused behind it.
//
// Matrix product with a packed constant right-hand side.
//
// Method (after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
// ACM TOMS 34(3), 2008, turned round for weights that are used once per inference):
//
//   for each block of row tiles                 (left-hand rows that stay in the L2 cache)
//     for each panel of columns
//       for each block of k                     (a piece of a panel that stays in L1)
//         for each row tile                     (sums in registers, see tile.h)
//           product of the tile; on the last block of k: epilogue and store
//
// The left-hand side is read where it lies: a tile of 8 rows needs 8 cache lines at a time and a
// copy does not pay. The right-hand side is one forward stream, each panel used by all row tiles
// as it passes. Weights of a whole model don't fit the L2 cache, so each tile also prefetches
// its share of the next block of k into L2. The share matters: prefetches issued by the first
// tile alone overrun the fill buffers and cost 5 to 20 % of the peak. A tile of few rows does too
// little with each line to spare a load's place for a prefetch: one row runs 1.75 times as fast
// without them on weights that are in L2 (its speed is then L2's), three rows 1.25 times, and
// weights that come from L3 or memory arrive no later.
//
// Threads have stretches of equal length of all this work in its order (RowTiles::in_even_shares):
// of several blocks some each, whose rows no other thread reads, and of a single one panels, always
// the same, so that what fits a thread's cache is found there at the next call. Panels are not
// split whole: of 256 columns in panels of 48 one of two threads would have 144. Or each thread has
// a range of the rows (the knob "split"): where there are few panels, that shares no tile's rows.
//
// Results and residuals beyond L2 are waited for at the end of each tile where k is small, since
// their lines are too far apart for the machine to foresee. They may be fetched while the tile's
// product is made (the knob "ahead"), a row's with each of the first steps: all at once they hold
// up the loads behind them. On a Zen 4 ResNet-50's of 64 terms and a residual take 10 % less time
// than with all at once, which gained 2 %. MiniLM and MobileNet-v2 gained nothing by all at once.
//
// Operands of bf16, of f16 and of 8 bits whose weights are packed in groups are multiplied so, by a
// fragment (tile.h): below, k then counts groups. Other weights of f16 and bf16 are converted as
// they are loaded, and where several tiles would convert the same piece of a panel, once ahead
// of them, into a scratch. Bytes whose weights keep a bound are multiplied as they are on more
// machines (kU8S7Quads). Other rows of bytes that are multiplied as i16 (widened_bytes.h) are
// widened block by block, each thread for itself.
//
// A product that rounds its rows to bytes (packed_groupwise_matmul, rounded_rows.h) does that ahead
// of all else, all threads together. The blocks of k are its groups then: each begins with sums of
// zero, which are added to those that wait, by the group's scales. Where no instruction multiplies
// bytes, rows are kept as i16 and weights become i16 as they are loaded: what multiplies pairs
// of i16 does twice as many terms as f32's multiply-add, and a step keeps no more registers.
// Bytes as they are would have to be taken apart, of rows and weights alike, at every step.
//
// Sums of earlier blocks of k wait in a per-thread scratch, not in the output: it is contiguous,
// stays in L1, and fused residual inputs may be read up to the last moment.
#include "compiler/kernels/templates/dense.h"

#include <algorithm>
#include <utility>

#include "compiler/kernels/fragments.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/templates/packed_matmul.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "compiler/kernels/templates/tiled_product.h"
#include "compiler/kernels/templates/widened_bytes.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;

std::string dense_layout(const TargetInfo& t, DType rows, DType weights, int64_t n, int64_t most) {
  const DType sum = sum_of(weights);
  if (const auto tiles = tile_fragment_of(t, rows, weights, sum)) return tile_layout(*tiles, n);
  const int lanes = lanes_of(t, sum);
  const int vectors = panel_vectors((n + lanes - 1) / lanes, panel_costs(t));
  return ir::Layout{ir::Layout::Kind::kPanel, vectors * lanes,
                    group_for(t, rows, weights, sum, most)}
      .str();
}

std::string dense_layout(const TargetInfo& t, DType weights, int64_t n) {
  return dense_layout(t, rows_type(t, weights), weights, n);
}

std::string groupwise_layout(const TargetInfo& t, int64_t n, int64_t most) {
  const kir::Fragment bytes = *fragment_of(DType::kI8);
  const std::string layout = dense_layout(t, kir::row_of(bytes).a, DType::kI8, n, most);
  if (tile_fragment_of(t, DType::kI8) || multiplying_fragment(t, bytes, most)) return layout;
  ir::Layout widened = *ir::parse_layout(layout);
  widened.group = group_of(fragments_for(bytes).back());
  return widened.str();
}

namespace {

// A tile that does at most so many multiply-adds with each line of weights prefetches nothing.
constexpr int64_t kFewPerLine = 4;

// The problem that a workload states.
struct Product : PackedMatmul, Panels {
  std::optional<kir::Fragment> fragment;  // if it multiplies the operands

  // Whether the weights are converted on the way.
  bool converts() const { return !fragment && rhs->dtype != dtype; }
  // Whether rows are bytes that become i16 ahead of the product (widened_bytes.h).
  bool widens() const { return is_widened(fragment, lhs->dtype); }
  // A share of a block's panels widens all its rows, and converts each panel that it has a part of:
  // of few panels, that is much of its work.
  bool has_few_panels() const { return panels() < 32; }
};

std::optional<Product> analyse(const Workload& w, const TargetInfo& t) {
  auto matmul = analyse_packed_matmul(w, t);
  if (!matmul) return {};
  Product p;
  static_cast<PackedMatmul&>(p) = std::move(*matmul);
  if (p.rounded) {
    p.fragment = RoundedRows::fragment_of(t, p.rounded->form);
  } else if (p.lhs->dtype != p.dtype || p.rhs->dtype != p.dtype) {
    p.fragment = fragment_of_groups(p.lhs->dtype, p.rhs->dtype, p.dtype, p.layout.group);
    if (!p.fragment &&
        !(is_converted(p.lhs->dtype, p.dtype) && is_converted(p.rhs->dtype, p.dtype)))
      return {};
    if (p.fragment) p.fragment = fragment_of_call(t, *p.fragment, *p.frame.anchor->value);
  }
  if (size_of(p.dtype) < 4) return {};
  if (p.layout.kind != ir::Layout::Kind::kPanel || p.layout.group != group_of(p.fragment))
    return {};
  const auto panels =
      cut_panels(p.depth, p.columns, p.layout, lanes_of(t, p.dtype), max_tile_vectors(t));
  if (!panels) return {};
  static_cast<Panels&>(p) = *panels;
  return p;
}

class DenseLowering {
 public:
  DenseLowering(const Workload& w, const Product& p, const Config& c, int residue)
      : w_(w),
        p_(p),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        prefetch_(knob_text(c, "prefetch") == "spread" && p.stored == p.width),
        ahead_(knob_text(c, "ahead") == "epilogue"),
        blocks_(blocks_of(p, c)),
        sharing_{.by_rows = knob_text(c, "split") == "rows",
                 .block_tiles = std::max<int64_t>(1, knob_int(c, "block_rows") / rows_),
                 .panels = p.panels(),
                 .units = p.vectors,
                 .of_last = p.last_vectors()},
        tiles_(p.rows, rows_, knob_text(c, "tails"), residue, "m_") {
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.dtype, rows_ * p.vectors, p.lanes);
    panel_ = panel_registers(p.dtype, p.vectors, p.lanes, p.fragment);
    const int64_t block_rows = sharing_.block_tiles * rows_;
    const int64_t waiting = blocks_.count > 1 ? block_rows : rows_;
    sums_ = thread_scratch("sums", p.rounded ? DType::kF32 : p.dtype, waiting * p.width);
    if (p.converts()) converted_ = thread_scratch("converted", p.dtype, blocks_.size * p.width);
    if (p.widens())
      widened_ =
          thread_scratch("widened", kir::row_of(*p.fragment).a, ir::min(p.rows, block_rows) * p.k);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body = tiles_.prologue();
    if (p_.rounded)
      for (StmtRef& s : p_.rounded->round()) body.push_back(std::move(s));
    body.push_back(tiles_.shared(
        sharing_, [&] { return widened_ ? widen_rows() : std::vector<StmtRef>(); },
        p_.last_apart(Dim::symbol("p"), [&](int vectors) { return panel_body(vectors); })));
    std::vector<BufferRef> scratch = {sums_};
    if (converted_) scratch.push_back(converted_);
    if (widened_) scratch.push_back(widened_);
    std::vector<BufferRef> registers = {accumulators_, panel_};
    if (p_.rounded) {
      for (BufferRef& b : p_.rounded->scratch()) scratch.push_back(std::move(b));
      registers.push_back(p_.rounded->extremes);
    }
    return make_function(w_, p_.frame, name, std::move(scratch), std::move(registers),
                         kb::seq(std::move(body)));
  }

 private:
  static KBlocks blocks_of(const Product& p, const Config& c) {
    if (p.rounded) return {p.rounded->form.group / p.group, p.rounded->form.groups()};
    return k_blocks(p.steps(), knob_int(c, "k_block"), knob_int(c, "unroll"));
  }
  int64_t lines_per_body() const { return lines_of(unroll_ * p_.width * p_.group, p_.rhs->dtype); }

  // Names this thread's tiles of panel p, of which the first `vectors` hold columns, and each one's
  // share of what is prefetched.
  std::vector<StmtRef> own_tiles(int vectors) const {
    std::vector<StmtRef> all = RowTiles::own_tiles(sharing_, vectors);
    const Dim share = ir::ceildiv(lines_per_body(), ir::max(RowTiles::own_count(), 1));
    if (prefetch_) all.push_back(kb::let_index("share", kb::index(share)));
    return all;
  }

  // This thread's tiles of panel p, of which the first `vectors` hold columns.
  StmtRef panel_body(int vectors) {
    const Dim p = Dim::symbol("p"), kblock = Dim::symbol("kb"), extent = RowTiles::own_count();
    std::vector<StmtRef> all = own_tiles(vectors);
    const Dim k0 = kblock * blocks_.size;
    const bool even = blocks_.size * blocks_.count == p_.steps();
    const Dim k_extent = even ? Dim(blocks_.size) : ir::min(p_.steps() - k0, blocks_.size);
    const auto tiles = [&](bool converted) {
      return tiles_.for_each(
          RowTiles::first_own(), extent,
          [&](const RowTiles::Tile& t) { return tile(t, p, vectors, k0, k_extent, converted); },
          [&](const RowTiles::Tile& t) {
            StmtRef finish = epilogue(t, p, vectors);
            return blocks_.count == 1
                       ? finish
                       : kb::if_then(kb::eq(kblock, blocks_.count - 1), std::move(finish));
          });
    };
    StmtRef all_tiles = tiles(false);
    if (converted_)
      all_tiles =
          kb::if_then(kb::lt(1, extent), kb::seq({convert(p, vectors, k0, k_extent), tiles(true)}),
                      std::move(all_tiles));
    if (p_.rounded && blocks_.count > 1) all.push_back(zero_sums(vectors));
    // A stretch may begin behind the first vector of a panel's last tile, and so have none of it.
    const Dim blocks = sharing_.by_rows ? Dim(blocks_.count) : ir::min(extent, 1) * blocks_.count;
    all.push_back(kb::loop(LoopKind::kSerial, "kb", 0, blocks, std::move(all_tiles)));
    return kb::seq(std::move(all));
  }

  // The sums of the rows of a panel's tiles, of no group yet.
  StmtRef zero_sums(int vectors) const {
    const Dim r = Dim::symbol("z_r"), v = Dim::symbol("z_v"), begin = RowTiles::first_own();
    const Dim first = tiles_.first_row(begin) - RowTiles::block_row();
    const Dim rows = tiles_.first_row(begin + RowTiles::own_count()) - tiles_.first_row(begin);
    StmtRef one = kb::store(sums_, (first + r) * p_.width + v * p_.lanes,
                            kb::number(DType::kF32, 0, p_.lanes));
    return kb::loop(LoopKind::kSerial, "z_r", 0, rows,
                    kb::loop(LoopKind::kUnroll, "z_v", 0, vectors, std::move(one)));
  }

  // Adds the sums of a group of k to those of a tile.
  StmtRef add_group(const RowTiles::Tile& t, const Dim& p, int vectors) const {
    const Dim group = Dim::symbol("kb");
    std::vector<StmtRef> all;
    p_.rounded->name_columns(group, p * p_.width, vectors, p_.lanes, "g_", all);
    for (int r = 0; r < t.rows; ++r) {
      const std::string row = "g_" + std::to_string(r) + "_";
      p_.rounded->name_row(group, tiles_.row_of(t, r), p_.lanes, row, all);
      for (int v = 0; v < vectors; ++v) {
        const Dim place = sums_at(t, r, v * p_.lanes);
        kir::ValueRef total = blocks_.count > 1 ? kb::load(sums_, place, p_.lanes)
                                                : kb::number(DType::kF32, 0, p_.lanes);
        all.push_back(kb::store(sums_, place,
                                RoundedRows::added(kb::reg(accumulators_, r * vectors + v),
                                                   std::move(total), v, p_.lanes, "g_", row)));
      }
    }
    return kb::seq(std::move(all));
  }

  // The rows of a block of tiles, as i16.
  std::vector<StmtRef> widen_rows() const {
    const Dim first = RowTiles::block_row(), count = Dim::symbol("widened_count");
    return {
        kb::let_index("widened_count", kb::index(tiles_.block_rows() * p_.k)),
        widen(p_.lhs, first * p_.k, widened_, 0, count, p_.lanes * group_of(p_.fragment), "w_i")};
  }

  // A block of the panel in the type of the sums.
  StmtRef convert(const Dim& p, int vectors, const Dim& k0, const Dim& k_extent) {
    const Dim k = Dim::symbol("q_k"), v = Dim::symbol("q_v");
    const Dim from = p_.row_of_panel(p, k0) + p_.distance(k, v * p_.lanes);
    StmtRef one = kb::store(converted_, k * p_.width + v * p_.lanes,
                            kb::cast(p_.dtype, kb::load(p_.rhs, from, p_.lanes)));
    return kb::loop(LoopKind::kSerial, "q_k", 0, k_extent,
                    kb::loop(LoopKind::kUnroll, "q_v", 0, vectors, std::move(one)));
  }

  // Over how many sums a tile of so many vectors spreads each element. A multiply-add waits four
  // cycles for the one before it, and two could begin every cycle.
  int chains(int vectors) const {
    int n = 1;
    while (n * vectors < kBusySums && 2 * n * vectors <= rows_ * p_.vectors &&
           unroll_ % (2 * n) == 0)
      n *= 2;
    return n;
  }

  // First element of a tile's sums in the scratch.
  Dim sums_at(const RowTiles::Tile& t, const Dim& row, const Dim& column) const {
    const Dim first = blocks_.count > 1 ? t.row - RowTiles::block_row() : Dim(0);
    return (first + row) * p_.width + column;
  }

  // `converted`: the block of the panel lies in the scratch.
  StmtRef tile(const RowTiles::Tile& t, const Dim& p, int vectors, const Dim& k0,
               const Dim& k_extent, bool converted) {
    RegisterTile product;
    product.rows = t.rows;
    product.vectors = vectors;
    product.lanes = p_.lanes;
    product.dtype = p_.dtype;
    product.fragment = p_.fragment;
    product.chains = chains(t.rows * vectors);
    product.unroll = unroll_;
    product.accumulators = accumulators_;
    product.panel = panel_;
    product.lhs = widened_ ? widened_ : p_.lhs;
    product.rhs = converted ? converted_ : p_.rhs;
    const Dim first_row = widened_ ? RowTiles::block_row() : Dim(0);
    product.lhs_index = [&](const Dim& r, const Dim& k) {
      const Dim row = tiles_.row_of(t, r) - first_row;
      if (p_.rounded) return p_.rounded->place(row, Dim::symbol("kb")) + k * p_.group;
      return row * p_.k + (k0 + k) * p_.group;
    };
    if (p_.k % p_.group != 0) {  // the last group of a row ends where the next row begins
      product.lhs_valid = [&](const Dim& k) { return p_.k - (k0 + k) * p_.group; };
      const Dim groups = p_.k / p_.group;
      product.whole = blocks_.count == 1 ? groups : ir::min(k_extent, groups - k0);
    }
    const Dim piece = p_.row_of_panel(p, k0);
    product.rhs_index = [&](const Dim& v, const Dim& k) {
      return converted ? k * p_.width + v * p_.lanes : piece + p_.distance(k, v * p_.lanes);
    };
    product.k_extent = k_extent;
    const bool next =
        prefetch_ && t.rows * line_elements(p_.rhs->dtype) > kFewPerLine * p_.lanes * p_.group;
    if (next || ahead_)
      product.at_body = [&](const Dim& body) {
        std::vector<StmtRef> at_body;
        if (ahead_) at_body.push_back(ahead(t, p, vectors, body));
        if (next)
          at_body.push_back(prefetches(t, piece + blocks_.size * (p_.width * p_.group), body));
        return kb::seq(std::move(at_body));
      };

    const SumPlace place = [&](const Dim& r, const Dim& v) { return sums_at(t, r, v * p_.lanes); };
    std::vector<StmtRef> all = {tile_zero(product, "i_")};
    if (blocks_.count > 1 && !p_.rounded)
      all.push_back(kb::if_then(kb::lt(0, Dim::symbol("kb")),
                                resume_sums(accumulators_, t.rows, vectors, sums_, place)));
    all.push_back(tile_product(product, "i_"));
    all.push_back(p_.rounded ? add_group(t, p, vectors)
                             : keep_sums(accumulators_, t.rows, vectors, sums_, place));
    return kb::seq(std::move(all));
  }

  // Prefetches of what the epilogue behind the last block will touch, row by row with the first
  // bodies of the loop over k: all at once they would hold up the loads behind them.
  StmtRef ahead(const RowTiles::Tile& t, const Dim& p, int vectors, const Dim& body) const {
    const int64_t last = p_.steps() - (blocks_.count - 1) * blocks_.size;
    const int64_t bodies = std::max<int64_t>(1, last / unroll_);
    const int64_t rows = (t.rows + bodies - 1) / bodies;  // with each body
    std::vector<StmtRef> out;
    const auto add = [&](const BufferRef& b, const Dim& pitch, bool for_write) {
      const Dim first = (t.row + body * rows) * pitch + p * p_.width;
      out.push_back(
          prefetch_tile(b, first, static_cast<int>(rows), pitch, vectors * p_.lanes, for_write));
    };
    for (const BufferRef& b : epilogue_operands(w_, p_.frame)) add(b, p_.n, false);
    for (size_t i = 0; i < p_.frame.results.size(); ++i)
      add(p_.frame.results[i], p_.frame.result_dims[i].back(), true);
    StmtRef first = kb::if_then(kb::lt(body, (t.rows + rows - 1) / rows), kb::seq(std::move(out)));
    if (blocks_.count == 1) return first;
    return kb::if_then(kb::eq(Dim::symbol("kb"), blocks_.count - 1), std::move(first));
  }

  // The tile's share of the lines that one loop body's part of the next block holds. Blocks lie
  // one behind the other, across panels too, so "next" is an address.
  StmtRef prefetches(const RowTiles::Tile& t, const Dim& next, const Dim& body) {
    const Dim share = Dim::symbol("share");
    const int64_t bodies = blocks_.size / unroll_;
    const Dim first = next + (t.number * bodies + body) * share * line_elements(p_.rhs->dtype);
    return prefetch_share(p_.rhs, first, t.number, share, lines_per_body());
  }

  StmtRef epilogue(const RowTiles::Tile& t, const Dim& p, int vectors) {
    const Dim r = Dim::symbol("e_r");
    auto row_stores = [&](bool masked) {
      ColumnVectors columns{vectors, p_.lanes, p * p_.width, {}};
      if (masked) columns.valid = p_.n - columns.first;
      columns = columns.in_pairs();
      StmtRef row =
          store_columns(w_, p_.frame, unflatten(t.row + r, p_.row_dims), columns,
                        [&](int v, const Dim&, const std::optional<Dim>&) {
                          return kb::load(sums_, sums_at(t, r, v * columns.lanes), columns.lanes);
                        });
      return kb::loop(LoopKind::kSerial, "e_r", 0, t.valid, std::move(row));
    };
    return p_.by_fullness(p, vectors, row_stores);
  }

  const Workload& w_;
  const Product& p_;
  int rows_, unroll_;
  bool prefetch_, ahead_;
  KBlocks blocks_;
  RowTiles::Sharing sharing_;
  RowTiles tiles_;
  BufferRef accumulators_, panel_, sums_;
  BufferRef converted_;  // null if the weights are multiplied as they are
  BufferRef widened_;    // a block's rows; null if they are
};

}  // namespace

bool DenseTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> DenseTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for dense", w.key);
  Knob k_block{"k_block", {}};
  for (int64_t k : {64, 128, 192, 256, 384, 512, 1024})
    if (k < p->steps() && !p->rounded) k_block.choices.emplace_back(k);
  k_block.choices.emplace_back(int64_t{0});
  return {product_rows_knob(max_tile_rows(t, p->vectors)),
          std::move(k_block),
          int_knob("unroll", {1, 2, 4, 8}),
          int_knob("block_rows", {32, 64, 128, 256}),
          {"prefetch", {"none", "spread"}},
          {"ahead", {"none", "epilogue"}},
          {"split", {"columns", "rows"}},
          tails_knob(/*residues=*/true)};
}

bool DenseTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  const int64_t rows = knob_int(c, "rows");
  if (rows < 1 || rows > max_tile_rows(t, p->vectors)) return false;
  if (knob_int(c, "unroll") < 1 || knob_int(c, "block_rows") < rows) return false;
  if (knob_int(c, "k_block") < 0 || (p->rounded && knob_int(c, "k_block") > 0)) return false;
  return has_tails(c, p->rows);
}

Config DenseTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for dense", w.key);
  const int64_t rows = rows_with_room(t, p->fragment, p->vectors, default_tile_rows(t, p->vectors));
  // A block of the panel takes at most three quarters of L1, and is only worth its sums' way
  // through memory if there are several.
  auto element = static_cast<int64_t>(size_of(p->rhs->dtype));
  if (p->converts()) element += static_cast<int64_t>(size_of(p->dtype));  // in both types
  const int64_t step_bytes = p->width * p->group * element;
  const int64_t fits = std::max<int64_t>(64, t.l1_bytes * 3 / 4 / step_bytes / 64 * 64);
  const int64_t columns = p->panels();
  // Rows that are widened take at most half of L2.
  int64_t block_rows = 128;
  if (p->widens()) {
    const auto widened = static_cast<int64_t>(size_of(kir::row_of(*p->fragment).a));
    while (block_rows > 32 && block_rows * p->k * widened > t.l2_bytes / 2) block_rows /= 2;
  }
  return {{"rows", rows},
          {"k_block", p->steps() > 2 * fits && !p->rounded ? fits : int64_t{0}},
          {"unroll", int64_t{4}},
          {"block_rows", block_rows},
          {"prefetch", "spread"},
          {"ahead", epilogue_operands(w, p->frame).empty() ? "none" : "epilogue"},
          {"split", columns >= 4 ? "columns" : "rows"},
          {"tails", kTailsEven}};
}

Lowered DenseTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                             const std::string& name) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of dense", to_json(c));
  Lowered out = kernels_of_tails(w, c, p->rows, name, [&](int residue, const std::string& one) {
    return DenseLowering(w, *p, c, residue).run(one);
  });
  const bool by_rows = knob_text(c, "split") == "rows";
  out.divisible =
      by_rows ? !p->converts() : !((p->widens() || p->converts()) && p->has_few_panels());
  // Rows are rounded by all threads.
  if (!by_rows || !p->rounded)
    out.max_threads = most_threads(p->rows, knob_int(c, "rows"), by_rows ? 1 : p->panels());
  return out;
}

}  // namespace nimble::kernels
