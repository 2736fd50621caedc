// The template "gpu_conv_product": convolutions of NCHW images on a GPU as products, by the units,
// tiles and copies of "gpu_matmul".
//
// The weights are the lhs as they lie: a row for each filter, of its taps channel by channel. A
// column of the rhs is what one position of the result sees of its image, its patch, and all
// images' positions follow one another, so that small images fill a tile together. No patch is ever
// made in global memory: a block's copies bring each element of a tile from where it lies in the
// image, and zeros for what lies in the padding. Groups are the product's batch.
//
// A tile of the rhs lies across k, so neighbouring threads bring neighbouring positions, which are
// neighbours in memory too, but for a stride and the rows' ends. A thread keeps its positions from
// step to step. It knows of each where its patch begins, and as two rows of bits which rows and
// columns of taps lie inside of the image; what a tap takes then is two shifts and its distance.
// Single taps without strides and padding are matrices as they lie: of those several positions are
// copied at once.
//
// What has too few filters or taps for tiles is "gpu_conv2d"'s: depthwise convolutions, above all.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/kernels/templates/conv2d.h"
#include "compiler/kernels/templates/gpu.h"
#include "compiler/kernels/templates/gpu_loops.h"
#include "compiler/kernels/templates/gpu_matmul.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace gpu {
namespace {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::BufferRef;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;

constexpr int64_t kFewest = 16;  // filters of a group, and terms of a sum: less leaves tiles empty
constexpr int64_t kMostTapsOfAxis = 30;  // that a row of bits has room for

// What is known of a convolution, and its extents by name.
struct Image : Convolution {
  Dim height, width, out_width, positions, plane, columns;
  int vector = 1;  // positions that are copied at once

  int64_t taps() const { return kh * kw; }
  int64_t k() const { return channels * taps(); }
  bool padded() const {
    return std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p != 0; });
  }
  // Whether a channel's patches are the channel.
  bool is_matrix() const {
    return taps() == 1 && !padded() &&
           std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 1; });
  }
};

// Number `column` of all images' positions as image, row and column, by the symbols `name` + …
struct Position {
  Dim image, row, column;
};
Position bind_position(const Image& of, const std::string& name, const Dim& column,
                       std::vector<StmtRef>& out) {
  const auto bound = [&](const char* what, const Dim& d) {
    out.push_back(let(name + what, d));
    return Dim::symbol(name + what);
  };
  const Dim image = bound("image", ir::floordiv(column, of.positions));
  const Dim place = bound("place", ir::mod(column, of.positions));
  return {image, bound("row", ir::floordiv(place, of.out_width)),
          bound("column", ir::mod(place, of.out_width))};
}

// ---------------------------------------------------------------- the tile of patches

class PatchTile final : public SharedTile {
 public:
  PatchTile(const Image& image, const Form& form, std::string name, BufferRef shared, int64_t base,
            int threads, const Dim& part)
      : SharedTile(form, std::move(name), std::move(shared), base, threads, part), of_(image) {}

  void prepare(const Workload&, std::vector<StmtRef>& out) const override {
    bind_copier(out);
    for (int i = 0; i < positions(); ++i) prepare_position(i, out);
  }

  StmtRef fill(const Workload&, const Dim& slot, const Dim& step) const override {
    constexpr int64_t kStraight = 8;  // rows whose copies stand one after the other
    const int rows = rows_at_once(), rounds = (form_.part_outer() + rows - 1) / rows;
    const Dim outer = symbol("outer") + symbol("round") * rows;
    std::vector<StmtRef> all;
    all.push_back(let(name_ + "k", step * form_.k_step + outer, {0, last_k(), 1}));
    const Dim to = base_ + slot * form_.stage() + outer * form_.pitch() + symbol("inner");
    const Tap tap = bind_tap(all);
    // Of what lies behind the last tap there are zeros, as there are of the weights.
    const Dim there = of_.k() % form_.k_step == 0 ? Dim(1) : any_of(of_.k() - symbol("k"));
    for (int i = 0; i < positions(); ++i) {
      std::optional<Dim> valid;
      if (of_.padded())
        valid = bind_inside(i, tap, all) * there;
      else if (const Dim some = has_column(i) * there; !some.is_constant(1))
        valid = some * form_.vector;
      all.push_back(
          bring(to + i * threads_ * form_.vector, numbered("from", i) + tap.distance, valid));
    }
    StmtRef row = kb::seq(std::move(all));
    if (form_.part_outer() % rows != 0)
      row = kb::if_then(kb::lt(outer, (part_ + 1) * form_.slice()), std::move(row));
    return stretched_loop(name_ + "round", rounds, kStraight, std::move(row));
  }

 private:
  struct Tap {
    Dim row, column, distance;  // the last one in elements from the patch's first
  };

  Dim numbered(const char* what, int position) const {
    return symbol(what + std::to_string(position));
  }
  // Vectors of a row that a thread copies.
  int positions() const { return std::max(1, form_.part_inner() / form_.vector / threads_); }
  int64_t last_k() const { return (of_.k() + form_.k_step - 1) / form_.k_step * form_.k_step - 1; }
  bool all_columns() const {
    const auto columns = extent_.as_constant();
    return columns && *columns % form_.wide == 0;
  }
  // 1 where a thread's position is one of the result's.
  Dim has_column(int i) const { return all_columns() ? Dim(1) : numbered("here", i); }

