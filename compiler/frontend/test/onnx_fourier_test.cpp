// Discrete Fourier transforms against their definition, summed in f64.
#include <cmath>
#include <complex>
#include <numbers>

#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

using Signal = std::vector<std::complex<double>>;

Signal defined(const Signal& x, bool inverse) {
  const size_t n = x.size();
  Signal y(n);
  for (size_t k = 0; k < n; ++k)
    for (size_t j = 0; j < n; ++j) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(j * k % n) / double(n);
      y[k] += x[j] * std::polar(1.0, inverse ? angle : -angle);
    }
  if (inverse)
    for (auto& v : y) v /= double(n);
  return y;
}

Signal some_signal(size_t n) {
  Signal x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = {std::sin(1.7 * double(i)) + 0.3, std::cos(2.3 * double(i * i % 17)) - 0.1};
  return x;
}

// Along axis 1 of (1, n, 2, parts): the signal, then its negation beside it.
Array array_with(const Signal& x, int64_t parts) {
  std::vector<float> values;
  for (const auto& v : x)
    for (double sign : {1.0, -1.0}) {
      values.push_back(static_cast<float>(sign * v.real()));
      if (parts == 2) values.push_back(static_cast<float>(sign * v.imag()));
    }
  return array_of({1, static_cast<int64_t>(x.size()), 2, parts}, values);
}

ir::Module dft(int64_t n, int64_t parts, bool inverse, bool onesided, int64_t length = 0) {
  proto::GraphParts g;
  g.nodes = {proto::node("DFT", {"x", length ? "length" : "", "axis"}, {"y"},
                         proto::attribute("inverse", int64_t{inverse}) +
                             proto::attribute("onesided", int64_t{onesided}))};
  g.initialisers = {proto::tensor("axis", {}, std::vector<int64_t>{1})};
  if (length) g.initialisers.push_back(proto::tensor("length", {}, std::vector<int64_t>{length}));
  g.inputs = {proto::value("x", {"1", std::to_string(n), "2", std::to_string(parts)})};
  g.outputs = {proto::unshaped("y")};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g));
  return import_model(scratch.path("m.onnx"));
}

class OnnxFourier : public testing::TestWithParam<int> {};

TEST_P(OnnxFourier, IsWhatTheDefinitionSays) {
  const Signal x = some_signal(static_cast<size_t>(GetParam()));
  for (bool inverse : {false, true}) {
    const Arrays r = run_reference(dft(GetParam(), 2, inverse, false), {{"x", array_with(x, 2)}});
    expect_close(r.at("y"), array_with(defined(x, inverse), 2), 4e-6,
                 inverse ? "inverse" : "forward");
  }
}

// Radices 2, 3, 4 and 5 alone, together, twice; lengths with other primes, and 1.
INSTANTIATE_TEST_SUITE_P(Lengths, OnnxFourier,
                         testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 20, 25, 30,
                                         32, 60, 64, 120));

// Of half a spectrum a real signal, of an even and of an odd length.
TEST(OnnxFourierHalf, ComesBackAsARealSignal) {
  for (size_t n : {4, 5, 9, 10, 14, 15}) {
    Signal x = some_signal(n);
    for (auto& v : x) v = v.real();
    Signal half = defined(x, false);
    half.resize(n / 2 + 1);
    const auto bins = static_cast<int64_t>(half.size());
    const ir::Module m = dft(bins, 2, true, true, n % 2 ? static_cast<int64_t>(n) : 0);
    const Arrays r = run_reference(m, {{"x", array_with(half, 2)}});
    expect_close(r.at("y"), array_with(x, 1), 4e-6, fmt::format("{} points", n));
  }
}

// A file of a few bytes is no reason for hundreds of megabytes of roots.
TEST(OnnxFourierLong, HasNoConstants) {
  const ir::Module m = dft(int64_t{1} << 24, 2, false, false);
  size_t bytes = 0;
  for (const ir::Binding& b : m.find("main")->body->bindings)
    for (const ir::Atom& a : b.value->args)
      if (a.is_constant()) bytes += a.constant->bytes.size();
  EXPECT_LT(bytes, size_t{1} << 20);
}

}  // namespace
}  // namespace nimble::frontend
