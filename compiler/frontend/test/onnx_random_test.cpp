// Random operators: that their numbers have the distribution asked for, by fixed seeds; that nodes
// and iterations draw different ones and runs the same; the edges of the intervals.
//
// A statistic of n independent draws is held to five of its own standard deviations, Kolmogorov and
// Smirnov's distance to 2.2 / sqrt(n): both are exceeded once in more than ten thousand seeds, and
// the seeds are fixed.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"
#include "vm/base/half.h"

namespace nimble::frontend {
namespace {

constexpr int64_t kFloat = 1, kBool = 9, kHalf = 10, kDouble = 11, kBFloat = 16;

Arrays run(const std::vector<std::string>& nodes, const std::vector<std::string>& outputs,
           const Arrays& inputs = {}) {
  proto::GraphParts g;
  g.nodes = nodes;
  for (const auto& [name, value] : inputs)
    g.inputs.push_back(
        proto::value(name, std::vector<std::string>(value.shape.size(), ""), kFloat));
  for (const std::string& name : outputs) g.outputs.push_back(proto::bytes(1, name));
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g, 22));
  return run_reference(import_model(scratch.path("m.onnx")), inputs);
}

std::vector<double> numbers(const Array& a) {
  std::vector<double> out;
  for (size_t i = 0; i < a.bytes.size() / size_of(a.dtype); ++i) {
    const uint8_t* at = a.bytes.data() + i * size_of(a.dtype);
    const auto read = [&](auto zero) {
      std::memcpy(&zero, at, sizeof zero);
      return zero;
    };
    out.push_back(a.dtype == DType::kF64    ? read(double{})
                  : a.dtype == DType::kF32  ? double(read(float{}))
                  : a.dtype == DType::kF16  ? double(f32_from_f16(read(uint16_t{})))
                  : a.dtype == DType::kBF16 ? double(f32_from_bf16(read(uint16_t{})))
                  : a.dtype == DType::kI64  ? double(read(int64_t{}))
                  : a.dtype == DType::kI32  ? double(read(int32_t{}))
                                            : double(read(uint8_t{})));
  }
  return out;
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<double>& x) {
  Moments m;
  for (double v : x) m.mean += v / double(x.size());
  for (double v : x) m.variance += (v - m.mean) * (v - m.mean) / double(x.size());
  return m;
}

// The largest distance of the empirical from the true distribution function.
double distance(std::vector<double> x, const std::function<double(double)>& distribution) {
  std::sort(x.begin(), x.end());
  double most = 0;
  const auto n = double(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double f = distribution(x[i]);
    most = std::max({most, f - double(i) / n, double(i + 1) / n - f});
  }
  return most;
}

std::string shape(std::vector<int64_t> dims) {
  return proto::attribute("shape", std::move(dims));
}

TEST(OnnxRandom, UniformNumbersFillTheInterval) {
  const int64_t n = 20000;
  for (int64_t type : {kFloat, kDouble}) {
    const Arrays r =
        run({proto::node("RandomUniform", {}, {"y"},
                         shape({100, 200}) + proto::attribute("dtype", type) +
                             proto::attribute("low", -3.0f) + proto::attribute("high", 5.0f) +
                             proto::attribute("seed", 7.0f))},
            {"y"});
    EXPECT_EQ(r.at("y").shape, (std::vector<int64_t>{100, 200}));
    const std::vector<double> x = numbers(r.at("y"));
    const Moments m = moments(x);
    EXPECT_NEAR(m.mean, 1, 5 * std::sqrt(64.0 / 12 / n));
    EXPECT_NEAR(m.variance, 64.0 / 12, 5 * std::sqrt(64.0 * 64 / 180 / n));
    EXPECT_LT(distance(x, [](double v) { return (v + 3) / 8; }), 2.2 / std::sqrt(n));
    EXPECT_GE(*std::min_element(x.begin(), x.end()), -3);
    EXPECT_LT(*std::max_element(x.begin(), x.end()), 5);
  }
}

