// Operators whose extents the values of large tensors decide, and the shape functions that count
// them (paper, 3.2: data dependent and upper bound).
//
// Such an extent is a fresh symbol of the result. The pass expose-shapes splits the operator: its
// shape function (count.*) fills a small tensor, read_extents names its element, and the operator
// itself, told `count`, is a function of known extents like any other.
#include "compiler/ir/ops/relations.h"
#include "compiler/ir/recursion_schema.h"

namespace nimble::ir {
namespace {

Dim counted(RelationContext& c) {
  return c.call.attrs.contains("count") ? attr<Dim>(c.call.attrs, "count") : c.fresh();
}

std::optional<size_t> optional_axis(RelationContext& c) {
  if (!c.call.attrs.contains("axis")) return std::nullopt;
  return static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0)));
}

// Attribute `name`, or the one element of operand `input`.
Dim attr_or_element(RelationContext& c, const std::string& name, size_t input) {
  const bool operand = c.inputs.size() > input;
  if (operand == c.call.attrs.contains(name)) {
    c.fail(fmt::format("{} must be given once", name),
           fmt::format("give the attribute {} or operand {}", name, input + 1));
  }
  if (!operand) return attr<Dim>(c.call.attrs, name);
  const Dims element = extents_of(c, input, name);
  if (element.size() != 1) c.fail(fmt::format("{} is not one element", name), "give a scalar");
  return element[0];
}

void resolve(RelationContext& c, RelationResult& r, const std::string& name, const Dim& value,
             size_t operand) {
  if (c.inputs.size() <= operand) return;
  Attrs attrs = c.call.attrs;
  attrs[name] = value;
  r.resolved = {std::move(attrs), operand};
}

void require_one_float(RelationContext& c, size_t input) {
  require_dtype(c, input, DType::kF32);
  c.require_equal(element_count(c.inputs[input]), Dim(1),
                  fmt::format("the number of elements of operand {}", input + 1));
}

// The operands of nms; the greatest number of results.
Dim check_nms(RelationContext& c, const Dim& limit) {
  require_rank(c, 0, 3);
  require_rank(c, 1, 3);
  require_dtype(c, 0, DType::kF32);
  require_dtype(c, 1, DType::kF32);
  require_one_float(c, 2);
  require_one_float(c, 3);
  c.require_equal(dims(c, 0)[2], Dim(4), "the coordinates of a box");
  c.require_equal(dims(c, 0)[0], dims(c, 1)[0], "the batch of boxes and scores");
  c.require_equal(dims(c, 0)[1], dims(c, 1)[2], "the number of boxes and of scores");
  // Exporters write the largest integer for "all", and products with it have no 64 bits.
  constexpr int64_t kMostBoxes = int64_t{1} << 40;  // more bytes than memory has addresses
  const Dim at_most = limit.as_constant().value_or(0) > kMostBoxes ? dims(c, 0)[1] : limit;
  const Dim per_class = c.dims.simplify(max(Dim(0), min(at_most, dims(c, 0)[1])));
  return c.dims.simplify(dims(c, 0)[0] * dims(c, 1)[1] * per_class);
}

}  // namespace

RelationResult relate_nonzero(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  return {tensor_type({Dim(rank(c, 0)), counted(c)}, DType::kI64), std::nullopt};
}

RelationResult relate_argwhere(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  return {tensor_type({c.fresh(), Dim(rank(c, 0))}, DType::kI64), std::nullopt};
}

RelationResult relate_compress(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  require_rank(c, 1, 1);
  require_dtype(c, 1, DType::kBool);
  const auto axis = optional_axis(c);
  const Dim extent = axis ? dims(c, 0)[*axis] : element_count(c.inputs[0]);
  c.require_equal(max(dims(c, 1)[0], extent), extent,
                  fmt::format("the condition is no longer than {}: {}",
                              axis ? fmt::format("axis {}", *axis) : "the operand", extent.str()));
  Dims out = axis ? dims(c, 0) : Dims{Dim(0)};
  out[axis.value_or(0)] = counted(c);
  return {tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
}

RelationResult relate_masked_select(RelationContext& c) {
  require_rank(c, 1, rank(c, 0));
  require_dtype(c, 1, DType::kBool);
  for (size_t i = 0; i < dims(c, 0).size(); ++i) {
    c.require_equal(dims(c, 0)[i], dims(c, 1)[i], fmt::format("axis {} of the mask", i));
  }
  return {tensor_type({c.fresh()}, dtype(c, 0)), std::nullopt};
}

RelationResult relate_unique(RelationContext& c) {
  const auto axis = optional_axis(c);
  const Dim count = counted(c);
  const Dim all = axis ? dims(c, 0)[*axis] : element_count(c.inputs[0]);
  Dims values = axis ? dims(c, 0) : Dims{count};
  values[axis.value_or(0)] = count;
  const auto indices = [](const Dim& d) { return tensor_type({d}, DType::kI64); };
  return {tuple_type({tensor_type(std::move(values), dtype(c, 0)), indices(count), indices(all),
                      indices(count)}),
          std::nullopt};
}

RelationResult relate_repeat(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  const auto axis =
      static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0)));
  Dims out = dims(c, 0);
  if (c.inputs.size() == 2 && rank(c, 1) == 1) {
    require_dtype(c, 1, DType::kI64);
    if (c.call.attrs.contains("repeats")) c.fail("repeats are given twice", "drop the attribute");
    c.require_equal(dims(c, 1)[0], out[axis], fmt::format("one repeat per slice of axis {}", axis));
    out[axis] = counted(c);
    return {tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
  }
  const Dim repeats = attr_or_element(c, "repeats", 1);
  require_not_negative(c, repeats, "the number of repeats");
  out[axis] = out[axis] * repeats;
  RelationResult r{tensor_type(std::move(out), dtype(c, 0)), std::nullopt};
  resolve(c, r, "repeats", repeats, 1);
  return r;
}

