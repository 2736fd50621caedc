#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

TEST(Elementwise, ChainWithBroadcastBias) {
  check({R"(fn @f(%x: Tensor[(b, n, 37), f32], %c: Tensor[(37), f32]) {
           let %y = add(%x, %c); let %z = gelu(%y); let %w = mul(%z, 0.5f32); %w })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].size(); ++i) {
             const double y = in[0][i] + in[1][i % 37];
             out[0][i] = 0.5 * (y / 2 * (1 + std::erf(y / std::sqrt(2.0))));
           }
         },
         few({0, 1, 2, 5, 16, 33})});
}

TEST(Elementwise, FlatWhenNothingBroadcasts) {
  const Workload w = workload_of(
      "fn @f(%x: Tensor[(b, n, 8), f32], %y: Tensor[(b, n, 8), f32]) { let %z = sub(%x, %y); %z }");
  EXPECT_EQ(w.contract.symbols.size(), 1u);
  check(
      {"fn @f(%x: Tensor[(b, n, 8), f32], %y: Tensor[(b, n, 8), f32]) "
       "{ let %z = sub(%x, %y); %z }",
       "elementwise",
       [](const Arrays& in, Arrays& out) {
         for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = in[0][i] - in[1][i];
       },
       one_symbol()});
}

struct UnaryCase {
  const char* op;
  double (*f)(double);
  double low, high;
};

TEST(Elementwise, EveryUnaryFunction) {
  const UnaryCase cases[] = {
      {"neg", [](double x) { return -x; }, -3, 3},
      {"abs", [](double x) { return std::fabs(x); }, -3, 3},
      {"exp", [](double x) { return std::exp(x); }, -20, 5},
      {"log", [](double x) { return std::log(x); }, 0.01, 50},
      {"sqrt", [](double x) { return std::sqrt(x); }, 0, 50},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.1, 50},
      {"reciprocal", [](double x) { return 1 / x; }, 0.1, 50},
      {"tanh", [](double x) { return std::tanh(x); }, -6, 6},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -20, 20},
      {"erf", [](double x) { return std::erf(x); }, -4, 4},
      {"relu", [](double x) { return std::max(x, 0.0); }, -3, 3},
      {"gelu_tanh",
       [](double x) {
         return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       },
       -5, 5},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }, -10, 10},
      {"floor", [](double x) { return std::floor(x); }, -9, 9},
      {"ceil", [](double x) { return std::ceil(x); }, -9, 9},
      {"round", [](double x) { return std::nearbyint(x); }, -9, 9},
      {"sin", [](double x) { return std::sin(x); }, -9, 9},
      {"cos", [](double x) { return std::cos(x); }, -9, 9},
  };
  for (const UnaryCase& u : cases) {
    SCOPED_TRACE(u.op);
    Case c{fmt::format("fn @f(%x: Tensor[(n), f32]) {{ let %y = {}(%x); %y }}", u.op),
           "elementwise",
           [&](const Arrays& in, Arrays& out) {
             for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = u.f(in[0][i]);
           },
           few({1, 18, 70})};
    c.low = u.low;
    c.high = u.high;
    c.configurations = 0;
    check(c);
  }
}

struct BinaryCase {
  const char* op;
  double (*f)(double, double);
  const char* type;
  const char* text = "";  // of the result type, if it differs
};

