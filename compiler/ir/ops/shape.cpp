// Operators on shapes, and those that make tensors from dims.
#include <cmath>

#include "compiler/ir/ops/relations.h"
#include "compiler/ir/shapes.h"
#include "vm/base/device_number.h"

namespace nimble::ir {
namespace {

// An extent is not provably negative.
void require_extent(const RelationContext& c, const Dim& d) {
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
  return {tensor_type({}, DType::kI64), Dims{c.dims.simplify(value)}};
}

RelationResult relate_full(RelationContext& c) {
  const bool has_value = c.call.attrs.contains("value"), has_shape = c.call.attrs.contains("shape");
  const size_t value_operands = has_value ? 0 : 1, shape_operands = has_shape ? 0 : 1;
  if (c.inputs.size() != value_operands + shape_operands) {
    c.fail("value and shape must be given once each",
           "give each as an attribute or an operand, the shape last");
  }
  const DType t = attr<DType>(c.call.attrs, "dtype");
  const Dims shape =
      has_shape ? attr<Dims>(c.call.attrs, "shape") : extents_of(c, value_operands, "the shape");
  for (size_t i = 0; i < shape.size(); ++i) {
    require_extent(c, shape[i]);
    if (!has_shape) require_not_negative(c, shape[i], fmt::format("dim {} of the shape", i));
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
  if (!has_shape) {
    Attrs attrs = c.call.attrs;
    attrs["shape"] = shape;
    r.resolved = {std::move(attrs), value_operands};
  }
  return r;
}

namespace {

RelationResult range_of(RelationContext& c, const Dim& count, const Dim& start, const Dim& step,
                        DType t) {
  RelationResult r{tensor_type({count}, t), std::nullopt};
  auto n = count.as_constant();
  if (n && *n <= static_cast<int64_t>(kMaxContents) && tracks_contents(t) && t != DType::kBool) {
    Dims values;
    for (int64_t i = 0; i < *n; ++i) values.push_back(c.dims.simplify(start + step * Dim(i)));
    r.contents = std::move(values);
  }
  return r;
}

}  // namespace

RelationResult relate_range(RelationContext& c) {
  if (c.inputs.empty()) {
    for (const char* name : {"count", "start", "step", "dtype"}) {
      if (!c.call.attrs.contains(name)) {
        c.fail(fmt::format("needs the attribute {}", name), "or three operands");
      }
    }
    const Dim& count = attr<Dim>(c.call.attrs, "count");
    require_extent(c, count);
    return range_of(c, count, attr<Dim>(c.call.attrs, "start"), attr<Dim>(c.call.attrs, "step"),
                    attr<DType>(c.call.attrs, "dtype"));
  }
  if (c.inputs.size() != 3) c.fail("takes three operands or none", "give start, stop and step");
  require_same_dtype(c);
  for (size_t i = 0; i < 3; ++i) require_rank(c, i, 0);
  const DType t = dtype(c, 0);
  if (t == DType::kBool) c.fail("a range of bools", "use integers or floats");
  if (c.call.attrs.contains("dtype") && attr<DType>(c.call.attrs, "dtype") != t) {
    c.fail("the dtype is that of the operands", "insert cast");
  }
  if (t != DType::kI64 && t != DType::kI32) {
    // Floats (and narrow integers) are counted at run time.
    const bool told = c.call.attrs.contains("count");
    return {tensor_type({told ? attr<Dim>(c.call.attrs, "count") : c.fresh()}, t), std::nullopt};
  }
  const Dim start = extents_of(c, 0, "the start").at(0), stop = extents_of(c, 1, "the stop").at(0),
            step = extents_of(c, 2, "the step").at(0);
  if (step.is_constant(0)) c.fail("a step of 0", "use a positive or negative step");
  if (!step.as_constant()) {
    c.require_equal(is_step(step), Dim(1), "the step is not 0");
  }
  const Dim count = c.dims.simplify(max(Dim(0), steps_in(stop - start, step)));
  RelationResult r = range_of(c, count, start, step, t);
  r.resolved = {{{"count", count}, {"start", start}, {"step", step}, {"dtype", t}}, 0};
  return r;
}

RelationResult relate_read_extents(RelationContext& c) {
  if (!tracks_contents(dtype(c, 0))) require_dtype(c, 0, DType::kI64);
  const auto& symbols = attr<std::vector<std::string>>(c.call.attrs, "symbols");
  auto n = element_count(c.inputs[0]).as_constant();
  if (!n || *n != static_cast<int64_t>(symbols.size())) {
    c.fail(fmt::format("{} symbols", symbols.size()), "name every element of the operand once");
  }
  Dims contents;
  for (const std::string& s : symbols) contents.push_back(Dim::symbol(s));
  return {c.inputs[0], std::move(contents)};
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

RelationResult relate_device(RelationContext& c) {
  for (const char* name : {"device", "from"}) {
    if (!c.call.attrs.contains(name)) continue;
    const int64_t number = attr<int64_t>(c.call.attrs, name);
    if (is_device(number)) continue;
    std::string known;
    for (int32_t d = 0; d < kDeviceCount; ++d)
      known += fmt::format("{}{} ({})", d ? ", " : "", d, device_name(d));
    c.fail(fmt::format("there is no device {}", number), "the devices are " + known);
  }
  return {c.inputs[0], contents_of(c, 0)};
}

// After memory lowering the types are what the lowering says they are.
RelationResult relate_lowered(RelationContext& c) {
  c.fail("an operator of the lowered IR has no type relation", "infer types before lowering");
}

}  // namespace nimble::ir
