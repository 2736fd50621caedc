// The template "conv2d_nhwc": convolution of channels-last images, with an element-wise epilogue.
//
// Convolution as an implicit matrix product.
//
// Of NHWC images and HWIO weights a convolution is a product: a row is a pixel of the result, the
// columns are its output channels, and k runs over (kh, kw, c_in). Unfolding the image into the
// left-hand matrix (im2col) would write and read each pixel kh * kw times. It is not needed: for
// one tap, the channels of a pixel are consecutive in memory, and those of its neighbour begin
// stride * c_in elements later. That is all that the register tile of products (tile.h) asks of a
// left-hand side, so the tile is the same: `rows` pixels of one row of the result by `vectors`
// vectors of output channels, weights loaded, pixels broadcast. 14 pixels by 2 vectors of AVX-512
// are 28 multiply-adds, 14 cycles, for 16 loads, which take 8. Pixel widths of the usual networks
// (7, 14, 28, 56, 112) are multiples of 7 or 14, others split evenly (RowTiles).
//
//   for each item, split over the threads: an image, a block of its rows, a panel of channels
//     for each block of input channels          (a piece of the panel that stays in L1)
//       for each row of the result, each tile of its pixels       (sums in registers)
//         for each row of taps: product of the tile
//         on the last block: epilogue and store
//
// Borders cost nothing inside and little at the edge. Rows of taps that lie outside the image are
// cut off by the loop's bounds. A tap's column is outside for the first few or the last few pixels
// of a tile only, so the pixels that remain are a range, and ranges are few: with a padding of 1,
// all pixels, all but the first, all but the last. Each of these has its own product, over a part
// of the same accumulators, chosen by two comparisons for a tap. Ranges that only images narrower
// than the window have are computed pixel by pixel. There is no copy of the image and no zero is
// multiplied. Where columns are not dilated, the taps of a row that lie inside for all pixels are
// one stretch of memory in image and weights alike, and one loop: three channels of a photograph
// would make short loops else.
//
// Sums of earlier blocks of channels wait in a scratch of the thread, as in "dense".
//
// A group of channels is a product of its own. Panels are cut from HWIO weights as they stand, too,
// for groups and for weights that are computed; their rows are then as far apart as the tensor
// says. Vectors are no wider than a group's channels, rounded up to a power of two.
#include "compiler/kernels/templates/conv2d_nhwc.h"

#include <algorithm>
#include <bit>
#include <set>

#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

namespace {

// Two vectors leave room for 14 pixels (6 with 16 registers), a divisor of the usual widths.
int conv_vectors(int64_t all) {
  constexpr double kCost[] = {1.3, 1.0, 1.02};
  return panel_vectors(all, kCost);
}

int64_t quotient_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::string conv2d_nhwc_layout(const TargetInfo& t, DType dtype, int64_t n) {
  const int lanes = lanes_of(t, dtype);
  const int vectors = conv_vectors(quotient_up(n, lanes));
  return ir::Layout{ir::Layout::Kind::kPanel, int64_t{vectors} * lanes}.str();
}

namespace {

constexpr const char* kWeightsStay = "weights";  // neighbouring items share their weights
constexpr const char* kPixelsStay = "pixels";    // … or their pixels

// The product that a convolution is.
struct Product : ConvNhwc {
  int lanes = 1, vectors = 1;
  int64_t width = 1;   // columns of a panel: vectors * lanes
  int64_t stored = 0;  // columns of a panel as it is packed; 0: HWIO

