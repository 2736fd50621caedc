// Operators that write at indices, and those that build tensors of positions.
//
// Every scatter is one of rows: the indices of elements or of tuples are combined to the row of a
// flattened tensor, in integer arithmetic that the run does. An index outside its own axis must not
// fall into a neighbour's row, so it becomes one that is outside the whole tensor, which refuses
// it.
#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/onnx/run_axes.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

// An index counted from the front, and whether it lies inside the extent.
struct Checked {
  Value index, inside;
};
Checked checked(NodeContext& c, const Value& raw, const Dim& extent) {
  Arithmetic a(c.g);
  const Value v = a.cast(raw, DType::kI64), size = c.g.size(extent);
  const Value index = a.where(a.less(v, 0.0), a.add(v, size), v);
  return {index, a.both(a.greater_equal(index, 0.0), a.less(index, size))};
}

Value scatter_rows(NodeContext& c, const Value& rows, const Value& index, const Value& updates,
                   const std::string& reduction) {
  return c.g.call("scatter", {rows, index, updates}, {{"reduction", reduction}});
}

std::string reduction_of(const NodeContext& c) {
  const std::string r = c.text("reduction", "none");
  if (r != "none" && r != "add" && r != "mul" && r != "min" && r != "max")
    c.fail(fmt::format("reduction {} has no meaning", printable(r)));
  return r;
}

// out[…, index[i, j, …], …] = updates[i, j, …] along an axis.
Values scatter_elements(NodeContext& c) {
  Arithmetic a(c.g);
  const Value &x = c.in(0), &updates = c.in(2);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank()), rank = x.rank();
  if (c.in(1).rank() != rank || updates.rank() != rank)
    c.fail(fmt::format("indices of rank {} and updates of rank {} for a tensor of rank {}",
                       c.in(1).rank(), updates.rank(), rank));
  const Checked at = checked(c, c.in(1), x.dim(axis));
  std::optional<Value> flat;
  for (int64_t i = 0; i < rank; ++i) {
    const auto k = static_cast<size_t>(i);
    const Value here = i == axis ? at.index : a.range(updates.dim(k), DType::kI64, i, rank);
    flat = flat ? a.add(a.mul(*flat, c.g.size(x.dim(k))), here) : here;
  }
  const Dim total = product_of(x.dims(), 0, rank), count = product_of(updates.dims(), 0, rank);
  const Value index = a.expand(a.where(at.inside, *flat, c.g.size(total)), updates.dims());
  const Value y = scatter_rows(c, c.g.reshape(x, {total}), c.g.reshape(index, {count}),
                               c.g.reshape(updates, {count}), reduction_of(c));
  return {c.g.reshape(y, x.dims())};
}

// The row of x, flattened over its axes from `first` on, that each tuple of indices names.
struct Tuples {
  Value rows;     // the indices' dims but the last
  int64_t depth;  // axes that a tuple covers
};
Tuples rows_of(NodeContext& c, const Value& x, const Value& indices, int64_t first) {
  Arithmetic a(c.g);
  auto depth = indices.rank() > 0 ? indices.dims().back().as_constant() : std::nullopt;
  if (!depth || *depth < 1 || *depth > x.rank() - first)
    c.unsupported("the last dim of the indices is not constant", "use constant index tuples");
  std::optional<Value> flat, inside;
  for (int64_t i = 0; i < *depth; ++i) {
    Value index = c.g.slice(indices, indices.rank() - 1, Dim(i), Dim(i + 1));
    const Dim extent = x.dim(first + i);
    const Checked at = checked(c, a.squeeze(index, {-1}), extent);
    flat = flat ? a.add(a.mul(*flat, c.g.size(extent)), at.index) : at.index;
    inside = inside ? a.both(*inside, at.inside) : at.inside;
  }
  // Batches in front: each has its own rows.
  Dim total = product_of(x.dims(), first, first + *depth);
  std::optional<Value> batch;
  for (int64_t i = 0; i < first; ++i) {
    const Dim extent = x.dim(i);
    const Value here = a.range(extent, DType::kI64, i, flat->rank());
    batch = batch ? a.add(a.mul(*batch, c.g.size(extent)), here) : here;
  }
  if (batch) flat = a.add(a.mul(*batch, c.g.size(total)), *flat);
  total = total * product_of(x.dims(), 0, first);
  return {a.where(*inside, *flat, c.g.size(total)), *depth};
}

