// Reference functions of reductions, normalisations, pooling and running sums.
#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/ir/axes.h"
#include "compiler/ir/image_layout.h"
#include "compiler/reference/operand.h"

namespace nimble::reference {
namespace {

using Ints = std::vector<int64_t>;

// Of the 64 bits that an integer is kept in, those that its dtype has not.
int unused_bits(DType t) {
  return 64 - static_cast<int>(size_of(t)) * 8;
}
int64_t lowest(DType t) {
  return is_signed_int(t) ? INT64_MIN >> unused_bits(t) : 0;
}

std::vector<Array> reduce(const OpCall& c) {
  const Array& x = c.in[0];
  Array y = c.result();
  std::vector<bool> reduced(x.shape.size(), false);
  for (int64_t a : ir::attr<Ints>(c.e.attrs, "axes"))
    reduced[static_cast<size_t>(ir::axis_from_front(a, x.rank()))] = true;
  Shape kept = x.shape;
  int64_t count = 1;
  for (size_t k = 0; k < kept.size(); ++k)
    if (reduced[k]) count *= kept[k], kept[k] = 1;
  const std::string& op = c.e.op;
  const bool natural = y.dtype == DType::kU64;
  double first = op == "reduce_max"   ? -INFINITY
                 : op == "reduce_min" ? INFINITY
                 : op == "prod"       ? 1
                                      : 0;
  std::fill(y.f.begin(), y.f.end(), first);
  // The extremum of nothing is the dtype's own limit, as of ONNX's ReduceMax and ReduceMin.
  const int64_t low = lowest(y.dtype);
  const int64_t high =
      is_signed_int(y.dtype) ? ~low : static_cast<int64_t>(~uint64_t{0} >> unused_bits(y.dtype));
  int64_t first_int = op == "reduce_max" ? low : op == "reduce_min" ? high : op == "prod" ? 1 : 0;
  std::fill(y.i.begin(), y.i.end(), first_int);
  auto fold = [&](auto& acc, auto v) {
    using T = std::decay_t<decltype(v)>;
    if (v != v || acc != acc)  // NaN wins, as in numpy
      acc = v != v ? v : acc;
    else if (op == "prod")
      acc *= v;
    else if (op == "reduce_max")
      acc = std::max<T>(acc, v);
    else if (op == "reduce_min")
      acc = std::min<T>(acc, v);
    else
      acc += v;
  };
  for_each(x.shape, [&](const Shape& at, int64_t flat) {
    auto to = static_cast<size_t>(broadcast_offset(kept, at));
    auto from = static_cast<size_t>(flat);
    if (y.floating()) {
      fold(y.f[to], x.f[from]);
    } else if (natural || op == "sum" || op == "mean" || op == "prod") {  // these wrap
      auto acc = static_cast<uint64_t>(y.i[to]);
      fold(acc, static_cast<uint64_t>(x.i[from]));
      y.i[to] = static_cast<int64_t>(acc);
    } else {
      fold(y.i[to], x.i[from]);
    }
  });
  if (op == "mean") {
    for (double& v : y.f) v /= static_cast<double>(count);
    if (count != 0)
      for (int64_t& v : y.i)
        v = natural ? static_cast<int64_t>(static_cast<uint64_t>(v) / static_cast<uint64_t>(count))
                    : v / count;
  }
  return {y};
}

// Splits a shape at an axis: `outer` rows of `extent` elements at distance `inner`.
struct AxisView {
  int64_t outer, extent, inner;
};
AxisView axis_view(const Array& x, int64_t axis) {
  AxisView v{1, x.shape[static_cast<size_t>(axis)], 1};
  for (int64_t k = 0; k < axis; ++k) v.outer *= x.shape[static_cast<size_t>(k)];
  for (int64_t k = axis + 1; k < x.rank(); ++k) v.inner *= x.shape[static_cast<size_t>(k)];
  return v;
}

// Calls `line(positions)` for each line along the axis, positions flat.
template <class Line>
void for_each_line(const AxisView& v, const Line& line) {
  std::vector<size_t> at(static_cast<size_t>(v.extent));
  for (int64_t o = 0; o < v.outer; ++o)
    for (int64_t i = 0; i < v.inner; ++i) {
      for (int64_t e = 0; e < v.extent; ++e)
        at[static_cast<size_t>(e)] = static_cast<size_t>((o * v.extent + e) * v.inner + i);
      line(at, o * v.inner + i);
    }
}

std::vector<Array> along_axis(const OpCall& c) {
  const Array& x = c.in[0];
  Array y = c.result();
  const std::string& op = c.e.op;
  AxisView view = axis_view(x, ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), x.rank()));
  for_each_line(view, [&](const std::vector<size_t>& at, int64_t) {
    if (op == "l2_normalize") {
      double sum = 0;
      for (size_t p : at) sum += x.f[p] * x.f[p];
      double norm = std::max(std::sqrt(sum), ir::attr<double>(c.e.attrs, "epsilon"));
      for (size_t p : at) y.f[p] = x.f[p] / norm;
      return;
    }
    double top = -INFINITY, total = 0;
    for (size_t p : at) top = std::max(top, x.f[p]);
    for (size_t p : at) total += std::exp(x.f[p] - top);
    for (size_t p : at)
      y.f[p] = op == "softmax" ? std::exp(x.f[p] - top) / total : x.f[p] - top - std::log(total);
  });
  return {y};
}