TEST(Elementwise, EveryBinaryOperatorOnFloatsAndIntegers) {
  const BinaryCase cases[] = {
      {"add", [](double a, double b) { return a + b; }, "f32"},
      {"sub", [](double a, double b) { return a - b; }, "i64"},
      {"mul", [](double a, double b) { return a * b; }, "i64"},
      {"div", [](double a, double b) { return b == 0 ? 0 : std::trunc(a / b); }, "i64"},
      {"div", [](double a, double b) { return a / b; }, "f32"},
      {"mod", [](double a, double b) { return b == 0 ? 0 : a - std::floor(a / b) * b; }, "i64"},
      {"maximum", [](double a, double b) { return std::max(a, b); }, "f32"},
      {"minimum", [](double a, double b) { return std::min(a, b); }, "i64"},
      {"equal", [](double a, double b) { return double(a == b); }, "i64"},
      {"not_equal", [](double a, double b) { return double(a != b); }, "i64"},
      {"less", [](double a, double b) { return double(a < b); }, "f32"},
      {"less_equal", [](double a, double b) { return double(a <= b); }, "i64"},
      {"greater", [](double a, double b) { return double(a > b); }, "i64"},
      {"greater_equal", [](double a, double b) { return double(a >= b); }, "f32"},
      {"and", [](double a, double b) { return double(a != 0 && b != 0); }, "bool"},
      {"or", [](double a, double b) { return double(a != 0 || b != 0); }, "bool"},
  };
  for (const BinaryCase& b : cases) {
    SCOPED_TRACE(std::string(b.op) + " " + b.type);
    Case c{fmt::format("fn @f(%x: Tensor[(n, m), {0}], %y: Tensor[(m), {0}]) "
                       "{{ let %z = {1}(%x, %y); %z }}",
                       b.type, b.op),
           "elementwise",
           [&](const Arrays& in, Arrays& out) {
             const int64_t m = in[1].size();
             for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = b.f(in[0][i], in[1][i % m]);
           },
           {{3, 20}, {1, 1}, {2, 7}, {0, 3}}};
    c.low = -5;
    c.high = 5;
    c.configurations = 0;
    check(c);
  }
}

TEST(Elementwise, PowersOfFloatsAndIntegers) {
  Case c{"fn @f(%x: Tensor[(n), f32], %y: Tensor[(n), f32]) { let %z = pow(%x, %y); %z }",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = std::pow(in[0][i], in[1][i]);
         },
         few({40})};
  c.low = 0.1;
  c.high = 3;
  check(c);
  Case i{"fn @f(%x: Tensor[(n), i64], %y: Tensor[(n), i64]) { let %z = pow(%x, %y); %z }",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t k = 0; k < out[0].size(); ++k) {
             const double p = std::pow(in[0][k], in[1][k]);
             out[0][k] = in[0][k] == 0 && in[1][k] < 0 ? 0 : std::trunc(p);
           }
         },
         few({40})};
  i.low = -5;
  i.high = 6;
  check(i);
}

TEST(Elementwise, MaskFromIntegers) {
  check({R"(fn @f(%m: Tensor[(b, n), i64]) {
           let %u = unsqueeze(%m) {axes = [1, 2]};
           let %c = cast(%u) {dtype = f32};
           let %d = sub(1f32, %c);
           let %e = mul(%d, -10000f32); %e })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = (1 - in[0][i]) * -10000;
         },
         random_sizes(workload_of(R"(fn @f(%m: Tensor[(b, n), i64]) {
           let %u = unsqueeze(%m) {axes = [1, 2]}; %u })")
                          .contract.symbols.size(),
                      40, 6)});
}

TEST(Elementwise, ExtentThatMayBeOneBroadcasts) {
  check({"fn @f(%x: Tensor[(n, m), f32], %y: Tensor[(n, k), f32]) { let %z = add(%x, %y); %z }",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           const int64_t n = out[0].dim(0), m = out[0].dim(1);
           for (int64_t i = 0; i < n; ++i)
             for (int64_t j = 0; j < m; ++j)
               out[0].at(i, j) =
                   in[0].at(i, in[0].dim(1) == 1 ? 0 : j) + in[1].at(i, in[1].dim(1) == 1 ? 0 : j);
         },
         {{3, 5, 5}, {2, 20, 1}, {4, 1, 33}, {1, 1, 1}, {0, 4, 4}, {2, 64, 64}}});
}

