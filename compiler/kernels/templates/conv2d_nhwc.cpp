// The template "conv2d_nhwc": convolution of channels-last images, with an element-wise epilogue.
//
// Convolution as an implicit matrix product.
//
// Of NHWC images and HWIO weights a convolution is a product: a row is a pixel of the result, the
// columns are its output channels, and k runs over (kh, kw, c_in). Unfolding the image into the
// left-hand matrix (im2col) would write and read each pixel kh * kw times. It is not needed: for
// one tap, the channels of a pixel are consecutive in memory, and each pixel of a tile has a place
// of its own where they begin. That is all that the register tile of products (tile.h) asks of a
// left-hand side, so the tile is the same: `rows` pixels of the result by `vectors` vectors of
// output channels, weights loaded, pixels broadcast. 14 pixels by 2 vectors of AVX-512 are 28
// multiply-adds, 14 cycles, for 16 loads, which take 8. Numbers of pixels that are no multiple of
// `rows` are split evenly (RowTiles).
//
//   for each item, split over the threads: an image, a block of its rows (of long ones a part), a
//                                          panel of channels
//     for each tap, each block of input channels         (a piece of the panel that stays in L1)
//       for each tile of the pixels that find the tap inside the image
//         product of the tile, its sums in registers meanwhile
//     epilogue and store
//
// so that the weights are one forward stream, of which each tile prefetches a share of the next
// block, ahead of its product (a line with each step of the first tile took a tenth longer).
// Sums wait in a scratch of the thread. A panel that is not much larger than L1, or that a large L2
// keeps (wants_blocks), is not cut into blocks: then each tile walks all taps before the next
// begins, and its sums need not wait.
//
// Borders cost nothing inside and little at the edge. There is no copy of the image and no zero is
// multiplied.
// - By blocks, the pixels that find a tap inside are a rectangle of the item. Tiles walk it line by
//   line and across the ends of lines: of images 7 pixels wide, where networks have most of their
//   weights, 16 registers take 9 tiles of 5 or 6 pixels then, not 7 of 4 and 7 of 3, which are too
//   few for multiply-adds that wait for each other (9 % of the time of ResNet-50's 3 x 3
//   convolutions there).
// - Without blocks, tiles are of one line. Rows of taps that lie outside the image are cut off by
//   the loop's bounds. The pixels of a tile for which a tap's column lies inside are one of few
//   ranges, each of which has its own product over a part of the same accumulators (tile_border.h).
//   Where columns are not dilated, the taps of a row that lie inside for all pixels are one stretch
//   of memory in image and weights alike, and one loop: three channels of a photograph would make
//   short loops else.
//
// A group of channels is a product of its own, with panels of its own. Panels are cut from HWIO
// weights as they stand, too, for weights that are computed; their rows are then as far apart as
// the tensor says. Vectors are no wider than a group's channels, rounded up to a power of two.
//
// The first convolution of a network finds the image of three channels as the program has it, one
// plane for each. It reads it so: a plane is an image of one channel, and the sum goes over the
// planes, too. There are no blocks of channels then. Where neighbouring channels are multiplied in
// groups, the kernel puts the planes of a group together ahead of all (grouped_planes.h): three
// channels become four, two by two, and the convolution takes two thirds of its time in f32.
//
// An image of several side by side, or a slice of one's channels, is read where these lie: the sum
// of a tap goes over one after the other.
//
// Images of bytes that are multiplied as i16 (widened_bytes.h) are widened ahead, by all threads:
// each of their elements is multiplied by every tap and every output channel. Beside small weights
// (max_weight) they are multiplied as bytes on the same machines and stay as they are.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "compiler/kernels/templates/conv_product.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tile.h"
#include "compiler/kernels/templates/tile_border.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