Values scatter_nd(NodeContext& c) {
  const Value &x = c.in(0), &indices = c.in(1), &updates = c.in(2);
  const Tuples t = rows_of(c, x, indices, 0);
  const Dim rows = product_of(x.dims(), 0, t.depth),
            inner = product_of(x.dims(), t.depth, x.rank());
  const Dim count = product_of(indices.dims(), 0, indices.rank() - 1);
  const Value y = scatter_rows(c, c.g.reshape(x, {rows, inner}), c.g.reshape(t.rows, {count}),
                               c.g.reshape(updates, {count, inner}), reduction_of(c));
  return {c.g.reshape(y, x.dims())};
}

Values gather_nd(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const int64_t batches = c.integer("batch_dims", 0);
  if (batches < 0 || batches >= x.rank() || batches >= c.in(1).rank())
    c.fail("batch_dims is out of range");
  const Tuples t = rows_of(c, x, c.in(1), batches);
  Dims merged = {product_of(x.dims(), 0, batches + t.depth)};
  merged.insert(merged.end(), x.dims().begin() + batches + t.depth, x.dims().end());
  return {a.gather(c.g.reshape(x, merged), t.rows, 0)};
}

// ------------------------------------------------------------------------------ positions

Values one_hot(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& indices = c.in(0);
  const int64_t rank = indices.rank() + 1, axis = c.axis(c.integer("axis", -1), rank);
  std::optional<Dims> depth;
  Value width = c.in(1);
  if (is_float(width.dtype())) width = a.cast(width, DType::kI64);
  if (!ir::element_count(width.type).is_constant(1))
    c.fail("the depth of OneHot is not one number");
  if (width.is_constant())
    depth = Dims{Dim(width.atom.constant->integer(0))};
  else
    depth = c.g.read_contents(a.cast(width, DType::kI64));
  if (!depth || depth->size() != 1) c.fail("the depth of OneHot is not one number");
  if ((*depth)[0].as_constant().value_or(0) < 0)
    c.fail(fmt::format("the depth of OneHot is {}", (*depth)[0].str()));
  Value at = a.cast(indices, DType::kI64);
  if (!(*depth)[0].as_constant())
    at = c.g.call("assert_shape", {at},
                  {{"left", Dims{ir::max((*depth)[0], Dim(0))}},
                   {"right", Dims{(*depth)[0]}},
                   {"what", std::string("the depth of OneHot is not negative")}});
  const Value classes = a.range((*depth)[0], DType::kI64, axis, rank);
  const Value size = c.g.size((*depth)[0]);
  at = a.unsqueeze(a.where(a.less(at, 0.0), a.add(at, size), at), {axis});
  const auto value = [&](int64_t i) {
    return c.g.reshape(c.g.slice(c.in(2), 0, Dim(i), Dim(i + 1)), {});
  };
  return {a.where(a.equal(classes, at), value(1), value(0))};
}

Values eye_like(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  if (x.rank() != 2) c.fail("EyeLike of a tensor whose rank is not 2");
  const DType to = c.node.find("dtype") ? dtype_of(c.integer("dtype"), c.place) : x.dtype();
  const Value ahead =
      a.sub(a.range(x.dim(1), DType::kI64, 1, 2), a.range(x.dim(0), DType::kI64, 0, 2));
  return {a.cast(a.equal(ahead, static_cast<double>(c.integer("k", 0))), to)};
}

// The part of the last two axes above, or below, a diagonal.
Values triangle(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  if (x.rank() < 2) c.fail("Trilu of a tensor without rows and columns");
  const size_t n = x.dims().size();
  Value ahead =
      a.sub(a.range(x.dim(n - 1), DType::kI64, 1, 2), a.range(x.dim(n - 2), DType::kI64, 0, 2));
  if (c.has(1)) ahead = a.sub(ahead, c.g.reshape(a.cast(c.in(1), DType::kI64), {}));
  const bool upper = c.integer("upper", 1) != 0;
  const Value kept = upper ? a.greater_equal(ahead, 0.0) : a.less_equal(ahead, 0.0);
  const Value nothing = x.dtype() == DType::kBool ? c.g.scalar(0, DType::kBool) : a.like(x, 0);
  return {a.where(kept, x, nothing)};
}