TEST(Elementwise, HeadsApartAndTogether) {
  check({R"(fn @f(%x: Tensor[(b, n, 24), f32]) {
           let %r = reshape(%x) {shape = (b, n, 3, 8)};
           let %t = transpose(%r) {axes = [0, 2, 1, 3]}; %t })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t b = 0; b < in[0].dim(0); ++b)
             for (int64_t n = 0; n < in[0].dim(1); ++n)
               for (int64_t c = 0; c < 24; ++c) out[0].at(b, c / 8, n, c % 8) = in[0].at(b, n, c);
         },
         random_sizes(2, 20, 6)});
  check({R"(fn @f(%x: Tensor[(b, 3, n, 8), f32]) {
           let %t = transpose(%x) {axes = [0, 2, 1, 3]};
           let %r = reshape(%t) {shape = (b, n, 24)}; %r })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t b = 0; b < out[0].dim(0); ++b)
             for (int64_t n = 0; n < out[0].dim(1); ++n)
               for (int64_t c = 0; c < 24; ++c) out[0].at(b, n, c) = in[0].at(b, c / 8, n, c % 8);
         },
         random_sizes(2, 20, 6)});
  // Arithmetic behind the merged axes forces single elements; the result is the same.
  check({R"(fn @f(%x: Tensor[(b, 3, n, 8), f32], %c: Tensor[(24), f32]) {
           let %t = transpose(%x) {axes = [0, 2, 1, 3]};
           let %r = reshape(%t) {shape = (b, n, 24)};
           let %s = add(%r, %c); %s })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t b = 0; b < out[0].dim(0); ++b)
             for (int64_t n = 0; n < out[0].dim(1); ++n)
               for (int64_t c = 0; c < 24; ++c)
                 out[0].at(b, n, c) = in[0].at(b, c / 8, n, c % 8) + in[1][c];
         },
         random_sizes(2, 12, 5)});
}

TEST(Elementwise, SlicesWithStepsAndNegativeBounds) {
  check({R"(fn @f(%x: Tensor[(n, 20), f32]) {
           let %s = slice(%x) {axes = [1], starts = (-3), ends = (-17), steps = [-2]};
           let %r = relu(%s); %r })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].dim(0); ++i)
             for (int64_t j = 0; j < out[0].dim(1); ++j)
               out[0].at(i, j) = std::max(0.0, in[0].at(i, 17 - 2 * j));
         },
         few({0, 1, 3, 17})});
  check({R"(fn @f(%x: Tensor[(n, 20), f32]) {
           let %s = slice(%x) {axes = [0], starts = (1), ends = (9)}; %s })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].dim(0); ++i)
             for (int64_t j = 0; j < 20; ++j) out[0].at(i, j) = in[0].at(i + 1, j);
         },
         few({0, 1, 2, 5, 17})});
}

TEST(Elementwise, ConcatenatesAlongBothAxes) {
  check({R"(fn @f(%x: Tensor[(n, 5), f32], %y: Tensor[(n, 30), f32]) {
           let %c = concat(%x, %y) {axis = 1}; let %r = neg(%c); %r })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].dim(0); ++i)
             for (int64_t j = 0; j < 35; ++j)
               out[0].at(i, j) = -(j < 5 ? in[0].at(i, j) : in[1].at(i, j - 5));
         },
         few({0, 1, 3, 17})});
  check({R"(fn @f(%x: Tensor[(n, 20), f32], %y: Tensor[(m, 20), f32]) {
           let %c = concat(%x, %y) {axis = 0}; let %t = transpose(%c) {axes = [1, 0]}; %t })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           const int64_t n = in[0].dim(0);
           for (int64_t i = 0; i < out[0].dim(1); ++i)
             for (int64_t j = 0; j < 20; ++j)
               out[0].at(j, i) = i < n ? in[0].at(i, j) : in[1].at(i - n, j);
         },
         random_sizes(2, 20, 6)});
}

TEST(Elementwise, Pads) {
  check({R"(fn @f(%x: Tensor[(n, 18), f32]) {
           let %p = pad(%x) {before = [1, 2], after = [2, 0], value = 7.0}; %p })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].dim(0); ++i)
             for (int64_t j = 0; j < 20; ++j)
               out[0].at(i, j) = i >= 1 && i <= in[0].dim(0) && j >= 2 ? in[0].at(i - 1, j - 2) : 7;
         },
         few({0, 1, 3, 17})});
}

TEST(Elementwise, EmbeddingSumsRows) {
  Case c{R"(fn @f(%w: Tensor[(9, 40), f32], %i: Tensor[(b, n), i64], %p: Tensor[(2, 40), f32]) {
           let %g = gather(%w, %i) {axis = 0};
           let %q = gather(%p, 1i64) {axis = 0};
           let %s = add(%g, %q); %s })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < in[1].size(); ++i)
             for (int64_t j = 0; j < 40; ++j) {
               const auto k = static_cast<int64_t>(in[1][i]);
               out[0][i * 40 + j] = in[0].at(k < 0 ? k + 9 : k, j) + in[2].at(1, j);
             }
         },
         few({0, 1, 6, 21})};
  c.low = -9;
  c.high = 9;
  check(c);
}