  int64_t k() const { return taps() * channels; }
  int64_t panels() const { return quotient_up(filters, width); }
  // Vectors of the last panel that hold columns.
  int last_vectors() const {
    return static_cast<int>(quotient_up(filters - (panels() - 1) * width, lanes));
  }
  // Elements from a pixel's channels to those of the next.
  int64_t pixel() const { return groups * channels; }
  // First element of row `row` of the weights' matrix in a panel of a group.
  Dim row_of_panel(const Dim& group, const Dim& panel, const Dim& row) const {
    if (stored == 0) return row * (groups * filters) + group * filters + panel * width;
    if (stored == width) return (panel * k() + row) * width;
    const int64_t parts = stored / width;
    return (ir::floordiv(panel, parts) * k() + row) * stored + ir::mod(panel, parts) * width;
  }
};

std::optional<Product> analyse(const Workload& w, const TargetInfo& t) {
  auto conv = analyse_conv_nhwc(w);
  if (!conv || !conv->weights) return {};
  Product p;
  static_cast<ConvNhwc&>(p) = std::move(*conv);
  p.lanes = lanes_of(t, p.dtype);
  if (p.layout) {
    p.stored = p.layout->width;
    if (p.stored % p.lanes != 0) return {};
    const int64_t all = p.stored / p.lanes;
    p.vectors = static_cast<int>(std::min<int64_t>(all, max_tile_vectors(t)));
    while (all % p.vectors != 0) --p.vectors;
  } else {
    const auto narrow = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(p.filters)));
    p.lanes = static_cast<int>(std::min<int64_t>(p.lanes, narrow));
    p.vectors = conv_vectors(quotient_up(p.filters, p.lanes));
  }
  p.width = int64_t{p.vectors} * p.lanes;
  return p;
}

// Pixels [from, to) of a tile for which a tap's column lies inside the image.
using Range = std::pair<int, int>;
struct Ranges {
  std::vector<Range> known;  // those with a product of their own
  bool others = false;       // whether there may be more
};

class Conv2dNhwcLowering {
 public:
  Conv2dNhwcLowering(const Workload& w, const Product& p, const Config& c)
      : w_(w),
        p_(p),
        named_(w),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        block_rows_(knob_int(c, "block_rows")),
        weights_stay_(knob_text(c, "order") == kWeightsStay),
        even_(knob_text(c, "tails") == kTailsEven),
        blocks_(k_blocks(p.channels, knob_int(c, "c_block"), unroll_)),
        vertical_(p.windows[0].with_extents(named_("in_height", p.in[1]),
                                            named_("out_height", p.out[1]))),
        horizontal_(
            p.windows[1].with_extents(named_("in_width", p.in[2]), named_("out_width", p.out[2]))),
        line_blocks_(named_("line_blocks", ir::ceildiv(p.out[1], block_rows_))),
        tiles_(horizontal_.out, rows_, knob_text(c, "tails"), 0, "m_") {
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.dtype, rows_ * p.vectors, p.lanes);
    panel_ = kb::buffer("panel", Scope::kRegister, p.dtype, p.vectors, p.lanes);
    const Dim waiting =
        blocked() ? ir::max(p.out[2] * block_rows_, 1) * p.width : Dim(rows_ * p.width);
    sums_ = thread_scratch("sums", p.dtype, waiting);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    const Dim groups = p_.groups, panels = p_.panels();
    const std::vector<Dim> extents = weights_stay_
                                         ? std::vector<Dim>{groups, panels, p_.in[0], line_blocks_}
                                         : std::vector<Dim>{p_.in[0], line_blocks_, groups, panels};
    const std::vector<Dim> at = bind_coordinates("x", extents, Dim::symbol("item"), body);
    group_ = at[weights_stay_ ? 0 : 2];
    column_panel_ = at[weights_stay_ ? 1 : 3];
    image_ = at[weights_stay_ ? 2 : 0];
    first_line_ = at[weights_stay_ ? 3 : 1] * block_rows_;
    body.push_back(
        kb::let_index("lines", kb::index(ir::min(vertical_.out - first_line_, block_rows_))));

