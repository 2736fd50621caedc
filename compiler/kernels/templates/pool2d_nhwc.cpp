// The template "pool2d_nhwc": maximum and average pooling of channels-last images.
//
// Pooling with lanes along the channels. An item is a stretch of a row of the result. Where windows
// keep inside the image from left to right, neighbouring pixels are computed together: each column
// that they cover is folded over its rows once, in a register, and every window folds its columns.
// So with steps of 1 a 3 x 3 window costs 4.5 loads for a pixel instead of 9, and no test.
//
// At the left and right edge the taps of a pixel that lie inside the image are a rectangle, whose
// bounds are worked out once and then serve all channels, `unroll` vectors at a time; so are those
// of all pixels of windows too wide for the registers. Rows outside are cut off by the loops'
// bounds everywhere.
//
// Floats of 16 bits are widened as they are loaded, and what a window gives is rounded as it is
// stored: a maximum is one of the elements, and stays what it was; an average is rounded once.
#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "compiler/kernels/templates/window.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
using kir::Dim;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

constexpr int64_t kPixels = 16;         // of an item
constexpr int kOtherRegisters = 4;      // beside the columns': an element on its way, the divisor
constexpr int kTogether[] = {4, 2, 1};  // neighbouring pixels, if registers suffice

// Lanes of a vector. Of bytes as many as it holds, where they fill all channels: parts of vectors
// of bytes are dear on most machines.
int pool_lanes(const Workload& w, const TargetInfo& t) {
  const ir::Type& type = w.group->body->bindings[0].var->type;
  const auto channels = type->dims[3].as_constant();
  int lanes = group_lanes(*w.group, t);
  if (size_of(type->dtype) != 1 || !channels || *channels == 0) return lanes;
  while (2 * lanes <= t.vector_bits / 8 && *channels % (2 * lanes) == 0) lanes *= 2;
  return lanes;
}

