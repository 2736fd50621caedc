// Constant matrices are laid out as the templates read them (design: one layout per constant and
// target; the entries of a dispatch table vary the schedule only). The packing itself is an
// operator on a constant, so the next fold-constants does it at compile time.
//
// The templates know the widths that suit their register tiles and the number of columns; a
// recurrent cell takes one vector of units with all its gates. The weights of a convolution of
// channels-last images are a matrix as they stand, (kh * kw * c_in, c_out); where its windows are
// single pixels side by side, it is a product of the pixels' rows with that matrix. Of several
// groups each is a matrix of its own, whose panels are filled up with zeros. Where an image of few
// channels is only transposed for the convolution, that reads it as it was; an image that is joined
// of several for a convolution of fewer channels is read where these lie, which a product cannot.
// Of narrow operands the image is cast ahead of the transposition then, and the weights of missing
// channels are zeros.
// Products of narrow operands (set-precision, quantise-products) have their rows packed in groups,
// and keep their wide result. Where a target multiplies bytes in groups of four only if the weights
// among them are small, their sizes are looked at here: what keeps that bound is packed so and says
// so (max_weight); all others are packed for pairs of i16. Weights with scales by blocks are
// repacked here, since they are no matrix of elements.
#include "compiler/passes/pack_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "compiler/ir/blockwise.h"
#include "compiler/ir/image_layout.h"
#include "compiler/ir/largest_weight.h"
#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/templates/blockwise.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Expr;
using Ints = std::vector<int64_t>;

// A constant that can be laid out anew, of so many axes.
bool is_packable(const Atom& a, DType type, size_t rank) {
  return a.is_constant() && a.constant->dtype == type && a.constant->shape.size() == rank &&
         std::all_of(a.constant->shape.begin(), a.constant->shape.end(),
                     [](int64_t extent) { return extent > 0; });
}

// Whether each pixel of the result is made from the pixel in its place alone.
bool is_product_of_pixels(const Expr& e) {
  const auto all = [&](const char* name, int64_t v) {
    const auto& values = ir::attr<Ints>(e.attrs, name);
    return std::all_of(values.begin(), values.end(), [&](int64_t x) { return x == v; });
  };
  const Ints& weights = e.args[1].constant->shape;
  return ir::attr<int64_t>(e.attrs, "groups") == 1 && weights[0] == 1 && weights[1] == 1 &&
         all("strides", 1) && all("pads", 0);
}

// Whether the images are joined of several, channels behind channels, for this convolution alone,
// and it makes fewer channels of them: of many, the product is worth more than the copy costs.
bool is_joined_for(const Expr& e, const Definitions& definitions, const UseCounts& uses) {
  const Atom& images = e.args[0];
  const Expr* joined = definition(definitions, images, "concat");
  if (!joined) return false;
  const auto last = static_cast<int64_t>(ir::type_of(images)->dims.size()) - 1;
  const Ints& weights = e.args[1].constant->shape;
  return ir::attr<int64_t>(joined->attrs, "axis") == last && uses.at(images.var.get()) == 1 &&
         weights[3] < weights[2];
}

// The bound of what the target multiplies rows of a type by (kernels::weight_bound), if constant
// weights keep it; else 0. It is asked of each weight, though two in a row would do that are 128
// together: quantisers that know of it make all of them so.
int64_t kept_bound(const ir::Tensor& weights, DType rows, const kernels::TargetInfo& target) {
  const auto bound_within = [&](int64_t most) {
    return kernels::weight_bound(target, rows, weights.dtype, most);
  };
  if (weights.dtype != DType::kI8 || bound_within(0) == 0) return 0;
  return bound_within(ir::largest_weight(weights));
}

// The largest size of weights for which a layout is asked.
int64_t most_of(int64_t bound) {
  return bound > 0 ? bound : kir::kAnyWeight;
}

