// The template "depthwise_nhwc": convolution of each channel of channels-last images with a filter
// of its own, with an element-wise epilogue.
//
// Depthwise convolution. Lanes run along the channels, so that pixels and HWIO weights are loaded
// as they lie. A register tile is `rows` pixels of one row of the result by `vectors` vectors of
// channels: each weight that is loaded serves all its pixels, and their sums hide the latency of
// the multiply-adds. Every multiply-add takes its pixel from L1, which gives two a cycle, as many
// as there are multiply-adds; keeping pixels for the next tap would gain nothing.
//
// An item is (image, row of the result, panel of channels): a thread's neighbouring items read the
// same rows of the image. Rows of taps outside the image are cut off by the loop's bounds. Pixels
// whose windows leave the image at its left or right edge are computed one by one, with bounds of
// their own; those between make tiles without a check.
//
// An epilogue goes over a tile's sums in registers, vector by vector. But a function
// (computes_functions) is some forty operations a vector, nine taps are nine: there the sums wait
// in a scratch of the thread, and a pixel's vectors are computed in turns (ColumnVectors). On a Zen
// 3 EfficientNet-B0's kernels take 1 to 23 % less time so.
#include <algorithm>
#include <bit>

#include "compiler/kernels/templates/conv_nhwc.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::Scope;
using kir::StmtRef;
using kir::ValueRef;

std::optional<ConvNhwc> analyse(const Workload& w) {
  auto p = analyse_conv_nhwc(w, /*parts=*/true);
  if (!p || !p->depthwise() || p->layout || p->fragment || p->sources.size() > 1) return {};
  return p;
}

// Lanes of a vector: no more than there are channels, rounded up to a power of two.
int depthwise_lanes(const ConvNhwc& p, const TargetInfo& t) {
  const auto narrow = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(p.groups)));
  return static_cast<int>(std::min<int64_t>(lanes_of(t, p.dtype), narrow));
}

class DepthwiseLowering {
 public:
  DepthwiseLowering(const Workload& w, const ConvNhwc& p, const Config& c, const TargetInfo& t)
      : w_(w),
        p_(p),
        named_(w),
        lanes_(depthwise_lanes(p, t)),
        rows_(static_cast<int>(knob_int(c, "rows"))),
        vectors_(static_cast<int>(knob_int(c, "vectors"))),
        width_(int64_t{vectors_} * lanes_),
        panels_((p.groups + width_ - 1) / width_),
        vertical_(p.windows[0].with_extents(named_("in_height", p.in[1]),
                                            named_("out_height", p.out[1]))),
        horizontal_(
            p.windows[1].with_extents(named_("in_width", p.in[2]), named_("out_width", p.out[2]))),
        first_(horizontal_.clipped ? named_("first", horizontal_.begin_inside()) : Dim(0)),
        last_(horizontal_.clipped ? named_("last", horizontal_.end_inside()) : horizontal_.out),
        tiles_(named_("inside", last_ - first_), rows_, knob_text(c, "tails"), 0, "m_") {
    accumulators_ = kb::buffer("acc", Scope::kRegister, p.dtype, int64_t{rows_} * vectors_, lanes_);
    panel_ = kb::buffer("panel", Scope::kRegister, p.dtype, vectors_, lanes_);
    if (computes_functions(*w.group, lanes_, t))
      sums_ = thread_scratch("sums", p.dtype, rows_ * width_);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    const std::vector<Dim> at =
        bind_coordinates("x", {p_.in[0], vertical_.out, Dim(panels_)}, Dim::symbol("item"), body);
    image_ = at[0];
    line_ = at[1];
    channel_ = at[2] * width_;
    const Dim top = Dim::symbol("top");
    body.push_back(kb::let_index("top", kb::index(vertical_.start(line_))));
    body.push_back(kb::let_index("i_begin", kb::index(vertical_.begin_tap(top))));
    body.push_back(kb::let_index("i_end", kb::index(vertical_.end_tap(top))));

    const int64_t rest = p_.groups - (panels_ - 1) * width_;  // channels of the last panel
    const int rest_vectors = static_cast<int>((rest + lanes_ - 1) / lanes_);
    StmtRef last = line(rest_vectors, rest % lanes_ != 0);
    body.push_back(
        rest == width_ || panels_ == 1
            ? std::move(last)
            : kb::if_then(kb::lt(at[2], panels_ - 1), line(vectors_, false), std::move(last)));
    std::vector<StmtRef> all = named_.statements();
    for (StmtRef& s : tiles_.prologue()) all.push_back(std::move(s));
    all.push_back(kb::loop(LoopKind::kThread, "item", 0, p_.in[0] * vertical_.out * panels_,
                           kb::seq(std::move(body))));
    std::vector<BufferRef> scratch;
    if (sums_) scratch.push_back(sums_);
    return make_function(w_, p_.frame, name, std::move(scratch), {accumulators_, panel_},
                         kb::seq(std::move(all)));
  }

