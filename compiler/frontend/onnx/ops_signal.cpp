// Signals: discrete Fourier transforms, windows, mel filters.
//
// A transform of complex values of a constant length that divides well is a fast one (fourier.h).
// Any other, that of a real signal (which a complex one would do twice over), and the many short
// ones of STFT are products with the matrix of n² roots of unity, whose angles are reduced modulo n
// as integers before they meet pi: right for any n, and for the lengths of speech frames a product
// is no slower than it looks.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/fourier.h"
#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

// cos and sin of 2 pi j k / n for j < rows, k < n.
Complex roots(NodeContext& c, const Dim& rows, const Dim& n) {
  Arithmetic a(c.g);
  const Value j = a.range(rows, DType::kI64, 0, 2), k = a.range(n, DType::kI64, 1, 2);
  const Value turns = a.mod(a.mul(j, k), c.g.size(n));
  const Value angle = a.div(a.mul(a.cast(turns, DType::kF64), 2 * std::numbers::pi),
                            a.cast(c.g.size(n), DType::kF64));
  return {a.unary("cos", angle), a.unary("sin", angle)};
}

// x: (…, n) for each part; the first `bins` of the transform's n values.
Complex transform(NodeContext& c, const Value& real, const std::optional<Value>& imaginary,
                  const Dim& bins, bool inverse) {
  Arithmetic a(c.g);
  const Dim n = real.dim(real.rank() - 1);
  const Complex w = roots(c, bins, n);
  const auto times = [&](const Value& x, const Value& m) {
    return a.matmul(x, a.cast(m, x.dtype()), true);
  };
  Complex y{times(real, w.real), times(real, w.imaginary)};
  if (!inverse) y.imaginary = a.neg(y.imaginary);
  if (imaginary) {
    const Value across = times(*imaginary, w.imaginary), along = times(*imaginary, w.real);
    y.real = inverse ? a.sub(y.real, across) : a.add(y.real, across);
    y.imaginary = a.add(y.imaginary, along);
  }
  if (inverse) {
    const Value count = a.cast(c.g.size(n), real.dtype());
    y = {a.div(y.real, count), a.div(y.imaginary, count)};
  }
  return y;
}

// The same by fast_transform().
Complex fast_dft(NodeContext& c, const Complex& x, const Dim& bins, bool inverse) {
  Arithmetic a(c.g);
  const Dim& n = x.real.dim(x.real.rank() - 1);
  Complex y = fast_transform(c.g, x, inverse);
  for (Value* v : {&y.real, &y.imaginary}) {
    if (inverse) *v = a.mul(*v, 1 / static_cast<double>(*n.as_constant()));
    if (!(bins == n)) *v = c.g.slice(*v, v->rank() - 1, Dim(0), bins);
  }
  return y;
}

Value last_part(NodeContext& c, const Value& x, int64_t k) {
  Arithmetic a(c.g);
  return a.squeeze(c.g.slice(x, x.rank() - 1, Dim(k), Dim(k + 1)), {x.rank() - 1});
}

// The order of axes with one of them last, and back.
Axes to_last(int64_t axis, int64_t rank) {
  Axes order;
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return order;
}

