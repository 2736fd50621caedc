// Reductions, normalisations and running sums.
#include <algorithm>

#include "compiler/ir/ops/relations.h"

namespace nimble::ir {

RelationResult relate_reduce(RelationContext& c) {
  const std::string& op = c.call.op;
  if (op == "mean") require_float(c, 0);
  require_number(c, 0);
  const auto axes = normalize_axes(c, attr<std::vector<int64_t>>(c.call.attrs, "axes"), rank(c, 0));
  const bool keep = attr<bool>(c.call.attrs, "keepdims");
  Dims out;
  for (int64_t i = 0; i < rank(c, 0); ++i) {
    const Dim& d = dims(c, 0)[static_cast<size_t>(i)];
    if (!std::binary_search(axes.begin(), axes.end(), i)) {
      out.push_back(d);
      continue;
    }
    if (keep) out.push_back(Dim(1));
  }
  RelationResult r{tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
  auto in = contents_of(c, 0);
  if (in && rank(c, 0) == 1 && !axes.empty() && (op == "prod" || op == "sum")) {
    Dim total = op == "prod" ? 1 : 0;
    for (const Dim& d : *in) total = op == "prod" ? total * d : total + d;
    r.contents = Dims{total};
  }
  return r;
}

RelationResult relate_arg_reduce(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  const int64_t axis = normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0));
  Dims out = dims(c, 0);
  const Dim extent = out[static_cast<size_t>(axis)];
  if (c.dims.equal(extent, Dim(0)) == Proof::kYes) {
    c.fail(fmt::format("axis {} is empty and has no maximum", axis), "");
  }
  c.require_equal(max(extent, Dim(1)), extent,
                  fmt::format("axis {} has an element to be the maximum", axis));
  if (attr<bool>(c.call.attrs, "keepdims")) {
    out[static_cast<size_t>(axis)] = 1;
  } else {
    out.erase(out.begin() + axis);
  }
  return {tensor_type(std::move(out), DType::kI64), std::nullopt};
}

RelationResult relate_unary_axis(RelationContext& c) {
  if (c.call.op != "cumsum" && c.call.op != "cumprod") require_float(c, 0);
  require_number(c, 0);
  require_rank_at_least(c, 0, 1);
  normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0));
  return {c.inputs[0], std::nullopt};
}

RelationResult relate_layer_norm(RelationContext& c) {
  require_same_dtype(c);
  require_float(c, 0);
  const int64_t axis = normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0));
  const Dims& x = dims(c, 0);
  for (size_t i = 1; i <= 2; ++i) {
    require_rank(c, i, rank(c, 0) - axis);
    for (size_t k = 0; k < dims(c, i).size(); ++k) {
      c.require_equal(x[static_cast<size_t>(axis) + k], dims(c, i)[k],
                      i == 1 ? "gamma of layer_norm" : "beta of layer_norm");
    }
  }
  return {c.inputs[0], std::nullopt};
}

RelationResult relate_batch_norm(RelationContext& c) {
  static const char* const kNames[] = {"", "scale", "bias", "mean", "variance"};
  require_same_dtype(c);
  require_float(c, 0);
  require_rank_at_least(c, 0, 2);
  for (size_t i = 1; i <= 4; ++i) {
    require_rank(c, i, 1);
    c.require_equal(dims(c, 0)[1], dims(c, i)[0], fmt::format("{} of batch_norm", kNames[i]));
  }
  return {c.inputs[0], std::nullopt};
}

}  // namespace nimble::ir
