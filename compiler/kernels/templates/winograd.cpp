// The template "winograd": convolution of 3 x 3 taps by Winograd's tiles (packed_winograd), with an
// element-wise epilogue.
//
// Of m x m pixels of the result there are (m + 2)^2 products instead of 9 m^2, each of which is one
// of a matrix product with tiles as rows (compiler/ir/winograd.h). Three steps:
//
//   for each tile, split over the threads
//     transform of its pixels of the image, lanes along the channels       (into a shared scratch)
//   barrier
//   for each item, split over the threads: a block of tiles, a panel of output channels
//     for each of the (m + 2)^2 products
//       for each row tile: the product, in registers (tile.h)              (into the thread's own)
//     for each tile of the block: transform back, bias, epilogue and store
//
// so that only the transformed image, (m + 2)^2 / m^2 times as large as the image, goes through
// memory between threads; sums stay in L2. A panel has the weights of all its products one behind
// the other, one forward stream for an item. Whole images are one line of tiles, so that small ones
// fill row tiles, too.
//
// Transforms are sums of vectors by a few constants. Points come with their negatives, so a pair of
// rows is a sum and a difference of the same two parts: 13 operations for six vectors of the image,
// 10 for those of the result.
//
// Tiles at the border reach beyond the image: their loads have masks, and addresses that are kept
// inside. Beyond the result nothing is stored.
#include "compiler/ir/winograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <span>

#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
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
using kir::ValueRef;

namespace {

// A product's columns are output channels, k the input channels, a row is a tile of an image.
struct WinogradConv : ConvNhwc, Panels {
  const ir::Winograd* form = nullptr;
  int64_t top = 0, left = 0;    // padding
  Dim tile_rows, tile_columns;  // of an image
  Dim tiles;                    // of all images

  int64_t weight_elements() const { return form->products() * k * n; }
};

std::optional<WinogradConv> analyse(const Workload& w, const TargetInfo& t) {
  if (w.anchor != "packed_winograd") return {};
  WinogradConv p;
  p.frame = make_frame(w);
  // Who transforms the image waits for the others, so nobody may leave early because of an index.
  if (!has_elementwise_epilogue(w, p.frame) || has_index(w)) return {};
  const ir::Expr& e = p.call();
  p.image = parameter_buffer(w, p.frame, e.args[0]);
  p.weights = parameter_buffer(w, p.frame, e.args[1]);
  if (!p.image || !p.weights) return {};
  if (e.args.size() == 3 && !e.args[2].is_constant() && !parameter_buffer(w, p.frame, e.args[2]))
    return {};
  p.dtype = p.frame.anchor->var->type->dtype;
  p.in = ir::type_of(e.args[0])->dims;
  p.out = p.frame.anchor->var->type->dims;
  const auto channels = p.in[3].as_constant();
  if (!channels || *channels < 1) return {};
  p.channels = *channels;
  p.filters = ir::attr<int64_t>(e.attrs, "filters");
  p.layout = ir::parse_layout(ir::attr<std::string>(e.attrs, "layout"));
  const auto panels =
      cut_panels(p.channels, p.filters, *p.layout, lanes_of(t, p.dtype), max_tile_vectors(t));
  if (!panels) return {};
  static_cast<Panels&>(p) = *panels;
  p.form = &ir::winograd_of(e.attrs);
  const auto& pads = ir::attr<std::vector<int64_t>>(e.attrs, "pads");
  p.top = pads[0];
  p.left = pads[1];
  p.tile_rows = ir::ceildiv(p.out[1], p.form->tile);
  p.tile_columns = ir::ceildiv(p.out[2], p.form->tile);
  p.tiles = p.in[0] * p.tile_rows * p.tile_columns;
  return p;
}

// Sums of vectors, each bound to a name of its own by a statement.
class Sums {
 public:
  Sums(DType dtype, int lanes, std::string prefix, std::vector<StmtRef>& out)
      : dtype_(dtype), lanes_(lanes), prefix_(std::move(prefix)), out_(out) {}

  ValueRef bind(ValueRef v) {
    const std::string name = fmt::format("{}{}", prefix_, next_++);
    out_.push_back(kb::let(name, std::move(v)));
    return kb::local(name, dtype_, lanes_);
  }