std::vector<Array> scan(const OpCall& c) {
  const Array& x = c.in[0];
  Array y = c.result();
  bool exclusive = ir::attr_or(c.e.attrs, "exclusive", false);
  bool reverse = ir::attr_or(c.e.attrs, "reverse", false);
  AxisView view = axis_view(x, ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), x.rank()));
  for_each_line(view, [&](std::vector<size_t> at, int64_t) {
    if (reverse) std::reverse(at.begin(), at.end());
    const bool product = c.e.op == "cumprod";
    double all = product;
    uint64_t whole = product;
    for (size_t p : at) {
      if (y.floating()) {
        const double next = product ? all * x.f[p] : all + x.f[p];
        y.f[p] = exclusive ? all : next;
        all = next;
      } else {
        const auto v = static_cast<uint64_t>(x.i[p]);
        const uint64_t next = product ? whole * v : whole + v;
        y.i[p] = static_cast<int64_t>(exclusive ? whole : next);
        whole = next;
      }
    }
  });
  return {y};
}

std::vector<Array> argmax(const OpCall& c) {
  const Array& x = c.in[0];
  Array y = c.result();
  AxisView view = axis_view(x, ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), x.rank()));
  for_each_line(view, [&](const std::vector<size_t>& at, int64_t to) {
    int64_t best = 0;
    // As the maximum of numbers and a NaN is NaN, the first NaN is where it stands.
    const auto larger = [&](size_t a, size_t b) {
      if (x.floating()) return x.f[a] > x.f[b] || (std::isnan(x.f[a]) && !std::isnan(x.f[b]));
      return integer_less(x.dtype, x.i[b], x.i[a]);
    };
    for (size_t e = 1; e < at.size(); ++e)
      if (larger(at[e], at[static_cast<size_t>(best)])) best = static_cast<int64_t>(e);
    y.i[static_cast<size_t>(to)] = best;
  });
  return {y};
}

std::vector<Array> layer_norm(const OpCall& c) {
  const Array& x = c.in[0];
  Array y = c.result();
  int64_t axis = ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), x.rank());
  auto epsilon = ir::attr<double>(c.e.attrs, "epsilon");
  int64_t rows = 1, width = 1;
  for (int64_t k = 0; k < x.rank(); ++k)
    (k < axis ? rows : width) *= x.shape[static_cast<size_t>(k)];
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t k = 0; k < width; ++k) mean += x.f[static_cast<size_t>(r * width + k)];
    mean /= static_cast<double>(width);
    for (int64_t k = 0; k < width; ++k) {
      double d = x.f[static_cast<size_t>(r * width + k)] - mean;
      variance += d * d;
    }
    variance /= static_cast<double>(width);
    for (int64_t k = 0; k < width; ++k) {
      auto p = static_cast<size_t>(r * width + k);
      y.f[p] = (x.f[p] - mean) / std::sqrt(variance + epsilon) *
                   c.in[1].f[static_cast<size_t>(k % c.in[1].size())] +
               c.in[2].f[static_cast<size_t>(k % c.in[2].size())];
    }
  }
  return {y};
}

