// The template "conv2d_tiles": "conv2d_nhwc" for targets with matrix registers.
//
// The product is that of "conv2d_nhwc" (conv2d_nhwc.cpp): a row is a pixel of the result, and k
// runs over (kh, kw, c_in). A tile takes 16 rows in nearly the time of one, so short lines of
// pixels would waste most of it: 7 pixels are less than half a tile. Lines are not kept apart here.
// Of an image with `width` pixels a line, the pixel of tap (i, j) for pixel q = y * width + x of
// the result stands i * width + j pixels behind pixel q. That holds for every q, also for those
// whose x is not the result's; their sums are computed and left out. So the rows of the product
// are all q up to the result's last pixel, and a tile is any 16 of them:
//
//   result of 7 x 7 pixels, 3 x 3 taps: 6 * 9 + 7 = 61 rows, 4 tiles; by lines they would be 7
//
// Of an image without padding at stride 1 this is read where it lies. Others are copied once, by
// all threads, with zeros for the padding; at stride s, into planes of every s-th pixel and line,
// of which a tap reads one as at stride 1. With a window of one pixel, stride 1 and no padding,
// lines and images are all one.
//
// A tap's channels should fill the depth of a tile's product. Where they don't, and there is more
// than one tap, the copy has zeros behind each pixel's.
#include <algorithm>

#include "compiler/kernels/templates/conv_product.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/tiled_product.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

namespace {

struct Conv : TiledProduct {
  ConvNhwc conv;

  const Window& vertical() const { return conv.windows[0]; }
  const Window& horizontal() const { return conv.windows[1]; }
  bool clipped() const { return vertical().clipped || horizontal().clipped; }
  bool strided() const { return vertical().stride != 1 || horizontal().stride != 1; }
  // Whether pixels of the result are those of the image, one by one.
  bool flat() const { return conv.taps() == 1 && !clipped() && !strided(); }
  bool copied() const { return clipped() || strided() || filled; }