// A convolution of channels-last images of a type and HWIO weights of this shape and type as one
// with packed weights: its call, without operands, and their type. Operand 1 of `e` is a constant.
struct PackedConvolution {
  ir::ExprRef call;
  ir::Layout layout;
  ir::Type weights;
  bool planes;  // whether it reads its images channels first
};
PackedConvolution packed_convolution(const Expr& e, const Ints& shape, DType pixels, DType type,
                                     bool planes, const kernels::TargetInfo& target) {
  const int64_t taps = shape[0] * shape[1], n = shape[3];
  const auto groups = ir::attr<int64_t>(e.attrs, "groups");
  const int64_t per_group = n / groups;
  const auto layout_within = [&](int64_t bound) {
    return *ir::parse_layout(
        kernels::conv2d_nhwc_layout(target, pixels, type, per_group, most_of(bound)));
  };
  const ir::Tensor& weights = *e.args[1].constant;
  int64_t bound = weights.dtype == type ? kept_bound(weights, pixels, target) : 0;
  // A pixel's channels are whole groups. Pairs need an even number of them only.
  if (bound > 0 && !planes && shape[2] % layout_within(bound).group != 0) bound = 0;
  const ir::Layout layout = layout_within(bound);
  // Whole groups are read as they lie: matrix registers may take them.
  planes &= layout.group == 1 || shape[2] % layout.group != 0;
  ir::Attrs attrs = {
      {"kernel", Ints{shape[0], shape[1]}}, {"filters", n}, {"layout", layout.str()}};
  for (const char* same : {"strides", "pads", "dilations", "groups", "skip_padding", "out"})
    if (const auto it = e.attrs.find(same); it != e.attrs.end()) attrs[same] = it->second;
  if (bound > 0) attrs["max_weight"] = bound;
  if (planes) attrs["image_layout"] = std::string("nchw");
  const ir::Dim k = planes ? layout.rows_of_planes(shape[2], taps) : ir::Dim(taps * shape[2]);
  const int64_t panels = (per_group + layout.width - 1) / layout.width;
  return {ir::make_call("packed_conv2d", {}, std::move(attrs)), layout,
          ir::tensor_type(layout.packed_dims(k, panels * layout.width * groups), type), planes};
}

// The type of channels-last images with the channels first.
ir::Type planes_type(const ir::Type& nhwc) {
  const std::vector<ir::Dim>& d = nhwc->dims;
  return ir::tensor_type({d[0], d[3], d[1], d[2]}, nhwc->dtype);
}

// Whether a kernel takes it, of operands as the convolution has them.
bool has_kernel_for(const PackedConvolution& packed, std::vector<ir::Type> operands,
                    const ir::Type& result, PassContext& context) {
  if (packed.planes) operands[0] = planes_type(operands[0]);
  operands[1] = packed.weights;
  return has_kernel(*packed.call, operands, result, context.target, context);
}

// A depthwise one, also of a single channel, has rows of one element.
bool is_depthwise(const Expr& e, const Ints& shape) {
  return shape[2] == 1 && shape[3] == ir::attr<int64_t>(e.attrs, "groups");
}

// Whether a convolution's images have so few channels that a pixel's make no stretch of memory.
bool has_few_channels(const Expr& e, const Ints& shape) {
  constexpr int64_t kFew = 4;
  return ir::attr<int64_t>(e.attrs, "groups") == 1 && shape[2] <= kFew;
}

// The matrix that a convolution's constant weights are, of several groups side by side, each with
// zeros behind its columns up to a multiple of `width`. Rows are taps and channels.
Atom filters(const Expr& e, int64_t width, ir::BlockBuilder& o) {
  using Dims = std::vector<ir::Dim>;
  const auto call = [&](const char* op, const Atom& a, ir::Attrs attrs) -> Atom {
    return o.call(op, {a}, std::move(attrs), "filters", e.location);
  };
  const Ints& shape = e.args[1].constant->shape;
  const auto groups = ir::attr<int64_t>(e.attrs, "groups");
  const int64_t k = shape[0] * shape[1] * shape[2], columns = shape[3] / groups;
  Atom w = e.args[1];
  const int64_t missing = groups > 1 ? (width - columns % width) % width : 0;
  if (missing == 0) return call("reshape", w, {{"shape", Dims{k, shape[3]}}});
  w = call("reshape", w, {{"shape", Dims{k, groups, columns}}});
  w = call("pad", w, {{"before", Dims{0, 0, 0}}, {"after", Dims{0, 0, missing}}, {"value", 0.0}});
  return call("reshape", w, {{"shape", Dims{k, groups * (columns + missing)}}});
}

