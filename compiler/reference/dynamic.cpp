// Reference functions of the operators whose extents depend on data, and of their shape functions.
// The former make their results themselves: the values alone say how large they are.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "compiler/ir/axes.h"
#include "compiler/reference/operand.h"

namespace nimble::reference {
namespace {

using Ints = std::vector<int64_t>;

bool is_set(const Array& x, int64_t k) {
  return x.number(k) != 0;
}

std::vector<Array> vector_of(const Ints& values) {
  Array y = Array::make(DType::kI64, {static_cast<int64_t>(values.size())});
  y.i = values;
  return {y};
}

std::optional<size_t> axis_of(const OpCall& c) {
  if (!c.e.attrs.contains("axis")) return std::nullopt;
  return static_cast<size_t>(
      ir::axis_from_front(ir::attr<int64_t>(c.e.attrs, "axis"), c.in[0].rank()));
}

// The slices of x along an axis whose numbers are listed; x itself counts as flat without an axis.
Array take(const Array& x, std::optional<size_t> axis, const Ints& slices) {
  Shape from = axis ? x.shape : Shape{x.size()};
  const size_t a = axis.value_or(0);
  Shape to = from;
  to[a] = static_cast<int64_t>(slices.size());
  Array y = Array::make(x.dtype, to);
  const Shape strides = strides_of(from);
  for_each(to, [&](const Shape& at, int64_t flat) {
    int64_t k = 0;
    for (size_t i = 0; i < at.size(); ++i)
      k += strides[i] * (i == a ? slices[static_cast<size_t>(at[i])] : at[i]);
    y.copy(flat, x, k);
  });
  return y;
}

std::vector<Array> nonzero(const OpCall& c) {
  std::vector<Shape> found;
  for_each(c.in[0].shape, [&](const Shape& at, int64_t flat) {
    if (is_set(c.in[0], flat)) found.push_back(at);
  });
  const auto n = static_cast<int64_t>(found.size()), rank = c.in[0].rank();
  const bool rows = c.e.op == "argwhere";
  Array y = Array::make(DType::kI64, rows ? Shape{n, rank} : Shape{rank, n});
  for (int64_t k = 0; k < n; ++k)
    for (int64_t a = 0; a < rank; ++a)
      y.i[static_cast<size_t>(rows ? k * rank + a : a * n + k)] =
          found[static_cast<size_t>(k)][static_cast<size_t>(a)];
  return {y};
}

std::vector<Array> compress(const OpCall& c) {
  Ints slices;
  for (int64_t k = 0; k < c.in[1].size(); ++k)
    if (is_set(c.in[1], k)) slices.push_back(k);
  return {take(c.in[0], axis_of(c), slices)};
}

std::vector<Array> repeat(const OpCall& c) {
  const size_t axis = *axis_of(c);
  Ints slices;
  for (int64_t k = 0; k < c.in[0].shape[axis]; ++k) {
    int64_t times = 0;
    if (c.in.size() < 2)
      times = *ir::attr<ir::Dim>(c.e.attrs, "repeats").as_constant();
    else
      times = c.in[1].i[c.in[1].rank() == 0 || c.in[1].size() == 1 ? 0 : static_cast<size_t>(k)];
    if (times < 0) fatal(c, fmt::format("repeat {} is negative: {}", k, times));
    slices.insert(slices.end(), static_cast<size_t>(times), k);
  }
  return {take(c.in[0], axis, slices)};
}

std::vector<Array> tile(const OpCall& c) {
  Ints repeats;
  if (c.in.size() > 1) {
    repeats = c.in[1].i;
  } else {
    for (const ir::Dim& d : ir::attr<std::vector<ir::Dim>>(c.e.attrs, "repeats"))
      repeats.push_back(*d.as_constant());
  }
  Array y = c.in[0];
  for (size_t a = 0; a < repeats.size(); ++a) {
    Ints slices;
    for (int64_t r = 0; r < repeats[a]; ++r)
      for (int64_t k = 0; k < y.shape[a]; ++k) slices.push_back(k);
    y = take(y, a, slices);
  }
  return {y};
}

// Numbers in order, NaN above all, and equal to itself.
bool before(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return a < b;
}

std::vector<Array> unique(const OpCall& c) {
  const auto axis = axis_of(c);
  const int64_t n = axis ? c.in[0].shape[*axis] : c.in[0].size();
  std::vector<Array> slices;
  for (int64_t k = 0; k < n; ++k) slices.push_back(take(c.in[0], axis, {k}));
  auto compare = [&](int64_t a, int64_t b) {
    const Array &x = slices[static_cast<size_t>(a)], &y = slices[static_cast<size_t>(b)];
    for (int64_t k = 0; k < x.size(); ++k) {
      if (!x.floating() && x.i[static_cast<size_t>(k)] != y.i[static_cast<size_t>(k)])
        return integer_less(x.dtype, x.i[static_cast<size_t>(k)], y.i[static_cast<size_t>(k)]);
      if (before(x.number(k), y.number(k))) return true;
      if (before(y.number(k), x.number(k))) return false;
    }
    return false;
  };
  std::map<int64_t, Ints, decltype(compare)> classes(compare);
  for (int64_t k = 0; k < n; ++k) classes[k].push_back(k);
  std::vector<Ints> order;
  for (auto& [first, members] : classes) order.push_back(members);
  if (!ir::attr<bool>(c.e.attrs, "sorted"))
    std::sort(order.begin(), order.end(), [](const Ints& a, const Ints& b) { return a[0] < b[0]; });
  Ints first, counts, inverse(static_cast<size_t>(n));
  for (size_t u = 0; u < order.size(); ++u) {
    first.push_back(order[u][0]);
    counts.push_back(static_cast<int64_t>(order[u].size()));
    for (int64_t k : order[u]) inverse[static_cast<size_t>(k)] = static_cast<int64_t>(u);
  }
  return {take(c.in[0], axis, first), vector_of(first)[0], vector_of(inverse)[0],
          vector_of(counts)[0]};
}

std::vector<Array> topk(const OpCall& c) {
  const size_t axis = *axis_of(c);
  const bool largest = ir::attr<bool>(c.e.attrs, "largest");
  Array values = c.result(0), indices = c.result(1);
  const Array& x = c.in[0];
  const Shape from = strides_of(x.shape), to = strides_of(values.shape);
  Shape outer = x.shape;
  outer[axis] = 1;
  for_each(outer, [&](const Shape& at, int64_t) {
    int64_t base = 0, out = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      base += at[i] * from[i];
      out += at[i] * to[i];
    }
    Ints order(static_cast<size_t>(x.shape[axis]));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const int64_t p = base + a * from[axis], q = base + b * from[axis];
      if (!x.floating()) {
        const int64_t u = x.i[static_cast<size_t>(p)], v = x.i[static_cast<size_t>(q)];
        return largest ? integer_less(x.dtype, v, u) : integer_less(x.dtype, u, v);
      }
      return largest ? before(x.number(q), x.number(p)) : before(x.number(p), x.number(q));
    });
    for (int64_t k = 0; k < values.shape[axis]; ++k) {
      const int64_t chosen = order[static_cast<size_t>(k)];
      values.copy(out + k * to[axis], x, base + chosen * from[axis]);
      indices.i[static_cast<size_t>(out + k * to[axis])] = chosen;
    }
  });
  return {values, indices};
}