 private:
  // One row of the result in `vectors` vectors of channels; `masked`: the last may be short.
  StmtRef line(int vectors, bool masked) {
    std::vector<StmtRef> all;
    const auto edge = [&](const char* var, const Dim& begin, const Dim& extent) {
      if (!horizontal_.clipped) return;
      all.push_back(kb::loop(LoopKind::kSerial, var, begin, extent,
                             pixels(Dim::symbol(var), 1, vectors, masked, true)));
    };
    edge("el", 0, first_);
    all.push_back(tiles_.for_each(
        0, tiles_.count(),
        [&](const RowTiles::Tile& t) {
          return pixels(first_ + t.row, t.rows, vectors, masked, false);
        },
        nullptr));
    edge("er", last_, horizontal_.out - last_);
    return kb::seq(std::move(all));
  }

  // `rows` pixels from `column` on; `clipped`: their taps may lie outside.
  StmtRef pixels(const Dim& column, int rows, int vectors, bool masked, bool clipped) {
    const Dim i = Dim::symbol("i"), j = Dim::symbol("j"), r = Dim::symbol("r");
    const Dim left = Dim::symbol("left");
    const auto valid = [&](int v) {
      return masked ? std::optional<Dim>(p_.groups - channel_ - v * lanes_) : std::nullopt;
    };
    const auto each_row = [&](StmtRef s) {
      return kb::loop(LoopKind::kUnroll, "r", 0, rows, std::move(s));
    };
    std::vector<StmtRef> all;
    for (int v = 0; v < vectors; ++v) {
      ValueRef start = p_.bias(w_, channel_ + v * lanes_, lanes_, valid(v));
      if (!start) start = kb::number(p_.dtype, 0, lanes_);
      const std::string name = "b" + std::to_string(v);
      all.push_back(kb::let(name, std::move(start)));
      all.push_back(
          each_row(kb::set_reg(accumulators_, r * vectors + v, kb::local(name, p_.dtype, lanes_))));
    }
    all.push_back(kb::let_index("left", kb::index(horizontal_.start(column))));

    // One tap of all pixels.
    const Dim row_at = Dim::symbol("at");
    std::vector<StmtRef> tap;
    for (int v = 0; v < vectors; ++v) {
      const Dim weight = (i * horizontal_.taps + j) * p_.groups + channel_ + v * lanes_;
      tap.push_back(kb::set_reg(panel_, v, p_.weight(weight, lanes_, valid(v))));
    }
    for (int v = 0; v < vectors; ++v) {
      const Dim index = row_at +
                        (r * horizontal_.stride + j * horizontal_.dilation) * p_.sources[0].pitch +
                        channel_ + v * lanes_;
      ValueRef x = masked ? kb::load_masked(p_.image, index, lanes_, *valid(v))
                          : kb::load(p_.image, index, lanes_);
      const Dim element = r * vectors + v;
      tap.push_back(each_row(
          kb::set_reg(accumulators_, element,
                      kb::fma(std::move(x), kb::reg(panel_, v), kb::reg(accumulators_, element)))));
    }
    // Few sums make short work of a tap: a loop over them would be most of it.
    constexpr int64_t kEnough = 64;
    const bool short_taps = !clipped && rows * vectors * horizontal_.taps <= kEnough;
    Dim begin = 0, end = horizontal_.taps;
    if (clipped) begin = Dim::symbol("j_begin"), end = Dim::symbol("j_end");
    if (clipped) {
      all.push_back(kb::let_index("j_begin", kb::index(horizontal_.begin_tap(left))));
      all.push_back(kb::let_index("j_end", kb::index(horizontal_.end_tap(left))));
    }
    const Dim y = Dim::symbol("top") + i * vertical_.dilation;
    const Dim line_at =
        ((image_ * vertical_.in + y) * horizontal_.in + left) * p_.sources[0].pitch +
        p_.sources[0].first;
    StmtRef row = kb::seq({kb::let_index("at", kb::index(line_at)),
                           kb::loop(short_taps ? LoopKind::kUnroll : LoopKind::kSerial, "j", begin,
                                    end - begin, kb::seq(std::move(tap)))});
    all.push_back(kb::loop(LoopKind::kSerial, "i", Dim::symbol("i_begin"),
                           Dim::symbol("i_end") - Dim::symbol("i_begin"), std::move(row)));
    if (sums_) {
      all.push_back(compute_from_scratch(column, rows, vectors, valid(0)));
      return kb::seq(std::move(all));
    }
    for (int v = 0; v < vectors; ++v)
      all.push_back(each_row(store_results(w_, p_.frame, kb::reg(accumulators_, r * vectors + v),
                                           {image_, line_, column + r, channel_ + v * lanes_},
                                           lanes_, valid(v), "e" + std::to_string(v) + "_")));
    return kb::seq(std::move(all));
  }