  // Elements from a group of a pixel to the next, and from a pixel to the next, of what is read.
  int64_t group_pitch() const {
    const int64_t step = tile_depth(fragment);
    return filled ? (depth + step - 1) / step * step : depth;
  }
  int64_t pixel() const { return groups * group_pitch(); }
};

// The planes along an axis that its taps read.
int64_t planes_of(const Window& x) {
  int64_t last = 0;
  for (int64_t tap = 0; tap < x.taps; ++tap) last = std::max(last, tap * x.dilation % x.stride);
  return last + 1;
}

std::optional<Conv> analyse(const Workload& w, const TargetInfo& t) {
  const auto conv = analyse_conv_nhwc(w);
  const auto fragment = conv ? tile_fragment_of(t, *conv) : std::nullopt;
  if (!fragment) return {};
  Conv p;
  p.conv = *conv;
  p.fragment = *fragment;
  p.lhs = conv->image;
  p.rhs = conv->weights;
  p.layout = *conv->layout;
  p.k = conv->taps() * conv->channels;
  p.n = conv->filters;
  p.groups = conv->groups;
  p.depth = conv->channels;
  p.filled = conv->taps() > 1 && p.depth % tile_depth(*fragment) != 0;
  p.pitch = p.pixel();
  p.taps = {conv->windows[0].taps, conv->windows[1].taps};
  // Who copies the image waits for the others, so nobody may leave early because of an index.
  if (p.copied() && has_index(w)) return {};
  const auto& out = conv->out;
  if (p.flat()) {
    p.rows = out[0] * out[1] * out[2];
  } else {
    p.images = out[0];
    // Only for the default configuration: lowering gives the extents names.
    p.rows = out[1] * out[2];
  }
  return p;
}

// Completes a product whose lines of pixels are one behind the other.
class Lines {
 public:
  Lines(const Workload& w, Conv& p) : p_(p), named_(w) {
    const ConvNhwc& c = p.conv;
    out_height_ = named_("out_height", c.out[1]);
    out_width_ = named_("out_width", c.out[2]);
    // Lines and pixels of a line of what the taps read, as the contract's symbols have them.
    Dim height = c.in[1], width = c.in[2];
    const int64_t column_planes = planes_of(p.horizontal());
    const int64_t planes = planes_of(p.vertical()) * column_planes;
    if (p.copied()) {
      height = c.out[1] + p.vertical().reach() / p.vertical().stride;
      width = c.out[2] + p.horizontal().reach() / p.horizontal().stride;
    }
    height_ = named_("height", height);
    width_ = named_("width", width);
    // No row is one of a result without pixels, whose image may be smaller than the window.
    p.rows = ((out_height_ - 1) * width_ + out_width_) * ir::min(out_height_, 1) *
             ir::min(out_width_, 1);
    p.ahead = named_.statements();
    if (p.copied()) {
      p.lhs =
          shared_scratch("padded", c.image->dtype, c.out[0] * planes * height * width * p.pixel());
      p.scratch = {p.lhs};
      copy(planes_of(p.vertical()), column_planes);
    }
    p.lhs_at = [this, planes, column_planes](const Dim& image, const Dim& group, const Dim& i,
                                             const Dim& j) {
      const Window &down = p_.vertical(), &across = p_.horizontal();
      const int64_t s = p_.copied() ? down.stride : 1, t = p_.copied() ? across.stride : 1;
      const Dim y = i * down.dilation, x = j * across.dilation;
      Dim plane = image;
      if (p_.copied()) plane = image * planes + ir::mod(y, s) * column_planes + ir::mod(x, t);
      return ((plane * height_ + ir::floordiv(y, s)) * width_ + ir::floordiv(x, t)) * p_.pixel() +
             group * p_.group_pitch();
    };
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  StmtRef store(
      const TiledRows& rows,
      const std::function<StmtRef(const std::vector<Dim>&, const Dim& row)>& pixel) const {
    const Dim y = Dim::symbol("e_y"), x = Dim::symbol("e_x");
    const Dim from = Dim::symbol("e_from"), end = rows.row + rows.count;
    const Dim first = Dim::symbol("e_first");
    StmtRef one = pixel({rows.image, y, x}, y * width_ + x - rows.row);
    StmtRef line = kb::seq(
        {kb::let_index("e_from", kb::index(ir::max(rows.row - y * width_, 0))),
         kb::loop(LoopKind::kSerial, "e_x", from,
                  ir::max(ir::min(end - y * width_, out_width_) - from, 0), std::move(one))});
    // A row exists only where the width is not 0.
    const Dim width = ir::max(width_, 1);
    return kb::seq({kb::let_index("e_first", kb::index(ir::floordiv(rows.row, width))),
                    kb::loop(LoopKind::kSerial, "e_y", first,
                             ir::floordiv(end - 1, width) + 1 - first, std::move(line))});
  }

 private:
  // Copies the image, line by line, each thread its share.
  void copy(int64_t line_planes, int64_t column_planes) {
    const ConvNhwc& c = p_.conv;
    const Window &down = p_.vertical(), &across = p_.horizontal();
    const Dim thread = Dim::symbol("thread"), threads = Dim::symbol("threads");
    const Dim in_height = p_.conv.in[1], in_width = p_.conv.in[2];
    std::vector<StmtRef> body;
    const std::vector<Dim> extents = {c.out[0], line_planes, column_planes, height_};
    const Dim number = Dim::symbol("line");
    const std::vector<Dim> at = bind_coordinates("l", extents, number, body);
    const auto bind = [&](const char* symbol, const Dim& d) {
      body.push_back(kb::let_index(symbol, kb::index(d)));
      return Dim::symbol(symbol);
    };
    const Dim line = bind("in_line", at[3] * down.stride + at[1] - down.before);
    const Dim begin = bind("begin", number * width_ * p_.pixel());
    // Pixel x of the line is the image's x * stride + shift.
    const Dim shift = at[2] - across.before;
    const Dim from =
        bind("from", ir::min(ir::max(ir::ceildiv(0 - shift, across.stride), 0), width_));
    const Dim to =
        bind("to",
             ir::max(ir::min(ir::floordiv(in_width - 1 - shift, across.stride) + 1, width_), from));
    const DType dtype = c.image->dtype;
    const int lanes = tile_depth(p_.fragment);
    const auto zeros = [&](const char* var, const Dim& first, const Dim& count) {
      return vector_loop(var, begin + first * p_.pixel(), count * p_.pixel(), lanes, 1,
                         [&](const Slice& s) -> std::vector<StmtRef> {
                           ValueRef zero = kb::number(dtype, 0, lanes);
                           return {s.valid ? kb::store_masked(p_.lhs, s.at, zero, *s.valid)
                                           : kb::store(p_.lhs, s.at, zero)};
                         });
    };
    // First element of the image for pixel `x` of the line.
    const auto source = [&](const Dim& x) {
      return ((at[0] * in_height + line) * in_width + x * across.stride + shift) *
             (p_.groups * p_.depth);
    };
    const auto copy = [&](const Dim& to, const Dim& from, const std::optional<Dim>& valid) {
      return kb::store(
          p_.lhs, to,
          valid ? kb::load_masked(c.image, from, lanes, *valid) : kb::load(c.image, from, lanes));
    };
    // So many elements from pixel `first` of the line on.
    const auto elements = [&](const char* var, const Dim& first, const Dim& count) {
      return vector_loop(var, 0, count, lanes, 1, [&](const Slice& s) -> std::vector<StmtRef> {
        const Dim place = begin + first * p_.pixel() + s.at, origin = source(first) + s.at;
        if (!s.valid) return {copy(place, origin, {})};
        return {kb::store_masked(p_.lhs, place, kb::load_masked(c.image, origin, lanes, *s.valid),
                                 *s.valid)};
      });
    };
    const Dim x = Dim::symbol("x");
    const auto each_pixel = [&](StmtRef body) {
      return kb::loop(LoopKind::kSerial, "x", from, to - from, std::move(body));
    };
    StmtRef pixels;
    if (p_.filled) {
      // A pixel's channels, group by group, and zeros.
      const Dim g = Dim::symbol("g");
      const Dim place = begin + x * p_.pixel() + g * p_.group_pitch();
      const Dim origin = source(x) + g * p_.depth;
      std::vector<StmtRef> vectors;
      for (int64_t e = 0; e < p_.depth; e += lanes)
        vectors.push_back(
            copy(place + e, origin + e,
                 p_.depth - e < lanes ? std::optional<Dim>(p_.depth - e) : std::nullopt));
      pixels =
          each_pixel(kb::loop(LoopKind::kSerial, "g", 0, p_.groups, kb::seq(std::move(vectors))));
    } else if (across.stride == 1) {
      pixels = elements("c", from, (to - from) * p_.pixel());
    } else {
      pixels = each_pixel(elements("c", x, p_.pixel()));
    }
    StmtRef inside = kb::seq({zeros("z", 0, from), std::move(pixels), zeros("z", to, width_ - to)});
    body.push_back(kb::if_then(kb::both(kb::le(0, line), kb::lt(line, in_height)),
                               std::move(inside), zeros("z", 0, width_)));
    std::vector<StmtRef>& all = p_.ahead;
    const Dim lines = c.out[0] * line_planes * column_planes * height_;
    all.push_back(kb::let_index("first_line", kb::index(ir::floordiv(lines * thread, threads))));
    all.push_back(
        kb::let_index("end_line", kb::index(ir::floordiv(lines * (thread + 1), threads))));
    const Dim first = Dim::symbol("first_line");
    all.push_back(kb::loop(LoopKind::kSerial, "line", first, Dim::symbol("end_line") - first,
                           kb::seq(std::move(body))));
    all.push_back(kb::barrier());
  }

  Conv& p_;
  NamedExtents named_;
  Dim out_height_, out_width_, height_, width_;
};

// The columns of a pixel at `coordinates`, whose sums are row `row` of the group's.
StmtRef store_pixel(const Workload& w, const Conv& p, const TiledRows& rows,
                    const std::vector<Dim>& coordinates, const Dim& row) {
  ColumnVectors columns{rows.vectors, rows.lanes, rows.group * p.n + rows.column, {}};
  if (rows.masked) columns.valid = p.n - rows.column;
  return store_columns(w, p.conv.frame, coordinates, columns,
                       [&](int v, const Dim& channel, const std::optional<Dim>& valid) {
                         ValueRef sum = rows.sum(row, v);
                         if (ValueRef bias = p.conv.bias(w, channel, rows.lanes, valid))
                           sum = kb::add(std::move(sum), std::move(bias));
                         return sum;
                       });
}

}  // namespace

bool Conv2dTilesTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return analyse(w, t).has_value();
}