// Intersection over union of boxes given by two corners, or by centre and size.
double overlap(const Array& boxes, int64_t a, int64_t b, bool center) {
  auto corners = [&](int64_t box, double* out) {
    double v[4];
    for (int64_t i = 0; i < 4; ++i) v[i] = boxes.number(box * 4 + i);
    if (center) {
      out[0] = v[1] - v[3] / 2, out[1] = v[0] - v[2] / 2;
      out[2] = v[1] + v[3] / 2, out[3] = v[0] + v[2] / 2;
    } else {
      out[0] = std::min(v[0], v[2]), out[1] = std::min(v[1], v[3]);
      out[2] = std::max(v[0], v[2]), out[3] = std::max(v[1], v[3]);
    }
  };
  double p[4], q[4];
  corners(a, p);
  corners(b, q);
  const double height = std::min(p[2], q[2]) - std::max(p[0], q[0]);
  const double width = std::min(p[3], q[3]) - std::max(p[1], q[1]);
  if (height <= 0 || width <= 0) return 0;
  const double both = height * width;
  const double all = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - both;
  return all <= 0 ? 0 : both / all;
}

Ints selected(const OpCall& c, int64_t limit) {
  const Array &boxes = c.in[0], &scores = c.in[1];
  const int64_t batch = scores.shape[0], classes = scores.shape[1], n = scores.shape[2];
  const bool center = ir::attr<bool>(c.e.attrs, "center");
  const double threshold = c.in[2].number(0), least = c.in[3].number(0);
  Ints out;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t k = 0; k < classes; ++k) {
      const int64_t row = (b * classes + k) * n;
      Ints order;
      for (int64_t i = 0; i < n; ++i)
        if (scores.number(row + i) > least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
        return scores.number(row + x) > scores.number(row + y);
      });
      Ints kept;
      for (int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= limit) break;
        if (std::none_of(kept.begin(), kept.end(), [&](int64_t j) {
              return overlap(boxes, b * n + i, b * n + j, center) > threshold;
            }))
          kept.push_back(i);
      }
      for (int64_t i : kept) out.insert(out.end(), {b, k, i});
    }
  return out;
}

std::vector<Array> nms(const OpCall& c) {
  const int64_t limit =
      c.in.size() > 4 ? c.in[4].i.at(0) : *ir::attr<ir::Dim>(c.e.attrs, "limit").as_constant();
  const Ints found = selected(c, limit);
  Array y = Array::make(DType::kI64, {static_cast<int64_t>(found.size()) / 3, 3});
  y.i = found;
  return {y};
}