  // Puts the sums of `rows` pixels from `column` on into the scratch, then stores their results.
  StmtRef compute_from_scratch(const Dim& column, int rows, int vectors,
                               const std::optional<Dim>& valid) {
    const Dim r = Dim::symbol("r"), v = Dim::symbol("e_v"), pixel = Dim::symbol("e_r");
    StmtRef keep =
        kb::store(sums_, r * width_ + v * lanes_, kb::reg(accumulators_, r * vectors + v));
    keep = kb::loop(LoopKind::kUnroll, "r", 0, rows,
                    kb::loop(LoopKind::kUnroll, "e_v", 0, vectors, std::move(keep)));
    const ColumnVectors columns =
        ColumnVectors{vectors, lanes_, channel_, valid}.in_pairs().in_pairs();
    StmtRef one = store_columns(w_, p_.frame, {image_, line_, column + pixel}, columns,
                                [&](int number, const Dim&, const std::optional<Dim>&) {
                                  return kb::load(sums_, pixel * width_ + number * columns.lanes,
                                                  columns.lanes);
                                });
    return kb::seq({std::move(keep), kb::loop(LoopKind::kSerial, "e_r", 0, rows, std::move(one))});
  }

  const Workload& w_;
  const ConvNhwc& p_;
  NamedExtents named_;
  int lanes_, rows_, vectors_;
  int64_t width_, panels_;  // channels of a panel; how many there are
  Window vertical_, horizontal_;
  Dim first_, last_;  // the pixels of a row whose windows lie inside: [first, last)
  RowTiles tiles_;    // of these
  BufferRef accumulators_, panel_;
  BufferRef sums_;              // of a tile, where its epilogue computes functions; else null
  Dim image_, line_, channel_;  // of the item
};

}  // namespace

bool DepthwiseNhwcTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return analyse(w).has_value();
}

std::vector<Knob> DepthwiseNhwcTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("rows", {1, 2, 3, 4, 6, 8, 12}),
          int_knob("vectors", {1, 2, 3, 4}),
          {"tails", {kTailsEven, kTailsChecked}}};
}

bool DepthwiseNhwcTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w);
  if (!p || !within(knobs(w, t), c)) return false;
  const int64_t vectors = knob_int(c, "vectors");
  // Vectors that no channel fills would be equal configurations under other names.
  return knob_int(c, "rows") <= max_tile_rows(t, vectors) &&
         (vectors == 1 || (vectors - 1) * depthwise_lanes(*p, t) < p->groups);
}

Config DepthwiseNhwcTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = analyse(w);
  NIMBLE_CHECK(p, "workload {} is not for depthwise_nhwc", w.key);
  const int lanes = depthwise_lanes(*p, t);
  int64_t vectors = p->groups > lanes ? 2 : 1;
  // Functions are computed by four at a time, unless some of the last four had no channels.
  if (p->groups % (4 * lanes) == 0 && computes_functions(*w.group, lanes, t)) vectors = 4;
  return {{"rows", std::min<int64_t>(8 / vectors, max_tile_rows(t, vectors))},
          {"vectors", vectors},
          {"tails", kTailsEven}};
}

Lowered DepthwiseNhwcTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                     const std::string& name) const {
  const auto p = analyse(w);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of depthwise_nhwc", to_json(c));
  return one_kernel(DepthwiseLowering(w, *p, c, t).run(name));
}

}  // namespace nimble::kernels
