// Pooling over any number of axes.
//
// Maxima and averages over one or two axes of floats are operators of the IR. All else is gathered:
// each spatial axis becomes (places, taps) by the indices place * stride + tap * dilation into the
// padded input, and the taps are reduced.
#include <cmath>

#include "compiler/frontend/onnx/ops_window.h"
#include "compiler/frontend/onnx/quantised.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

double lowest(DType t) {
  if (is_float(t)) return -HUGE_VAL;
  return is_unsigned_int(t) ? 0 : -std::ldexp(1, 8 * static_cast<int>(size_of(t)) - 1);
}

class Pool {
 public:
  Pool(NodeContext& c, Window w) : c_(c), a_(c.g), w_(std::move(w)), x_(c.in(0)) {
    const bool ceil = c.integer("ceil_mode", 0) != 0;
    for (size_t i = 0; i < w_.axes(); ++i) {
      const Dim extent = x_.dim(i + 2);
      const Dim room = extent + w_.before[i] + w_.after[i] - Dim(w_.reach(i));
      const Dim stride = w_.strides[i];
      Dim count = c.g.simplify((ceil ? ir::ceildiv(room, stride) : ir::floordiv(room, stride)) + 1);
      // No window begins in the padding behind.
      if (ceil) count = c.g.simplify(ir::min(count, ir::ceildiv(extent + w_.before[i], stride)));
      places_.push_back(count);
      // What the last window reaches beyond the padding.
      beyond_.push_back(c.g.simplify(ir::max(Dim(0), (count - Dim(1)) * stride + Dim(w_.reach(i)) -
                                                         extent - w_.before[i] - w_.after[i])));
    }
  }

  // (n, c, places…, taps): the values under each window, side by side.
  Value windows(const Value& x, double padding) {
    Dims after = w_.after;
    for (size_t i = 0; i < after.size(); ++i) after[i] = c_.g.simplify(after[i] + beyond_[i]);
    return unfold(padded(x, w_.before, after, padding));
  }

  // How many values each window averages: padding counts if it is explicit and asked for.
  Value counts(DType type, bool with_padding) {
    Dims shape(x_.dims().size(), 1);
    std::copy(x_.dims().begin() + 2, x_.dims().end(), shape.begin() + 2);
    Value ones = padded(c_.g.full(shape, 1, type), w_.before, w_.after, with_padding ? 1 : 0);
    const Value all = unfold(padded(ones, Dims(w_.axes(), 0), beyond_, 0));
    return a_.sum(all, {all.rank() - 1}, false);
  }

  // The flat index into the input (batch and channels included) of tap `at` of each window.
  Value positions(const Value& at, bool column_major) {
    const int64_t rank = at.rank();
    Value rest = at;
    Values axes(w_.axes(), at);
    for (size_t i = w_.axes(); i-- > 0;) {
      const Value tap = a_.mod(rest, static_cast<double>(w_.kernel[i]));
      rest = a_.div(rest, static_cast<double>(w_.kernel[i]));
      const Value place =
          a_.mul(a_.range(places_[i], DType::kI64, static_cast<int64_t>(i) + 2, rank),
                 static_cast<double>(w_.strides[i]));
      axes[i] = a_.sub(a_.add(place, a_.mul(tap, static_cast<double>(w_.dilations[i]))),
                       c_.g.size(w_.before[i]));
    }
    const auto extent = [&](size_t i) { return c_.g.size(x_.dim(i)); };
    Value flat = axes[column_major ? w_.axes() - 1 : 0];
    for (size_t i = 1; i < w_.axes(); ++i) {
      const size_t axis = column_major ? w_.axes() - 1 - i : i;
      flat = a_.add(a_.mul(flat, extent(axis + 2)), axes[axis]);
    }
    const Value image = a_.add(a_.mul(a_.range(x_.dim(0), DType::kI64, 0, rank), extent(1)),
                               a_.range(x_.dim(1), DType::kI64, 1, rank));
    const Value size = c_.g.size(product_of(x_.dims(), 2, x_.rank()));
    return a_.add(a_.mul(image, size), flat);
  }