  // Binds where a patch begins, and which of its rows and columns of taps lie inside.
  void prepare_position(int i, std::vector<StmtRef>& out) const {
    const std::string name = fmt::format("{}at{}_", name_, i);
    out.push_back(let(name + "number", first_ + symbol("inner") + i * threads_ * form_.vector,
                      {0, INT64_MAX, form_.vector}));
    const Dim number = Dim::symbol(name + "number");
    if (!all_columns())
      out.push_back(
          let(fmt::format("{}here{}", name_, i), any_of(of_.columns - number), {0, 1, 1}));
    const std::string from = fmt::format("{}from{}", name_, i);
    const auto origin = [&](const Dim& image) { return image * of_.in[1] * of_.plane + matrix_; };
    if (of_.is_matrix()) {
      out.push_back(let(name + "image", ir::floordiv(number, of_.positions)));
      const Dim in_image = ir::mod(number, of_.positions);
      out.push_back(
          let(from, origin(Dim::symbol(name + "image")) + in_image, {0, INT64_MAX, form_.vector}));
      return;
    }
    const Position at = bind_position(of_, name, number, out);
    const Dim y = at.row * of_.strides[0] - of_.pads[0];
    const Dim x = at.column * of_.strides[1] - of_.pads[1];
    out.push_back(let(from, origin(at.image) + y * of_.width + x, {INT64_MIN, INT64_MAX, 1}));
    if (!of_.padded()) return;
    // The n-th bit is 1 where that tap lies inside.
    const auto bind_bits = [&](const char* what, const Dim& first, int64_t dilation, int64_t taps,
                               const Dim& extent, const Dim& of) {
      Dim bits = 0;
      for (int64_t n = 0; n < taps; ++n) {
        const Dim tap = first + n * dilation;
        bits = bits + (int64_t{1} << n) * of * any_of(ir::min(tap + 1, extent - tap));
      }
      out.push_back(
          let(fmt::format("{}{}{}", name_, what, i), bits, {0, (int64_t{1} << taps) - 1, 1}));
    };
    bind_bits("rows", y, of_.dilations[0], of_.kh, of_.height, has_column(i));
    bind_bits("columns", x, of_.dilations[1], of_.kw, of_.width, 1);
  }

  // Which tap of which channel the symbol `k` is.
  Tap bind_tap(std::vector<StmtRef>& out) const {
    const Dim k = symbol("k");
    if (of_.taps() == 1) return {0, 0, k * of_.plane};
    const auto bound = [&](const char* what, const Dim& d, int64_t last) {
      out.push_back(let(name_ + what, d, {0, last, 1}));
      return symbol(what);
    };
    const Dim channel = bound("channel", ir::floordiv(k, of_.taps()), last_k() / of_.taps());
    const Dim tap = bound("tap", ir::mod(k, of_.taps()), of_.taps() - 1);
    const Dim row = of_.kh == 1   ? Dim(0)
                    : of_.kw == 1 ? tap
                                  : bound("ky", ir::floordiv(tap, of_.kw), of_.kh - 1);
    const Dim column = of_.kw == 1   ? Dim(0)
                       : of_.kh == 1 ? tap
                                     : bound("kx", ir::mod(tap, of_.kw), of_.kw - 1);
    return {row, column,
            channel * of_.plane + row * of_.dilations[0] * of_.width + column * of_.dilations[1]};
  }

  // 1 where the tap of a thread's position lies inside of the image.
  Dim bind_inside(int i, const Tap& tap, std::vector<StmtRef>& out) const {
    const auto number = [](const Dim& d) { return kb::cast(DType::kI32, kb::index(d)); };
    const auto bits = [&](const char* what, const Dim& from) {
      return kb::binary(BinaryOp::kShr, number(numbered(what, i)), number(from));
    };
    const ValueRef both =
        kb::binary(BinaryOp::kAnd, bits("rows", tap.row), bits("columns", tap.column));
    const std::string name = fmt::format("{}inside{}", name_, i);
    out.push_back(kb::let_index(name, kb::binary(BinaryOp::kAnd, both, kb::integer(DType::kI32, 1)),
                                ir::SymbolFacts{0, 1, 1}));
    return Dim::symbol(name);
  }

  const Image& of_;
};

// ---------------------------------------------------------------- the product

class ImplicitConvolution final : public Implicit {
 public:
  ImplicitConvolution(const Workload& w, const Frame& frame, const Convolution& of)
      : w_(w), frame_(frame), extents_(w), of_{of, {}, {}, {}, {}, {}, {}} {
    // The divisions by these are defined, also where there is nothing to divide.
    const auto positive = [](const Dim& d) { return d.as_constant() ? d : ir::max(d, 1); };
    of_.height = extents_("height", of.in[2]);
    of_.width = extents_("width", of.in[3]);
    of_.plane = extents_("plane", of.in[2] * of.in[3]);
    of_.out_width = extents_("out_width", positive(of.out[3]));
    of_.positions = extents_("positions", positive(of.out[2] * of.out[3]));
    of_.columns = extents_("columns", columns());
    const ir::Expr& call = *frame.anchor->value;
    if (of_.is_matrix())
      of_.vector = copy_elements(w, ir::type_of(call.args[0])->dtype, of.out[2] * of.out[3]);
  }