// The same for images that are read plane by plane: rows are groups of channels, each of all taps,
// with zeros for channels that are missing in the last (ir::Layout::row_of_plane).
Atom plane_filters(const Expr& e, int64_t group, ir::BlockBuilder& o) {
  using Dims = std::vector<ir::Dim>;
  const auto call = [&](const char* op, const Atom& a, ir::Attrs attrs) -> Atom {
    return o.call(op, {a}, std::move(attrs), "filters", e.location);
  };
  const Ints& shape = e.args[1].constant->shape;
  const int64_t all = (shape[2] + group - 1) / group, missing = all * group - shape[2];
  Atom w = e.args[1];
  if (missing > 0)
    w = call("pad", w, {{"before", Dims(4, 0)}, {"after", Dims{0, 0, missing, 0}}, {"value", 0.0}});
  w = call("reshape", w, {{"shape", Dims{shape[0], shape[1], all, group, shape[3]}}});
  w = call("transpose", w, {{"axes", Ints{2, 0, 1, 3, 4}}});
  return call("reshape", w, {{"shape", Dims{all * shape[0] * shape[1] * group, shape[3]}}});
}

// Zero points as u8, as the kernels take them. Nothing if one is no number of `bits`.
ir::TensorRef whole_zeros(const ir::TensorRef& zeros, int64_t bits) {
  if (zeros->dtype == DType::kU8) return zeros;
  std::vector<uint8_t> whole;
  for (int64_t i = 0; i < zeros->elements(); ++i) {
    const double v = zeros->value(i);
    if (!(v >= 0 && v < std::exp2(bits)) || v != std::floor(v)) return nullptr;
    whole.push_back(static_cast<uint8_t>(v));
  }
  return ir::Tensor::of<uint8_t>(DType::kU8, zeros->shape, whole);
}

// Operands that were packed already, by the constant, its number, and the bits and rows that decide
// with its shape how: what two products share is packed once.
using PackedOperands =
    std::map<std::tuple<const ir::Tensor*, size_t, int64_t, int64_t>, ir::TensorRef>;

// The operands of a product behind the first, with scales by blocks, laid out for its kernel as
// `attrs` says from then on. Empty if one is not known, or has a form that no kernel takes.
std::vector<Atom> packed_blocks(const Expr& e, const kernels::TargetInfo& target, ir::Attrs& attrs,
                                PackedOperands& packed) {
  if (attrs.contains("layout") ||
      !std::all_of(e.args.begin() + 1, e.args.end(), [](const Atom& a) { return a.is_constant(); }))
    return {};
  const ir::Blockwise from = ir::blockwise_of(attrs);
  attrs["layout"] = kernels::blockwise_layout(target, from.bits, from.n);
  const ir::Blockwise to = ir::blockwise_of(attrs);
  std::vector<Atom> out;
  for (size_t i = 1; i < e.args.size(); ++i) {
    const ir::TensorRef& given = e.args[i].constant;
    ir::TensorRef& made = packed[{given.get(), i, from.bits, from.k}];
    if (!made) {
      const ir::TensorRef t = i == 3 ? whole_zeros(given, from.bits) : given;
      if (!t) return {};
      made = i == 1 ? ir::repack_weights(*t, from, to) : ir::repack_scales(*t, from, to);
    }
    out.push_back(Atom::of(made));
  }
  return out;
}

// The step number of the loop around a cell: the index with which its input row is taken, through
// element-wise operators, else the first scalar integer parameter, else 0. It only sets the
// direction of the walk over the weights, so any value is right.
Atom step_of(const ir::Function& f, const Definitions& definitions, const Expr& cell) {
  Atom input = cell.args[0];
  for (int hops = 0; hops < 8; ++hops) {
    const Expr* e = definition(definitions, input);
    if (!e || e->args.empty()) break;
    if (e->op == "take_row") return e->args[1];
    input = e->args[0];
  }
  for (const ir::VarRef& p : f.parameters)
    if (is_scalar(p->type) && p->type->kind == ir::TypeKind::kTensor &&
        p->type->dtype == DType::kI64)
      return p;
  return Atom::of(ir::Tensor::scalar_i64(0));
}

}  // namespace

bool is_packable_product(const Expr& e, DType rows, DType weights) {
  return is_packable(e.args[1], weights, 2) && !ir::attr_or(e.attrs, "transpose_a", false) &&
         ir::type_of(e.args[0])->dtype == rows && ir::type_of(e.args[0])->dims.size() >= 2;
}

bool is_packable_convolution(const Expr& e, DType image, DType weights) {
  if (!is_packable(e.args[1], weights, 4) || !ir::image_layout_of(e.attrs).channels_last() ||
      ir::type_of(e.args[0])->dtype != image)
    return false;
  return !is_depthwise(e, e.args[1].constant->shape);
}

