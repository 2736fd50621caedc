// Decimation in frequency with radices 4, 2, 3 and 5, self-sorting (Stockham). A pass with radix p
// sees the n values as (l, p, m), where l is the product of the radices before it: it transforms
// along the axis of p, multiplies part j at place i of m by exp(2 pi i j l i / n), and writes
// (p, l, m), which the next pass reads as (p l, p', m'). So the values come out in their order, and
// a pass is slices, sums and a concatenation.
//
// Beside the work, the rounding is what recommends it: each value goes through log n sums, not
// through n products as in the matrix of roots.
#include "compiler/frontend/onnx/fourier.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "compiler/frontend/onnx/arithmetic.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;
using Values = std::vector<Value>;

// A pass has roots of unity for each place, which are constants. Those of lengths beyond this,
// which a few bytes of a file may ask for, are computed by the run, however long it takes.
constexpr int64_t kMostPlaces = 1 << 22;

// The radices in the order of the passes; empty if there is another prime in n.
std::vector<int64_t> radices_of(int64_t n) {
  std::vector<int64_t> out;
  for (; n % 4 == 0; n /= 4) out.push_back(4);
  if (n % 2 == 0) {
    out.insert(out.begin(), 2);
    n /= 2;
  }
  for (int64_t p : {3, 5})
    for (; n % p == 0; n /= p) out.push_back(p);
  return n == 1 ? out : std::vector<int64_t>();
}

class Passes {
 public:
  Passes(GraphBuilder& g, const Complex& x, bool inverse)
      : g_(g), a_(g), lead_(x.real.dims()), n_(*lead_.back().as_constant()), inverse_(inverse) {
    lead_.pop_back();
  }

  Complex run(Complex x) {
    int64_t before = 1;
    for (int64_t radix : radices_of(n_)) {
      x = pass(x, before, radix);
      before *= radix;
    }
    return x;
  }

 private:
  Complex pass(const Complex& x, int64_t before, int64_t radix) {
    const int64_t after = n_ / (before * radix);
    std::vector<Complex> parts;
    for (int64_t j = 0; j < radix; ++j)
      parts.push_back({part(x.real, before, radix, j), part(x.imaginary, before, radix, j)});
    std::vector<Complex> sums = butterfly(parts);
    for (int64_t j = 1; j < radix && after > 1; ++j)
      sums[static_cast<size_t>(j)] = turned(sums[static_cast<size_t>(j)], j * before, after);
    Values real, imaginary;
    const auto rank = static_cast<int64_t>(lead_.size());
    for (const Complex& s : sums) {
      real.push_back(a_.unsqueeze(s.real, {rank}));
      imaginary.push_back(a_.unsqueeze(s.imaginary, {rank}));
    }
    return {shaped(a_.concat(real, rank), {Dim(n_)}),
            shaped(a_.concat(imaginary, rank), {Dim(n_)})};
  }

  Value shaped(const Value& x, const Dims& inner) {
    Dims dims = lead_;
    dims.insert(dims.end(), inner.begin(), inner.end());
    return g_.reshape(x, std::move(dims));
  }

  Value part(const Value& x, int64_t before, int64_t radix, int64_t j) {
    const auto axis = static_cast<int64_t>(lead_.size()) + 1;
    const Value apart = shaped(x, {Dim(before), Dim(radix), Dim(n_ / (before * radix))});
    return a_.squeeze(g_.slice(apart, axis, Dim(j), Dim(j + 1)), {axis});
  }

  Complex add(const Complex& x, const Complex& y) {
    return {a_.add(x.real, y.real), a_.add(x.imaginary, y.imaginary)};
  }
  Complex sub(const Complex& x, const Complex& y) {
    return {a_.sub(x.real, y.real), a_.sub(x.imaginary, y.imaginary)};
  }
  Complex scaled(const Complex& x, double by) {
    return {a_.mul(x.real, by), a_.mul(x.imaginary, by)};
  }
  // Times i, as an inverse transform turns; the other way in a forward one.
  Complex quarter_turn(const Complex& x) {
    if (inverse_) return {a_.neg(x.imaginary), x.real};
    return {x.imaginary, a_.neg(x.real)};
  }

