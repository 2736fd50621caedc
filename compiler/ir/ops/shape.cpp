// Operators on shapes, and those that make tensors from dims.
#include <cmath>

#include "compiler/ir/ops/relations.h"

namespace nimble::ir {
namespace {

// A dim attribute must be a value: no `?`, and not provably negative.
void require_extent(const RelationContext& c, const Dim& d) {
  if (d.is_any()) c.fail("a dim attribute cannot be ?", "name the dim");
  if (c.dims.less(d, Dim(0)) == Proof::kYes) {
    c.fail(fmt::format("the extent {} is negative", d.str()), "");
  }
}

}  // namespace

RelationResult relate_shape_of(RelationContext& c) {
  Dims contents = dims(c, 0);
  Type t = tensor_type({Dim(rank(c, 0))}, DType::kI64);
  if (contents.size() > kMaxContents) return {t, std::nullopt};
  return {t, std::move(contents)};
}

RelationResult relate_size(RelationContext& c) {
  const Dim value = attr<Dim>(c.call.attrs, "value");
  if (value.is_any()) c.fail("size of ? has no value", "name the dim");
  return {tensor_type({}, DType::kI64), Dims{c.dims.simplify(value)}};
}

RelationResult relate_full(RelationContext& c) {
  const Dims& shape = attr<Dims>(c.call.attrs, "shape");
  const DType t = attr<DType>(c.call.attrs, "dtype");
  for (const Dim& d : shape) require_extent(c, d);
  const bool has_value = c.call.attrs.contains("value");
  if (has_value == (c.inputs.size() == 1)) {
    c.fail("the value must be given once", "give either the attribute value or an operand");
  }
  std::optional<Dims> element;
  if (has_value) {
    const double v = attr<double>(c.call.attrs, "value");
    if (std::floor(v) == v && std::fabs(v) < 9e15) element = Dims{Dim(static_cast<int64_t>(v))};
  } else {
    require_rank(c, 0, 0);
    require_dtype(c, 0, t);
    element = contents_of(c, 0);
  }
  RelationResult r{tensor_type(shape, t), std::nullopt};
  auto n = element_count(r.type).as_constant();
  if (element && tracks_contents(t) && n && *n <= static_cast<int64_t>(kMaxContents)) {
    r.contents = Dims(static_cast<size_t>(*n), (*element)[0]);
  }
  return r;
}

RelationResult relate_range(RelationContext& c) {
  const Dim& count = attr<Dim>(c.call.attrs, "count");
  const DType t = attr<DType>(c.call.attrs, "dtype");
  require_extent(c, count);
  RelationResult r{tensor_type({count}, t), std::nullopt};
  auto n = count.as_constant();
  if (n && *n <= static_cast<int64_t>(kMaxContents) && tracks_contents(t) && t != DType::kBool) {
    const Dim start = attr<int64_t>(c.call.attrs, "start");
    const Dim step = attr<int64_t>(c.call.attrs, "step");
    Dims values;
    for (int64_t i = 0; i < *n; ++i) values.push_back(start + step * Dim(i));
    r.contents = std::move(values);
  }
  return r;
}

RelationResult relate_assert_shape(RelationContext& c) {
  const Dims& left = attr<Dims>(c.call.attrs, "left");
  const Dims& right = attr<Dims>(c.call.attrs, "right");
  if (left.size() != right.size()) c.fail("left and right differ in length", "pair the dims");
  for (size_t i = 0; i < left.size(); ++i) {
    if (c.dims.equal(left[i], right[i]) == Proof::kNo) {
      c.fail(fmt::format("{}: {} is never {}", attr<std::string>(c.call.attrs, "what"),
                         left[i].str(), right[i].str()),
             "correct the shapes");
    }
    c.dims.assume_equal(left[i], right[i]);  // from here on
  }
  return {c.inputs[0], contents_of(c, 0)};
}

// After memory lowering the types are what the lowering says they are.
RelationResult relate_lowered(RelationContext& c) {
  c.fail("an operator of the lowered IR has no type relation", "infer types before lowering");
}

}  // namespace nimble::ir
