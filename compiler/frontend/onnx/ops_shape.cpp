// Operators that move elements, and those that compute with shapes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/onnx/quantised.h"
#include "compiler/frontend/onnx/run_axes.h"
#include "compiler/ir/axes.h"
#include "vm/base/checked.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

Dim product(const Dims& d, size_t from, size_t to) {
  Dim p = 1;
  for (size_t i = from; i < to; ++i) p = p * d[i];
  return p;
}

// ------------------------------------------------------------------- shapes and constants

Values constant(NodeContext& c) {
  if (const Attribute* a = c.node.find("value"); a && a->t)
    return {c.g.constant(to_tensor(*a->t, c.file, c.external, c.place))};
  if (const Attribute* a = c.node.find("value_float"))
    return {c.g.constant(ir::Tensor::scalar_f32(a->f))};
  if (const Attribute* a = c.node.find("value_int"))
    return {c.g.constant(ir::Tensor::scalar_i64(a->i))};
  if (const Attribute* a = c.node.find("value_floats"))
    return {c.g.constant(
        ir::Tensor::of(DType::kF32, {static_cast<int64_t>(a->floats.size())}, a->floats))};
  const Attribute* a = c.node.find("value_ints");
  if (!a) c.fail("the constant has no value");
  return {
      c.g.constant(ir::Tensor::of(DType::kI64, {static_cast<int64_t>(a->ints.size())}, a->ints))};
}

std::string check_constant(const Node& n, int64_t) {
  for (const char* name : {"sparse_value", "value_string", "value_strings"})
    if (n.find(name)) return fmt::format("{} is not supported", name);
  return "";
}

Values constant_of_shape(NodeContext& c) {
  DType type = DType::kF32;
  double value = 0;
  if (const Attribute* a = c.node.find("value"); a && a->t) {
    ir::TensorRef t = to_tensor(*a->t, c.file, c.external, c.place);
    if (t->elements() != 1) c.fail("the value has more than one element");
    type = t->dtype;
    value = t->value(0);
  }
  if (!c.known(0)) return {c.g.call("full", {c.in(0)}, {{"dtype", type}, {"value", value}})};
  return {c.g.full(c.dims(0), value, type)};
}

Values shape(NodeContext& c) {
  Value all = c.g.call("shape_of", {c.in(0)});
  const int64_t r = c.in(0).rank();
  auto clamp = [&](int64_t v) { return std::clamp(v < 0 ? v + r : v, int64_t{0}, r); };
  const int64_t from = clamp(c.integer("start", 0)), to = clamp(c.integer("end", r));
  if (from == 0 && to == r) return {all};
  return {c.g.slice(all, 0, Dim(from), Dim(std::max(from, to)))};
}

Values size(NodeContext& c) {
  const Dims& d = c.in(0).dims();
  return {c.g.size(product(d, 0, d.size()))};
}

Values range_as_read(NodeContext& c) {
  Values bounds;
  Arithmetic a(c.g);
  for (size_t i = 0; i < 3; ++i) bounds.push_back(a.widened(c.g.reshape(c.in(i), {})));
  return {a.cast(c.g.call("range", bounds), c.in(0).dtype())};
}