RelationResult relate_topk(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  if (dtype(c, 0) == DType::kBool) c.fail("bools have no order", "insert cast");
  const auto axis =
      static_cast<size_t>(normalize_axis(c, attr<int64_t>(c.call.attrs, "axis"), rank(c, 0)));
  const Dim k = attr_or_element(c, "k", 1);
  const Dim extent = dims(c, 0)[axis];
  require_not_negative(c, k, "k");
  c.require_equal(
      min(k, extent), k,
      fmt::format("k = {} is at most {}, the extent of axis {}", k.str(), extent.str(), axis));
  Dims out = dims(c, 0);
  out[axis] = k;
  RelationResult r{tuple_type({tensor_type(out, dtype(c, 0)), tensor_type(out, DType::kI64)}),
                   std::nullopt};
  resolve(c, r, "k", k, 1);
  return r;
}

RelationResult relate_scatter(RelationContext& c) {
  require_rank_at_least(c, 0, 1);
  require_rank(c, 1, 1);
  require_dtype(c, 1, DType::kI64);
  require_rank(c, 2, rank(c, 0));
  require_dtype(c, 2, dtype(c, 0));
  const std::string& reduction = attr<std::string>(c.call.attrs, "reduction");
  if (reduction != "none" && reduction != "add" && reduction != "mul" && reduction != "min" &&
      reduction != "max")
    c.fail(fmt::format("the reduction {} is not known", reduction),
           "use none, add, mul, min or max");
  c.require_equal(dims(c, 1)[0], dims(c, 2)[0], "the number of indices and of updates");
  for (size_t i = 1; i < dims(c, 0).size(); ++i)
    c.require_equal(dims(c, 0)[i], dims(c, 2)[i], fmt::format("axis {} of the updates", i));
  return {c.inputs[0], std::nullopt};
}

RelationResult relate_nms(RelationContext& c) {
  const Dim limit = attr_or_element(c, "limit", 4);
  check_nms(c, limit);
  RelationResult r{tensor_type({c.fresh(), Dim(3)}, DType::kI64), std::nullopt};
  resolve(c, r, "limit", limit, 4);
  return r;
}

RelationResult relate_nms_bounded(RelationContext& c) {
  const Dim bound = check_nms(c, attr<Dim>(c.call.attrs, "limit"));
  return {
      tuple_type({tensor_type({bound, Dim(3)}, DType::kI64), tensor_type({Dim(1)}, DType::kI64)}),
      std::nullopt};
}

namespace {

RecursionSchema schema_of(RelationContext& c) {
  auto schema = RecursionSchema::decode(attr<std::vector<int64_t>>(c.call.attrs, "schema"));
  if (!schema) c.fail("the attribute schema is none", "see vm/base/recursion_schema.h");
  return *std::move(schema);
}

}  // namespace

RelationResult relate_count_linearise(RelationContext& c) {
  const auto kinds = static_cast<int64_t>(schema_of(c).kinds.size());
  return {tensor_type({Dim(2 + kinds)}, DType::kI64), std::nullopt};
}

RelationResult relate_linearise(RelationContext& c) {
  const RecursionSchema schema = schema_of(c);
  const auto& counts = attr<Dims>(c.call.attrs, "counts");
  if (counts.size() != schema.kinds.size()) {
    c.fail(fmt::format("{} counts for {} kinds", counts.size(), schema.kinds.size()),
           "give the number of tasks of each kind");
  }
  return {type_of_linearise(schema, attr<Dim>(c.call.attrs, "steps"), counts), std::nullopt};
}

RelationResult relate_count_of_one(RelationContext& c) {
  optional_axis(c);
  if (c.call.op == "count.repeat") {
    require_rank(c, 0, 1);
    require_dtype(c, 0, DType::kI64);
  }
  return {tensor_type({Dim(1)}, DType::kI64), std::nullopt};
}

RelationResult relate_count_of_range(RelationContext& c) {
  require_same_dtype(c);
  for (size_t i = 0; i < 3; ++i) require_rank(c, i, 0);
  return {tensor_type({Dim(1)}, DType::kI64), std::nullopt};
}

}  // namespace nimble::ir