class PoolNhwcLowering {
 public:
  PoolNhwcLowering(const Workload& w, const Config& c, const TargetInfo& t)
      : w_(w),
        frame_(make_frame(w)),
        call_(*frame_.anchor->value),
        x_(parameter_buffer(w, frame_, call_.args[0])),
        named_(w),
        in_(ir::type_of(call_.args[0])->dims),
        out_(frame_.anchor->var->type->dims),
        stored_(frame_.anchor->var->type->dtype),
        type_(compute_type(stored_)),
        lanes_(pool_lanes(w, t)),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        average_(call_.op == "avg_pool2d"),
        with_padding_(average_ && ir::attr<bool>(call_.attrs, "count_include_pad")) {
    NIMBLE_CHECK(x_, "pooling of something but a parameter");
    in_[1] = named_("in_height", in_[1]);
    in_[2] = named_("in_width", in_[2]);
    put_ = frame_.result_dims[0];
    const bool own_height = put_[1] == out_[1], own_width = put_[2] == out_[2];
    out_[1] = named_("out_height", out_[1]);
    out_[2] = named_("out_width", out_[2]);
    if (own_height) put_[1] = out_[1];
    if (own_width) put_[2] = out_[2];
    const auto& kernel = ir::attr<std::vector<int64_t>>(call_.attrs, "kernel");
    windows_ =
        windows_of(call_.attrs, {in_[1], in_[2]}, {out_[1], out_[2]}, {kernel[0], kernel[1]});
    best_ = kb::buffer("best", kir::Scope::kRegister, type_, unroll_, lanes_);
    const int room = std::max(1, t.vector_registers - kOtherRegisters);
    for (const int pixels : kTogether) {
      if (windows_[1].taps > room) break;
      const auto columns = static_cast<int64_t>(columns_of(pixels).size());
      if (columns > room) continue;
      together_ = pixels;
      for (together_vectors_ = unroll_; columns * together_vectors_ > room;) together_vectors_ /= 2;
      columns_ =
          kb::buffer("columns", kir::Scope::kRegister, type_, columns * together_vectors_, lanes_);
      break;
    }
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    const Dim parts = named_("parts", ir::ceildiv(out_[2], kPixels));
    const std::vector<Dim> at =
        bind_coordinates("x", {out_[0], out_[1], parts}, Dim::symbol("item"), body);
    image_ = at[0];
    line_ = at[1];
    bind("i", windows_[0], line_, body);
    const auto let = [&](const char* symbol, const Dim& d) {
      body.push_back(kb::let_index(symbol, kb::index(d)));
      return Dim::symbol(symbol);
    };
    const Dim first = let("first", at[2] * kPixels);
    const Dim last = let("last", ir::min(out_[2], first + kPixels));
    // Pixels [left, right) are computed together, the others one by one.
    Dim left = first, right = last;
    if (together_ == 0) {
      right = left;
    } else if (windows_[1].clipped) {
      left = let("left", ir::min(last, ir::max(first, windows_[1].begin_inside())));
      right = let("right", ir::max(left, ir::min(last, windows_[1].end_inside())));
    }
    if (together_ > 0) {
      const Dim count = right - left, blocks = ir::floordiv(count, together_);
      body.push_back(loop_over("block", blocks, left + Dim::symbol("block") * together_,
                               [&] { return inner(together_); }));
      if (together_ > 1)
        body.push_back(loop_over("single", count - blocks * together_,
                                 left + blocks * together_ + Dim::symbol("single"),
                                 [&] { return inner(1); }));
    }
    if (together_ == 0 || windows_[1].clipped) {
      // Those ahead of `left`, then those behind `right`.
      const Dim edge = Dim::symbol("edge"), ahead = left - first;
      const Dim behind = ir::min(1, ir::max(0, edge - ahead + 1));
      body.push_back(loop_over("edge", ahead + (last - right),
                               first + edge + behind * (right - left), [&] { return outer(); }));
    }
    std::vector<StmtRef> all = named_.statements();
    all.push_back(kb::loop(LoopKind::kThread, "item", 0, out_[0] * out_[1] * parts,
                           kb::seq(std::move(body))));
    std::vector<kir::BufferRef> registers = {best_};
    if (columns_) registers.push_back(columns_);
    return make_function(w_, frame_, name, {}, std::move(registers), kb::seq(std::move(all)));
  }

 private:
  // Binds where the window at a position starts, its taps [_begin, _end) inside the image and, for
  // an average, how many count.
  void bind(const std::string& axis, const Window& window, const Dim& position,
            std::vector<StmtRef>& out) const {
    const Dim start = Dim::symbol(axis + "_start");
    out.push_back(kb::let_index(axis + "_start", kb::index(window.start(position))));
    out.push_back(kb::let_index(axis + "_begin", kb::index(window.begin_tap(start))));
    out.push_back(kb::let_index(axis + "_end", kb::index(window.end_tap(start))));
    if (average_)
      out.push_back(
          kb::let_index(axis + "_count", kb::index(window.counted(position, with_padding_))));
  }

  // So many times what `body` makes of the pixel `column`.
  static StmtRef loop_over(const char* var, const Dim& times, const Dim& column,
                           const std::function<std::vector<StmtRef>()>& body) {
    std::vector<StmtRef> all = {kb::let_index("column", kb::index(column))};
    for (StmtRef& s : body()) all.push_back(std::move(s));
    return kb::loop(LoopKind::kSerial, var, 0, times, kb::seq(std::move(all)));
  }