namespace {

// A line of more tiles is several items': one line is all that a one-dimensional convolution has.
constexpr int64_t kTilesOfLine = 16;

class Conv2dNhwcLowering {
 public:
  // `images`, `planes`: the copies that the product's sources are parts of, made so many lanes at a
  // time.
  Conv2dNhwcLowering(const Workload& w, const ConvProduct& p, const std::vector<Widened>& images,
                     const std::optional<GroupedPlanes>& planes, int image_lanes, const Config& c)
      : w_(w),
        p_(p),
        images_(images),
        planes_(planes),
        image_lanes_(image_lanes),
        named_(w),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        block_rows_(knob_int(c, "block_rows")),
        weights_stay_(knob_text(c, "order") == kWeightsStay),
        blocked_(knob_int(c, "c_block") > 0),
        blocks_(k_blocks(p.depth_steps(), knob_int(c, "c_block"), unroll_)),
        vertical_(p.windows[0].with_extents(named_("in_height", p.in[1]),
                                            named_("out_height", p.out[1]))),
        horizontal_(
            p.windows[1].with_extents(named_("in_width", p.in[2]), named_("out_width", p.out[2]))),
        line_blocks_(named_("line_blocks", ir::ceildiv(p.out[1], block_rows_))),
        tails_(knob_text(c, "tails")),
        tiles_(horizontal_.out, rows_, tails_, 0, "m_") {
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.dtype, rows_ * p.vectors, p.lanes);
    panel_ = panel_registers(p.dtype, p.vectors, p.lanes, p.fragment);
    const Dim most = ir::max(ir::min(p.out[2], kTilesOfLine * rows_), 1);
    const Dim pixels = blocked_ ? most * block_rows_ : Dim(rows_);
    sums_ = thread_scratch("sums", p.dtype, pixels * p.width);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    std::vector<StmtRef> all = named_.statements();
    for (StmtRef& s : tiles_.prologue()) all.push_back(std::move(s));
    std::vector<BufferRef> scratch = {sums_};
    if (!images_.empty()) {
      for (StmtRef& s : widen_together(images_, image_lanes_)) all.push_back(std::move(s));
      for (const Widened& image : images_) scratch.push_back(image.to);
    }
    if (planes_) {
      for (StmtRef& s : group_planes(*planes_, image_lanes_)) all.push_back(std::move(s));
      scratch.push_back(planes_->to);
    }
    Dim column_blocks = ir::ceildiv(tiles_.count(), kTilesOfLine);
    if (!column_blocks.as_constant()) {
      all.push_back(kb::let_index("column_blocks", kb::index(column_blocks)));
      column_blocks = Dim::symbol("column_blocks");
    }
    std::vector<Dim> extents = {p_.in[0], line_blocks_, column_blocks};
    extents.insert(weights_stay_ ? extents.begin() : extents.end(), {p_.groups, p_.panels()});
    const std::vector<Dim> at = bind_coordinates("x", extents, Dim::symbol("item"), body);
    const size_t weights = weights_stay_ ? 0 : 3, pixels = weights_stay_ ? 2 : 0;
    group_ = at[weights];
    column_panel_ = at[weights + 1];
    image_ = at[pixels];
    first_line_ = at[pixels + 1] * block_rows_;
    const auto bind = [&](const char* symbol, const Dim& d) {
      body.push_back(kb::let_index(symbol, kb::index(d)));
      return Dim::symbol(symbol);
    };
    bind("lines", ir::min(vertical_.out - first_line_, block_rows_));
    first_tile_ = 0;
    tile_count_ = tiles_.count();
    first_pixel_ = 0;
    pixels_ = horizontal_.out;
    if (!column_blocks.is_constant(1)) {
      first_tile_ = bind("first_tile", at[pixels + 2] * kTilesOfLine);
      tile_count_ = bind("tile_count", ir::min(tiles_.count() - first_tile_, kTilesOfLine));
      first_pixel_ = bind("first_pixel", tiles_.first_row(first_tile_));
      pixels_ = bind("pixels", tiles_.edge(first_tile_ + tile_count_) - first_pixel_);
    }

    const int64_t last = p_.panels() - 1;
    const bool rest = p_.filters % p_.width != 0;
    // The last panel is apart if fewer vectors hold columns, or loads must stop at the last column.
    if (!rest) {
      body.push_back(item({p_.vectors, Columns::kAll}));
    } else if (last == 0) {
      body.push_back(item({p_.last_vectors(), Columns::kSome}));
    } else if (p_.last_vectors() < p_.vectors || p_.stored == 0) {
      StmtRef whole = item({p_.vectors, Columns::kAll});
      body.push_back(kb::if_then(kb::lt(column_panel_, last), std::move(whole),
                                 item({p_.last_vectors(), Columns::kSome})));
    } else {
      body.push_back(item({p_.vectors, Columns::kAsk}));
    }
    all.push_back(kb::loop(LoopKind::kThread, "item", 0,
                           p_.in[0] * line_blocks_ * column_blocks * p_.groups * p_.panels(),
                           kb::seq(std::move(body))));
    return make_function(w_, p_.frame, name, std::move(scratch), {accumulators_, panel_},
                         kb::seq(std::move(all)));
  }