  // The image's matrix times so many vectors: rows 2 i - 1 and 2 i are even + odd and even - odd.
  std::vector<ValueRef> of_image(const ir::Winograd& form, const std::vector<ValueRef>& v) {
    const auto points = static_cast<size_t>(form.points());
    const auto row = [&](size_t i) { return form.image.subspan(i * points, points); };
    std::vector<ValueRef> all = {sum(row(0), v)};
    for (size_t i = 1; i + 2 < points; i += 2) {
      std::vector<double> even, odd;
      for (size_t j = 0; j < points; ++j) {
        even.push_back((row(i)[j] + row(i + 1)[j]) / 2);
        odd.push_back((row(i)[j] - row(i + 1)[j]) / 2);
      }
      const ValueRef a = sum(even, v), b = sum(odd, v);
      all.push_back(bind(kb::add(a, b)));
      all.push_back(bind(kb::sub(a, b)));
    }
    all.push_back(sum(row(points - 1), v));
    return all;
  }

  // The result's matrix times so many vectors, of which 2 i - 1 and 2 i count as their sum or their
  // difference.
  std::vector<ValueRef> of_result(const ir::Winograd& form, const std::vector<ValueRef>& v) {
    const auto points = static_cast<size_t>(form.points());
    std::vector<ValueRef> parts = {v[0]};
    for (size_t j = 1; j + 2 < points; j += 2) {
      parts.push_back(bind(kb::add(v[j], v[j + 1])));
      parts.push_back(bind(kb::sub(v[j], v[j + 1])));
    }
    parts.push_back(v[points - 1]);
    std::vector<ValueRef> all;
    for (size_t i = 0; i < static_cast<size_t>(form.tile); ++i) {
      const auto row = form.result.subspan(i * points, points);
      std::vector<double> factors = {row[0]};
      for (size_t j = 1; j + 2 < points; j += 2) {
        const bool is_even = row[j] == row[j + 1];
        factors.push_back(is_even ? row[j] : 0);
        factors.push_back(is_even ? 0 : row[j]);
      }
      factors.push_back(row[points - 1]);
      all.push_back(sum(factors, parts));
    }
    return all;
  }

 private:
  // Those times zero are left out.
  ValueRef sum(std::span<const double> factors, const std::vector<ValueRef>& v) {
    size_t first = 0;
    while (first < factors.size() && factors[first] != 1) ++first;  // one that needs no product
    ValueRef all = first < factors.size() ? v[first] : nullptr;
    bool is_bound = true;
    for (size_t i = 0; i < factors.size(); ++i) {
      if (i == first || factors[i] == 0) continue;
      is_bound = false;
      if (!all) {
        all = kb::mul(v[i], kb::number(dtype_, factors[i], lanes_));
      } else if (factors[i] == 1) {
        all = kb::add(std::move(all), v[i]);
      } else if (factors[i] == -1) {
        all = kb::sub(std::move(all), v[i]);
      } else {
        all = kb::fma(v[i], kb::number(dtype_, factors[i], lanes_), std::move(all));
      }
    }
    return is_bound ? all : bind(std::move(all));
  }

  DType dtype_;
  int lanes_;
  std::string prefix_;
  std::vector<StmtRef>& out_;
  int next_ = 0;
};

class WinogradLowering {
 public:
  WinogradLowering(const Workload& w, const WinogradConv& p, const Config& c)
      : w_(w),
        p_(p),
        form_(*p.form),
        named_(w),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        weights_stay_(knob_text(c, "order") == kWeightsStay),
        group_tiles_(std::max<int64_t>(1, knob_int(c, "block_rows") / rows_)),
        in_height_(named_("in_height", p.in[1])),
        in_width_(named_("in_width", p.in[2])),
        out_height_(named_("out_height", p.out[1])),
        out_width_(named_("out_width", p.out[2])),
        tile_rows_(named_("tile_rows", p.tile_rows)),
        tile_columns_(named_("tile_columns", p.tile_columns)),
        count_(named_("tiles", p.tiles)),
        tiles_(count_, rows_, knob_text(c, "tails"), 0, "m_") {
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.dtype, rows_ * p.vectors, p.lanes);
    panel_ = panel_registers(p.dtype, p.vectors, p.lanes, {});
    image_ = shared_scratch("transformed", p.dtype, p.tiles * (form_.products() * p.channels));
    sums_ = thread_scratch("sums", p.dtype, form_.products() * group_rows() * p.width);
    pixels_ = thread_scratch("pixels", p.dtype, form_.tile * form_.tile * p.width);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> all = named_.statements();
    for (StmtRef& s : tiles_.prologue()) all.push_back(std::move(s));
    all.push_back(transform());
    all.push_back(kb::barrier());
    Dim groups = ir::ceildiv(tiles_.count(), group_tiles_);
    if (!groups.as_constant()) {
      all.push_back(kb::let_index("groups", kb::index(groups)));
      groups = Dim::symbol("groups");
    }
    std::vector<Dim> extents = {groups};
    extents.insert(weights_stay_ ? extents.begin() : extents.end(), Dim(p_.panels()));
    std::vector<StmtRef> body;
    const std::vector<Dim> at = bind_coordinates("x", extents, Dim::symbol("item"), body);
    column_panel_ = at[weights_stay_ ? 0 : 1];
    const auto bind = [&](const char* symbol, const Dim& d) {
      body.push_back(kb::let_index(symbol, kb::index(d)));
      return Dim::symbol(symbol);
    };
    first_tile_ = bind("first_tile", at[weights_stay_ ? 1 : 0] * group_tiles_);
    tile_count_ = bind("tile_count", ir::min(tiles_.count() - first_tile_, group_tiles_));
    first_row_ = bind("first_row", tiles_.first_row(first_tile_));
    row_count_ = bind("row_count", tiles_.edge(first_tile_ + tile_count_) - first_row_);
    body.push_back(p_.last_apart(column_panel_, [&](int vectors) { return item(vectors); }));
    all.push_back(
        kb::loop(LoopKind::kThread, "item", 0, groups * p_.panels(), kb::seq(std::move(body))));
    return make_function(w_, p_.frame, name, {image_, sums_, pixels_}, {accumulators_, panel_},
                         kb::seq(std::move(all)));
  }

