// Images with their channels last, from the first convolution to the last.
//
// Importers write convolutions as ONNX does: images (n, c, h, w), weights (o, i, kh, kw). Lanes
// along an image's row are few where images are small (7 of 16, or of 32), while channels are
// many; so the kernels want (n, h, w, c) and weights (kh, kw, i, o), a matrix whose columns are
// the output channels. This pass makes that one decision for every function that has a convolution:
//
//   let %y = conv2d(%x, W)                 let %a = transpose(%x) {axes = [0, 2, 3, 1]}
//   let %z = add(%y, f32[8, 1, 1]{…})  ->  let %b = conv2d(%a, W') {layout = "nhwc"}
//   let %p = mean(%z) {axes = [2, 3]}      let %c = add(%b, f32[8]{…})
//                                          let %p = mean(%c) {axes = [1, 2]}
//
// It goes over the bindings once and keeps for each variable in which orders of its axes its value
// is there. A convolution gives its result with channels last; an operator follows an operand that
// was made in that order, as its columns `rows` and `images` say how: element by element, its
// axes renamed, its pads permuted. A reshape works on groups of neighbouring axes, so it follows
// where each group keeps together. A transposition of the program computes nothing: its result is
// the operand in another order. What cannot follow (a matrix product, a call, the function's
// result) gets its operand in the program's order, by a transpose that is made where it is needed
// first and serves all later readers. So no two transposes meet, borders cost one each, and none
// where only axes of extent 1 move (a squeeze-and-excite's (n, c, 1, 1), a classifier's input).
//
// Weights become transposes of constants, which fold-constants carries out. Convolutions and
// poolings that no template takes with channels last stay as they are, and so do convolutions with
// padding whose weights are unknown or not finite. Of a convolution that is narrower than its
// result the question is whether it will have a kernel, packed or widened.
#include "compiler/passes/channels_last.h"

#include <algorithm>

#include "compiler/ir/image_layout.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/passes/pack_weights.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/has_kernel.h"
#include "compiler/passes/support/ordered_values.h"
#include "compiler/passes/support/padding.h"
#include "compiler/passes/support/rewrite.h"
#include "compiler/passes/support/wide_form.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Attrs;
using ir::Binding;
using ir::Block;
using ir::BlockBuilder;
using ir::Expr;
using ir::Rows;
using ir::Type;
using ir::VarRef;
using Dims = std::vector<ir::Dim>;

const Axes kImageOrder = {0, 2, 3, 1};   // NCHW to NHWC
const Axes kWeightOrder = {2, 3, 1, 0};  // OIHW to HWIO

bool is_tensor(const Type& t) {
  return t && t->kind == ir::TypeKind::kTensor;
}

bool is_typed(const Binding& b) {
  return is_tensor(b.var->type) &&
         std::all_of(b.value->args.begin(), b.value->args.end(),
                     [](const Atom& a) { return is_tensor(ir::type_of(a)); });
}

size_t rank_of(const Atom& a) {
  return ir::type_of(a)->dims.size();
}

bool is_convolution(const Expr& e) {
  return ir::traits_of(e).images && e.args.size() > 1 &&
         !ir::image_layout_of(e.attrs).channels_last();
}

// A convolution or a pooling with channels last.
struct Image {
  Expr call;  // its operands are still the program's
  std::vector<Type> operands;
  Type result;
};
Image with_channels_last(const Binding& b) {
  Image out{*b.value, {}, permuted(b.var->type, kImageOrder)};
  for (const Atom& a : out.call.args) out.operands.push_back(ir::type_of(a));
  out.operands[0] = permuted(out.operands[0], kImageOrder);
  if (out.operands.size() > 1) out.operands[1] = permuted(out.operands[1], kWeightOrder);
  out.call.attrs["layout"] = std::string("nhwc");
  // Kernels of such images leave out taps that fall into the padding.
  if (out.operands.size() > 1 && ir::has_padding(out.call.attrs))
    out.call.attrs["skip_padding"] = true;
  return out;
}

class Relayout {
 public:
  Relayout(const ir::Function& f, const HasKernel& has_kernel, PassContext& context)
      : facts_(ir::dim_context(f)), has_kernel_(has_kernel), context_(context) {}

  ir::FunctionRef run(const ir::Function& f) {
    auto copy = std::make_shared<ir::Function>(f);
    copy->body = run(*f.body);
    return copy;
  }

 private:
  ir::BlockRef run(const Block& b) {
    BlockBuilder out;
    for (const Binding& binding : b.bindings)
      if (!follows(binding, out)) keep(binding, out);
    return out.finish(values_.plain(b.result, out), b.location);
  }