 private:
  enum class Columns { kAll, kSome, kAsk };  // whether a panel's columns all exist
  struct Panel {
    int vectors;  // that hold columns
    Columns columns;
  };
  // The pixels of an item that a tap finds inside the image, a rectangle.
  struct Inside {
    Dim y, x;        // its first line and column, from the item's on
    Dim width;       // columns
    Dim at;          // where its first pixel's channels begin
    Dim step, line;  // from a pixel's to the next one's, to those of the next line
    Dim turn, skip;  // from the end of a line to the next: beyond a step; of the item's pixels
  };
  using Tile = RowTiles::Tile;
  using Source = ConvNhwc::Source;

  Dim line() const { return first_line_ + Dim::symbol("line"); }
  StmtRef each_line(StmtRef body) const {
    return kb::loop(LoopKind::kSerial, "line", 0, Dim::symbol("lines"), std::move(body));
  }
  StmtRef item(const Panel& panel) { return blocked_ ? by_blocks(panel) : by_tiles(panel); }

  // ---- without blocks: all taps of a tile, then the next tile

  StmtRef by_tiles(const Panel& panel) {
    const Dim top = Dim::symbol("top");
    return each_line(
        kb::seq({kb::let_index("top", kb::index(vertical_.start(line()))),
                 kb::let_index("i_begin", kb::index(vertical_.begin_tap(top))),
                 kb::let_index("i_end", kb::index(vertical_.end_tap(top))),
                 tiles_.for_each(
                     first_tile_, tile_count_, [&](const Tile& t) { return whole_tile(t, panel); },
                     [&](const Tile& t) { return epilogue(panel, "e_r", t.valid, 0, t.row); })}));
  }

  StmtRef whole_tile(const Tile& t, const Panel& panel) {
    const RegisterTile product = product_of(t.rows, panel);
    return kb::seq({tile_zero(product, "i_"),
                    kb::let_index("left", kb::index(horizontal_.start(t.row))), taps(product),
                    store_sums(t.rows, panel.vectors)});
  }

  // Whether all of a row's taps are one stretch of memory.
  bool merged() const {
    if (p_.groups > 1 || p_.sources.size() > 1) return false;
    return horizontal_.taps == 1 ||
           (horizontal_.dilation == 1 && p_.pixel(p_.sources[0]) == p_.depth());
  }