 private:
  using Tile = RowTiles::Tile;
  // A pixel of a tile, of so many channels from `channel` on.
  using Pixel = std::function<ValueRef(int64_t i, int64_t j, const Slice& channel)>;

  int64_t group_rows() const { return group_tiles_ * rows_; }
  std::vector<Dim> tile_extents() const { return {p_.in[0], tile_rows_, tile_columns_}; }

  // ---- the image

  StmtRef transform() {
    const int64_t points = form_.points();
    const Dim number = Dim::symbol("tile");
    std::vector<StmtRef> body;
    const std::vector<Dim> at = bind_coordinates("t", tile_extents(), number, body);
    const auto bind = [](const std::string& symbol, const Dim& d, std::vector<StmtRef>& to) {
      to.push_back(kb::let_index(symbol, kb::index(d)));
      return Dim::symbol(symbol);
    };
    const Dim top = bind("top", at[1] * form_.tile - p_.top, body);
    const Dim left = bind("left", at[2] * form_.tile - p_.left, body);

    std::vector<StmtRef> inside, border;
    const Dim first =
        bind("first", ((at[0] * in_height_ + top) * in_width_ + left) * p_.channels, inside);
    inside.push_back(channels(number, [&](int64_t i, int64_t j, const Slice& c) {
      const Dim index = first + (i * in_width_ + j) * p_.channels + c.at;
      return c.valid ? kb::load_masked(p_.image, index, p_.lanes, *c.valid)
                     : kb::load(p_.image, index, p_.lanes);
    }));

    // Along each axis where a pixel lies, or the nearest of the image, and whether it is there.
    std::vector<Dim> lines, columns, is_line, is_column;
    const auto place = [&](const std::string& axis, int64_t i, const Dim& from, const Dim& extent,
                           std::vector<Dim>& places, std::vector<Dim>& is_there) {
      const std::string which = fmt::format("{}{}", axis, i);
      const Dim x = from + i;
      places.push_back(bind(which, ir::max(ir::min(x, extent - 1), 0), border));
      is_there.push_back(
          bind("is_" + which, ir::max(ir::min(ir::min(x + 1, extent - x), 1), 0), border));
    };
    for (int64_t i = 0; i < points; ++i) {
      place("line", i, top, in_height_, lines, is_line);
      place("column", i, left, in_width_, columns, is_column);
    }
    border.push_back(channels(number, [&](int64_t i, int64_t j, const Slice& c) {
      const auto y = static_cast<size_t>(i), x = static_cast<size_t>(j);
      const Dim index =
          ((at[0] * in_height_ + lines[y]) * in_width_ + columns[x]) * p_.channels + c.at;
      return kb::load_masked(p_.image, index, p_.lanes,
                             is_line[y] * is_column[x] * c.valid.value_or(p_.lanes));
    }));

    const kir::Condition is_inside =
        kb::both(kb::both(kb::le(0, top), kb::le(top + points, in_height_)),
                 kb::both(kb::le(0, left), kb::le(left + points, in_width_)));
    body.push_back(kb::if_then(is_inside, kb::seq(std::move(inside)), kb::seq(std::move(border))));
    return kb::loop(LoopKind::kThread, "tile", 0, count_, kb::seq(std::move(body)));
  }

