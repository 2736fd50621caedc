// The template "conv2d": direct convolution of NCHW images, with an element-wise epilogue.
//
// Direct convolution.
//
// The natural layouts are used as they are: images NCHW, weights OIHW. Lanes run along an output
// row; a register tile is `rows` output channels x `vectors` vectors of columns, and every input
// vector that is loaded serves all its channels, whose weights are broadcast. Nothing is unfolded
// (im2col), so memory traffic stays that of the image.
//
// Padding is made real once: all threads copy the image, with zeros around it, to shared scratch
// and meet at a barrier. After that no window needs a check, and even the lanes beyond the end of
// a row lie in memory. An unpadded image that is a parameter is read where it lies.
//
// An item is (image, group, tile of channels, output row): neighbouring items of a thread share
// their weights.
#include "compiler/kernels/templates/conv2d.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::LoopKind;
using kir::StmtRef;
using kir::ValueRef;
using Ints = std::vector<int64_t>;

std::optional<Convolution> convolution_of_any(const Workload& w) {
  if (w.anchor != "conv2d") return std::nullopt;
  const Frame frame = make_frame(w);
  if (frame.anchor == nullptr || !has_elementwise_epilogue(w, frame)) return std::nullopt;
  const ir::Expr& e = *frame.anchor->value;
  if (ir::image_layout_of(e.attrs).channels_last()) return std::nullopt;
  Convolution p;
  p.type = frame.anchor->var->type->dtype;
  for (size_t i = 1; i < e.args.size(); ++i)
    // A constant of one element (the bias of a single filter) is part of the group.
    if (!e.args[i].is_constant() && !parameter_buffer(w, frame, e.args[i])) return std::nullopt;
  for (const ir::Binding& b : w.group->body->bindings) {
    if (&b == frame.anchor || b.value->kind != ir::ExprKind::kCall) continue;
    if (ir::traits_of(*b.value).in_out) continue;
    // A failing index check would leave the others at the barrier.
    if (!is_pullable(*b.value) || ir::traits_of(*b.value).indexes) return std::nullopt;
  }
  p.in = ir::type_of(e.args[0])->dims;
  p.out = frame.anchor->var->type->dims;
  const std::vector<Dim> weights = ir::type_of(e.args[1])->dims;
  std::vector<int64_t> shape;
  for (const Dim& d : weights) {
    if (!d.as_constant()) return std::nullopt;
    shape.push_back(*d.as_constant());
  }
  p.groups = ir::attr<int64_t>(e.attrs, "groups");
  p.filters = shape[0] / p.groups;
  p.channels = shape[1];
  p.kh = shape[2];
  p.kw = shape[3];
  p.strides = ir::attr<Ints>(e.attrs, "strides");
  p.pads = ir::attr<Ints>(e.attrs, "pads");
  p.dilations = ir::attr<Ints>(e.attrs, "dilations");
  p.direct = parameter_buffer(w, frame, e.args[0]) != nullptr &&
             std::all_of(p.pads.begin(), p.pads.end(), [](int64_t x) { return x == 0; });
  return p;
}

std::optional<Convolution> convolution_of(const Workload& w) {
  auto p = convolution_of_any(w);
  if (!p || (p->type != DType::kF32 && p->type != DType::kF64)) return std::nullopt;
  const std::vector<ir::Atom>& args = make_frame(w).anchor->value->args;
  const bool alike = std::all_of(args.begin(), args.end(), [&](const ir::Atom& x) {
    return ir::type_of(x)->dtype == p->type;
  });
  return alike ? p : std::nullopt;
}

ValueRef operand_element(const Workload& w, const Frame& f, size_t operand, const Dim& index) {
  const ir::Atom& a = f.anchor->value->args[operand];
  return a.is_constant() ? kb::number(f.anchor->var->type->dtype, a.constant->value(0))
                         : kb::load(parameter_buffer(w, f, a), index);
}