    const int64_t last = p_.panels() - 1;
    const bool rest = p_.filters % p_.width != 0;
    // The last panel is apart if fewer vectors hold columns, or loads must stop at the last column.
    if (!rest) {
      body.push_back(lines(p_.vectors, Columns::kAll));
    } else if (last == 0) {
      body.push_back(lines(p_.last_vectors(), Columns::kSome));
    } else if (p_.last_vectors() < p_.vectors || p_.stored == 0) {
      StmtRef whole = lines(p_.vectors, Columns::kAll);
      body.push_back(kb::if_then(kb::lt(column_panel_, last), std::move(whole),
                                 lines(p_.last_vectors(), Columns::kSome)));
    } else {
      body.push_back(lines(p_.vectors, Columns::kAsk));
    }
    std::vector<StmtRef> all = named_.statements();
    for (StmtRef& s : tiles_.prologue()) all.push_back(std::move(s));
    all.push_back(kb::loop(LoopKind::kThread, "item", 0,
                           p_.in[0] * line_blocks_ * p_.groups * p_.panels(),
                           kb::seq(std::move(body))));
    return make_function(w_, p_.frame, name, {sums_}, {accumulators_, panel_},
                         kb::seq(std::move(all)));
  }

 private:
  enum class Columns { kAll, kSome, kAsk };  // whether a panel's columns all exist

  bool blocked() const { return blocks_.count > 1; }
  Dim block() const { return blocked() ? Dim::symbol("cb") : Dim(0); }
  // Input channels of this block: the first, how many.
  Dim first_channel() const { return block() * blocks_.size; }
  Dim block_channels() const {
    if (blocks_.size * blocks_.count == p_.channels) return blocks_.size;
    return ir::min(p_.channels - first_channel(), blocks_.size);
  }
  // Whether all of a row's taps are one stretch of memory.
  bool merged() const {
    return !blocked() && p_.groups == 1 && (horizontal_.dilation == 1 || horizontal_.taps == 1);
  }
  Dim line() const { return first_line_ + Dim::symbol("line"); }
  Dim column_of(int vector) const { return column_panel_ * p_.width + vector * p_.lanes; }

  // The item's rows of the result, in a panel of which the first `vectors` hold columns.
  StmtRef lines(int vectors, Columns columns) {
    const Dim top = Dim::symbol("top");
    std::vector<StmtRef> body = {
        kb::let_index("top", kb::index(vertical_.start(line()))),
        kb::let_index("i_begin", kb::index(vertical_.begin_tap(top))),
        kb::let_index("i_end", kb::index(vertical_.end_tap(top))),
        tiles_.for_each(
            0, tiles_.count(), [&](const RowTiles::Tile& t) { return tile(t, vectors, columns); },
            [&](const RowTiles::Tile& t) {
              StmtRef finish = epilogue(t, vectors, columns);
              return blocked() ? kb::if_then(kb::eq(block(), blocks_.count - 1), std::move(finish))
                               : finish;
            })};
    StmtRef all =
        kb::loop(LoopKind::kSerial, "line", 0, Dim::symbol("lines"), kb::seq(std::move(body)));
    return blocked() ? kb::loop(LoopKind::kSerial, "cb", 0, blocks_.count, std::move(all)) : all;
  }

  // First element of a tile's sums in the scratch.
  Dim sums_at(const RowTiles::Tile& t, const Dim& row, const Dim& column) const {
    const Dim first = blocked() ? Dim::symbol("line") * horizontal_.out + t.row : Dim(0);
    return (first + row) * p_.width + column;
  }

  StmtRef tile(const RowTiles::Tile& t, int vectors, Columns columns) {
    TileProduct product;
    product.rows = t.rows;
    product.vectors = vectors;
    product.lanes = p_.lanes;
    product.dtype = p_.dtype;
    product.unroll = unroll_;
    product.accumulators = accumulators_;
    product.panel = panel_;
    product.lhs = p_.image;
    product.rhs = p_.weights;
    if (columns == Columns::kSome && p_.stored == 0)
      product.rhs_valid = [this](const Dim& v) {
        return std::optional<Dim>(p_.filters - column_panel_ * p_.width - v * p_.lanes);
      };

    const Dim r = Dim::symbol("c_r"), v = Dim::symbol("c_v");
    const auto each = [&](StmtRef s) {
      return kb::loop(LoopKind::kUnroll, "c_r", 0, t.rows,
                      kb::loop(LoopKind::kUnroll, "c_v", 0, vectors, std::move(s)));
    };
    const Dim element = r * vectors + v, place = sums_at(t, r, v * p_.lanes);
    std::vector<StmtRef> all = {tile_zero(product, "i_")};
    if (blocked())
      all.push_back(
          kb::if_then(kb::lt(0, block()),
                      each(kb::set_reg(accumulators_, element, kb::load(sums_, place, p_.lanes)))));
    all.push_back(kb::let_index("left", kb::index(horizontal_.start(t.row))));
    all.push_back(taps(product));
    all.push_back(each(kb::store(sums_, place, kb::reg(accumulators_, element))));
    return kb::seq(std::move(all));
  }

  // The product of a tile over all taps.
  StmtRef taps(const TileProduct& tile) {
    const Dim i = Dim::symbol("i"), left = Dim::symbol("left"), at = Dim::symbol("at");
    std::vector<StmtRef> all, row;
    // Where the first tap of the row finds the first pixel: perhaps outside the image.
    const Dim y = Dim::symbol("top") + i * vertical_.dilation;
    row.push_back(kb::let_index(
        "at", kb::index(((image_ * vertical_.in + y) * horizontal_.in + left) * p_.pixel() +
                        group_ * p_.channels + first_channel())));
    const int64_t kw = horizontal_.taps;
    if (merged()) {
      Dim begin = 0, end = kw;
      if (horizontal_.clipped) {
        begin = Dim::symbol("j_begin");
        end = Dim::symbol("j_end");
        // Taps inside for the first pixel and for the last are so for all.
        const Dim right = left + (tile.rows - 1) * horizontal_.stride;
        all.push_back(
            kb::let_index("j_begin", kb::index(ir::min(horizontal_.begin_tap(left), kw))));
        all.push_back(
            kb::let_index("j_end", kb::index(ir::max(horizontal_.end_tap(right), begin))));
      }
      row.push_back(product(tile, 0, tile.rows, at + begin * p_.pixel(),
                            (i * kw + begin) * p_.channels, (end - begin) * p_.channels, "f_"));
      if (horizontal_.clipped)
        row.push_back(kb::if_then(kb::lt(end - begin, kw), tap_by_tap(tile, false)));
    } else {
      row.push_back(tap_by_tap(tile, true));
    }
    all.push_back(kb::loop(LoopKind::kSerial, "i", Dim::symbol("i_begin"),
                           Dim::symbol("i_end") - Dim::symbol("i_begin"), kb::seq(std::move(row))));
    return kb::seq(std::move(all));
  }

  // Each tap of a row on its own; with `all`, also those that are inside for the whole tile.
  StmtRef tap_by_tap(const TileProduct& tile, bool all) {
    const Dim j = Dim::symbol("j"), from = Dim::symbol("from"), to = Dim::symbol("to");
    const Dim at = Dim::symbol("at") + j * (horizontal_.dilation * p_.pixel());
    const Dim row = (Dim::symbol("i") * horizontal_.taps + j) * p_.channels + first_channel();
    const auto part = [&](int first, int rows, const std::string& prefix) {
      return product(tile, first, rows, at, row, block_channels(), prefix);
    };
    const auto loop = [&](StmtRef body) {
      return kb::loop(LoopKind::kSerial, "j", 0, horizontal_.taps, std::move(body));
    };
    if (!horizontal_.clipped) return loop(part(0, tile.rows, "a_"));

    const int n = tile.rows;
    const Ranges ranges = ranges_of(n);
    StmtRef chain;
    if (ranges.others) {
      std::vector<StmtRef> pixels;
      for (int r = 0; r < n; ++r)
        pixels.push_back(kb::if_then(kb::both(kb::le(from, r), kb::lt(r, to)),
                                     part(r, 1, "p" + std::to_string(r) + "_")));
      chain = kb::seq(std::move(pixels));
    }
    for (size_t q = ranges.known.size(); q-- > 0;) {
      const auto [first, end] = ranges.known[q];
      chain =
          kb::if_then(kb::both(kb::eq(from, first), kb::eq(to, end)),
                      part(first, end - first, "q" + std::to_string(q) + "_"), std::move(chain));
    }
    const kir::Condition whole = kb::both(kb::eq(from, 0), kb::eq(to, n));
    if (all) {
      chain = kb::if_then(whole, part(0, n, "a_"), std::move(chain));
    } else {
      if (!chain) return kb::seq({});
      chain = kb::if_then(whole, kb::seq({}), std::move(chain));
    }
    // Pixel r's column is start + r * stride.
    const Dim start = Dim::symbol("left") + j * horizontal_.dilation;
    const auto clamped = [&](const Dim& d) { return kb::index(ir::max(ir::min(d, n), 0)); };
    return loop(kb::seq(
        {kb::let_index("from", clamped(ir::ceildiv(0 - start, horizontal_.stride))),
         kb::let_index("to",
                       clamped(ir::floordiv(horizontal_.in - 1 - start, horizontal_.stride) + 1)),
         std::move(chain)}));
  }

  // The product of pixels [first, first + rows) of a tile, whose pixel 0 reads from `at` on, with
  // `k` rows of the weights' matrix from `row` on.
  StmtRef product(const TileProduct& tile, int first, int rows, const Dim& at, const Dim& row,
                  const Dim& k, const std::string& prefix) {
    TileProduct t = tile;
    t.first_row = first;
    t.rows = rows;
    const int64_t step = horizontal_.stride * p_.pixel();
    t.lhs_index = [=](const Dim& pixel, const Dim& c) { return at + pixel * step + c; };
    t.rhs_index = [=, this](const Dim& v, const Dim& c) {
      return p_.row_of_panel(group_, column_panel_, row + c) + v * p_.lanes;
    };
    t.k_extent = k;
    return tile_product(t, prefix);
  }

  // The first pixels and sizes of the tiles of a row, whose width is known.
  std::vector<std::pair<int64_t, int64_t>> known_tiles(int64_t width) const {
    std::vector<std::pair<int64_t, int64_t>> tiles;
    const int64_t count = quotient_up(width, rows_);
    for (int64_t t = 0, first = 0; t < count; ++t) {
      const int64_t base = width / count;
      const int64_t size = even_ ? base + (t < width - base * count ? 1 : 0)
                                 : std::min<int64_t>(rows_, width - first);
      tiles.emplace_back(first, size);
      first += size;
    }
    return tiles;
  }

  // The ranges, other than the whole, that taps may have in tiles of n pixels.
  Ranges ranges_of(int n) const {
    constexpr size_t kMost = 4;  // code for more is rather compiled than run
    const Window& x = horizontal_;
    Ranges out;
    if (n == 1) return out;
    const auto width = x.in.as_constant(), columns = x.out.as_constant();
    if (width && columns) {
      std::set<Range> all;
      for (const auto& [first, size] : known_tiles(*columns)) {
        if (size != n) continue;
        for (int64_t j = 0; j < x.taps; ++j) {
          int from = n, to = 0;
          for (int r = 0; r < n; ++r) {
            const int64_t column = (first + r) * x.stride - x.before + j * x.dilation;
            if (column < 0 || column >= *width) continue;
            from = std::min(from, r);
            to = r + 1;
          }
          if (from < to && (from > 0 || to < n)) all.emplace(from, to);
        }
      }
      for (const Range& r : all)
        if (out.known.size() < kMost) out.known.push_back(r);
      out.others = all.size() > kMost;
      return out;
    }
    for (int cut = 1; cut <= std::min<int64_t>(quotient_up(x.before, x.stride), kMost / 2); ++cut)
      if (cut < n) out.known.emplace_back(cut, n);
    for (int cut = 1; cut <= std::min<int64_t>(quotient_up(x.after, x.stride), kMost / 2); ++cut)
      if (cut < n) out.known.emplace_back(0, n - cut);
    out.others = true;
    return out;
  }

  StmtRef epilogue(const RowTiles::Tile& t, int vectors, Columns columns) {
    const Dim r = Dim::symbol("e_r");
    const auto pixels = [&](bool masked) {
      std::vector<StmtRef> all;
      for (int v = 0; v < vectors; ++v) {
        const Dim column = column_of(v), channel = group_ * p_.filters + column;
        const std::optional<Dim> valid =
            masked ? std::optional<Dim>(p_.filters - column) : std::nullopt;
        ValueRef sum = kb::load(sums_, sums_at(t, r, v * p_.lanes), p_.lanes);
        if (ValueRef bias = p_.bias(w_, channel, p_.lanes, valid)) sum = kb::add(sum, bias);
        all.push_back(store_results(w_, p_.frame, std::move(sum),
                                    {image_, line(), t.row + r, channel}, p_.lanes, valid,
                                    "e" + std::to_string(v) + "_"));
      }
      return kb::loop(LoopKind::kSerial, "e_r", 0, t.valid, kb::seq(std::move(all)));
    };
    if (columns != Columns::kAsk) return pixels(columns == Columns::kSome);
    StmtRef whole = pixels(false);
    return kb::if_then(kb::lt(column_panel_, p_.filters / p_.width), std::move(whole),
                       pixels(true));
  }

  const Workload& w_;
  const Product& p_;
  NamedExtents named_;
  int rows_, unroll_;
  int64_t block_rows_;
  bool weights_stay_, even_;
  KBlocks blocks_;  // of input channels
  Window vertical_, horizontal_;
  Dim line_blocks_;
  RowTiles tiles_;
  BufferRef accumulators_, panel_, sums_;
  Dim group_, column_panel_, image_, first_line_;  // of the item
};

}  // namespace