std::vector<Knob> Conv2dTilesTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for conv2d_tiles", w.key);
  return tiled_knobs(*p);
}

bool Conv2dTilesTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  return p && valid_tiled_config(*p, c);
}

Config Conv2dTilesTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w, t);
  NIMBLE_CHECK(p, "workload {} is not for conv2d_tiles", w.key);
  return default_tiled_config(*p, t);
}

Lowered Conv2dTilesTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                   const std::string& name) const {
  auto p = analyse(w, t);
  NIMBLE_CHECK(p && valid_tiled_config(*p, c), "configuration {} of conv2d_tiles", to_json(c));
  const Frame& frame = p->conv.frame;
  if (p->flat()) {
    p->lhs_at = [&](const Dim&, const Dim& group, const Dim&, const Dim&) {
      return group * p->depth;
    };
    p->store = [&](const TiledRows& rows) {
      const Dim r = Dim::symbol("e_r");
      const auto& out = p->conv.out;
      const std::vector<Dim> pixel = unflatten(rows.row + r, {out[0], out[1], out[2]});
      return kb::loop(LoopKind::kSerial, "e_r", 0, rows.count, store_pixel(w, *p, rows, pixel, r));
    };
    return lower_tiled(w, frame, *p, c, name);
  }
  const Lines lines(w, *p);
  p->store = [&](const TiledRows& rows) {
    return lines.store(rows, [&](const std::vector<Dim>& pixel, const Dim& row) {
      return store_pixel(w, *p, rows, pixel, row);
    });
  };
  return lower_tiled(w, frame, *p, c, name);
}

}  // namespace nimble::kernels