  // All channels: `vectors` vectors at a time while there are so many, then one.
  using Channels =
      std::function<std::vector<StmtRef>(const Dim&, int, const std::optional<Dim>& valid)>;
  void over_channels(int vectors, const Channels& body, std::vector<StmtRef>& out) const {
    const int64_t width = int64_t{vectors} * lanes_;
    const Dim bulk = ir::floordiv(in_[3], width) * width;
    out.push_back(kb::loop(LoopKind::kSerial, "c", 0, bulk,
                           kb::seq(body(Dim::symbol("c"), vectors, std::nullopt)), width));
    out.push_back(masked_loop("d", bulk, in_[3] - bulk, lanes_,
                              [&](const Slice& s) { return body(s.at, 1, s.valid); }));
  }

  // A pixel whose window may hang over the edge.
  std::vector<StmtRef> outer() {
    std::vector<StmtRef> all;
    bind("j", windows_[1], Dim::symbol("column"), all);
    over_channels(
        unroll_,
        [&](const Dim& channel, int vectors, const std::optional<Dim>& valid) {
          return pool(channel, vectors, valid);
        },
        all);
    return all;
  }

  // `pixels` pixels from `column` on, whose windows lie inside the image from left to right.
  std::vector<StmtRef> inner(int pixels) {
    std::vector<StmtRef> all = {
        kb::let_index("j_start", kb::index(windows_[1].start(Dim::symbol("column"))))};
    over_channels(
        together_vectors_,
        [&](const Dim& channel, int vectors, const std::optional<Dim>& valid) {
          return pool_together(pixels, channel, vectors, valid);
        },
        all);
    return all;
  }