// Each sequence backwards up to its length, as it is behind.
Values reverse_sequence(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const int64_t time = c.integer("time_axis", 0), batch = c.integer("batch_axis", 1);
  if (time < 0 || time > 1 || batch != 1 - time) c.fail("time_axis and batch_axis are 0 and 1");
  const int64_t rank = x.rank();
  Axes others;
  for (int64_t i = 0; i < rank; ++i)
    if (i != batch) others.push_back(i);
  const Value length = a.unsqueeze(a.cast(c.in(1), DType::kI64), others);
  const Value step = a.range(x.dim(time), DType::kI64, time, rank);
  const Value from = a.where(a.less(step, length), a.sub(a.sub(length, 1.0), step), step);
  return {c.g.call("gather_elements", {x, a.expand(from, x.dims())}, {{"axis", time}})};
}

Values scan_sum(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0));
  const auto along = [&](const Value& v, int64_t axis) {
    return c.g.call(c.node.op == "CumSum" ? "cumsum" : "cumprod", {v},
                    {{"axis", axis},
                     {"exclusive", c.integer("exclusive", 0) != 0},
                     {"reverse", c.integer("reverse", 0) != 0}});
  };
  const bool known = c.in(1).is_constant();
  const Value y = known ? along(x, c.integer_constant(1)) : RunAxes(c, 1, x.rank()).each(x, along);
  return {a.cast(y, c.in(0).dtype())};
}

// --------------------------------------------------------------------------- blocks of images

// Channels (block, block, c) or (c, block, block) become a block of pixels.
Values depth_to_space(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  if (x.rank() != 4) c.fail("DepthToSpace of a tensor whose rank is not 4");
  const Dim b = c.integer("blocksize");
  const Dims& d = x.dims();
  const Dim channels = c.g.simplify(ir::floordiv(d[1], b * b));
  const bool crd = c.text("mode", "DCR") == "CRD";
  const Value apart = c.g.reshape(
      x, crd ? Dims{d[0], channels, b, b, d[2], d[3]} : Dims{d[0], b, b, channels, d[2], d[3]});
  const Value y = a.transpose(apart, crd ? Axes{0, 1, 4, 2, 5, 3} : Axes{0, 3, 4, 1, 5, 2});
  return {c.g.reshape(y, {d[0], channels, d[2] * b, d[3] * b})};
}

Values space_to_depth(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  if (x.rank() != 4) c.fail("SpaceToDepth of a tensor whose rank is not 4");
  const Dim b = c.integer("blocksize");
  const Dims& d = x.dims();
  const Dim h = c.g.simplify(ir::floordiv(d[2], b)), w = c.g.simplify(ir::floordiv(d[3], b));
  const Value apart = c.g.reshape(x, {d[0], d[1], h, b, w, b});
  const Value y = a.transpose(
      apart, c.text("mode", "DCR") == "CRD" ? Axes{0, 1, 3, 5, 2, 4} : Axes{0, 3, 5, 1, 2, 4});
  return {c.g.reshape(y, {d[0], d[1] * b * b, h, w})};
}

// Cropped, or padded with zeros, around the middle; what is odd goes behind.
Values center_crop_pad(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  Axes axes = c.integers("axes");
  if (axes.empty()) axes = axes_between(0, x.rank());
  const auto wanted = c.g.read_contents(c.in(1));
  if (!wanted || wanted->size() != axes.size()) c.fail("the shape has not one extent per axis");
  Dims before(x.dims().size(), 0), after = before;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto k = static_cast<size_t>(c.axis(axes[i], x.rank()));
    const Dim extent = x.dim(k), room = (*wanted)[i] - extent;
    // Of a crop the greater half goes behind, too: -ceil((extent - wanted) / 2) is floor(room / 2)
    // for the end, so the front takes the rest.
    const Dim grown = ir::floordiv(ir::max(room, Dim(0)), Dim(2));
    const Dim cut = ir::floordiv(ir::max(Dim(0) - room, Dim(0)), Dim(2));
    before[k] = c.g.simplify(grown - cut);
    after[k] = c.g.simplify(room - before[k]);
  }
  return {a.pad(x, before, after)};
}

}  // namespace

std::span<const Operator> index_operators() {
  static const Operator kRows[] = {
      {"Scatter", scatter_elements},
      {"ScatterElements", scatter_elements},
      {"ScatterND", scatter_nd},
      {"GatherND", gather_nd},
      {"OneHot", one_hot},
      {"EyeLike", eye_like},
      {"Trilu", triangle},
      {"ReverseSequence", reverse_sequence},
      {"CumSum", scan_sum},
      {"CumProd", scan_sum},
      {"DepthToSpace", depth_to_space, nullptr, "", false, true},
      {"SpaceToDepth", space_to_depth, nullptr, "", false, true},
      {"CenterCropPad", center_crop_pad},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