TEST(OnnxRandom, NormalNumbersHaveTheirMoments) {
  const int64_t n = 20000;
  for (int64_t type : {kFloat, kDouble, kHalf}) {
    const Arrays r =
        run({proto::node("RandomNormal", {}, {"y"},
                         shape({n}) + proto::attribute("dtype", type) +
                             proto::attribute("mean", -1.0f) + proto::attribute("scale", 2.0f) +
                             proto::attribute("seed", 11.0f))},
            {"y"});
    const std::vector<double> x = numbers(r.at("y"));
    const Moments m = moments(x);
    EXPECT_NEAR(m.mean, -1, 5 * 2 / std::sqrt(n));
    EXPECT_NEAR(m.variance, 4, 5 * 4 * std::sqrt(2.0 / n));
    EXPECT_LT(distance(x, [](double v) { return 0.5 * std::erfc(-(v + 1) / 2 / std::sqrt(2.0)); }),
              2.2 / std::sqrt(n));
  }
}

// Neighbours, nodes without a seed and iterations are independent of each other; equal seeds and
// runs are not.
TEST(OnnxRandom, OnlyEqualSeedsDrawEqualNumbers) {
  const auto like = [](const std::string& out, const std::string& more = {}) {
    return proto::node("RandomUniformLike", {"x"}, {out}, more);
  };
  const Arrays in = {{"x", array_of({50, 100}, std::vector<float>(5000))}};
  const std::vector<std::string> nodes = {
      like("a"), like("b"), like("c", proto::attribute("seed", 2.0f)),
      like("d", proto::attribute("seed", 2.0f)), like("e", proto::attribute("seed", 3.0f))};
  const Arrays r = run(nodes, {"a", "b", "c", "d", "e"}, in);
  const auto correlation = [](const std::vector<double>& x, const std::vector<double>& y) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - 0.5) * (y[i] - 0.5) * 12;
    return sum / double(x.size());
  };
  const double bound = 5 / std::sqrt(5000.0);
  for (const char* x : {"a", "b", "c", "e"})
    for (const char* y : {"a", "b", "c", "e"}) {
      if (std::string(x) >= y) continue;
      EXPECT_LT(std::fabs(correlation(numbers(r.at(x)), numbers(r.at(y)))), bound) << x << y;
    }
  std::vector<double> next = numbers(r.at("a"));
  std::rotate(next.begin(), next.begin() + 1, next.end());
  EXPECT_LT(std::fabs(correlation(numbers(r.at("a")), next)), bound);
  EXPECT_EQ(r.at("c").bytes, r.at("d").bytes);
  const Arrays again = run(nodes, {"a", "b", "c", "d", "e"}, in);
  for (const auto& [name, value] : r) EXPECT_EQ(value.bytes, again.at(name).bytes) << name;
}