Values dft(NodeContext& c) {
  Arithmetic a(c.g);
  const Value x = a.widened(c.in(0));
  const int64_t rank = x.rank() - 1;  // without the parts
  const bool inverse = c.integer("inverse", 0) != 0, onesided = c.integer("onesided", 0) != 0;
  int64_t axis = c.opset < 20 ? c.integer("axis", 1) : -2;
  if (c.opset >= 20 && c.has(2)) axis = c.integer_constant(2);
  axis = c.axis(axis, x.rank());
  if (axis >= rank) c.fail("the axis of DFT is that of the parts");
  const bool real = x.dim(x.rank() - 1).is_constant(1);
  const Axes order = to_last(axis, rank);
  Axes back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  // Half of a spectrum whose other half is its mirrored conjugate gives a real signal, of an even
  // length unless another is asked for.
  const bool mirrored = onesided && inverse;
  if (mirrored && real) c.fail("a onesided inverse DFT takes complex values");
  const Dim& given = x.dim(axis);
  Dim n = mirrored ? c.g.simplify((given - Dim(1)) * Dim(2)) : given;
  if (c.has(1)) {
    const auto length = c.g.read_contents(c.g.reshape(a.cast(c.in(1), DType::kI64), {1}));
    n = (*length)[0];
  }
  const Dim half = c.g.simplify(ir::floordiv(n, Dim(2)) + Dim(1));
  const auto part = [&](int64_t k) {
    Value v = a.transpose(last_part(c, x, k), order);
    const Dim wanted = mirrored ? half : n;
    if (wanted == given) return v;
    // Cut or padded with zeros to the length asked for.
    Dims before(v.dims().size(), 0), after = before;
    after.back() = c.g.simplify(wanted - given);
    return a.pad(v, before, after);
  };
  Value first = part(0);
  std::optional<Value> second;
  if (!real) second = part(1);
  if (mirrored) {
    const auto rest = [&](const Value& v) {
      return a.reversed(c.g.slice(v, rank - 1, Dim(1), c.g.simplify(n - half + Dim(1))), rank - 1);
    };
    first = a.concat({first, rest(first)}, rank - 1);
    second = a.concat({*second, a.neg(rest(*second))}, rank - 1);
  }
  const Dim extent = first.dim(first.rank() - 1);
  const Dim bins = onesided && !inverse ? half : extent;
  const Complex y = second && has_fast_transform(extent)
                        ? fast_dft(c, {first, *second}, bins, inverse)
                        : transform(c, first, second, bins, inverse);
  const auto placed = [&](const Value& v) { return a.unsqueeze(a.transpose(v, back), {rank}); };
  if (mirrored) return {a.cast(placed(y.real), c.in(0).dtype())};
  return {a.cast(a.concat({placed(y.real), placed(y.imaginary)}, rank), c.in(0).dtype())};
}

// Frames of the signal, windowed, each transformed.
Values stft(NodeContext& c) {
  Arithmetic a(c.g);
  Value x = a.widened(c.in(0));
  if (x.rank() == 2) x = a.unsqueeze(x, {2});
  const int64_t step = c.integer_constant(1);
  if (step < 1) c.fail("frame_step is not positive");
  Dim length;
  if (c.has(3))
    length = c.integer_constant(3);
  else if (c.has(2))
    length = c.in(2).dim(0);
  else
    c.fail("STFT has neither a window nor a frame length");
  const Dim count = c.g.simplify(ir::floordiv(x.dim(1) - length, Dim(step)) + Dim(1));
  const Value places = a.add(a.mul(a.range(count, DType::kI64, 0, 2), static_cast<double>(step)),
                             a.range(length, DType::kI64, 1, 2));
  const auto frames = [&](int64_t k) {
    const Value v = a.gather(last_part(c, x, k), places, 1);
    return c.has(2) ? a.mul(v, a.cast(c.in(2), v.dtype())) : v;
  };
  std::optional<Value> imaginary;
  if (!x.dim(2).is_constant(1)) imaginary = frames(1);
  const Dim bins =
      c.integer("onesided", 1) ? c.g.simplify(ir::floordiv(length, Dim(2)) + Dim(1)) : length;
  const Complex y = transform(c, frames(0), imaginary, bins, false);
  return {a.cast(a.concat({a.unsqueeze(y.real, {3}), a.unsqueeze(y.imaginary, {3})}, 3),
                 c.in(0).dtype())};
}