TEST(Elementwise, GatherChecksItsIndices) {
  const Workload w = workload_of(
      "fn @f(%w: Tensor[(4, 3), f32], %i: Tensor[(n), i64]) "
      "{ let %g = gather(%w, %i) {axis = 0}; %g }");
  const TargetInfo target = test_target(256, 16);
  const Template* t = template_for(w, target);
  ASSERT_NE(t, nullptr);
  const Lowered lowered = t->lower(w, t->default_config(w, target), target, "k");
  std::vector<float> table(12, 1.f), out(6);
  for (int64_t bad : {4, -5}) {
    std::vector<int64_t> index = {1, bad};
    const std::vector<std::span<std::byte>> buffers = {std::as_writable_bytes(std::span(table)),
                                                       std::as_writable_bytes(std::span(index)),
                                                       std::as_writable_bytes(std::span(out))};
    const std::vector<int64_t> symbols = {2};
    EXPECT_NE(interpret(lowered.functions[0], buffers, symbols, 1), 0) << bad;
  }
}

TEST(Elementwise, SeveralResultsShareTheirWalk) {
  check({R"(fn @f(%x: Tensor[(n, 20), f32], %y: Tensor[(20), f32]) {
           let %a = add(%x, %y); let %b = tanh(%a);
           let %c = transpose(%a) {axes = [1, 0]}; let %t = (%a, %b, %c); %t })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < in[0].dim(0); ++i)
             for (int64_t j = 0; j < 20; ++j) {
               const double a = in[0].at(i, j) + in[1][j];
               out[0].at(i, j) = a;
               out[1].at(i, j) = std::tanh(a);
               out[2].at(j, i) = a;
             }
         },
         few({0, 1, 5, 33})});
}

TEST(Elementwise, RangeNeedsItsCountFromTheCaller) {
  const Workload w = workload_of(
      "fn @f(%x: Tensor[(n, 3), f32]) { let %r = range() {count = n, start = 2, step = 3, "
      "dtype = i64}; %r }");
  EXPECT_TRUE(w.extra_scalars.empty());
  check(
      {"fn @f(%x: Tensor[(n, 3), f32]) { let %r = range() {count = n, start = 2, step = 3, "
       "dtype = i64}; %r }",
       "elementwise",
       [](const Arrays&, Arrays& out) {
         for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = 2.0 + 3.0 * double(i);
       },
       few({0, 1, 8, 50})});
}

TEST(Elementwise, HalfPrecisionIsStorage) {
  Case c{"fn @f(%x: Tensor[(n), f16], %y: Tensor[(n), f16]) { let %z = add(%x, %y); %z }",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           for (int64_t i = 0; i < out[0].size(); ++i) out[0][i] = in[0][i] + in[1][i];
         },
         few({1, 40})};
  c.tolerance = 2e-3;
  check(c);
}

TEST(Elementwise, BatchNorm) {
  Case c{R"(fn @f(%x: Tensor[(b, 3, h, 10), f32], %s: Tensor[(3), f32], %o: Tensor[(3), f32],
               %m: Tensor[(3), f32], %v: Tensor[(3), f32]) {
           let %y = batch_norm(%x, %s, %o, %m, %v) {epsilon = 0.001}; let %r = relu(%y); %r })",
         "elementwise",
         [](const Arrays& in, Arrays& out) {
           const int64_t plane = in[0].dim(2) * 10;
           for (int64_t i = 0; i < out[0].size(); ++i) {
             const int64_t ch = i / plane % 3;
             const double y =
                 (in[0][i] - in[3][ch]) / std::sqrt(in[4][ch] + 0.001) * in[1][ch] + in[2][ch];
             out[0][i] = std::max(0.0, y);
           }
         },
         random_sizes(2, 8, 5)};
  c.low = 0.1;
  check(c);
}

}  // namespace
}  // namespace nimble::kernels::testing