namespace {

class ConvLowering {
 public:
  ConvLowering(const Workload& w, const Convolution& p, const Config& c, const TargetInfo& t)
      : w_(w),
        p_(p),
        frame_(make_frame(w)),
        call_(*frame_.anchor->value),
        lanes_(lanes_of(t, p.type)),
        rows_(std::clamp<int64_t>(p.filters, 1, knob_int(c, "rows"))),  // of no filters, no tiles
        vectors_(static_cast<int>(knob_int(c, "vectors"))) {
    p_.in[2] = named("in_height", p_.in[2]);
    p_.in[3] = named("in_width", p_.in[3]);
    p_.out[2] = named("out_height", p_.out[2]);
    p_.out[3] = named("out_width", p_.out[3]);
    accumulators_ = kb::buffer("acc", kir::Scope::kRegister, p.type, rows_ * vectors_, lanes_);
    panel_ = kb::buffer("panel", kir::Scope::kRegister, p.type, vectors_, lanes_);
    if (p.direct) {
      image_ = parameter_buffer(w, frame_, call_.args[0]);
      height_ = p_.in[2];
      width_ = p_.in[3];
    } else {
      height_ = named("height", (p_.out[2] - 1) * p.strides[0] + (p.kh - 1) * p.dilations[0] + 1);
      width_ = named("width", (p_.out[3] - 1) * p.strides[1] + (p.kw - 1) * p.dilations[1] + 1);
      slack_ = lanes_ * vectors_ * p.strides[1];
      image_ = kb::buffer(
          "padded", kir::Scope::kScratch, p.type,
          ir::max((p_.in[0] * p_.in[1] * height_ * width_).substitute(values_), 0) + slack_);
    }
  }

  kir::Function run(const std::string& name) {
    std::vector<StmtRef> all;
    std::vector<kir::BufferRef> scratch;
    if (!p_.direct) {
      scratch.push_back(image_);
      all.push_back(pad());
      all.push_back(kb::barrier());
    }
    all.push_back(convolve());
    all.insert(all.begin(), names_.begin(), names_.end());
    return make_function(w_, frame_, name, std::move(scratch), {accumulators_, panel_},
                         kb::seq(std::move(all)));
  }

 private:
  // A compound extent gets a name: c * (2*h + 5) * (2*w + 5) multiplied out is many products at
  // every step of a loop, and as much work for the compiler.
  Dim named(const char* name, const Dim& d) {
    if (d.as_constant() || d.as_symbol()) return d;
    const Dim value = d.substitute(values_);
    const auto [low, high] = w_.facts.range(value);
    names_.push_back(kb::let_index(name, kb::index(value), ir::SymbolFacts{low, high, 1}));
    values_.emplace(name, value);
    return Dim::symbol(name);
  }

  // Copies the image, as the operators fused before the convolution make it, into its zeros.
  StmtRef pad() {
    GroupEvaluator group(*w_.group, frame_.parameters, "p");
    const int lanes = group.vectorizable(call_.args[0]) ? lanes_ : 1;
    std::vector<StmtRef> body;
    const std::vector<Dim> at =
        bind_coordinates("q", {p_.in[0], p_.in[1], height_}, Dim::symbol("line"), body);
    const Dim begin = ((at[0] * p_.in[1] + at[1]) * height_ + at[2]) * width_;
    const auto zeros = [&](const char* var, const Dim& from, const Dim& count) {
      return masked_loop(var, from, count, lanes_, [&](const Slice& s) {
        const ValueRef zero = kb::number(p_.type, 0, lanes_);
        return std::vector<StmtRef>{kb::store_strided(image_, begin + s.at, 1, zero, s.valid)};
      });
    };
    const Dim y = at[2] - p_.pads[0];
    const Dim left = ir::min(p_.pads[1], width_);
    const Dim here = ir::max(ir::min(p_.in[3], width_ - p_.pads[1]), 0);
    const auto loop = [&](const SliceBody& body) {
      return here.as_constant() ? vector_loop("pc", 0, here, lanes, 2, body)
                                : masked_loop("pc", 0, here, lanes, body);
    };
    StmtRef copy = loop([&](const Slice& s) {
      ValueRef v = group.value(call_.args[0], {at[0], at[1], y, s.at}, lanes, s.valid);
      std::vector<StmtRef> out = group.take_statements();
      out.push_back(kb::store_strided(image_, begin + p_.pads[1] + s.at, 1, v, s.valid));
      return out;
    });
    const kir::Condition inside = kb::both(kb::le(0, y), kb::lt(y, p_.in[2]));
    if (here.as_constant()) {
      body.push_back(kb::if_then(
          inside,
          kb::seq({zeros("pl", 0, left), std::move(copy),
                   zeros("pr", p_.pads[1] + here, ir::max(width_ - p_.pads[1] - here, 0))}),
          zeros("pz", 0, width_)));
    } else {  // a row of zeros, most of which the image replaces at once: less code than its ends
      body.push_back(zeros("pz", 0, width_));
      body.push_back(kb::if_then(inside, std::move(copy)));
    }
    // What lanes beyond the last row's end read.
    StmtRef rest =
        kb::loop(LoopKind::kThread, "slack", 0, slack_,
                 kb::store(image_, p_.in[0] * p_.in[1] * height_ * width_ + Dim::symbol("slack"),
                           kb::number(p_.type, 0)));
    return kb::seq({kb::loop(LoopKind::kThread, "line", 0, p_.in[0] * p_.in[1] * height_,
                             kb::seq(std::move(body))),
                    std::move(rest)});
  }