std::vector<Array> nms_bounded(const OpCall& c) {
  const Ints found = selected(c, *ir::attr<ir::Dim>(c.e.attrs, "limit").as_constant());
  Array rows = c.result(0), count = c.result(1);
  std::copy(found.begin(), found.end(), rows.i.begin());
  count.i[0] = static_cast<int64_t>(found.size()) / 3;
  return {rows, count};
}

std::vector<Array> prefix(const OpCall& c) {
  Array y = c.result();
  if (y.size() > c.in[0].size()) fatal(c, "the prefix is longer than the whole");
  for (int64_t k = 0; k < y.size(); ++k) y.copy(k, c.in[0], k);
  return {y};
}

std::vector<Array> count_nonzero(const OpCall& c) {
  int64_t n = 0;
  for (int64_t k = 0; k < c.in[0].size(); ++k) n += is_set(c.in[0], k);
  return vector_of({n});
}

std::vector<Array> count_unique(const OpCall& c) {
  ir::Expr all = c.e;
  all.attrs["sorted"] = true;
  return vector_of({unique({all, c.in, c.results})[1].size()});
}

std::vector<Array> count_repeat(const OpCall& c) {
  int64_t n = 0;
  for (int64_t k = 0; k < c.in[0].size(); ++k) {
    const int64_t times = c.in[0].i[static_cast<size_t>(k)];
    if (times < 0) fatal(c, fmt::format("repeat {} is negative: {}", k, times));
    n += times;
  }
  return vector_of({n});
}

std::vector<Array> count_range(const OpCall& c) {
  const double step = c.in[2].number(0);
  const double span = std::ceil((c.in[1].number(0) - c.in[0].number(0)) / step);
  if (step == 0 || !(span < 1e15)) fatal(c, "the range has no end");
  return vector_of({static_cast<int64_t>(std::max(0.0, span))});
}

std::vector<Array> scatter(const OpCall& c) {
  Array y = c.in[0];
  const Array& updates = c.in[2];
  const int64_t n = y.shape[0], row = n ? y.size() / n : 0;
  const auto& by = ir::attr<std::string>(c.e.attrs, "reduction");
  const auto combine = [&](auto a, auto b) {
    if (by == "add") return a + b;
    if (by == "mul") return a * b;
    if (by == "min") return a != a || !(b != b || b < a) ? a : b;
    if (by == "max") return a != a || !(b != b || a < b) ? a : b;
    return b;
  };
  for (int64_t i = 0; i < c.in[1].size(); ++i) {
    const int64_t at = c.in[1].i[static_cast<size_t>(i)], r = at < 0 ? at + n : at;
    if (r < 0 || r >= n) fatal(c, fmt::format("the index {} is out of range of {} rows", at, n));
    for (int64_t k = 0; k < row; ++k) {
      const auto to = static_cast<size_t>(r * row + k), from = static_cast<size_t>(i * row + k);
      if (y.floating()) {
        y.f[to] = combine(y.f[to], updates.f[from]);
      } else if (y.dtype == DType::kU64 || by == "add" || by == "mul") {
        const uint64_t v =
            combine(static_cast<uint64_t>(y.i[to]), static_cast<uint64_t>(updates.i[from]));
        y.i[to] = y.dtype == DType::kBool ? v != 0 : static_cast<int64_t>(v);
      } else {
        y.i[to] = combine(y.i[to], updates.i[from]);
      }
    }
    // Every step rounds to the dtype: the order of updates shows.
    if (by != "none") y = Array::from(*y.tensor());
  }
  return {y};
}

std::vector<Array> read_extents(const OpCall& c) {
  if (ir::attr_or<bool>(c.e.attrs, "sizes", false))
    for (const int64_t i : c.in[0].i)
      if (i < 0) fatal(c, fmt::format("{} is not a size", i));
  return {c.in[0]};
}

}  // namespace

ReferenceFunction find_dynamic(const std::string& op) {
  static const std::map<std::string, ReferenceFunction> kTable = {{"nonzero", nonzero},
                                                                  {"argwhere", nonzero},
                                                                  {"compress", compress},
                                                                  {"masked_select", compress},
                                                                  {"unique", unique},
                                                                  {"repeat", repeat},
                                                                  {"tile", tile},
                                                                  {"topk", topk},
                                                                  {"scatter", scatter},
                                                                  {"nms", nms},
                                                                  {"nms.bounded", nms_bounded},
                                                                  {"prefix", prefix},
                                                                  {"count.nonzero", count_nonzero},
                                                                  {"count.unique", count_unique},
                                                                  {"count.repeat", count_repeat},
                                                                  {"count.range", count_range},
                                                                  {"read_extents", read_extents}};
  auto it = kTable.find(op);
  return it == kTable.end() ? nullptr : it->second;
}

}  // namespace nimble::reference