  // Times exp(±2 pi i step k / n) at place k.
  Complex turned(const Complex& x, int64_t step, int64_t places) {
    const Value c = roots(step, places, false), s = roots(step, places, true);
    const Value rc = a_.mul(x.real, c), is = a_.mul(x.imaginary, s);
    const Value rs = a_.mul(x.real, s), ic = a_.mul(x.imaginary, c);
    if (inverse_) return {a_.sub(rc, is), a_.add(rs, ic)};
    return {a_.add(rc, is), a_.sub(ic, rs)};
  }

  // cos or sin of 2 pi step k / n for k < places, as a row.
  Value roots(int64_t step, int64_t places, bool sine) {
    const DType type = dtype_;
    uint8_t* data = nullptr;
    auto t = ir::Tensor::make(type, {places}, &data);
    for (int64_t k = 0; k < places; ++k) {
      const double angle =
          2 * std::numbers::pi * static_cast<double>(step * k % n_) / static_cast<double>(n_);
      const double v = sine ? std::sin(angle) : std::cos(angle);
      if (type == DType::kF64) {
        std::memcpy(data + k * 8, &v, 8);
      } else {
        const auto single = static_cast<float>(v);
        std::memcpy(data + k * 4, &single, 4);
      }
    }
    return g_.constant(std::move(t));
  }

  std::vector<Complex> butterfly(const std::vector<Complex>& x) {
    dtype_ = x[0].real.dtype();
    switch (x.size()) {
      case 2:
        return {add(x[0], x[1]), sub(x[0], x[1])};
      case 3:
        return symmetric(x, 1);
      case 4: {
        const Complex even = add(x[0], x[2]), difference = sub(x[0], x[2]);
        const Complex odd = add(x[1], x[3]), turn = quarter_turn(sub(x[1], x[3]));
        return {add(even, odd), add(difference, turn), sub(even, odd), sub(difference, turn)};
      }
      default:
        return symmetric(x, 2);
    }
  }

  // An odd radix: sums and differences of the parts that lie symmetrically, `pairs` of them, whose
  // roots are conjugates.
  std::vector<Complex> symmetric(const std::vector<Complex>& x, size_t pairs) {
    const size_t p = x.size();
    std::vector<Complex> sum(pairs + 1), difference(pairs + 1), out(p);
    out[0] = x[0];
    for (size_t k = 1; k <= pairs; ++k) {
      sum[k] = add(x[k], x[p - k]);
      difference[k] = sub(x[k], x[p - k]);
      out[0] = add(out[0], sum[k]);
    }
    for (size_t j = 1; j <= pairs; ++j) {
      Complex along = x[0];
      std::optional<Complex> across;
      for (size_t k = 1; k <= pairs; ++k) {
        const double angle =
            2 * std::numbers::pi * static_cast<double>(j * k % p) / static_cast<double>(p);
        along = add(along, scaled(sum[k], std::cos(angle)));
        const Complex part = scaled(difference[k], std::sin(angle));
        across = across ? add(*across, part) : part;
      }
      const Complex turn = quarter_turn(*across);
      out[j] = add(along, turn);
      out[p - j] = sub(along, turn);
    }
    return out;
  }

  GraphBuilder& g_;
  Arithmetic a_;
  Dims lead_;  // the axes in front
  int64_t n_;
  bool inverse_;
  DType dtype_ = DType::kF32;
};

}  // namespace

bool has_fast_transform(const Dim& n) {
  const auto c = n.as_constant();
  return c && *c > 1 && *c <= kMostPlaces && !radices_of(*c).empty();
}

Complex fast_transform(GraphBuilder& g, const Complex& x, bool inverse) {
  return Passes(g, x, inverse).run(x);
}

}  // namespace nimble::frontend::onnx