 private:
  Value padded(const Value& x, const Dims& before, const Dims& after, double value) {
    Dims low(x.dims().size(), 0), high = low;
    std::copy(before.begin(), before.end(), low.begin() + 2);
    std::copy(after.begin(), after.end(), high.begin() + 2);
    return a_.pad(x, low, high, value);
  }

  Value unfold(Value x) {
    const auto n = static_cast<int64_t>(w_.axes());
    for (int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<size_t>(i);
      const Value place =
          a_.mul(a_.range(places_[k], DType::kI64, 0, 2), static_cast<double>(w_.strides[k]));
      const Value tap = a_.mul(a_.range(Dim(w_.kernel[k]), DType::kI64, 1, 2),
                               static_cast<double>(w_.dilations[k]));
      x = a_.gather(x, a_.add(place, tap), 2 + 2 * i);
    }
    Axes order = {0, 1};
    Dims merged = {x.dim(0), x.dim(1)};
    Dim taps = 1;
    for (int64_t i = 0; i < n; ++i) {
      order.push_back(2 + 2 * i);
      merged.push_back(x.dim(2 + 2 * i));
      taps = taps * x.dim(3 + 2 * i);
    }
    for (int64_t i = 0; i < n; ++i) order.push_back(3 + 2 * i);
    merged.push_back(taps);
    return c_.g.reshape(a_.transpose(x, order), merged);
  }

  NodeContext& c_;
  Arithmetic a_;
  Window w_;
  Value x_;
  Dims places_, beyond_;
};

// The IR's pooling over two axes, where it serves.
std::optional<Value> plain_pool(NodeContext& c, const Value& x, const Window& w, const char* op) {
  Arithmetic a(c.g);
  const auto pads = w.constant_pads();
  const bool of_bytes = is_byte(x.dtype()) && std::string(op) == "max_pool2d";
  if (!pads || w.axes() > 2 || (x.dtype() != DType::kF32 && x.dtype() != DType::kF64 && !of_bytes))
    return {};
  for (size_t i = 0; i < w.axes(); ++i)  // a window of padding alone has no maximum
    if ((*pads)[i] >= w.kernel[i] || (*pads)[i + w.axes()] >= w.kernel[i] || w.dilations[i] != 1)
      return {};
  const bool one = w.axes() == 1;
  const auto two = [&](Axes v, int64_t neutral) {
    if (one) v.insert(v.begin(), neutral);
    return v;
  };
  ir::Attrs attrs = {{"kernel", two(w.kernel, 1)},
                     {"strides", two(w.strides, 1)},
                     {"pads", one ? Axes{0, (*pads)[0], 0, (*pads)[1]} : *pads},
                     {"dilations", two(w.dilations, 1)},
                     {"ceil_mode", c.integer("ceil_mode", 0) != 0}};
  if (std::string(op) == "avg_pool2d")
    attrs["count_include_pad"] = c.integer("count_include_pad", 0) != 0;
  const Value y = c.g.call(op, {one ? a.unsqueeze(x, {2}) : x}, attrs);
  return one ? a.squeeze(y, {2}) : y;
}

Values max_pool(NodeContext& c) {
  Arithmetic a(c.g);
  const Window w = window_of(c, c.in(0), c.integers("kernel_shape"));
  if (!c.wants(1)) {
    // Of dequantised numbers the largest is that of the largest byte.
    if (const auto q = c.g.quantised(c.in(0)); q && is_scaled_alike(*q, *q))
      if (const auto y = plain_pool(c, q->values, w, "max_pool2d"))
        return {dequantised(c, {*y, q->scale, q->zero, 0})};
    if (auto y = plain_pool(c, c.in(0), w, "max_pool2d")) return {*y};
  }
  Pool pool(c, w);
  const Value all = pool.windows(c.in(0), lowest(c.in(0).dtype()));
  const Value y = a.reduce("reduce_max", all, {all.rank() - 1}, false);
  if (!c.wants(1)) return {y};
  const Value at = c.g.call("argmax", {all}, {{"axis", int64_t{-1}}, {"keepdims", false}});
  return {y, pool.positions(at, c.integer("storage_order", 0) != 0)};
}