  void keep(const Binding& b, BlockBuilder& out) {
    auto copy = std::make_shared<Expr>(*b.value);
    for (Atom& a : copy->args) a = values_.plain(a, out);
    out.append({b.var, map_blocks(copy, [&](const ir::BlockRef& nested) {
                  auto outer = values_;  // what a branch makes is not there behind it
                  ir::BlockRef made = run(*nested);
                  values_ = std::move(outer);
                  return made;
                })});
  }

  bool define(const Binding& b, const Axes& order, std::vector<Atom> args, Attrs attrs,
              BlockBuilder& out) {
    VarRef v =
        out.call(b.value->op, std::move(args), std::move(attrs), b.var->name, b.value->location);
    v->type = permuted(b.var->type, order);
    values_.set(b.var, order, v);
    return true;
  }

  // Computes the result in another order than the program's. False, and nothing done, where the
  // operator has to stay as it is.
  bool follows(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    const ir::OpInfo* op = e.kind == ir::ExprKind::kCall ? ir::find_op(e.op) : nullptr;
    if (!op || e.args.empty() || !is_typed(b)) return false;
    if (op->traits.images) return image(b, out);
    if (e.op == "shape_of") return extents(b, out);
    const bool same = op->traits.memory == ir::Memory::kOperand && !op->traits.names_symbols;
    if (same && values_.is_turned(e.args[0]))
      return follow(b, values_.order_of(e.args[0]), e.attrs, out);
    if (op->fusion == ir::FusionKind::kOutside || op->fusion == ir::FusionKind::kData) return false;
    switch (op->rows()) {
      case Rows::kPointwise:
        return pointwise(b, out);
      case Rows::kAxes:
        return !op->traits.from_axis && along_axes(b, out);
      case Rows::kResultAxes:
        return rank_of(e.args[0]) == b.var->type->dims.size() ? joined(b, out) : widened(b, out);
      case Rows::kPads:
        return padded(b, out);
      case Rows::kBroadcast:
        return expanded(b, out);
      case Rows::kShape:
        return reshape(b, out);
      case Rows::kIndex:
        return gathered_at(b, out);
      case Rows::kPermutation:
        return permutation(b, out);
      default:
        return false;
    }
  }

  // The first operand in the order that it is there in, the others in the program's; the result's
  // axes in `order`.
  bool follow(const Binding& b, Axes order, Attrs attrs, BlockBuilder& out) {
    const Expr& e = *b.value;
    std::vector<Atom> args = {values_.first_of(e.args[0])};
    for (size_t i = 1; i < e.args.size(); ++i) args.push_back(values_.plain(e.args[i], out));
    return define(b, order, std::move(args), std::move(attrs), out);
  }

  bool image(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    const bool convolution = is_convolution(e);
    if (ir::image_layout_of(e.attrs).channels_last() ||
        (!convolution && !values_.is_turned(e.args[0])))
      return false;
    if (convolution && !may_skip_padding(e)) return false;
    const Image last = with_channels_last(b);
    if (!has_kernel_(last.call, last.operands, last.result)) return false;
    std::vector<Atom> args = {values_.in_order(e.args[0], kImageOrder, out)};
    if (convolution) args.push_back(values_.in_order(e.args[1], kWeightOrder, out));
    for (size_t i = args.size(); i < e.args.size(); ++i)
      args.push_back(values_.plain(e.args[i], out));
    context_.count("channels-last.images");
    return define(b, kImageOrder, std::move(args), last.call.attrs, out);
  }

  // The order that an element-wise operator's result gets. The operands as large as the result
  // decide: where one of them was made in the program's order, and none in another, so is the
  // result, and smaller ones are turned back.
  std::optional<Axes> order_of_result(const Binding& b) const {
    const Dims& dims = b.var->type->dims;
    const Atom* chosen = nullptr;
    bool chosen_is_large = false, plain_is_large = false;
    for (const Atom& a : b.value->args) {
      if (rank_of(a) != dims.size()) continue;
      const bool large = ir::type_of(a)->dims == dims;
      if (!values_.is_turned(a)) {
        plain_is_large |= large && a.is_var();
      } else if (!chosen || (large && !chosen_is_large)) {
        chosen = &a;
        chosen_is_large = large;
      }
    }
    if (!chosen || (plain_is_large && !chosen_is_large)) return std::nullopt;
    return values_.order_of(*chosen);
  }

