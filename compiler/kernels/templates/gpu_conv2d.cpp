// The template "gpu_conv2d": direct convolution of NCHW images on a GPU.
//
// A thread has some filters of a group at some positions of one image, which lie a block's threads
// apart: neighbouring threads read and write neighbours. Each element of the image that it reads
// serves all of its filters, and each weight, the same for the whole block, all of its positions.
// Whether a tap lies inside of the image is found once for all channels, so taps are the outer
// loops; padding is an absent load. The order of a sum is that of taps, then channels.
//
// Groups are a block's number, so a depthwise convolution is one filter a thread.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/kernels/templates/conv2d.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_loops.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BufferRef;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;

namespace {

struct Tile {
  int64_t filters, positions;  // of a thread
  int threads;
};

Tile tile_of(const Config& c) {
  return {knob_int(c, "filters"), knob_int(c, "positions"),
          static_cast<int>(knob_int(c, "threads"))};
}

// The image and the weights are parameters, or a weight of one element.
std::optional<Convolution> analyse(const Workload& w) {
  auto p = convolution_of(w);
  // Without a result there is nothing to divide blocks into.
  if (!p || p->filters == 0 || (p->out[2] * p->out[3]).is_constant(0)) return {};
  const Frame frame = make_frame(w);
  if (!parameter_buffer(w, frame, frame.anchor->value->args[0])) return {};
  return p;
}

bool fits(const Convolution& p, const Tile& t) {
  constexpr int64_t kMost = 64;  // sums of a thread
  if (t.filters < 1 || t.positions < 1 || t.filters > kMost || t.positions > kMost ||
      t.filters * t.positions > kMost || !gpu::is_block(t.threads))
    return false;
  return p.groups * ((p.filters + t.filters - 1) / t.filters) <= gpu::kMaxBlocksAcross;
}

class ConvLowering {
 public:
  ConvLowering(const Workload& w, const Convolution& p, const Tile& t)
      : w_(w), p_(p), tile_(t), frame_(gpu::make_gpu_frame(w)), call_(*frame_.anchor->value) {
    sums_ = kb::buffer("sums", kir::Scope::kRegister, p.type,
                       static_cast<int>(t.filters * t.positions));
    image_ = parameter_buffer(w, frame_, call_.args[0]);
  }

  kir::Function run(const std::string& name) {
    NamedExtents extents(w_);
    height_ = extents("height", p_.in[2]);
    width_ = extents("width", p_.in[3]);
    out_width_ = extents("out_width", p_.out[3]);
    positions_ = extents("positions", p_.out[2] * p_.out[3]);
    const Dim tiles = extents("tiles", ir::ceildiv(p_.out[2] * p_.out[3], per_block()));
    std::vector<StmtRef> all = extents.statements();
    const auto bind = [&](const std::string& symbol, const Dim& value) {
      return bind_dim(symbol, value, all);
    };
    const int64_t filter_tiles = (p_.filters + tile_.filters - 1) / tile_.filters;
    entry_ = bind("entry", ir::floordiv(gpu::block(0), tiles));
    const Dim tile = bind("tile", ir::mod(gpu::block(0), tiles));
    group_ = bind("group", ir::floordiv(gpu::block(1), filter_tiles));
    first_filter_ = bind("filter", ir::mod(gpu::block(1), filter_tiles) * tile_.filters);
    for (int64_t i = 0; i < tile_.positions; ++i) {
      // What lies beyond the last position computes the last one's sums, and stores none.
      const Dim position = tile * per_block() + i * tile_.threads + gpu::thread();
      number_.push_back(bind(fmt::format("at{}", i), position));
      const Dim read = bind(fmt::format("read{}", i), ir::min(position, positions_ - 1));
      row_.push_back(bind(fmt::format("row{}", i), ir::floordiv(read, out_width_)));
      column_.push_back(bind(fmt::format("column{}", i), ir::mod(read, out_width_)));
    }
    for (int64_t f = 0; f < tile_.filters; ++f) {
      const ValueRef start = call_.args.size() == 3 ? operand_element(w_, frame_, 2, channel(f))
                                                    : kb::number(p_.type, 0);
      for (int64_t i = 0; i < tile_.positions; ++i)
        all.push_back(kb::set_reg(sums_, sum(f, i), start));
    }
    all.push_back(kb::loop(LoopKind::kSerial, "ky", 0, p_.kh,
                           kb::loop(LoopKind::kSerial, "kx", 0, p_.kw, tap())));
    for (int64_t i = 0; i < tile_.positions; ++i) all.push_back(store(i));
    const Dim blocks = p_.in[0] * ir::ceildiv(p_.out[2] * p_.out[3], per_block());
    return gpu::launched(make_function(w_, frame_, name, {}, {sums_}, kb::seq(std::move(all))),
                         {blocks, p_.groups * filter_tiles, 1}, tile_.threads);
  }

 private:
  int64_t per_block() const { return tile_.positions * tile_.threads; }
  int64_t sum(int64_t f, int64_t i) const { return f * tile_.positions + i; }
  bool has_rest() const { return p_.filters % tile_.filters != 0; }
  // The filter's number of all. One beyond the group's last is that again, and not stored.
  Dim channel(int64_t f) const {
    const Dim filter = first_filter_ + f;
    return group_ * p_.filters + (has_rest() ? ir::min(filter, p_.filters - 1) : filter);
  }