  Dim columns() const { return of_.in[0] * of_.out[2] * of_.out[3]; }

  int vector() const override { return of_.vector; }
  std::vector<StmtRef> prologue() const override { return extents_.statements(); }

  Dim origin(const std::vector<Dim>& batch) const override {
    return batch.empty() ? Dim(0) : batch[0] * of_.channels * of_.plane;
  }

  std::unique_ptr<SharedTile> tile(const SharedTile::Form& form, std::string name, BufferRef shared,
                                   int64_t base, int threads, const Dim& part) const override {
    return std::make_unique<PatchTile>(of_, form, std::move(name), std::move(shared), base, threads,
                                       part);
  }

  // Of a row of the result.
  int columns_at_once(int most) const override { return dividing_lanes(w_, of_.out[3], most); }

  void bind_column(const Dim& column, std::vector<StmtRef>& out) const override {
    bind_position(of_, kResult, column, out);
  }

  StmtRef store(const std::vector<Dim>& batch, const Dim& row, ValueRef value) const override {
    const int lanes = value->lanes;
    const Dim channel = batch.empty() ? row : batch[0] * of_.filters + row;
    const std::vector<ir::Atom>& args = frame_.anchor->value->args;
    if (args.size() == 3) {
      const ir::Atom& bias = args[2];
      const ValueRef one = bias.is_constant()
                               ? constant_of(bias)
                               : kb::load(parameter_buffer(w_, frame_, bias), channel);
      value = kb::add(std::move(value), kb::broadcast(one, lanes));
    }
    const auto symbol = [](const char* what) { return Dim::symbol(kResult + std::string(what)); };
    return store_results(w_, frame_, std::move(value),
                         {symbol("image"), channel, symbol("row"), symbol("column")}, lanes,
                         std::nullopt, "e_");
  }

 private:
  static constexpr const char* kResult = "out_";

  ValueRef constant_of(const ir::Atom& a) const {
    return is_float(of_.type) ? kb::number(of_.type, a.constant->value(0))
                              : kb::integer(of_.type, a.constant->integer(0));
  }

  const Workload& w_;
  const Frame frame_;
  NamedExtents extents_;
  Image of_;
};

std::optional<Product> analyse_convolution(const Workload& w, const TargetInfo& t) {
  if (!t.is_gpu()) return {};
  const auto of = convolution_of_any(w);
  if (!of || of->filters < kFewest || of->channels * of->kh * of->kw < kFewest) return {};
  if (std::max(of->kh, of->kw) > kMostTapsOfAxis) return {};
  Product p;
  p.frame = make_gpu_frame(w);
  const std::vector<ir::Atom>& args = p.frame.anchor->value->args;
  p.lhs = parameter_buffer(w, p.frame, args[1]);
  p.rhs = parameter_buffer(w, p.frame, args[0]);
  p.sum = of->type;
  if (!p.lhs || !p.rhs || !has_units(p)) return {};
  const auto convolution = std::make_shared<ImplicitConvolution>(w, p.frame, *of);
  p.m = of->filters;
  p.k = of->channels * of->kh * of->kw;
  p.n = convolution->columns();
  // Without a result there is nothing to divide blocks into.
  if (p.n.is_constant(0)) return {};
  if (of->groups > 1) p.batch = p.lhs_batch = {Dim(of->groups)};
  p.implicit = convolution;
  p.fragment = fragment_for(p, t);
  return p;
}

}  // namespace
}  // namespace gpu

bool GpuConvProductTemplate::accepts(const Workload& w, const TargetInfo& t) const {
  return gpu::analyse_convolution(w, t).has_value();
}

std::vector<Knob> GpuConvProductTemplate::knobs(const Workload& w, const TargetInfo& t) const {
  const auto p = gpu::analyse_convolution(w, t);
  NIMBLE_CHECK(p, "workload {} is not for gpu_conv_product", w.key);
  return gpu::knobs_of(w, *p, t);
}

bool GpuConvProductTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  const auto p = gpu::analyse_convolution(w, t);
  return p && gpu::suits(w, *p, c, t);
}

Config GpuConvProductTemplate::default_config(const Workload& w, const TargetInfo& t) const {
  const auto p = gpu::analyse_convolution(w, t);
  NIMBLE_CHECK(p, "workload {} is not for gpu_conv_product", w.key);
  return gpu::default_of(w, *p, t);
}

Lowered GpuConvProductTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                                      const std::string& name) const {
  const auto p = gpu::analyse_convolution(w, t);
  NIMBLE_CHECK(p && gpu::suits(w, *p, c, t), "configuration {} of gpu_conv_product", to_json(c));
  return gpu::one_gpu_kernel(gpu::lower_tiles(w, *p, gpu::schedule_of(c), name));
}

}  // namespace nimble::kernels