std::vector<Array> pool2d(const OpCall& c) {
  const Array& x = c.in[0];
  Array y = c.result();
  bool maximum = c.e.op == "max_pool2d";
  bool count_pad = ir::attr_or(c.e.attrs, "count_include_pad", false);
  const auto& kernel = ir::attr<Ints>(c.e.attrs, "kernel");
  const auto& strides = ir::attr<Ints>(c.e.attrs, "strides");
  const auto& pads = ir::attr<Ints>(c.e.attrs, "pads");
  const auto& dilations = ir::attr<Ints>(c.e.attrs, "dilations");
  const ir::ImageLayout l = ir::image_layout_of(c.e.attrs);
  const Shape steps = strides_of(x.shape);
  int64_t height = x.shape[l.spatial[0]], width = x.shape[l.spatial[1]];
  for_each(y.shape, [&](const Shape& at, int64_t flat) {
    double acc = maximum ? -INFINITY : 0;
    int64_t largest = lowest(y.dtype);  // of integers, which doubles of 53 bits do not hold
    int64_t count = 0;
    for (int64_t i = 0; i < kernel[0]; ++i)
      for (int64_t j = 0; j < kernel[1]; ++j) {
        int64_t r = at[l.spatial[0]] * strides[0] - pads[0] + i * dilations[0];
        int64_t q = at[l.spatial[1]] * strides[1] - pads[1] + j * dilations[1];
        // A window hung over the end by ceil_mode never counts what lies beyond the padding.
        if (count_pad && r < height + pads[2] && q < width + pads[3]) ++count;
        if (r < 0 || r >= height || q < 0 || q >= width) continue;
        if (!count_pad) ++count;
        const int64_t from = at[0] * steps[0] + at[l.channel] * steps[l.channel] +
                             r * steps[l.spatial[0]] + q * steps[l.spatial[1]];
        const int64_t whole = x.floating() ? 0 : x.i[static_cast<size_t>(from)];
        if (integer_less(y.dtype, largest, whole)) largest = whole;
        const double v = x.number(from);
        acc = maximum ? std::max(acc, v) : acc + v;
      }
    if (maximum && !y.floating()) {
      y.i[static_cast<size_t>(flat)] = largest;
      return;
    }
    double value = maximum || count == 0 ? acc : acc / static_cast<double>(count);
    y.floating() ? void(y.f[static_cast<size_t>(flat)] = value)
                 : void(y.i[static_cast<size_t>(flat)] = static_cast<int64_t>(value));
  });
  return {y};
}

}  // namespace

ReferenceFunction find_reduction(const std::string& op) {
  static const std::map<std::string, ReferenceFunction> kTable = {{"sum", reduce},
                                                                  {"mean", reduce},
                                                                  {"reduce_max", reduce},
                                                                  {"reduce_min", reduce},
                                                                  {"prod", reduce},
                                                                  {"argmax", argmax},
                                                                  {"softmax", along_axis},
                                                                  {"log_softmax", along_axis},
                                                                  {"l2_normalize", along_axis},
                                                                  {"layer_norm", layer_norm},
                                                                  {"cumsum", scan},
                                                                  {"cumprod", scan},
                                                                  {"max_pool2d", pool2d},
                                                                  {"avg_pool2d", pool2d}};
  auto it = kTable.find(op);
  return it == kTable.end() ? nullptr : it->second;
}

}  // namespace nimble::reference