  StmtRef convolve() {
    if (p_.filters == 0) return kb::seq({});
    const int64_t tiles = (p_.filters + rows_ - 1) / rows_;
    const int64_t rest = p_.filters - (tiles - 1) * rows_;
    std::vector<StmtRef> body;
    const std::vector<Dim> at = bind_coordinates(
        "x", {p_.in[0], Dim(p_.groups), Dim(tiles), p_.out[2]}, Dim::symbol("item"), body);
    if (rest == rows_) {
      body.push_back(line(at, rows_));
    } else {
      StmtRef full = line(at, rows_);
      body.push_back(kb::if_then(kb::lt(at[2], tiles - 1), std::move(full), line(at, rest)));
    }
    return kb::loop(LoopKind::kThread, "item", 0, p_.in[0] * p_.groups * tiles * p_.out[2],
                    kb::seq(std::move(body)));
  }

  // One output row of `rows` channels: at = (image, group, tile, row).
  //
  // Of a width that only the run knows, every tile of columns masks what lies beyond it: the sums
  // take the time, and a copy of their code for the rest takes as long again to compile. Not where
  // a masked load of strided columns would be a gather.
  StmtRef line(const std::vector<Dim>& at, int64_t rows) {
    const int width = lanes_ * vectors_;
    const Dim full = ir::floordiv(p_.out[3], width);
    const Dim left = p_.out[3] - full * width;
    const Dim tile = Dim::symbol("ct");
    const auto tiles = [&](const Dim& count, const std::optional<Dim>& valid) {
      return kb::loop(LoopKind::kSerial, "ct", 0, count, columns(at, rows, tile * width, valid));
    };
    if (!left.as_constant() && (!p_.direct || p_.strides[1] == 1))
      return tiles(ir::ceildiv(p_.out[3], width), p_.out[3] - tile * width);
    std::vector<StmtRef> all;
    if (!full.is_constant(0)) all.push_back(tiles(full, std::nullopt));
    if (!left.is_constant(0)) {
      StmtRef tail = columns(at, rows, full * width, left);
      all.push_back(left.as_constant() ? tail : kb::if_then(kb::lt(0, left), tail));
    }
    return kb::seq(std::move(all));
  }