  // All channels of a tile, transformed.
  StmtRef channels(const Dim& number, const Pixel& pixel) {
    const auto points = static_cast<size_t>(form_.points());
    return vector_loop("c", 0, p_.channels, p_.lanes, 1, [&](const Slice& c) {
      std::vector<StmtRef> all;
      Sums sums(p_.dtype, p_.lanes, "d", all);
      std::vector<std::vector<ValueRef>> half(points);  // row by row
      for (size_t j = 0; j < points; ++j) {
        std::vector<ValueRef> column;
        for (size_t i = 0; i < points; ++i)
          column.push_back(sums.bind(pixel(static_cast<int64_t>(i), static_cast<int64_t>(j), c)));
        const std::vector<ValueRef> made = sums.of_image(form_, column);
        for (size_t i = 0; i < points; ++i) half[i].push_back(made[i]);
      }
      for (size_t i = 0; i < points; ++i) {
        const std::vector<ValueRef> made = sums.of_image(form_, half[i]);
        for (size_t j = 0; j < points; ++j) {
          const auto product = static_cast<int64_t>(i * points + j);
          const Dim to = (product * count_ + number) * p_.channels + c.at;
          all.push_back(c.valid ? kb::store_masked(image_, to, made[j], *c.valid)
                                : kb::store(image_, to, made[j]));
        }
      }
      return all;
    });
  }

  // ---- products

  // The sums of a block's tiles with a panel whose first `vectors` hold columns, and what becomes
  // of them.
  StmtRef item(int vectors) {
    const Dim product = Dim::symbol("product");
    const int64_t parts = p_.stored / p_.width;
    const Dim stored_panel = ir::floordiv(column_panel_, parts);
    const Dim piece = (stored_panel * form_.products() + product) * (p_.k * p_.stored) +
                      ir::mod(column_panel_, parts) * p_.width;
    StmtRef products =
        kb::seq({kb::let_index("piece", kb::index(piece)),
                 tiles_.for_each(
                     first_tile_, tile_count_,
                     [&](const Tile& t) { return tile(t, product, vectors); }, nullptr)});
    return kb::seq(
        {kb::loop(LoopKind::kSerial, "product", 0, form_.products(), products), results(vectors)});
  }

  Dim sums_at(const Dim& product, const Dim& row, const Dim& column) const {
    return (product * group_rows() + row) * p_.width + column;
  }

  StmtRef tile(const Tile& t, const Dim& number, int vectors) {
    RegisterTile product;
    product.rows = t.rows;
    product.vectors = vectors;
    product.lanes = p_.lanes;
    product.dtype = p_.dtype;
    product.unroll = unroll_;
    product.accumulators = accumulators_;
    product.panel = panel_;
    product.lhs = image_;
    product.rhs = p_.weights;
    product.lhs_index = [&](const Dim& r, const Dim& k) {
      return (number * count_ + tiles_.row_of(t, r)) * p_.channels + k;
    };
    product.rhs_index = [&](const Dim& v, const Dim& k) {
      return Dim::symbol("piece") + k * p_.stored + v * p_.lanes;
    };
    product.k_extent = p_.k;
    return kb::seq(
        {tile_zero(product, "i_"), tile_product(product, "i_"),
         keep_sums(accumulators_, t.rows, vectors, sums_, [&](const Dim& r, const Dim& v) {
           return sums_at(number, t.row - first_row_ + r, v * p_.lanes);
         })});
  }

  // ---- the result

  StmtRef results(int vectors) {
    const Dim row = Dim::symbol("row"), v = Dim::symbol("o_v");
    std::vector<StmtRef> body;
    const std::vector<Dim> at = bind_coordinates("o", tile_extents(), first_row_ + row, body);
    body.push_back(kb::loop(LoopKind::kSerial, "o_v", 0, vectors, back(row, v * p_.lanes)));
    const Dim i = Dim::symbol("o_i"), j = Dim::symbol("o_j");
    const Dim y = at[1] * form_.tile, x = at[2] * form_.tile;
    const auto stores = [&](bool masked) {
      ColumnVectors columns{vectors, p_.lanes, column_panel_ * p_.width, {}};
      if (masked) columns.valid = p_.n - columns.first;
      columns = columns.in_pairs();
      return store_columns(w_, p_.frame, {at[0], y + i, x + j}, columns,
                           [&](int vector, const Dim& channel, const std::optional<Dim>& valid) {
                             const Dim from =
                                 (i * form_.tile + j) * p_.width + vector * columns.lanes;
                             ValueRef sum = kb::load(pixels_, from, columns.lanes);
                             if (ValueRef bias = p_.bias(w_, channel, columns.lanes, valid))
                               sum = kb::add(std::move(sum), std::move(bias));
                             return sum;
                           });
    };
    // Whole panels ahead of one that is not.
    StmtRef pixel = p_.by_fullness(column_panel_, vectors, stores);
    StmtRef line = kb::loop(LoopKind::kSerial, "o_j", 0, ir::min(out_width_ - x, form_.tile),
                            std::move(pixel));
    body.push_back(kb::loop(LoopKind::kSerial, "o_i", 0, ir::min(out_height_ - y, form_.tile),
                            std::move(line)));
    return kb::loop(LoopKind::kSerial, "row", 0, row_count_, kb::seq(std::move(body)));
  }

