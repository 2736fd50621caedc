// The template "pool2d": maximum and average pooling of NCHW images.
//
// Pooling. An item is one output row of one channel. Its columns fall into three stretches: those
// whose windows lie inside the image take vectors (with the stride of the window between lanes),
// those at the left and right edge are computed one by one. Taps outside the image are cut off by
// the loops' bounds, rows once for the whole output row, so a window may be far larger than the
// image and costs what it covers.
#include <array>
#include <vector>

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
using kir::StmtRef;
using kir::ValueRef;

class PoolLowering {
 public:
  PoolLowering(const Workload& w, const Config& c, const TargetInfo& t)
      : w_(w),
        frame_(make_frame(w)),
        call_(*frame_.anchor->value),
        x_(parameter_buffer(w, frame_, call_.args[0])),
        in_(ir::type_of(call_.args[0])->dims),
        out_(frame_.anchor->var->type->dims),
        type_(frame_.anchor->var->type->dtype),
        lanes_(group_lanes(*w.group, t)),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        average_(call_.op == "avg_pool2d"),
        with_padding_(average_ && ir::attr<bool>(call_.attrs, "count_include_pad")) {
    const auto& kernel = ir::attr<std::vector<int64_t>>(call_.attrs, "kernel");
    windows_ =
        windows_of(call_.attrs, {in_[2], in_[3]}, {out_[2], out_[3]}, {kernel[0], kernel[1]});
    NIMBLE_CHECK(x_, "pooling of something but a parameter");
    best_ = kb::buffer("best", kir::Scope::kRegister, type_, 1, lanes_);
    edge_ = kb::buffer("edge", kir::Scope::kRegister, type_, 1, 1);
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> body;
    const std::vector<Dim> at =
        bind_coordinates("x", {out_[0] * out_[1], out_[2]}, Dim::symbol("item"), body);
    image_ = at[0];
    row_ = at[1];
    const auto bind = [&](const char* symbol, const Dim& d) { return bound(symbol, d, body); };
    top_ = bind("top", windows_[0].start(row_));
    i_begin_ = bind("i_begin", windows_[0].begin_tap(top_));
    i_end_ = bind("i_end", windows_[0].end_tap(top_));
    const Dim first = bind("first", windows_[1].begin_inside());
    const Dim last = bind("last", windows_[1].end_inside());
    if (average_) rows_ = bind("rows", windows_[0].counted(row_, with_padding_));
    body.push_back(edge("l", 0, first));
    const SliceBody inside = [&](const Slice& s) { return pool(s.at, lanes_, s.valid, false); };
    body.push_back(unroll_ == 1 ? masked_loop("c", first, last - first, lanes_, inside)
                                : vector_loop("c", first, last - first, lanes_, unroll_, inside));
    body.push_back(edge("r", last, out_[3] - last));
    return make_function(w_, frame_, name, {}, {best_, edge_},
                         kb::loop(kir::LoopKind::kThread, "item", 0, out_[0] * out_[1] * out_[2],
                                  kb::seq(std::move(body))));
  }

 private:
  // A constant, or a symbol that stands for it.
  static Dim bound(const std::string& symbol, const Dim& d, std::vector<StmtRef>& out) {
    if (d.as_constant()) return d;
    out.push_back(kb::let_index(symbol, kb::index(d)));
    return Dim::symbol(symbol);
  }

  StmtRef edge(const std::string& var, const Dim& begin, const Dim& extent) {
    return kb::loop(kir::LoopKind::kSerial, var, begin, extent,
                    kb::seq(pool(Dim::symbol(var), 1, std::nullopt, true)));
  }

  // `lanes` columns from `column` on; `clipped`: their taps may lie outside.
  std::vector<StmtRef> pool(const Dim& column, int lanes, const std::optional<Dim>& valid,
                            bool clipped) {
    const Window& window = windows_[1];
    const kir::BufferRef& acc = lanes == 1 && lanes_ != 1 ? edge_ : best_;
    std::vector<StmtRef> all;
    Dim left = window.start(column), begin = 0, end = window.taps;
    if (clipped) {
      left = bound("left", left, all);
      begin = bound("j_begin", window.begin_tap(left), all);
      end = bound("j_end", window.end_tap(left), all);
    }
    const Dim i = Dim::symbol("i"), j = Dim::symbol("j");
    const Dim y = top_ + i * windows_[0].dilation, x = left + j * window.dilation;
    const ValueRef v =
        kb::load_strided(x_, (image_ * in_[2] + y) * in_[3] + x, window.stride, lanes, valid);
    StmtRef take =
        kb::set_reg(acc, 0, average_ ? kb::add(kb::reg(acc, 0), v) : kb::max(v, kb::reg(acc, 0)));
    all.push_back(
        kb::set_reg(acc, 0, average_ ? kb::number(type_, 0, lanes) : least_of(type_, lanes)));
    all.push_back(
        kb::loop(kir::LoopKind::kSerial, "i", i_begin_, i_end_ - i_begin_,
                 kb::loop(kir::LoopKind::kSerial, "j", begin, end - begin, std::move(take))));
    ValueRef result = kb::reg(acc, 0);
    if (average_) {
      const Dim count =
          ir::max(rows_ * (clipped ? window.counted(column, with_padding_) : Dim(window.taps)), 1);
      result = kb::div(result, kb::broadcast(kb::cast(type_, kb::index(count)), lanes));
    }
    const Dim offset = (image_ * out_[2] + row_) * out_[3] + column;
    all.push_back(kb::store_strided(frame_.results[0], offset, 1, result, valid));
    return all;
  }

  const Workload& w_;
  Frame frame_;
  const ir::Expr& call_;
  kir::BufferRef x_;
  std::vector<Dim> in_, out_;
  DType type_;
  int lanes_, unroll_;
  bool average_, with_padding_;
  std::array<Window, 2> windows_;
  kir::BufferRef best_, edge_;
  Dim image_, row_, rows_ = 1;
  Dim top_, i_begin_, i_end_;  // the taps of the row that lie inside
};

}  // namespace

bool Pool2dTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return is_pooling(w, /*channels_last=*/false);
}

std::vector<Knob> Pool2dTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2})};
}

bool Pool2dTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config Pool2dTemplate::default_config(const Workload&, const TargetInfo&) const {
  return {{"unroll", int64_t{1}}};
}

Lowered Pool2dTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                              const std::string& name) const {
  NIMBLE_CHECK(accepts(w, t) && valid(w, c, t), "configuration {} of pool2d", to_json(c));
  return one_kernel(PoolLowering(w, c, t).run(name),
                    threads_for(ir::element_count(w.group->result_type), 1024));
}

}  // namespace nimble::kernels