  StmtRef columns(const std::vector<Dim>& at, int64_t rows, const Dim& first,
                  const std::optional<Dim>& left) {
    const Dim channel0 = at[1] * p_.filters + at[2] * rows_;
    const Dim r = Dim::symbol("r"), v = Dim::symbol("v");
    const auto unrolled = [](const char* var, int64_t n, StmtRef s) {
      return kb::loop(LoopKind::kUnroll, var, 0, n, std::move(s));
    };
    const auto valid = [&](const Dim& vector) {
      return left ? std::optional<Dim>(*left - vector * lanes_) : std::nullopt;
    };
    const auto acc = [&] { return kb::reg(accumulators_, r * vectors_ + v); };
    ValueRef start = kb::number(p_.type, 0, lanes_);
    if (call_.args.size() == 3)
      start = kb::broadcast(operand_element(w_, frame_, 2, channel0 + r), lanes_);
    StmtRef init = unrolled(
        "r", rows, unrolled("v", vectors_, kb::set_reg(accumulators_, r * vectors_ + v, start)));

    const Dim c = Dim::symbol("c"), y = Dim::symbol("y"), x = Dim::symbol("x");
    const Dim row = at[3] * p_.strides[0] + y * p_.dilations[0];
    const Dim column = (first + v * lanes_) * p_.strides[1] + x * p_.dilations[1];
    const Dim index =
        ((at[0] * p_.in[1] + at[1] * p_.channels + c) * height_ + row) * width_ + column;
    StmtRef load = unrolled("v", vectors_,
                            kb::set_reg(panel_, v,
                                        kb::load_strided(image_, index, p_.strides[1], lanes_,
                                                         p_.direct ? valid(v) : std::nullopt)));
    const Dim weight = (((channel0 + r) * p_.channels + c) * p_.kh + y) * p_.kw + x;
    StmtRef multiply = unrolled(
        "r", rows,
        kb::seq({kb::let("w", kb::broadcast(operand_element(w_, frame_, 1, weight), lanes_)),
                 unrolled("v", vectors_,
                          kb::set_reg(accumulators_, r * vectors_ + v,
                                      kb::fma(kb::local("w", p_.type, lanes_), kb::reg(panel_, v),
                                              acc())))}));
    // Small windows are unrolled along their rows, unless the tile alone is work enough for a loop:
    // more code takes longer to compile and runs no faster.
    constexpr int64_t kEnough = 64;  // products in a straight stretch
    const LoopKind inner =
        rows * vectors_ * p_.kw <= kEnough ? LoopKind::kUnroll : LoopKind::kSerial;
    StmtRef sum = kb::loop(
        LoopKind::kSerial, "c", 0, p_.channels,
        kb::loop(LoopKind::kSerial, "y", 0, p_.kh,
                 kb::loop(inner, "x", 0, p_.kw, kb::seq({std::move(load), std::move(multiply)}))));
    StmtRef stores = unrolled(
        "r", rows,
        unrolled("v", vectors_,
                 store_results(w_, frame_, acc(), {at[0], channel0 + r, at[3], first + v * lanes_},
                               lanes_, valid(v), "o")));
    return kb::seq({std::move(init), std::move(sum), std::move(stores)});
  }

  const Workload& w_;
  Convolution p_;
  Frame frame_;
  const ir::Expr& call_;
  std::vector<StmtRef> names_;         // of compound extents, bound before all else
  std::map<std::string, Dim> values_;  // theirs, over the contract's symbols
  int lanes_;
  int64_t rows_;
  int vectors_;
  kir::BufferRef image_, accumulators_, panel_;
  Dim height_, width_;
  int64_t slack_ = 0;
};

}  // namespace

bool Conv2dTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return convolution_of(w).has_value();
}

std::vector<Knob> Conv2dTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("rows", {1, 2, 4, 6, 8, 12, 16, 24}), int_knob("vectors", {1, 2})};
}

bool Conv2dTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  if (!within(knobs(w, t), c)) return false;
  const auto p = convolution_of(w);
  const int64_t rows = knob_int(c, "rows");
  // Larger tiles than there are filters would be equal configurations under other names.
  return p && rows <= max_tile_rows(t, knob_int(c, "vectors")) && (rows == 1 || rows <= p->filters);
}

Config Conv2dTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = convolution_of(w);
  NIMBLE_CHECK(p, "conv2d does not serve {}", w.key);
  // Of a width that only the run knows, one vector: images shrink on their way through a network,
  // so most of its convolutions have rows of few vectors, and a second one would mostly be masked.
  // Its sums of twelve channels hide the latency of a product, and more are longer to compile.
  const auto columns = p->out[3].as_constant();
  const int64_t vectors = columns && *columns > lanes_of(t, p->type) ? 2 : 1;
  const int64_t highest = std::min<int64_t>(max_tile_rows(t, vectors), columns ? 24 : 12);
  int64_t most = 1;
  for (int64_t r : {2, 4, 6, 8, 12, 16, 24})
    if (r <= p->filters && r <= highest) most = r;
  // A tile somewhat lower that leaves no rest needs no second copy of the code for it, in which
  // most registers would be idle.
  int64_t rows = most;
  for (int64_t r : {4, 6, 8, 12, 16, 24})
    if (r < most && 3 * r >= 2 * most && p->filters % most != 0 && p->filters % r == 0) rows = r;
  return {{"rows", rows}, {"vectors", vectors}};
}

Lowered Conv2dTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                              const std::string& name) const {
  const auto plan = convolution_of(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of conv2d", to_json(c));
  return one_kernel(ConvLowering(w, *plan, c, t).run(name));
}

}  // namespace nimble::kernels