// a0 - a1 cos(2 pi k / n) + a2 cos(4 pi k / n), over n or (symmetric) n - 1 steps.
Values window(NodeContext& c) {
  Arithmetic a(c.g);
  const std::string& op = c.node.op;
  const double a0 = op == "HannWindow" ? 0.5 : op == "HammingWindow" ? 25.0 / 46 : 0.42;
  const double a1 = op == "HammingWindow" ? 21.0 / 46 : 0.5, a2 = op == "BlackmanWindow" ? 0.08 : 0;
  const auto size = c.g.read_contents(c.g.reshape(a.cast(c.in(0), DType::kI64), {1}));
  const Dim n = (*size)[0];
  const Dim steps = c.integer("periodic", 1) ? n : c.g.simplify(n - Dim(1));
  const Value k = a.div(a.mul(a.range(n, DType::kF64), 2 * std::numbers::pi),
                        a.cast(c.g.size(steps), DType::kF64));
  Value y = a.sub(c.g.scalar(a0, DType::kF64), a.mul(a.unary("cos", k), a1));
  if (a2 != 0) y = a.add(y, a.mul(a.unary("cos", a.mul(k, 2.0)), a2));
  return {a.cast(y, dtype_of(c.integer("output_datatype", 1), c.place))};
}

// Triangles between neighbouring mel frequencies, over the bins of a spectrum.
Values mel_matrix(NodeContext& c) {
  const auto number = [&](size_t input) {
    const std::vector<double> all = c.numbers(input);
    c.require_one(input, all.size());
    return all[0];
  };
  const auto within = [&](size_t input, int64_t most) {
    const double v = number(input);
    if (!(v >= 1 && v <= static_cast<double>(most))) c.fail("the sizes make no sense");
    return static_cast<int64_t>(v);
  };
  const int64_t bins = within(0, 4096), length = within(1, 1 << 20);
  constexpr int64_t kMostValues = 1 << 26;
  if (bins * (length / 2 + 1) > kMostValues) c.fail("the matrix is too large");
  const double rate = number(2), low = number(3), high = number(4);
  const auto mel = [](double hz) { return 2595 * std::log10(1 + hz / 700); };
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  std::vector<int64_t> points;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hz = 700 * (std::pow(10, (static_cast<double>(i) * step + mel(low)) / 2595) - 1);
    const double point = std::floor(static_cast<double>(length + 1) * hz / rate);
    if (!(std::fabs(point) < 0x1p31)) c.fail("the frequencies make no sense");
    points.push_back(static_cast<int64_t>(point));
  }
  const int64_t rows = length / 2 + 1;
  std::vector<float> values(static_cast<size_t>(rows * bins), 0);
  for (int64_t i = 0; i < bins; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t left = points[k], centre = points[k + 1], right = points[k + 2];
    const auto put = [&](int64_t row, double v) {
      if (row >= 0 && row < rows)
        values[static_cast<size_t>(row * bins + i)] = static_cast<float>(v);
    };
    if (left == centre) put(centre, 1);
    // Frequencies may lie far beyond the spectrum.
    const auto first_row = [](int64_t from) { return std::max<int64_t>(from, 0); };
    for (int64_t j = first_row(left); j <= std::min(centre, rows - 1) && left != centre; ++j)
      put(j, static_cast<double>(j - left) / static_cast<double>(centre - left));
    for (int64_t j = first_row(centre); j < std::min(right, rows) && centre != right; ++j)
      put(j, static_cast<double>(right - j) / static_cast<double>(right - centre));
  }
  Arithmetic a(c.g);
  const Value y = c.g.constant(ir::Tensor::of(DType::kF32, {rows, bins}, values));
  return {a.cast(y, dtype_of(c.integer("output_datatype", 1), c.place))};
}

}  // namespace

std::span<const Operator> signal_operators() {
  static const Operator kRows[] = {
      {"DFT", dft},
      {"STFT", stft},
      {"HannWindow", window},
      {"HammingWindow", window},
      {"BlackmanWindow", window},
      {"MelWeightMatrix", mel_matrix},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