  bool pointwise(const Binding& b, BlockBuilder& out) {
    const auto order = order_of_result(b);
    if (!order) return false;
    std::vector<Atom> args;
    for (const Atom& a : b.value->args) args.push_back(values_.broadcast_in(a, *order, out));
    return define(b, *order, std::move(args), b.value->attrs, out);
  }

  // Reductions, normalisations, slices, squeezes: `axis` and `axes` are the first operand's.
  bool along_axes(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    if (!values_.is_turned(e.args[0])) return false;
    const Axes order = values_.order_of(e.args[0]);
    Axes axes = ir::attr_or<Axes>(e.attrs, "axes", {});
    if (e.attrs.contains("axis")) axes = {ir::attr<int64_t>(e.attrs, "axis")};
    const bool keeps = b.var->type->dims.size() == order.size();
    const Axes result = keeps ? order : without_axes(order, axes);
    if (result.size() != b.var->type->dims.size()) return false;
    Expr renamed = e;
    renamed.attrs = with_renamed_axes(e.attrs, order);
    const ir::OpInfo* op = ir::find_op(e.op);
    if (op->fusion != ir::FusionKind::kInjective) {
      std::vector<Type> types;
      for (const Atom& a : e.args) types.push_back(ir::type_of(a));
      types[0] = permuted(types[0], order);
      if (!has_kernel_(renamed, types, permuted(b.var->type, result))) return false;
    }
    return follow(b, result, renamed.attrs, out);
  }
  static Attrs with_renamed_axes(Attrs attrs, const Axes& order) {
    const Axes place = inverse(order);
    const auto rename = [&](int64_t& axis) { axis = place[static_cast<size_t>(axis)]; };
    if (const auto it = attrs.find("axis"); it != attrs.end())
      rename(std::get<int64_t>(it->second));
    if (const auto it = attrs.find("axes"); it != attrs.end())
      for (int64_t& axis : std::get<Axes>(it->second)) rename(axis);
    return attrs;
  }

  // concat: all operands have the result's axes.
  bool joined(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    const auto first = std::find_if(e.args.begin(), e.args.end(),
                                    [&](const Atom& a) { return values_.is_turned(a); });
    if (first == e.args.end()) return false;
    const Axes order = values_.order_of(*first);
    for (const Atom& a : e.args)
      if (rank_of(a) != order.size()) return false;
    std::vector<Atom> args;
    for (const Atom& a : e.args) args.push_back(values_.in_order(a, order, out));
    return define(b, order, std::move(args), with_renamed_axes(e.attrs, order), out);
  }

  // unsqueeze: `axes` are the result's.
  bool widened(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    const size_t rank = b.var->type->dims.size();
    const Axes added = ir::attr_or<Axes>(e.attrs, "axes", {});
    if (e.args.size() != 1 || !values_.is_turned(e.args[0]) ||
        rank_of(e.args[0]) + added.size() != rank)
      return false;
    Axes others;
    for (int64_t axis : natural_order(rank))
      if (std::find(added.begin(), added.end(), axis) == added.end()) others.push_back(axis);
    const Axes order = with_axes(composed(others, values_.order_of(e.args[0])), added, rank);
    return follow(b, order, with_renamed_axes(e.attrs, order), out);
  }
  // others[order[i]] for each i.
  static Axes composed(const Axes& others, const Axes& order) {
    Axes out;
    for (int64_t axis : order) out.push_back(others[static_cast<size_t>(axis)]);
    return out;
  }

  bool padded(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    if (e.args.size() != 1 || !values_.is_turned(e.args[0])) return false;
    const Axes order = values_.order_of(e.args[0]);
    Attrs attrs = e.attrs;
    for (const char* name : {"before", "after"})
      attrs[name] = permuted(ir::attr<Dims>(attrs, name), order);
    return follow(b, order, std::move(attrs), out);
  }

  bool expanded(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    if (e.args.size() != 1 || !values_.is_turned(e.args[0])) return false;
    const Axes order = values_.order_of(e.args[0]);
    if (order.size() != b.var->type->dims.size()) return false;
    Attrs attrs = e.attrs;
    attrs["shape"] = permuted(b.var->type->dims, order);
    return follow(b, order, std::move(attrs), out);
  }