std::optional<Atom> planes_of(const Expr& e, const Definitions& definitions) {
  if (!has_few_channels(e, e.args[1].constant->shape) || is_product_of_pixels(e))
    return std::nullopt;
  const Expr* turn = definition(definitions, e.args[0], "cast");
  turn = definition(definitions, turn ? turn->args[0] : e.args[0], "transpose");
  if (!turn || ir::attr<Ints>(turn->attrs, "axes") != Ints{0, 2, 3, 1}) return std::nullopt;
  return turn->args[0];
}

bool has_packed_kernel(const Expr& e, const std::vector<ir::Type>& operands, const ir::Type& result,
                       PassContext& context) {
  if (!context.packs_weights() || ir::traits_of(e).packs != ir::Packs::kFilters ||
      !e.attrs.contains("out") || !e.args[1].is_constant() ||
      !ir::image_layout_of(e.attrs).channels_last())
    return false;
  Ints shape;
  for (const ir::Dim& d : operands[1]->dims) shape.push_back(d.as_constant().value_or(0));
  if (std::find(shape.begin(), shape.end(), 0) != shape.end() || is_depthwise(e, shape))
    return false;
  const PackedConvolution packed = packed_convolution(
      e, shape, operands[0]->dtype, operands[1]->dtype, has_few_channels(e, shape), context.target);
  return has_kernel_for(packed, operands, result, context);
}

bool is_packable_cell(const Expr& e, DType weights) {
  return is_packable(e.args[ir::traits_of(e).cell->weights], weights, 2);
}