  // The product of a tile over all taps.
  StmtRef taps(const RegisterTile& tile) {
    const Dim i = Dim::symbol("i"), j = Dim::symbol("j"), left = Dim::symbol("left");
    const Dim plane = p_.planes() == 1 ? Dim(0) : Dim::symbol("plane");
    std::vector<StmtRef> all, row;
    // Where the first tap of the row finds the first pixel: perhaps outside the image.
    std::vector<Dim> at;
    for (const Source& s : p_.sources) {
      const std::string name = at.empty() ? "at" : fmt::format("at{}", at.size());
      row.push_back(kb::let_index(
          name, kb::index(place(s, plane, Dim::symbol("top") + i * vertical_.dilation, left))));
      at.push_back(Dim::symbol(name));
    }
    const int64_t kw = horizontal_.taps, depth = p_.depth_steps();
    const Dim first_tap = (plane * vertical_.taps + i) * kw;
    const auto each_tap = [&](bool whole) {
      const TilePart part = [&](int first, int rows, const std::string& prefix) {
        std::vector<StmtRef> products;
        Dim step = (first_tap + j) * depth;
        for (size_t s = 0; s < at.size(); ++s) {
          const Source& source = p_.sources[s];
          const Dim tap = at[s] + j * (horizontal_.dilation * p_.pixel(source));
          const int64_t steps = p_.steps_of(source);
          products.push_back(product(tile, source, first, rows, tap, step, steps, prefix));
          step = step + steps;
        }
        return products.size() == 1 ? products[0] : kb::seq(std::move(products));
      };
      StmtRef one = part_of_tile(horizontal_, tiles_, tile.rows, left + j * horizontal_.dilation,
                                 part, whole);
      return one ? kb::loop(LoopKind::kSerial, "j", 0, kw, std::move(one)) : nullptr;
    };
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
      const Source& only = p_.sources[0];
      row.push_back(product(tile, only, 0, tile.rows, at[0] + begin * p_.pixel(only),
                            (first_tap + begin) * depth, (end - begin) * depth, "f_"));
      StmtRef edges = horizontal_.clipped ? each_tap(false) : nullptr;
      if (edges) row.push_back(kb::if_then(kb::lt(end - begin, kw), std::move(edges)));
    } else {
      row.push_back(each_tap(true));
    }
    StmtRef rows = kb::loop(LoopKind::kSerial, "i", Dim::symbol("i_begin"),
                            Dim::symbol("i_end") - Dim::symbol("i_begin"), kb::seq(std::move(row)));
    if (p_.planes() > 1)
      rows = kb::loop(LoopKind::kSerial, "plane", 0, p_.planes(), std::move(rows));
    all.push_back(std::move(rows));
    return kb::seq(std::move(all));
  }

  // ---- by blocks: all tiles for a piece of the weights, then the next piece

  StmtRef by_blocks(const Panel& panel) {
    const Dim i = Dim::symbol("i"), j = Dim::symbol("j"), z = Dim::symbol("z");
    std::vector<StmtRef> zeros;
    for (int v = 0; v < panel.vectors; ++v)
      zeros.push_back(
          kb::store(sums_, z * p_.width + v * p_.lanes, kb::number(p_.dtype, 0, p_.lanes)));
    const auto loop = [](const char* var, const Dim& extent, StmtRef body) {
      return kb::loop(LoopKind::kSerial, var, 0, extent, std::move(body));
    };
    return kb::seq(
        {loop("z", Dim::symbol("lines") * pixels_, kb::seq(std::move(zeros))),
         loop("i", vertical_.taps, loop("j", horizontal_.taps, tap_by_blocks(i, j, panel))),
         each_line(epilogue(panel, "e_r", pixels_, Dim::symbol("line") * pixels_, first_pixel_))});
  }

  // Tap (i, j) of all pixels of the item.
  StmtRef tap_by_blocks(const Dim& i, const Dim& j, const Panel& panel) {
    std::vector<StmtRef> all;
    const auto bind = [&](const char* symbol, const Dim& d) {
      all.push_back(kb::let_index(symbol, kb::index(d)));
      return Dim::symbol(symbol);
    };
    const Source& source = p_.sources[0];
    Inside in;
    in.y = bind("y", ir::max(vertical_.first_with(i) - first_line_, 0));
    in.x = bind("x", ir::max(horizontal_.first_with(j) - first_pixel_, 0));
    const Dim height = ir::min(vertical_.end_with(i) - first_line_, Dim::symbol("lines")) - in.y;
    const Dim width = ir::min(horizontal_.end_with(j) - first_pixel_, pixels_) - in.x;
    in.width = bind("columns", ir::max(width, 1));
    const Dim pixels = bind("inside", ir::max(height, 0) * ir::max(width, 0));
    in.at =
        bind("at", place(source, 0, vertical_.start(first_line_ + in.y) + i * vertical_.dilation,
                         horizontal_.start(first_pixel_ + in.x) + j * horizontal_.dilation));
    in.step = horizontal_.stride * p_.pixel(source);
    const Dim line = vertical_.stride * p_.pixel(source) * horizontal_.in;
    in.line = bind("next_line", line);
    in.turn = bind("turn", line - in.width * in.step);
    in.skip = bind("skip", pixels_ - in.width);
    const RowTiles tiles(pixels, rows_, tails_, 0, "q_");
    for (StmtRef& s : tiles.prologue()) all.push_back(std::move(s));
    if (prefetches()) bind("share", ir::ceildiv(lines_of_block(), ir::max(tiles.count(), 1)));
    StmtRef block = tiles.for_each(
        0, tiles.count(), [&](const Tile& t) { return tile_of_block(t, in, panel); }, nullptr);
    all.push_back(kb::loop(LoopKind::kSerial, "cb", 0, blocks_.count, std::move(block)));
    return kb::seq(std::move(all));
  }

  StmtRef tile_of_block(const Tile& t, const Inside& in, const Panel& panel) {
    const Dim i = Dim::symbol("i"), j = Dim::symbol("j");
    const Dim first_step = Dim::symbol("cb") * blocks_.size;
    const Dim steps = blocks_.size * blocks_.count == p_.depth_steps()
                          ? Dim(blocks_.size)
                          : ir::min(p_.depth_steps() - first_step, blocks_.size);
    const Dim row = (i * horizontal_.taps + j) * p_.depth_steps() + first_step;
    std::vector<StmtRef> all;
    if (prefetches())
      all.push_back(prefetch_burst(p_.weights,
                                   p_.row_of_panel(group_, column_panel_, row + blocks_.size),
                                   t.number, Dim::symbol("share"), lines_of_block()));
    // Of each pixel: its column, its number in the sums, and where its channels begin.
    std::vector<Dim> places, numbers;
    Dim column, number, at;
    for (int r = 0; r < t.rows; ++r) {
      const auto bind = [&](const char* symbol, const Dim& d) {
        all.push_back(kb::let_index(fmt::format("{}{}", symbol, r), kb::index(d)));
        return Dim::symbol(fmt::format("{}{}", symbol, r));
      };
      if (r == 0) {
        const Dim line = bind("l", ir::floordiv(t.row, in.width));
        column = bind("c", t.row - line * in.width);
        number = bind("n", (in.y + line) * pixels_ + in.x + column);
        at = bind("at", in.at + line * in.line + column * in.step + first_step * p_.group);
      } else {
        const Dim over = bind("o", ir::max(column + 2 - in.width, 0));  // 1 at the end of a line
        column = bind("c", column + 1 - over * in.width);
        number = bind("n", number + 1 + over * in.skip);
        at = bind("at", at + in.step + over * in.turn);
      }
      numbers.push_back(number);
      places.push_back(at);
    }
    const auto sums = [&](bool load) {
      for (int r = 0; r < t.rows; ++r)
        for (int v = 0; v < panel.vectors; ++v) {
          const Dim element = r * panel.vectors + v;
          const Dim sum = numbers[static_cast<size_t>(r)] * p_.width + v * p_.lanes;
          all.push_back(load ? kb::set_reg(accumulators_, element, kb::load(sums_, sum, p_.lanes))
                             : kb::store(sums_, sum, kb::reg(accumulators_, element)));
        }
    };
    RegisterTile tile = product_of(t.rows, panel);
    tile.lhs = p_.sources[0].image;
    tile.rows_apart = true;
    tile.lhs_index = [&](const Dim& pixel, const Dim& c) {
      return places[static_cast<size_t>(*pixel.as_constant())] + c * p_.group;
    };
    tile.rhs_index = [&](const Dim& v, const Dim& c) {
      return p_.row_of_panel(group_, column_panel_, row + c) + p_.distance(0, v * p_.lanes);
    };
    tile.k_extent = steps;
    sums(true);
    all.push_back(tile_product(tile, "a_"));
    sums(false);
    return kb::seq(std::move(all));
  }

  // Blocks of packed weights lie one behind the other, across panels too.
  bool prefetches() const { return p_.stored == p_.width; }
  int64_t lines_of_block() const {
    return lines_of(blocks_.size * p_.width * p_.group, p_.weights->dtype);
  }

  // ---- parts of tiles

  // First element of a plane's pixel at row `y` and column `x` in the group.
  Dim place(const Source& s, const Dim& plane, const Dim& y, const Dim& x) const {
    const Dim pixel = ((image_ * p_.planes() + plane) * vertical_.in + y) * horizontal_.in + x;
    return pixel * p_.pixel(s) + s.first + group_ * p_.depth();
  }

  // Stores the sums of a tile, whose pixel 0 is the scratch's.
  StmtRef store_sums(int rows, int vectors) const {
    return keep_sums(accumulators_, rows, vectors, sums_,
                     [&](const Dim& r, const Dim& v) { return r * p_.width + v * p_.lanes; });
  }

  // The product of a tile of so many pixels, but for its left-hand side and where operands lie.
  RegisterTile product_of(int rows, const Panel& panel) const {
    RegisterTile t;
    t.rows = rows;
    t.vectors = panel.vectors;
    t.lanes = p_.lanes;
    t.dtype = p_.dtype;
    t.fragment = p_.fragment;
    t.unroll = unroll_;
    t.accumulators = accumulators_;
    t.panel = panel_;
    t.rhs = p_.weights;
    if (panel.columns == Columns::kSome && p_.stored == 0)
      t.rhs_valid = [this](const Dim& v) {
        return std::optional<Dim>(p_.filters - column_panel_ * p_.width - v * p_.lanes);
      };
    return t;
  }

  // The product of pixels [first, first + rows) of a tile, whose pixel 0 reads a source from `at`
  // on, with `k` steps of the weights' matrix from step `row` on.
  StmtRef product(const RegisterTile& tile, const Source& source, int first, int rows,
                  const Dim& at, const Dim& row, const Dim& k, const std::string& prefix) {
    RegisterTile t = tile;
    t.lhs = source.image;
    t.first_row = first;
    t.rows = rows;
    const int64_t step = horizontal_.stride * p_.pixel(source);
    t.lhs_index = [=, this](const Dim& pixel, const Dim& c) {
      return at + pixel * step + c * p_.group;
    };
    t.rhs_index = [=, this](const Dim& v, const Dim& c) {
      return p_.row_of_panel(group_, column_panel_, row + c) + p_.distance(0, v * p_.lanes);
    };
    t.k_extent = k;
    return tile_product(t, prefix);
  }

  // Stores `count` pixels of the line from column `x` on, whose sums are the scratch's from number
  // `pixel` on.
  StmtRef epilogue(const Panel& panel, const std::string& var, const Dim& count, const Dim& pixel,
                   const Dim& x) {
    const Dim r = Dim::symbol(var);
    const auto pixels = [&](bool masked) {
      const Dim column = column_panel_ * p_.width;
      ColumnVectors columns{panel.vectors, p_.lanes, group_ * p_.filters + column, {}};
      if (masked) columns.valid = p_.filters - column;
      columns = columns.in_pairs();
      StmtRef one = store_columns(w_, p_.frame, {image_, line(), x + r}, columns,
                                  [&](int v, const Dim& channel, const std::optional<Dim>& valid) {
                                    ValueRef sum =
                                        kb::load(sums_, (pixel + r) * p_.width + v * columns.lanes,
                                                 columns.lanes);
                                    if (ValueRef bias = p_.bias(w_, channel, columns.lanes, valid))
                                      sum = kb::add(sum, bias);
                                    return sum;
                                  });
      return kb::loop(LoopKind::kSerial, var, 0, count, std::move(one));
    };
    if (panel.columns != Columns::kAsk) return pixels(panel.columns == Columns::kSome);
    StmtRef whole = pixels(false);
    return kb::if_then(kb::lt(column_panel_, p_.filters / p_.width), std::move(whole),
                       pixels(true));
  }

  const Workload& w_;
  const ConvProduct& p_;
  const std::vector<Widened>& images_;
  const std::optional<GroupedPlanes>& planes_;
  int image_lanes_;
  NamedExtents named_;
  int rows_, unroll_;
  int64_t block_rows_;
  bool weights_stay_, blocked_;
  KBlocks blocks_;  // of a tap's channels
  Window vertical_, horizontal_;
  Dim line_blocks_;
  std::string tails_;
  RowTiles tiles_;  // of a line
  BufferRef accumulators_, panel_, sums_;
  // Of the item; the names "lines" and "line" are for the lines of the result that it has.
  Dim group_, column_panel_, image_, first_line_;
  Dim first_tile_, tile_count_, first_pixel_, pixels_;  // its part of each line
};