  bool reshape(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    if (e.args.size() != 1 || !values_.is_turned(e.args[0])) return false;
    const Dims& dims = b.var->type->dims;
    const auto groups = groups_of_reshape(ir::type_of(e.args[0])->dims, dims, facts_);
    if (!groups) return false;
    const Axes from = gathered(values_.order_of(e.args[0]), *groups);
    if (is_natural(from)) return false;
    const Axes order = reshaped(from, *groups, dims.size());
    Attrs attrs = e.attrs;
    attrs["shape"] = permuted(dims, order);
    attrs["allow_zero"] = true;
    return define(b, order, {values_.in_order(e.args[0], from, out)}, std::move(attrs), out);
  }

  // gather: the axis gives way to those of the indices.
  bool gathered_at(const Binding& b, BlockBuilder& out) {
    const Expr& e = *b.value;
    if (!e.attrs.contains("axis") || e.args.size() != 2 || !values_.is_turned(e.args[0]))
      return false;
    const Axes from = values_.order_of(e.args[0]);
    const auto axis = ir::attr<int64_t>(e.attrs, "axis");
    const auto indices = static_cast<int64_t>(rank_of(e.args[1]));
    Axes order;
    for (int64_t a : from) {
      if (a != axis) order.push_back(a < axis ? a : a + indices - 1);
      for (int64_t i = 0; a == axis && i < indices; ++i) order.push_back(axis + i);
    }
    return follow(b, order, with_renamed_axes(e.attrs, from), out);
  }

  // Another order of the same value. What is there as the program has it, but in its own order, is
  // taken for one with channels last where it is that.
  bool permutation(const Binding& b, BlockBuilder& out) {
    const Atom& x = b.value->args[0];
    const Axes back = inverse(ir::attr<Axes>(b.value->attrs, "axes"));
    if (values_.is_turned(x)) {
      values_.set(b.var, composed(back, values_.order_of(x)), Atom(values_.first_of(x)));
      return true;
    }
    if (back.size() < 3 || back != channels_last_order(back.size()) || !x.is_var()) return false;
    values_.set(b.var, back, values_.plain(x, out));
    return true;
  }

  // The extents of a value that is there in another order.
  bool extents(const Binding& b, BlockBuilder& out) {
    const Atom& x = b.value->args[0];
    if (!values_.is_turned(x)) return false;
    const Axes place = inverse(values_.order_of(x));
    const auto rank = static_cast<int64_t>(place.size());
    const VarRef turned =
        out.call("shape_of", {values_.first_of(x)}, {}, b.var->name, b.value->location);
    const Atom at = Atom::of(ir::Tensor::of<int64_t>(DType::kI64, {rank}, place));
    const VarRef made =
        out.call("gather", {turned, at}, {{"axis", int64_t{0}}}, b.var->name, b.value->location);
    turned->type = made->type = b.var->type;
    values_.set(b.var, natural_order(1), made);
    return true;
  }

  const ir::DimContext facts_;
  const HasKernel& has_kernel_;
  PassContext& context_;
  OrderedValues values_;
};

// Whether there is a convolution that can have its channels last.
bool is_affected(const ir::Function& f, const HasKernel& has_kernel) {
  bool found = false;
  visit_bindings(*f.body, [&](const Binding& b) {
    if (found || !is_convolution(*b.value) || !is_typed(b)) return;
    const Image last = with_channels_last(b);
    found = has_kernel(last.call, last.operands, last.result);
  });
  return found;
}

// Whether a call with `out`, which has kernels once its weights are packed (pack-weights), if at
// all, has one then, or once it is widened (widen-products).
bool has_later_kernel(const Expr& call, const std::vector<Type>& operands, const Type& result,
                      PassContext& context) {
  if (operands.size() < 2 || !call.attrs.contains("out")) return false;
  if (has_packed_kernel(call, operands, result, context)) return true;
  const DType type = wide_type(call, operands[1], result);
  Expr wide = call;
  wide.attrs.erase("out");
  std::vector<Type> types;
  for (size_t i = 0; i < 2; ++i) types.push_back(ir::tensor_type(operands[i]->dims, type));
  return has_kernel(wide, types, ir::tensor_type(result->dims, type), context.kernel_target(),
                    context);
}

}  // namespace

ir::Module channels_last_where(const ir::Module& m, const HasKernel& has_kernel,
                               PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions)
    if (is_affected(*f, has_kernel)) f = Relayout(*f, has_kernel, context).run(*f);
  return out;
}

ir::Module channels_last(const ir::Module& m, PassContext& context) {
  const auto taken = [&](const Expr& call, const std::vector<Type>& operands, const Type& result) {
    return has_kernel(call, operands, result, context.kernel_target(), context) ||
           has_later_kernel(call, operands, result, context);
  };
  return channels_last_where(m, taken, context);
}

}  // namespace nimble::passes