// start, start + delta, … below limit. What the compiler does not know, the run reads.
Values range(NodeContext& c) {
  const DType type = c.in(0).dtype();
  if (is_float(type)) {
    auto start = c.number(0), limit = c.number(1), delta = c.number(2);
    if (!start || !limit || !delta) return range_as_read(c);
    const double count = std::max(0.0, std::ceil((*limit - *start) / *delta));
    if (!(count < 1e15)) c.fail("the range has too many elements");
    // A few bytes of a file are no reason for a large constant: the run makes it.
    if (count > 1 << 20) return range_as_read(c);
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(type, {static_cast<int64_t>(count)}, &data);
    for (int64_t i = 0; i < t->elements(); ++i) {
      const double v = *start + static_cast<double>(i) * *delta;
      const auto narrow = static_cast<float>(v);
      if (type == DType::kF32)
        std::memcpy(data + i * 4, &narrow, 4);
      else if (type == DType::kF64)
        std::memcpy(data + i * 8, &v, 8);
      else
        c.unsupported("a range of 16-bit floats", "compute it in float and cast");
    }
    return {c.g.constant(std::move(t))};
  }
  if (!c.known(0) || !c.known(1) || !c.known(2) || !c.dim(2).as_constant()) return range_as_read(c);
  const Dim start = c.dim(0), limit = c.dim(1);
  const int64_t delta = c.integer_constant(2);
  if (delta == 0 || delta == INT64_MIN) c.fail(fmt::format("the step of a range is {}", delta));
  const Dim span = delta > 0 ? limit - start : start - limit;
  const Dim count = c.g.simplify(ir::max(Dim(0), ir::ceildiv(span, Dim(std::abs(delta)))));
  auto first = start.as_constant();
  Value r = c.g.call(
      "range", {},
      {{"count", count}, {"start", Dim(first.value_or(0))}, {"step", Dim(delta)}, {"dtype", type}});
  return {first ? r : c.g.call("add", {r, c.in(0)})};
}

// --------------------------------------------------------------------------- rearrangement

// -1 is resolved here where the other dims divide the element count as polynomials: that is exact
// also where a symbol is 0, which a division by symbols is not.
Dims resolve(const NodeContext& c, const Dims& from, Dims to, bool allow_zero) {
  std::optional<size_t> open;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].is_constant(0) && !allow_zero) {
      if (i >= from.size()) c.fail("a 0 of the shape has no dim to copy");
      to[i] = from[i];
    } else if (to[i].is_constant(-1)) {
      if (open) c.fail("the shape has two dims of -1");
      open = i;
    }
  }
  if (!open) return to;
  Dims left = from;
  int64_t divisor = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (i == *open) continue;
    if (auto k = to[i].as_constant()) {
      const std::optional<int64_t> more = try_mul(divisor, *k);
      if (!more) return to;
      divisor = *more;
      continue;
    }
    auto same = std::find(left.begin(), left.end(), to[i]);
    if (same == left.end()) return to;
    left.erase(same);
  }
  const Dim rest = product(left, 0, left.size());
  if (divisor <= 0 || c.g.facts().divisible(rest, divisor) != ir::Proof::kYes) return to;
  to[*open] = c.g.simplify(ir::floordiv(rest, Dim(divisor)));
  return to;
}

// A shape that only the run knows, with its zeros and its -1 resolved there: what a dim would have
// to say of three such numbers is an expression that nobody simplifies.
Values reshape_as_read(NodeContext& c, bool allow_zero) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  Value to = a.cast(c.in(1), DType::kI64);
  const auto count = ir::element_count(to.type).as_constant();
  if (!count || to.rank() != 1)
    c.unsupported("the number of dims is not constant", "export it with a fixed rank");
  Value total = c.g.size(product_of(x.dims(), 0, x.rank()));
  if (!allow_zero) {
    Dims here = x.dims();
    here.resize(static_cast<size_t>(*count), 0);
    Values extents;
    for (const Dim& d : here) extents.push_back(c.g.reshape(c.g.size(d), {1}));
    if (!extents.empty()) to = a.where(a.equal(to, 0.0), a.concat(extents, 0), to);
  }
  const Value open = a.equal(to, -1.0);
  const Value known = a.reduce("prod", a.where(open, 1.0, to), {0}, false);
  to = a.where(open, a.div(total, a.maximum(known, 1.0)), to);
  const auto dims = c.g.read_contents(to);
  if (!dims) c.unsupported("the shape has too many dims", "export a smaller rank");
  return {c.g.call("reshape", {x}, {{"shape", *dims}, {"allow_zero", true}})};
}

Values reshape(NodeContext& c) {
  const Value& x = c.in(0);
  Dims to;
  if (c.opset < 5)
    for (int64_t d : c.integers("shape")) to.emplace_back(d);
  else if (!c.known(1))
    return reshape_as_read(c, c.integer("allowzero", 0) != 0);
  else
    to = c.dims(1);
  const bool allow_zero = c.integer("allowzero", 0) != 0;
  to = resolve(c, x.dims(), std::move(to), allow_zero);
  if (to == x.dims()) return {x};
  // What is resolved to 0 (-1 beside no elements) copies nothing.
  const bool zero = std::ranges::any_of(to, [](const Dim& d) { return d.is_constant(0); });
  return {c.g.call("reshape", {x}, {{"shape", std::move(to)}, {"allow_zero", allow_zero || zero}})};
}