// Four times three iterations of a loop in a loop, one with a seed and one without.
TEST(OnnxRandom, EveryIterationDrawsAnew) {
  const auto loop_of = [](const std::vector<std::string>& nodes, const std::string& condition,
                          const std::vector<std::string>& outputs) {
    proto::GraphParts g;
    g.nodes = nodes;
    g.nodes.push_back(proto::node("Identity", {condition}, {condition + "_out"}));
    g.inputs = {proto::value(condition + "_i", {}, 7), proto::value(condition, {}, 9)};
    g.outputs = {proto::unshaped(condition + "_out", 9)};
    for (const std::string& o : outputs) g.outputs.push_back(proto::unshaped(o));
    return proto::attribute("body", g);
  };
  const std::string inner = loop_of(
      {proto::node("RandomUniform", {}, {"u"}, shape({5})),
       proto::node("RandomUniform", {}, {"v"}, shape({5}) + proto::attribute("seed", 1.0f))},
      "c", {"u", "v"});
  const std::string outer =
      loop_of({proto::node("Loop", {"three", ""}, {"us", "vs"}, inner)}, "d", {"us", "vs"});
  proto::GraphParts g;
  g.nodes = {proto::node("Loop", {"four", ""}, {"a", "b"}, outer)};
  g.initialisers = {proto::tensor("three", {}, std::vector<int64_t>{3})};
  g.inputs = {proto::value("four", {}, 7)};
  g.outputs = {proto::unshaped("a"), proto::unshaped("b")};
  Scratch scratch;
  scratch.write("m.onnx", proto::model(g, 22));
  const Array four = array_of({}, std::vector<int64_t>{4});
  const Arrays r = run_reference(import_model(scratch.path("m.onnx")), {{"four", four}});
  std::set<double> distinct;
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(r.at(name).shape, (std::vector<int64_t>{4, 3, 5}));
    for (double v : numbers(r.at(name))) distinct.insert(v);
  }
  EXPECT_EQ(distinct.size(), 120u);
  // With an input for the stream: 0 is the default and changes nothing, 1 changes every number.
  ImportOptions options;
  options.random_input = "draw";
  const ir::Module m = import_model(scratch.path("m.onnx"), options);
  EXPECT_EQ(run_reference(m, {{"four", four}}), r);
  const Array one = array_of({}, std::vector<int64_t>{1});
  for (const auto& [name, value] : run_reference(m, {{"four", four}, {"draw", one}}))
    for (double v : numbers(value)) distinct.insert(v);
  EXPECT_EQ(distinct.size(), 240u);
  options.random_input = "four";
  error_of([&] { import_model(scratch.path("m.onnx"), options); });
}

// Rounding to a narrow type reaches neither end's wrong side.
TEST(OnnxRandom, TheUpperEndIsNeverDrawn) {
  struct Interval {
    float low, high;
  };
  for (int64_t type : {kHalf, kBFloat, kFloat})
    for (const Interval i : {Interval{0, 1}, {-1, 0}, {1, 1.0078125f}, {-4.5f, -4}, {3, 3}}) {
      const Arrays r =
          run({proto::node("RandomUniform", {}, {"y"},
                           shape({3000}) + proto::attribute("dtype", type) +
                               proto::attribute("low", i.low) + proto::attribute("high", i.high))},
              {"y"});
      for (double v : numbers(r.at("y"))) {
        EXPECT_GE(v, i.low);
        if (i.low < i.high)
          EXPECT_LT(v, i.high);
        else
          EXPECT_EQ(v, i.low);
      }
    }
}

TEST(OnnxRandom, BernoulliDrawsByProbability) {
  std::vector<float> p(40000);
  for (size_t i = 0; i < p.size(); ++i) p[i] = float(i / 10000) / 3;  // 0, 1/3, 2/3, 1
  const Arrays r =
      run({proto::node("Bernoulli", {"p"}, {"y"}, proto::attribute("dtype", int64_t{kBool}))},
          {"y"}, {{"p", array_of({400, 100}, p)}});
  EXPECT_EQ(r.at("y").dtype, DType::kBool);
  const std::vector<double> y = numbers(r.at("y"));
  for (int part = 0; part < 4; ++part) {
    const double q = part / 3.0;
    double ones = 0;
    for (int i = 0; i < 10000; ++i) ones += y[static_cast<size_t>(part * 10000 + i)];
    EXPECT_NEAR(ones / 10000, q, 5 * std::sqrt(q * (1 - q) / 10000)) << part;
  }
}

TEST(OnnxRandom, MultinomialDrawsByLogProbability) {
  const float none = -std::numeric_limits<float>::infinity();
  const Arrays r =
      run({proto::node("Multinomial", {"p"}, {"y"},
                       proto::attribute("sample_size", int64_t{9000}) +
                           proto::attribute("dtype", int64_t{7}))},
          {"y"},
          {{"p", array_of({3, 3}, std::vector<float>{0, std::log(2.0f), std::log(3.0f),  //
                                                     none, 5, none, -70, none, none})}});
  EXPECT_EQ(r.at("y").shape, (std::vector<int64_t>{3, 9000}));
  EXPECT_EQ(r.at("y").dtype, DType::kI64);
  const std::vector<double> y = numbers(r.at("y"));
  for (int k = 0; k < 3; ++k) {
    const double q = (k + 1) / 6.0;
    const auto count = std::count(y.begin(), y.begin() + 9000, k);
    EXPECT_NEAR(double(count) / 9000, q, 5 * std::sqrt(q * (1 - q) / 9000)) << k;
  }
  EXPECT_EQ(std::count(y.begin() + 9000, y.begin() + 18000, 1), 9000);
  EXPECT_EQ(std::count(y.begin() + 18000, y.end(), 0), 9000);
}