Values average_pool(NodeContext& c) {
  Arithmetic a(c.g);
  const Window w = window_of(c, c.in(0), c.integers("kernel_shape"));
  const bool with_padding = c.integer("count_include_pad", 0) != 0;
  if (auto y = plain_pool(c, c.in(0), w, "avg_pool2d")) return {*y};
  Pool pool(c, w);
  const Value all = pool.windows(a.widened(c.in(0)), 0);
  const Value sum = a.sum(all, {all.rank() - 1}, false);
  return {a.cast(a.div(sum, pool.counts(sum.dtype(), with_padding)), c.in(0).dtype())};
}

// The p-th root of the sum of p-th powers.
Value lp_reduce(Arithmetic& a, const Value& x, int64_t p, const Axes& axes, bool keep) {
  if (p == 1) return a.sum(a.abs(x), axes, keep);
  if (p == 2) return a.sqrt(a.sum(a.mul(x, x), axes, keep));
  const Value powers = a.binary("pow", a.abs(x), static_cast<double>(p));
  return a.binary("pow", a.sum(powers, axes, keep), 1 / static_cast<double>(p));
}

Values lp_pool(NodeContext& c) {
  Arithmetic a(c.g);
  Pool pool(c, window_of(c, c.in(0), c.integers("kernel_shape")));
  const Value all = pool.windows(a.widened(c.in(0)), 0);
  const Value y = lp_reduce(a, all, c.integer("p", 2), {all.rank() - 1}, false);
  return {a.cast(y, c.in(0).dtype())};
}

Values global_pool(NodeContext& c) {
  Arithmetic a(c.g);
  const Axes axes = axes_between(2, c.in(0).rank());
  if (axes.empty()) c.fail("there is no spatial axis");
  const Value& x = c.in(0);
  if (c.node.op == "GlobalLpPool") return {lp_reduce(a, x, c.integer("p", 2), axes, true)};
  return {a.reduce(c.node.op == "GlobalMaxPool" ? "reduce_max" : "mean", x, axes, true)};
}

// Each value goes back to where its maximum was; the indices are those of an image as large as the
// pooled one must have been, which output_shape may enlarge.
Values max_unpool(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const Axes kernel = c.integers("kernel_shape");
  const size_t n = kernel.size();
  const Axes strides = c.integers("strides", Axes(n, 1)), pads = c.integers("pads", Axes(2 * n, 0));
  if (x.dims().size() != n + 2 || strides.size() != n || pads.size() != 2 * n)
    c.fail("kernel_shape, strides or pads don't fit the rank");
  Dims shape = {x.dim(0), x.dim(1)};
  for (size_t i = 0; i < n; ++i)
    shape.push_back(c.g.simplify((x.dim(i + 2) - Dim(1)) * Dim(strides[i]) + Dim(kernel[i]) -
                                 Dim(pads[i]) - Dim(pads[i + n])));
  const Dim count = product_of(x.dims(), 0, x.rank());
  Value flat = c.g.full({product_of(shape, 0, x.rank())}, 0, x.dtype());
  flat = c.g.call("scatter", {flat, c.g.reshape(c.in(1), {count}), c.g.reshape(x, {count})},
                  {{"reduction", std::string("none")}});
  const Value y = c.g.reshape(flat, shape);
  if (!c.has(2)) return {y};
  Dims after = c.read(2);
  if (after.size() != shape.size()) c.fail("output_shape does not fit the rank");
  for (size_t i = 0; i < shape.size(); ++i) after[i] = c.g.simplify(after[i] - shape[i]);
  return {a.pad(y, Dims(shape.size(), 0), after)};
}

}  // namespace

std::span<const Operator> pooling_operators() {
  static const Operator kRows[] = {
      {"MaxPool", max_pool},
      {"AveragePool", average_pool},
      {"LpPool", lp_pool},
      {"GlobalAveragePool", global_pool},
      {"GlobalMaxPool", global_pool},
      {"GlobalLpPool", global_pool},
      {"MaxUnpool", max_unpool},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