// Pixels whose lines L1 keeps side by side: those that lie a multiple of a large power of two apart
// share its sets. ResNet-50's 1 x 1 / 2 of 512 channels has them 4096 bytes apart; a tile of 14
// fetched each line anew for every channel and took 1.3 times as long as one of 8.
int64_t pixels_beside(const ConvProduct& p, const TargetInfo& t) {
  constexpr int64_t kWay = 4096, kLine = 64;  // of x86-64's, and as good a guess for others
  // Of an image that is widened its copy counts, which has what is read of it.
  const int64_t pixel = p.widens()
                            ? p.channels * static_cast<int64_t>(size_of(kir::row_of(*p.fragment).a))
                            : p.pixel(p.sources[0]) * static_cast<int64_t>(size_of(p.image->dtype));
  const int64_t apart = p.windows[1].stride * pixel;
  const int64_t sets = kWay / std::max(kLine, std::gcd(apart, kWay));
  return sets * std::max<int64_t>(1, t.l1_bytes / kWay);
}

// Whether a pixel's channels may be taken block by block.
bool may_block(const ConvProduct& p) {
  return !p.channels_first && p.sources.size() == 1;
}

}  // namespace

bool Conv2dNhwcTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse_conv_product(w, t).has_value();
}

std::vector<Knob> Conv2dNhwcTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse_conv_product(w, t);
  NIMBLE_CHECK(p, "workload {} is not for conv2d_nhwc", w.key);
  Knob rows = conv_rows_knob(t, p->vectors);
  // Steps over a tap's channels in a block; 0: no blocks.
  Knob channels{"c_block", {}};
  if (may_block(*p))
    for (int64_t c : {32, 64, 128, 256, 512}) {
      channels.choices.emplace_back(c);
      if (c >= p->depth_steps()) break;
    }
  channels.choices.emplace_back(int64_t{0});
  return {std::move(rows),
          std::move(channels),
          int_knob("unroll", {1, 2, 4}),
          int_knob("block_rows", {1, 2, 4, 8, 16}),
          {"order", {kWeightsStay, kPixelsStay}},
          {"tails", {kTailsEven, kTailsChecked}}};
}