ir::Module pack_weights(const ir::Module& m, PassContext& context) {
  if (!context.packs_weights()) return m;
  const ir::Layout gates =
      *ir::parse_layout(kernels::recurrent_layout(context.target, DType::kF32));
  ir::Module out = m;
  PackedOperands blocks;  // of the module
  for (auto& [name, f] : out.functions) {
    Definitions definitions = definitions_of(*f);
    const UseCounts uses = count_uses(*f->body);
    Definitions rewritten;  // of what stays, reading what was put in place of its operands
    Rewriter rewriter([&, function = f](const ir::Binding& b,
                                        ir::BlockBuilder& o) -> std::optional<Atom> {
      const Expr& e = *b.value;
      rewritten[b.var.get()] = &e;
      const auto pack = [&](const Atom& w, const ir::Layout& layout, bool transpose) {
        context.count("pack-weights.packed");
        return o.call("pack", {w}, {{"layout", layout.str()}, {"transpose", transpose}}, "packed",
                      e.location);
      };
      const auto panels = [&](const std::string& layout) { return *ir::parse_layout(layout); };
      // The value in place of the binding's. The next product in a row asks for its type.
      const auto call = [&](const char* op, std::vector<Atom> args, ir::Attrs attrs) -> Atom {
        ir::VarRef y = o.call(op, std::move(args), std::move(attrs), b.var->name, e.location);
        y->type = b.var->type;
        return y;
      };
      const auto cast = [&](const Atom& x, DType type) -> Atom {
        if (ir::type_of(x)->dtype == type) return x;
        const std::string name = x.is_var() ? x.var->name : b.var->name;
        const ir::VarRef y = o.call("cast", {x}, {{"dtype", type}}, name, e.location);
        y->type = ir::tensor_type(ir::type_of(x)->dims, type);
        return y;
      };
      const auto product = [&](const Atom& x, const Atom& w, int64_t k, int64_t n,
                               bool transpose) -> Atom {
        const ir::Layout layout = panels(kernels::dense_layout(context.target, DType::kF32, n));
        return call("packed_matmul", {x, pack(w, layout, transpose)},
                    {{"k", k}, {"n", n}, {"layout", layout.str()}});
      };
      // Of operands narrower than the result, where a kernel takes these packed: a matrix that the
      // constant operand 1 is.
      const auto narrow_product = [&](const Atom& x, const Atom& w, int64_t k, int64_t n,
                                      bool transpose) -> std::optional<Atom> {
        const ir::Type in = ir::type_of(x);
        const DType type = e.args[1].constant->dtype;
        const int64_t bound = kept_bound(*e.args[1].constant, in->dtype, context.target);
        const ir::Layout layout =
            panels(kernels::dense_layout(context.target, in->dtype, type, n, most_of(bound)));
        ir::Attrs attrs = {
            {"k", k}, {"n", n}, {"layout", layout.str()}, {"out", b.var->type->dtype}};
        if (bound > 0) attrs["max_weight"] = bound;
        const ir::ExprRef packed = ir::make_call("packed_matmul", {}, std::move(attrs));
        const ir::Type weights = ir::tensor_type(layout.packed_dims(k, n), type);
        if (!has_kernel(*packed, {in, weights}, b.var->type, context.target, context))
          return std::nullopt;
        return call("packed_matmul", {x, pack(w, layout, transpose)}, packed->attrs);
      };
      switch (ir::traits_of(e).packs) {
        case ir::Packs::kNothing:
        case ir::Packs::kInKernel:
          return std::nullopt;
        case ir::Packs::kMatrix: {
          const DType rows = ir::type_of(e.args[0])->dtype;
          if (!is_packable_product(e, rows, ir::type_of(e.args[1])->dtype)) return std::nullopt;
          const bool transpose = ir::attr_or(e.attrs, "transpose_b", false);
          const Ints& shape = e.args[1].constant->shape;
          const int64_t k = shape[transpose ? 1 : 0], n = shape[transpose ? 0 : 1];
          if (e.attrs.contains("out")) return narrow_product(e.args[0], e.args[1], k, n, transpose);
          if (rows != DType::kF32) return std::nullopt;
          return product(e.args[0], e.args[1], k, n, transpose);
        }
        case ir::Packs::kFilters: {
          const bool narrow = e.attrs.contains("out");
          const DType pixels = narrow ? ir::type_of(e.args[0])->dtype : DType::kF32;
          const DType type = narrow ? ir::type_of(e.args[1])->dtype : DType::kF32;
          if (!is_packable_convolution(e, pixels, type)) return std::nullopt;
          const Ints& shape = e.args[1].constant->shape;
          if (is_product_of_pixels(e) && (narrow || !is_joined_for(e, rewritten, uses))) {
            const int64_t k = shape[2], n = shape[3];
            const Atom matrix = filters(e, n, o);
            const std::optional<Atom> y = narrow ? narrow_product(e.args[0], matrix, k, n, false)
                                                 : product(e.args[0], matrix, k, n, false);
            return y && e.args.size() == 3 ? call("add", {*y, e.args[2]}, {}) : y;
          }
          const std::optional<Atom> image = planes_of(e, rewritten);
          const PackedConvolution packed =
              packed_convolution(e, shape, pixels, type, image.has_value(), context.target);
          if (narrow) {
            std::vector<ir::Type> types;
            for (const Atom& a : e.args) types.push_back(ir::type_of(a));
            if (!has_kernel_for(packed, types, b.var->type, context)) return std::nullopt;
          }
          std::vector<Atom> args = e.args;
          args[1] = pack(packed.planes ? plane_filters(e, packed.layout.group, o)
                                       : filters(e, packed.layout.width, o),
                         packed.layout, false);
          if (packed.planes) args[0] = cast(*image, pixels);
          return call("packed_conv2d", std::move(args), packed.call->attrs);
        }
        case ir::Packs::kGates: {
          const ir::CellOperands& cell = *ir::traits_of(e).cell;
          const Atom& weights = e.args[cell.weights];
          if (!is_packable_cell(e, DType::kF32) && !is_packable_cell(e, DType::kF16))
            return std::nullopt;
          std::vector<Atom> args = e.args;
          args[cell.weights] = pack(weights, gates, false);
          args.push_back(step_of(*function, definitions, e));
          ir::Attrs attrs = e.attrs;
          attrs["hidden"] = weights.constant->shape[0];
          attrs["layout"] = gates.str();
          return call(cell.packed, std::move(args), std::move(attrs));
        }
        case ir::Packs::kBlocks: {
          ir::Attrs attrs = e.attrs;
          std::vector<Atom> args = packed_blocks(e, context.target, attrs, blocks);
          if (args.empty()) return std::nullopt;
          args.insert(args.begin(), e.args[0]);
          context.count("pack-weights.packed");
          return call(e.op.c_str(), std::move(args), std::move(attrs));
        }
      }
      return std::nullopt;
    });
    f = rewriter.rewrite(f);
  }
  return out;
}

}  // namespace nimble::passes