  // A vector of a tile's sums, transformed to its pixels.
  StmtRef back(const Dim& row, const Dim& column) {
    const auto points = static_cast<size_t>(form_.points());
    const auto tile = static_cast<size_t>(form_.tile);
    std::vector<StmtRef> all;
    Sums sums(p_.dtype, p_.lanes, "r", all);
    std::vector<std::vector<ValueRef>> half(tile);  // row by row
    for (size_t j = 0; j < points; ++j) {
      std::vector<ValueRef> loaded;
      for (size_t i = 0; i < points; ++i)
        loaded.push_back(sums.bind(
            kb::load(sums_, sums_at(static_cast<int64_t>(i * points + j), row, column), p_.lanes)));
      const std::vector<ValueRef> made = sums.of_result(form_, loaded);
      for (size_t i = 0; i < tile; ++i) half[i].push_back(made[i]);
    }
    for (size_t i = 0; i < tile; ++i) {
      const std::vector<ValueRef> made = sums.of_result(form_, half[i]);
      for (size_t j = 0; j < tile; ++j)
        all.push_back(
            kb::store(pixels_, static_cast<int64_t>(i * tile + j) * p_.width + column, made[j]));
    }
    return kb::seq(std::move(all));
  }

  const Workload& w_;
  const WinogradConv& p_;
  const ir::Winograd& form_;
  NamedExtents named_;
  int rows_, unroll_;
  bool weights_stay_;
  int64_t group_tiles_;  // row tiles of an item
  Dim in_height_, in_width_, out_height_, out_width_, tile_rows_, tile_columns_;
  Dim count_;       // tiles of all images
  RowTiles tiles_;  // of these
  BufferRef accumulators_, panel_;
  BufferRef image_;          // (product, tile, channel)
  BufferRef sums_, pixels_;  // (product, row of the block, column); (pixel of a tile, column)
  Dim column_panel_, first_tile_, tile_count_, first_row_, row_count_;  // of the item
};

}  // namespace

bool WinogradTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> WinogradTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for winograd", w.key);
  Knob rows = conv_rows_knob(t, p->vectors);
  return {std::move(rows),
          int_knob("unroll", {1, 2, 4}),
          int_knob("block_rows", {8, 16, 32, 64, 128}),
          {"order", {kWeightsStay, kPixelsStay}},
          tails_knob(/*residues=*/false)};
}

bool WinogradTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  if (!p || !well_formed(knobs(w, t), c)) return false;
  const int64_t rows = knob_int(c, "rows");
  return rows >= 1 && rows <= max_tile_rows(t, p->vectors) && knob_int(c, "unroll") >= 1 &&
         knob_int(c, "block_rows") >= 1;
}

Config WinogradTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for winograd", w.key);
  const int64_t rows = default_tile_rows(t, p->vectors);
  const auto element = static_cast<int64_t>(size_of(p->dtype));
  // The sums of a block and the weights of a panel share L2 with what follows.
  int64_t block_rows = 16;
  while (block_rows < 64 &&
         2 * block_rows * p->form->products() * p->width * element <= t.l2_bytes / 4)
    block_rows *= 2;
  const bool large = p->weight_elements() * element > t.l2_bytes / 2;
  return {{"rows", rows},
          {"unroll", int64_t{4}},
          {"block_rows", std::max(block_rows, rows)},
          {"order", large ? kWeightsStay : kPixelsStay},
          {"tails", kTailsEven}};
}

Lowered WinogradTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                const std::string& name) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of winograd", to_json(c));
  return one_kernel(WinogradLowering(w, *p, c).run(name));
}

}  // namespace nimble::kernels