bool Conv2dNhwcTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> Conv2dNhwcTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for conv2d_nhwc", w.key);
  const int most = max_tile_rows(t, p->vectors);
  Knob rows{"rows", {}, /*tile=*/true};
  for (int64_t r : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28})
    if (r <= most && r * 4 >= most) rows.choices.emplace_back(r);
  Knob channels{"c_block", {}};
  for (int64_t c : {16, 32, 64, 128, 256})
    if (c < p->channels) channels.choices.emplace_back(c);
  channels.choices.emplace_back(int64_t{0});
  return {std::move(rows),
          std::move(channels),
          int_knob("unroll", {1, 2, 4}),
          int_knob("block_rows", {1, 2, 4, 8, 16}),
          {"order", {kWeightsStay, kPixelsStay}},
          {"tails", {kTailsEven, kTailsChecked}}};
}

bool Conv2dNhwcTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  const int64_t rows = knob_int(c, "rows");
  return rows >= 1 && rows <= max_tile_rows(t, p->vectors) && knob_int(c, "c_block") >= 0 &&
         knob_int(c, "unroll") >= 1 && knob_int(c, "block_rows") >= 1;
}

Config Conv2dNhwcTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for conv2d_nhwc", w.key);
  const int64_t rows = p->vectors == 2 ? max_tile_rows(t, 2) : default_tile_rows(t, p->vectors);
  // A block of channels is one whose part of the panel takes at most three quarters of L1. It is
  // only worth its sums' way through memory if there are several.
  const auto element = static_cast<int64_t>(size_of(p->dtype));
  const int64_t fits = std::max<int64_t>(64, t.l1_bytes * 3 / 4 / (p->width * element));
  int64_t c_block = 0;
  if (p->k() > 2 * fits)
    for (int64_t c : {16, 32, 64, 128, 256})
      if (c < p->channels && (c_block == 0 || c * p->taps() <= fits)) c_block = c;
  // Rows enough for a few tiles, so that what an item begins with is shared; where sums wait, no
  // more than leave the weights their place in L1.
  int64_t block_rows = 4;
  if (const auto width = p->out[2].as_constant()) {
    const int64_t row_bytes = std::max<int64_t>(*width, 1) * p->width * element;
    block_rows = 1;
    for (int64_t r : {2, 4, 8})
      if (c_block > 0 ? r * row_bytes <= t.l1_bytes / 4 : (r / 2) * *width < 4 * rows)
        block_rows = r;
  }
  const bool large = p->k() * p->filters * p->groups * element > t.l2_bytes / 2;
  // A tall tile's step is work enough for a loop.
  const int64_t unroll = rows * p->vectors >= 12 ? 1 : 4;
  return {{"rows", rows},
          {"c_block", c_block},
          {"unroll", unroll},
          {"block_rows", block_rows},
          {"order", large ? kWeightsStay : kPixelsStay},
          {"tails", kTailsEven}};
}

Lowered Conv2dNhwcTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                  const std::string& name) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of conv2d_nhwc", to_json(c));
  return one_kernel(Conv2dNhwcLowering(w, *p, c).run(name));
}

}  // namespace nimble::kernels