bool Conv2dNhwcTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse_conv_product(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  if (!may_block(*p) && knob_int(c, "c_block") != 0) return false;
  const int64_t rows = knob_int(c, "rows");
  return rows >= 1 && rows <= max_tile_rows(t, p->vectors) && knob_int(c, "c_block") >= 0 &&
         knob_int(c, "unroll") >= 1 && knob_int(c, "block_rows") >= 1;
}

Config Conv2dNhwcTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse_conv_product(w, t);
  NIMBLE_CHECK(p, "workload {} is not for conv2d_nhwc", w.key);
  const int64_t rows = std::min(
      rows_with_room(t, p->fragment, p->vectors,
                     p->vectors == 2 ? max_tile_rows(t, 2) : default_tile_rows(t, p->vectors)),
      pixels_beside(*p, t));
  // A block of the panel takes at most half of L1. Blocks pay where each tile would fetch much from
  // L2, and where fetching the panel for the first tile takes long: prefetches are spread over all.
  // Blocks of few channels would move sums more than compute them.
  const auto element = static_cast<int64_t>(size_of(p->dtype));
  const int64_t fits = steps_that_fit(*p, t);
  int64_t c_block = 0;
  if (may_block(*p) && wants_blocks(*p, t))
    for (int64_t c : {32, 64, 128, 256, 512})
      if (c_block == 0 || (c <= fits && c / 2 < p->depth_steps())) c_block = c;
  // Without blocks an item has rows for a few tiles, so that what it begins with is shared; with
  // them as many as leave the weights their place in L1, for each block is fetched once an item.
  int64_t block_rows = 4;
  if (const auto width = p->out[2].as_constant()) {
    const int64_t pixels = std::clamp<int64_t>(*width, 1, kTilesOfLine * rows);
    const int64_t row_bytes = pixels * p->width * element;
    block_rows = 1;
    for (int64_t r : {2, 4, 8, 16})
      if (c_block > 0 ? r * row_bytes <= t.l1_bytes * 3 / 4 : (r / 2) * pixels < 4 * rows)
        block_rows = r;
  }
  const bool large = p->steps() * p->filters * p->groups * p->step_bytes() > t.l2_bytes / 2;
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
  auto p = analyse_conv_product(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of conv2d_nhwc", to_json(c));
  const std::vector<Widened> images = widen_images(*p);
  const std::optional<GroupedPlanes> planes = group_planes_of(*p);
  const int lanes = lanes_of(t, images.empty() ? DType::kU32 : images[0].to->dtype);
  return one_kernel(Conv2dNhwcLowering(w, *p, images, planes, lanes, c).run(name));
}

}  // namespace nimble::kernels