  StmtRef tap() {
    const Dim ky = Dim::symbol("ky"), kx = Dim::symbol("kx"), c = Dim::symbol("c");
    // 1 where 0 <= x < extent.
    const auto inside = [](const Dim& x, const Dim& extent) {
      return ir::min(1, ir::max(0, ir::min(x + 1, extent - x)));
    };
    std::vector<StmtRef> all, body;
    std::vector<ValueRef> x;
    for (int64_t i = 0; i < tile_.positions; ++i) {
      const Dim y = row_[i] * p_.strides[0] - p_.pads[0] + ky * p_.dilations[0];
      const Dim z = column_[i] * p_.strides[1] - p_.pads[1] + kx * p_.dilations[1];
      const Dim from = ((entry_ * p_.in[1] + group_ * p_.channels) * height_ + y) * width_ + z;
      const std::string place = fmt::format("place{}", i), here = fmt::format("here{}", i);
      all.push_back(kb::let_index(place, kb::index(from)));
      const Dim index = Dim::symbol(place) + c * (height_ * width_);
      ValueRef v;
      if (p_.direct) {
        v = kb::load(image_, index);
      } else {
        all.push_back(kb::let_index(here, kb::index(inside(y, height_) * inside(z, width_)),
                                    ir::SymbolFacts{0, 1, 1}));
        v = kb::load_masked(image_, index, 1, Dim::symbol(here));
      }
      body.push_back(kb::let(fmt::format("x{}", i), v));
      x.push_back(kb::local(fmt::format("x{}", i), p_.type, 1));
    }
    for (int64_t f = 0; f < tile_.filters; ++f) {
      const std::string name = fmt::format("w{}", f);
      const Dim weight = ((channel(f) * p_.channels + c) * p_.kh + ky) * p_.kw + kx;
      body.push_back(kb::let(name, operand_element(w_, frame_, 1, weight)));
      for (int64_t i = 0; i < tile_.positions; ++i)
        body.push_back(
            kb::set_reg(sums_, sum(f, i),
                        kb::fma(kb::local(name, p_.type, 1), x[i], kb::reg(sums_, sum(f, i)))));
    }
    all.push_back(gpu::stretched_loop("c", p_.channels, 4, kb::seq(std::move(body))));
    return kb::seq(std::move(all));
  }

  StmtRef store(int64_t i) {
    std::vector<StmtRef> all;
    for (int64_t f = 0; f < tile_.filters; ++f) {
      StmtRef one =
          store_results(w_, frame_, kb::reg(sums_, sum(f, i)),
                        {entry_, group_ * p_.filters + first_filter_ + f, row_[i], column_[i]}, 1,
                        std::nullopt, fmt::format("o{}_{}_", f, i));
      if (has_rest()) one = kb::if_then(kb::lt(first_filter_ + f, p_.filters), std::move(one));
      all.push_back(std::move(one));
    }
    return kb::if_then(kb::lt(number_[i], positions_), kb::seq(std::move(all)));
  }

  const Workload& w_;
  const Convolution& p_;
  Tile tile_;
  Frame frame_;
  const ir::Expr& call_;
  BufferRef sums_, image_;
  Dim height_, width_, out_width_, positions_;
  Dim entry_, group_, first_filter_;
  std::vector<Dim> number_, row_, column_;  // of the thread's positions
};

}  // namespace

bool GpuConv2dTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  if (!t.is_gpu()) return false;
  const auto p = analyse(w);
  return p && valid(w, default_config(w, t), t);
}

std::vector<Knob> GpuConv2dTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("filters", {1, 2, 4, 8, 16}), int_knob("positions", {1, 2, 4, 8}),
          int_knob("threads", {32, 64, 128, 256})};
}

bool GpuConv2dTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = analyse(w);
  return p && well_formed(knobs(w, t), c) && fits(*p, tile_of(c));
}

// As many filters as a group has, up to eight; two positions, unless the image has so few that they
// do not keep a warp busy, or surely many.
Config GpuConv2dTemplate::default_config(const Workload& w, const TargetInfo&) const {
  const auto p = analyse(w);
  NIMBLE_CHECK(p, "workload {} is not for gpu_conv2d", w.key);
  int64_t filters = 1;
  while (filters < 8 && 2 * filters <= p->filters) filters *= 2;
  const auto known = (p->out[2] * p->out[3]).as_constant();
  const int64_t positions = !known ? 2 : *known >= 1024 ? 4 : *known >= 128 ? 2 : 1;
  const int64_t threads = known && *known >= 1024 ? 128 : 64;
  return {{"filters", filters}, {"positions", positions}, {"threads", threads}};
}

Lowered GpuConv2dTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                 const std::string& name) const {
  const auto p = analyse(w);
  NIMBLE_CHECK(p && valid(w, c, t), "configuration {} of gpu_conv2d", to_json(c));
  return gpu::one_gpu_kernel(ConvLowering(w, *p, tile_of(c)).run(name));
}

}  // namespace nimble::kernels