Values flatten(NodeContext& c) {
  const Value& x = c.in(0);
  const int64_t axis = c.integer("axis", 1);
  if (axis < -x.rank() || axis > x.rank()) c.fail("the axis of Flatten is out of range");
  const auto at = static_cast<size_t>(ir::axis_from_front(axis, x.rank()));
  return {c.g.reshape(x, {product(x.dims(), 0, at), product(x.dims(), at, x.dims().size())})};
}

Values squeeze(NodeContext& c) {
  const Value& x = c.in(0);
  if (c.axes_are_read(1)) return {RunAxes(c, 1, x.rank()).dropped(x)};
  Axes axes;
  if (auto given = c.axes(1)) {
    axes = *given;
  } else {
    for (int64_t i = 0; i < x.rank(); ++i)
      if (x.dim(i).is_constant(1)) axes.push_back(i);
  }
  if (axes.empty()) return {x};
  return {c.g.call("squeeze", {x}, {{"axes", axes}})};
}

// Where an axis is new, 1; elsewhere the next extent of x: as many are before it as axes are old.
Values unsqueeze_as_read(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const auto n = ir::element_count(c.in(1).type).as_constant();
  RunAxes axes(c, 1, x.rank() + n.value_or(0));
  const Value old = a.cast(a.negation(axes.mask()), DType::kI64);
  const Value before = c.g.call("cumsum", {old}, {{"axis", int64_t{0}}, {"exclusive", true}});
  // A scalar has no extent to take, and none is taken.
  Values extents;
  for (const Dim& d : x.dims()) extents.push_back(c.g.reshape(c.g.size(d), {1}));
  extents.push_back(c.g.constant(ir::Tensor::of(DType::kI64, {1}, Axes{1})));
  const Value shape = a.where(axes.mask(), 1.0, a.gather(a.concat(extents, 0), before, 0));
  return {axes.shaped(x, shape)};
}

Values unsqueeze(NodeContext& c) {
  if (c.axes_are_read(1)) return unsqueeze_as_read(c);
  auto axes = c.axes(1);
  if (!axes) c.fail("Unsqueeze has no axes");
  return {c.g.call("unsqueeze", {c.in(0)}, {{"axes", *axes}})};
}

Values transpose(NodeContext& c) {
  Axes reversed;
  for (int64_t i = c.in(0).rank(); i-- > 0;) reversed.push_back(i);
  const Axes axes = c.integers("perm", reversed);
  const Value y = c.g.call("transpose", {c.in(0)}, {{"axes", axes}});
  // Weights that exporters quantise lie the other way round than their product reads them.
  if (auto q = c.g.quantised(c.in(0))) {
    q->values = c.g.call("transpose", {q->values}, {{"axes", axes}});
    q->axis = std::find(axes.begin(), axes.end(), q->axis) - axes.begin();
    c.g.note_quantised(y, *std::move(q));
  }
  return {y};
}

Values concat(NodeContext& c) {
  Values parts;
  for (size_t i = 0; i < c.count(); ++i) parts.push_back(c.in(i));
  if (parts.empty()) c.fail("Concat has no inputs");
  if (parts.size() == 1) return parts;
  const ir::Attrs attrs = {{"axis", c.integer("axis", c.opset < 4 ? 1 : 0)}};
  // Bytes of one scale stay bytes.
  if (auto first = c.g.quantised(parts[0])) {
    Values bytes;
    for (const Value& v : parts)
      if (const auto q = c.g.quantised(v); q && is_scaled_alike(*first, *q))
        bytes.push_back(q->values);
    if (bytes.size() == parts.size()) {
      first->values = c.g.call("concat", bytes, attrs);
      return {dequantised(c, *first)};
    }
  }
  return {c.g.call("concat", parts, attrs)};
}