  // The columns that neighbouring pixels cover, from the first one's first on, each once.
  std::vector<int64_t> columns_of(int pixels) const {
    std::set<int64_t> all;
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t j = 0; j < windows_[1].taps; ++j)
        all.insert(p * windows_[1].stride + j * windows_[1].dilation);
    return {all.begin(), all.end()};
  }

  ValueRef start() const {
    return average_ ? kb::number(type_, 0, lanes_) : least_of(type_, lanes_);
  }
  ValueRef fold(ValueRef element, ValueRef before) const {
    return average_ ? kb::add(std::move(before), std::move(element))
                    : kb::max(std::move(element), std::move(before));
  }
  ValueRef load(const Dim& index, const std::optional<Dim>& valid) const {
    return kb::cast(type_, kb::load_strided(x_, index, 1, lanes_, valid));
  }
  // What a window makes of what its taps folded to, of which `counted` columns count.
  ValueRef finish(ValueRef folded, const Dim& counted) const {
    if (!average_) return kb::cast(stored_, std::move(folded));
    const Dim count = ir::max(Dim::symbol("i_count") * counted, 1);
    return kb::cast(stored_, kb::div(std::move(folded),
                                     kb::broadcast(kb::cast(type_, kb::index(count)), lanes_)));
  }
  // Bind where a channel of a row's first tap lies, and that of the pixel of the result.
  StmtRef take_at(const Dim& channel) const {
    const Dim y = Dim::symbol("i_start") + Dim::symbol("i") * windows_[0].dilation;
    const Dim x = Dim::symbol("j_start");
    return kb::let_index("at", kb::index(((image_ * in_[1] + y) * in_[2] + x) * in_[3] + channel));
  }
  StmtRef put_at(const Dim& channel) const {
    const Dim x = Dim::symbol("column");
    return kb::let_index("put", kb::index(flat_offset(put_, {image_, line_, x, channel})));
  }
  StmtRef loop_over_taps(const std::string& axis, StmtRef body) const {
    const Dim begin = Dim::symbol(axis + "_begin"), end = Dim::symbol(axis + "_end");
    return kb::loop(LoopKind::kSerial, axis, begin, end - begin, std::move(body));
  }

  std::vector<StmtRef> pool_together(int pixels, const Dim& channel, int vectors,
                                     const std::optional<Dim>& valid) {
    const std::vector<int64_t> columns = columns_of(pixels);
    const Dim at = Dim::symbol("at"), put = Dim::symbol("put");
    std::vector<StmtRef> all = {put_at(channel)}, take = {take_at(channel)};
    for (size_t k = 0; k < columns.size(); ++k)
      for (int v = 0; v < vectors; ++v) {
        const Dim place = static_cast<int64_t>(k) * vectors + v;
        const Dim index = at + columns[k] * in_[3] + v * lanes_;
        all.push_back(kb::set_reg(columns_, place, start()));
        take.push_back(
            kb::set_reg(columns_, place, fold(load(index, valid), kb::reg(columns_, place))));
      }
    all.push_back(loop_over_taps("i", kb::seq(std::move(take))));
    for (int p = 0; p < pixels; ++p)
      for (int v = 0; v < vectors; ++v) {
        ValueRef value;
        for (int64_t j = 0; j < windows_[1].taps; ++j) {
          const auto k = std::lower_bound(columns.begin(), columns.end(),
                                          p * windows_[1].stride + j * windows_[1].dilation);
          const Dim place = (k - columns.begin()) * int64_t{vectors} + v;
          const ValueRef column = kb::reg(columns_, place);
          value = value ? fold(column, std::move(value)) : column;
        }
        all.push_back(kb::store_strided(frame_.results[0], put + p * put_[3] + v * lanes_, 1,
                                        finish(std::move(value), windows_[1].taps), valid));
      }
    return all;
  }

  // `vectors` vectors of channels of a pixel, from `channel` on.
  std::vector<StmtRef> pool(const Dim& channel, int vectors, const std::optional<Dim>& valid) {
    const Dim tap = Dim::symbol("at") + Dim::symbol("j") * (in_[3] * windows_[1].dilation);
    const Dim put = Dim::symbol("put");
    std::vector<StmtRef> all = {put_at(channel)}, take, give;
    for (int v = 0; v < vectors; ++v) {
      all.push_back(kb::set_reg(best_, v, start()));
      const ValueRef best = kb::reg(best_, v);
      take.push_back(kb::set_reg(best_, v, fold(load(tap + v * lanes_, valid), best)));
      give.push_back(kb::store_strided(frame_.results[0], put + v * lanes_, 1,
                                       finish(best, Dim::symbol("j_count")), valid));
    }
    StmtRef row = loop_over_taps("j", kb::seq(std::move(take)));
    all.push_back(loop_over_taps("i", kb::seq({take_at(channel), std::move(row)})));
    for (StmtRef& s : give) all.push_back(std::move(s));
    return all;
  }

  const Workload& w_;
  Frame frame_;
  const ir::Expr& call_;
  kir::BufferRef x_;
  NamedExtents named_;
  std::vector<Dim> in_, out_, put_;  // `put_`: by which the result lies in memory
  DType stored_, type_;              // of the elements in memory, and in registers
  int lanes_, unroll_;
  bool average_, with_padding_;
  std::array<Window, 2> windows_;
  kir::BufferRef best_;
  // Pixels that are computed together, 0 if registers suffice for none; vectors of each at a time.
  int together_ = 0, together_vectors_ = 1;
  kir::BufferRef columns_;  // (column, vector)
  Dim image_, line_;
};

}  // namespace

bool Pool2dNhwcTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return is_pooling(w, /*channels_last=*/true, /*narrow=*/true);
}

std::vector<Knob> Pool2dNhwcTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4})};
}

bool Pool2dNhwcTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config Pool2dNhwcTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto channels = w.group->body->bindings[0].var->type->dims[3].as_constant();
  const int64_t vectors = channels ? *channels / pool_lanes(w, t) : 4;
  return {{"unroll", vectors >= 4 ? int64_t{4} : vectors >= 2 ? int64_t{2} : int64_t{1}}};
}

Lowered Pool2dNhwcTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                  const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of pool2d_nhwc", to_json(c));
  return one_kernel(PoolNhwcLowering(w, c, t).run(name),
                    threads_for(ir::element_count(w.group->result_type), 1024));
}

}  // namespace nimble::kernels
