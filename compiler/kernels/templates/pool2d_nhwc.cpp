// The template "pool2d_nhwc": maximum and average pooling of channels-last images.
//
// Pooling with lanes along the channels. An item is a few pixels of a row of the result; for each
// the taps that lie inside the image are a rectangle, whose bounds are worked out once and then
// serve all channels, `unroll` vectors at a time. There is no other code for the edges.
#include <array>

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

constexpr int64_t kPixels = 8;  // of an item

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
        type_(frame_.anchor->var->type->dtype),
        lanes_(group_lanes(*w.group, t)),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        average_(call_.op == "avg_pool2d"),
        with_padding_(average_ && ir::attr<bool>(call_.attrs, "count_include_pad")) {
    NIMBLE_CHECK(x_, "pooling of something but a parameter");
    in_[1] = named_("in_height", in_[1]);
    in_[2] = named_("in_width", in_[2]);
    out_[1] = named_("out_height", out_[1]);
    out_[2] = named_("out_width", out_[2]);
    const auto& kernel = ir::attr<std::vector<int64_t>>(call_.attrs, "kernel");
    windows_ =
        windows_of(call_.attrs, {in_[1], in_[2]}, {out_[1], out_[2]}, {kernel[0], kernel[1]});
    best_ = kb::buffer("best", kir::Scope::kRegister, type_, unroll_, lanes_);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    const Dim parts = named_("parts", ir::ceildiv(out_[2], kPixels));
    const std::vector<Dim> at =
        bind_coordinates("x", {out_[0], out_[1], parts}, Dim::symbol("item"), body);
    image_ = at[0];
    line_ = at[1];
    const Dim first = at[2] * kPixels;
    bind("i", windows_[0], line_, body);
    std::vector<StmtRef> pixel;
    bind("j", windows_[1], Dim::symbol("column"), pixel);
    const int64_t width = int64_t{unroll_} * lanes_;
    const Dim bulk = ir::floordiv(in_[3], width) * width;
    pixel.push_back(kb::loop(LoopKind::kSerial, "c", 0, bulk,
                             kb::seq(pool(Dim::symbol("c"), unroll_, std::nullopt)), width));
    pixel.push_back(masked_loop("d", bulk, in_[3] - bulk, lanes_,
                                [&](const Slice& s) { return pool(s.at, 1, s.valid); }));
    body.push_back(kb::loop(LoopKind::kSerial, "column", first, ir::min(out_[2] - first, kPixels),
                            kb::seq(std::move(pixel))));
    std::vector<StmtRef> all = named_.statements();
    all.push_back(kb::loop(LoopKind::kThread, "item", 0, out_[0] * out_[1] * parts,
                           kb::seq(std::move(body))));
    return make_function(w_, frame_, name, {}, {best_}, kb::seq(std::move(all)));
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

  // `vectors` vectors of channels of a pixel, from `channel` on.
  std::vector<StmtRef> pool(const Dim& channel, int vectors, const std::optional<Dim>& valid) {
    const Dim i = Dim::symbol("i"), j = Dim::symbol("j"), column = Dim::symbol("column");
    const ValueRef start = average_ ? kb::number(type_, 0, lanes_) : least_of(type_, lanes_);
    const Dim y = Dim::symbol("i_start") + i * windows_[0].dilation;
    const Dim x = Dim::symbol("j_start") + j * windows_[1].dilation;
    const Dim from = ((image_ * in_[1] + y) * in_[2] + x) * in_[3] + channel;
    const Dim to = ((image_ * out_[1] + line_) * out_[2] + column) * in_[3] + channel;
    std::vector<StmtRef> all, take, give;
    for (int v = 0; v < vectors; ++v) {
      all.push_back(kb::set_reg(best_, v, start));
      const ValueRef best = kb::reg(best_, v);
      const ValueRef e = kb::load_strided(x_, from + v * lanes_, 1, lanes_, valid);
      take.push_back(kb::set_reg(best_, v, average_ ? kb::add(best, e) : kb::max(e, best)));
      ValueRef result = best;
      if (average_) {
        const Dim count = ir::max(Dim::symbol("i_count") * Dim::symbol("j_count"), 1);
        result = kb::div(result, kb::broadcast(kb::cast(type_, kb::index(count)), lanes_));
      }
      give.push_back(
          kb::store_strided(frame_.results[0], to + v * lanes_, 1, std::move(result), valid));
    }
    const auto loop = [&](const std::string& axis, StmtRef body) {
      const Dim begin = Dim::symbol(axis + "_begin"), end = Dim::symbol(axis + "_end");
      return kb::loop(LoopKind::kSerial, axis, begin, end - begin, std::move(body));
    };
    all.push_back(loop("i", loop("j", kb::seq(std::move(take)))));
    for (StmtRef& s : give) all.push_back(std::move(s));
    return all;
  }

  const Workload& w_;
  Frame frame_;
  const ir::Expr& call_;
  kir::BufferRef x_;
  NamedExtents named_;
  std::vector<Dim> in_, out_;
  DType type_;
  int lanes_, unroll_;
  bool average_, with_padding_;
  std::array<Window, 2> windows_;
  kir::BufferRef best_;
  Dim image_, line_;
};

}  // namespace

bool Pool2dNhwcTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return is_pooling(w, /*channels_last=*/true);
}

std::vector<Knob> Pool2dNhwcTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4})};
}

bool Pool2dNhwcTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config Pool2dNhwcTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto channels = w.group->result_type->dims[3].as_constant();
  const int64_t vectors = channels ? *channels / group_lanes(*w.group, t) : 4;
  return {{"unroll", vectors >= 4 ? int64_t{4} : vectors >= 2 ? int64_t{2} : int64_t{1}}};
}

Lowered Pool2dNhwcTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                  const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of pool2d_nhwc", to_json(c));
  return one_kernel(PoolNhwcLowering(w, c, t).run(name),
                    threads_for(ir::element_count(w.group->result_type), 1024));
}

}  // namespace nimble::kernels