Values split(NodeContext& c) {
  const Value& x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const Dim extent = x.dim(axis);
  const auto parts = static_cast<int64_t>(c.node.outputs.size());
  Dims sizes;
  if (c.node.find("split"))
    for (int64_t s : c.integers("split")) sizes.emplace_back(s);
  else if (c.has(1))
    sizes = c.read(1);
  else
    for (int64_t i = 0; i < parts; ++i) {
      // Equal parts; where they don't divide, the last is shorter (opset 18).
      const Dim chunk = ir::ceildiv(extent, Dim(parts));
      sizes.push_back(i + 1 < parts ? chunk : extent - chunk * Dim(parts - 1));
    }
  if (static_cast<int64_t>(sizes.size()) != parts) c.fail("Split has not one size per output");
  Values out;
  Dim at = 0;
  for (const Dim& s : sizes) {
    out.push_back(c.g.slice(x, axis, at, c.g.simplify(at + s)));
    at = at + s;
  }
  return out;
}

// Bounds that the run reads.
Values slice_as_read(NodeContext& c, Axes axes) {
  // Where not even the number of starts is known it is that of the axes, or one: the reshape checks
  // that. Exporters slice starts out of tensors by positions that only the run knows.
  const auto n = ir::element_count(c.in(1).type).as_constant();
  const auto count = n.value_or(axes.empty() ? 1 : static_cast<int64_t>(axes.size()));
  for (int64_t i = static_cast<int64_t>(axes.size()); i < count; ++i) axes.push_back(i);
  Values args = {c.in(0)};
  for (size_t i : {size_t{1}, size_t{2}, size_t{4}})
    if (c.has(i)) args.push_back(n ? c.in(i) : c.g.reshape(c.in(i), {Dim(count)}));
  return {c.g.call("slice", args, {{"axes", axes}})};
}

Values slice(NodeContext& c) {
  const Value& x = c.in(0);
  Dims starts, ends, steps;
  Axes axes;
  if (c.opset < 10) {
    for (int64_t v : c.integers("starts")) starts.emplace_back(v);
    for (int64_t v : c.integers("ends")) ends.emplace_back(v);
    axes = c.integers("axes");
  } else {
    if (c.has(3)) axes = c.constants(3);
    if (!c.known(1) || !c.known(2) || (c.has(4) && !c.known(4))) return slice_as_read(c, axes);
    starts = c.dims(1);
    ends = c.dims(2);
    if (c.has(4)) steps = c.dims(4);
  }
  if (axes.empty())
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (steps.empty()) steps.assign(starts.size(), 1);
  // Whole axes, which exporters like to slice, stay as they are.
  const bool whole = std::all_of(axes.begin(), axes.end(), [&](const int64_t& a) {
    const auto i = static_cast<size_t>(&a - axes.data());
    if (i >= starts.size() || i >= ends.size() || i >= steps.size()) return false;
    const Dim& extent = x.dim(c.axis(a, x.rank()));
    const bool to_end = ends[i] == extent || ends[i].as_constant().value_or(0) >= INT64_MAX - 1;
    return steps[i].is_constant(1) && starts[i].is_constant(0) && to_end;
  });
  if (whole) return {x};
  return {c.g.call("slice", {x},
                   {{"axes", axes}, {"starts", starts}, {"ends", ends}, {"steps", steps}})};
}

Values expand(NodeContext& c) {
  if (!c.known(1)) {
    // A shape of which not even the length is known is as long as x has axes: the reshape checks
    // it.
    const bool counted = ir::element_count(c.in(1).type).as_constant().has_value();
    const Value to = counted ? c.in(1) : c.g.reshape(c.in(1), {Dim(c.in(0).rank())});
    return {c.g.call("expand", {c.in(0), to})};
  }
  Dims to = c.dims(1);
  if (to == c.in(0).dims()) return {c.in(0)};
  return {c.g.call("expand", {c.in(0)}, {{"shape", std::move(to)}})};
}

Values tile(NodeContext& c) {
  const Value& x = c.in(0);
  if (!c.known(1)) return {c.g.call("tile", {x, c.in(1)})};
  const Dims& repeats = c.dims(1);
  if (repeats.size() != x.dims().size()) c.fail("Tile has not one repeat per axis");
  if (repeats == Dims(repeats.size(), Dim(1))) return {x};
  return {c.g.call("tile", {x}, {{"repeats", repeats}})};
}