// By constants, and by a ratio and a mode that the run gives; without training nothing is dropped.
TEST(OnnxRandom, DropoutDropsItsShareInTraining) {
  const int64_t n = 20000;
  for (const bool constant : {true, false})
    for (const bool training : {true, false}) {
      proto::GraphParts g;
      g.nodes = {proto::node("Cast", {"t"}, {"mode"}, proto::attribute("to", kBool)),
                 proto::node("Dropout", {"x", "r", "mode"}, {"y", "m"},
                             proto::attribute("seed", int64_t{5}))};
      g.inputs = {proto::value("x", {"n"})};
      Arrays in = {{"x", array_of({n}, std::vector<float>(size_t(n), 3.0f))}};
      if (constant) {
        g.initialisers = {proto::tensor("r", {}, std::vector<float>{0.25f}),
                          proto::tensor("t", {}, std::vector<int64_t>{training})};
      } else {
        g.inputs.push_back(proto::value("r", {}));
        g.inputs.push_back(proto::value("t", {}, 7));
        in["r"] = array_of({}, std::vector<float>{0.25f});
        in["t"] = array_of({}, std::vector<int64_t>{training});
      }
      g.outputs = {proto::unshaped("y"), proto::unshaped("m", 9)};
      Scratch scratch;
      scratch.write("m.onnx", proto::model(g, 22));
      const Arrays r = run_reference(import_model(scratch.path("m.onnx")), in);
      const std::vector<double> y = numbers(r.at("y")), m = numbers(r.at("m"));
      double stayed = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i], m[i] != 0 ? (training ? 4.0 : 3.0) : 0.0);
        stayed += m[i];
      }
      const double p = training ? 0.75 : 1;
      EXPECT_NEAR(stayed / double(n), p, 5 * std::sqrt(p * (1 - p) / double(n)));
    }
}

TEST(OnnxRandom, EmptyShapesAndScalars) {
  const Arrays r = run(
      {proto::node("RandomNormal", {}, {"y"}, shape({0, 3})),
       proto::node("RandomNormalLike", {"x"}, {"z"}),
       proto::node("RandomUniformLike", {"e"}, {"w"})},
      {"y", "z", "w"},
      {{"x", array_of({}, std::vector<float>{1})}, {"e", array_of({2, 0}, std::vector<float>{})}});
  EXPECT_EQ(r.at("y").shape, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(numbers(r.at("z")).size(), 1u);
  EXPECT_EQ(r.at("w").shape, (std::vector<int64_t>{2, 0}));
}

TEST(OnnxRandom, WhatCannotBeDrawnIsRefused) {
  const auto refused = [](const std::string& node, std::vector<std::string> dims) {
    proto::GraphParts g;
    g.nodes = {node};
    g.inputs = {proto::value("x", std::move(dims))};
    g.outputs = {proto::unshaped("y")};
    Scratch scratch;
    scratch.write("m.onnx", proto::model(g, 22));
    return error_of([&] { import_model(scratch.path("m.onnx")); });
  };
  refused(proto::node("RandomUniform", {}, {"y"}), {"n"});
  refused(proto::node("RandomUniform", {}, {"y"}, shape({-1})), {"n"});
  refused(
      proto::node("RandomNormal", {}, {"y"}, shape({1}) + proto::attribute("dtype", int64_t{7})),
      {"n"});
  refused(proto::node("Multinomial", {"x"}, {"y"}), {"n"});
  refused(proto::node("Multinomial", {"x"}, {"y"}), {"n", "0"});
}

}  // namespace
}  // namespace nimble::frontend