// Where each place of a padded axis of extent n comes from.
Value pad_source(Arithmetic& a, const Value& place, const Value& n, const std::string& mode) {
  if (mode == "edge") return a.minimum(a.maximum(place, 0.0), a.sub(n, 1.0));
  if (mode == "wrap") return a.mod(place, n);
  // reflect: 0 1 2 1 0 1 …, with period 2 (n - 1), which is 1 for a single element.
  const Value last = a.sub(n, 1.0);
  const Value at = a.mod(place, a.maximum(a.mul(last, 2.0), 1.0));
  return a.sub(last, a.abs(a.sub(at, last)));
}

Values pad(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  Dims pads;
  Axes axes;
  double value = 0;
  std::optional<Value> unknown;  // a padding value that the run knows
  if (c.opset < 11) {
    for (int64_t p : c.integers("pads")) pads.emplace_back(p);
    value = c.real("value", 0);
  } else {
    // Which axes they mean is known, so that elements that the run reads can stand in attributes.
    auto read = c.g.read_contents(c.in(1));
    if (!read) c.unsupported("the number of pads is not constant", "export it with a fixed rank");
    pads = *read;
    if (c.has(2)) {
      if (auto v = c.number(2))
        value = *v;
      else
        unknown = c.g.reshape(c.in(2), {});
    }
    if (c.has(3)) axes = c.constants(3);
  }
  if (axes.empty()) axes = axes_between(0, x.rank());
  if (pads.size() != 2 * axes.size()) c.fail("Pad has not two pads per axis");
  Dims before(x.dims().size(), 0), after = before;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto k = static_cast<size_t>(c.axis(axes[i], x.rank()));
    before[k] = pads[i];
    after[k] = pads[i + axes.size()];
  }
  const std::string mode = c.text("mode", "constant");
  if (mode == "constant") {
    Value y = a.pad(x, before, after, value);
    if (!unknown) return {y};
    const Value inside = c.g.full(x.dims(), 1, DType::kBool);
    return {a.where(a.pad(inside, before, after), y, *unknown)};
  }
  if (mode != "edge" && mode != "wrap" && mode != "reflect")
    c.fail(fmt::format("mode {} has no meaning", printable(mode)));
  Value y = x;
  for (size_t k = 0; k < before.size(); ++k) {
    if (before[k].is_constant(0) && after[k].is_constant(0)) continue;
    const Dim extent = x.dim(k);
    const Value place = a.sub(a.range(c.g.simplify(extent + before[k] + after[k]), DType::kI64),
                              c.g.size(before[k]));
    y = a.gather(y, pad_source(a, place, c.g.size(extent), mode), static_cast<int64_t>(k));
  }
  return {y};
}

// -------------------------------------------------------------------------------- indexing

Values gather(NodeContext& c) {
  return {c.g.call("gather", {c.in(0), c.in(1)}, {{"axis", c.integer("axis", 0)}})};
}

Values gather_elements(NodeContext& c) {
  return {c.g.call("gather_elements", {c.in(0), c.in(1)}, {{"axis", c.integer("axis", 0)}})};
}

}  // namespace

std::span<const Operator> shape_operators() {
  static const Operator kRows[] = {
      {"Constant", constant, check_constant},
      {"ConstantOfShape", constant_of_shape},
      {"Shape", shape},
      {"Size", size},
      {"Range", range},
      {"Reshape", reshape, nullptr, "", false, true},
      {"Flatten", flatten, nullptr, "", false, true},
      {"Squeeze", squeeze, nullptr, "", false, true},
      {"Unsqueeze", unsqueeze, nullptr, "", false, true},
      {"Transpose", transpose},
      {"Concat", concat},
      {"Split", split, nullptr, "", false, true},
      {"Slice", slice, nullptr, "", false, true},
      {"Expand", expand, nullptr, "", false, true},
      {"Tile", tile, nullptr, "", false, true},
      {"Pad", pad},
      {"Gather", gather, nullptr, "", false, true},
      {"GatherElements", gather_elements},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
