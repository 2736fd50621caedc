// The errors that math.h states, measured with machine code on every level: a dense sample of the
// float numbers (every 4999th bit pattern, 860 thousand) against long double.
#include "compiler/kernels/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "compiler/codegen/test/native.h"

namespace nimble::codegen {
namespace {

using namespace kir;         // NOLINT
using namespace kir::build;  // NOLINT
using kir::testing::bytes_of;
using kir::testing::KernelBuilder;

using Unary = ValueRef (*)(ValueRef);
using Exact = long double (*)(long double);

template <class T>
constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

template <class T>
Function map_kernel(Unary value) {
  KernelBuilder k("map");
  const Dim n = k.symbol("n"), j = Dim::symbol("j");
  auto x = k.in("x", kType<T>, n);
  auto y = k.out("y", kType<T>, n);
  return k.body({loop(LoopKind::kSerial, "j", 0, n,
                      store_masked(y, j, value(load_masked(x, j, 16, n - j)), n - j), 16)});
}

long double sigmoid_exact(long double x) {
  return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
long double softplus_exact(long double x) {
  return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

// The distance in units in the last place of the exact value rounded to T.
template <class T>
double ulps(T got, long double exact) {
  const T want = static_cast<T>(exact);
  if (std::isnan(want)) return std::isnan(got) ? 0 : HUGE_VAL;
  if (std::isinf(want) || std::isinf(got)) {
    // Just at the end of the range either rounding is within a unit.
    const T a = std::isinf(want) ? std::copysign(std::numeric_limits<T>::max(), want) : want;
    const T b = std::isinf(got) ? std::copysign(std::numeric_limits<T>::max(), got) : got;
    return want == got ? 0 : a == b ? 1 : HUGE_VAL;
  }
  if (want == 0 && got == 0) return 0;
  const T magnitude = std::max(std::fabs(want), std::numeric_limits<T>::min());
  const T unit = std::nextafter(magnitude, std::numeric_limits<T>::infinity()) - magnitude;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / unit);
}

struct Case {
  const char* name;
  Unary value;
  Exact exact;
  double ulps_f32;  // stated in math.h
  double relative_f64;
  double limit;  // largest |x| that is sampled
};
const Case kCases[] = {
    {"exp", math::exp, expl, 2, 1e-15, HUGE_VAL},
    {"expm1", math::expm1, expm1l, 3, 1e-15, HUGE_VAL},
    {"log", math::log, logl, 2, 1e-15, HUGE_VAL},
    {"log1p", math::log1p, log1pl, 4, 1e-15, HUGE_VAL},
    {"tanh", math::tanh, tanhl, 4, 1e-15, HUGE_VAL},
    {"sigmoid", math::sigmoid, sigmoid_exact, 4, 1e-15, HUGE_VAL},
    {"erf", math::erf, erfl, 4, 1e-14, HUGE_VAL},
    {"softplus", math::softplus, softplus_exact, 4, 1e-15, HUGE_VAL},
    {"atan", math::atan, atanl, 3, 1e-15, HUGE_VAL},
    {"sin", math::sin, sinl, 2, 0, HUGE_VAL},
    {"cos", math::cos, cosl, 2, 0, HUGE_VAL},
};

TEST(Math, F32WithinStatedError) {
  for (const std::string& level : testing::runnable_levels()) {
    for (const Case& c : kCases) {
      const testing::Native native(map_kernel<float>(c.value), level);
      // Every level sees all the exponents; only the best one the dense sample.
      const uint32_t stride = level == testing::runnable_levels().back() ? 4999 : 99991;
      std::vector<float> x;
      for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += stride) {
        const auto v = std::bit_cast<float>(static_cast<uint32_t>(bits));
        if (std::fabs(v) <= c.limit || std::isnan(v)) x.push_back(v);
      }
      std::vector<float> y(x.size());
      ASSERT_EQ(native.run({bytes_of(x), bytes_of(y)}, {static_cast<int64_t>(x.size())}), 0);
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double e = ulps(y[i], c.exact(x[i]));
        if (!(e <= worst)) worst = e, at = x[i];
      }
      EXPECT_LE(worst, c.ulps_f32) << c.name << " on " << level << " at " << std::hexfloat << at;
      RecordProperty(std::string(c.name) + "_" + level, std::to_string(worst));
    }
  }
}

TEST(Math, F64WithinStatedError) {
  std::mt19937_64 random(1);
  std::vector<double> x = {0, -0.0, INFINITY, -INFINITY, NAN, 1e300, -1e300, 5e-324, 1e-310, -1};
  for (int i = 0; i < 40000; ++i) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    x.push_back((u - 0.5) * std::pow(10.0, static_cast<int>(random() % 24) - 20));
  }
  for (const std::string& level : testing::runnable_levels()) {
    for (const Case& c : kCases) {
      if (c.relative_f64 == 0) continue;
      const testing::Native native(map_kernel<double>(c.value), level);
      std::vector<double> y(x.size());
      ASSERT_EQ(native.run({bytes_of(x), bytes_of(y)}, {static_cast<int64_t>(x.size())}), 0);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_LE(ulps(y[i], c.exact(x[i])), c.relative_f64 * 0x1p53)
            << c.name << " on " << level << " at " << std::hexfloat << x[i] << " is " << y[i];
    }
  }
}

// exp where the result is a normal number, zero below; a tenth of a per mille may go either way.
template <class T>
void check_flushed(double lowest) {
  std::vector<T> x = {0, -0.0, INFINITY, -INFINITY, NAN, T(-1e30), T(-1e-30)};
  for (int i = 0; i < 40000; ++i) x.push_back(static_cast<T>(lowest * i / 39000 + 1));
  const long double smallest = std::numeric_limits<T>::min();
  for (const std::string& level : testing::runnable_levels()) {
    const testing::Native native(map_kernel<T>(math::exp_flushed), level);
    std::vector<T> y(x.size());
    ASSERT_EQ(native.run({bytes_of(x), bytes_of(y)}, {static_cast<int64_t>(x.size())}), 0);
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = expl(x[i]);
      const bool small = exact < smallest * 1.0001L;
      if (small && y[i] == 0) continue;
      EXPECT_NE(std::fpclassify(y[i]), FP_SUBNORMAL) << level << ": exp(" << x[i] << ")";
      EXPECT_LE(ulps(y[i], exact), (std::is_same_v<T, float> ? 2 : 1e-15 * 0x1p53))
          << level << ": exp(" << x[i] << ") is " << y[i];
    }
  }
}

TEST(Math, FlushedExpIsNeverSubnormal) {
  check_flushed<float>(-110);
  check_flushed<double>(-760);
}

// kScale over every exponent that it promises, of a number that loses bits below the normal ones.
constexpr double kScaled = 1.28125;

template <class T>
void check_scale(int lowest, int highest) {
  const auto scaled = [](ValueRef b) {
    return build::binary(BinaryOp::kScale, build::number(b->dtype, kScaled, b->lanes), b);
  };
  std::vector<T> b;
  for (int i = lowest; i <= highest; ++i) b.push_back(static_cast<T>(i));
  for (const std::string& level : testing::runnable_levels()) {
    const testing::Native native(map_kernel<T>(scaled), level);
    std::vector<T> y(b.size());
    ASSERT_EQ(native.run({bytes_of(b), bytes_of(y)}, {static_cast<int64_t>(b.size())}), 0);
    for (size_t i = 0; i < b.size(); ++i) {
      const T want = std::ldexp(static_cast<T>(kScaled), static_cast<int>(b[i]));
      EXPECT_LE(ulps(y[i], static_cast<long double>(want)), std::isnormal(want) ? 0 : 1)
          << level << ": 2^" << b[i];
    }
  }
}

TEST(Math, ScaleReachesEveryExponent) {
  check_scale<float>(-252, 254);
  check_scale<double>(-2044, 2046);
}

TEST(Math, F64SineIsAbsolutelyAccurate) {
  std::mt19937_64 random(2);
  std::vector<double> x;
  for (int i = 0; i < 40000; ++i)
    x.push_back((static_cast<double>(random() >> 11) * 0x1p-53 - 0.5) * (i % 2 ? 0x1p21 : 10));
  for (const std::string& level : testing::runnable_levels()) {
    std::vector<double> s(x.size()), c(x.size());
    const auto n = static_cast<int64_t>(x.size());
    testing::Native(map_kernel<double>(math::sin), level).run({bytes_of(x), bytes_of(s)}, {n});
    testing::Native(map_kernel<double>(math::cos), level).run({bytes_of(x), bytes_of(c)}, {n});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(s[i], std::sin(x[i]), 1e-15) << level << " at " << x[i];
      ASSERT_NEAR(c[i], std::cos(x[i]), 1e-15) << level << " at " << x[i];
    }
  }
}

// Arguments of every exponent from 2^20 on, and 6381956970095103 2^797, of all f64 the one nearest
// to a multiple of pi/2.
TEST(Math, F64SineReducesEveryExponent) {
  std::mt19937_64 random(4);
  std::vector<double> x = {0x1p20, 0x1.0000000000001p20, 6381956970095103 * 0x1p797, 0x1p1023,
                           std::numeric_limits<double>::max()};
  for (uint64_t exponent = 1023 + 20; exponent < 2047; ++exponent)
    for (int i = 0; i < 8; ++i)
      x.push_back(std::bit_cast<double>(exponent << 52 | random() >> 12 | random() << 63));
  const auto n = static_cast<int64_t>(x.size());
  for (const std::string& level : testing::runnable_levels()) {
    std::vector<double> s(x.size()), c(x.size());
    testing::Native(map_kernel<double>(math::sin), level).run({bytes_of(x), bytes_of(s)}, {n});
    testing::Native(map_kernel<double>(math::cos), level).run({bytes_of(x), bytes_of(c)}, {n});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(s[i], std::sin(x[i]), 1e-15) << level << " at " << std::hexfloat << x[i];
      ASSERT_NEAR(c[i], std::cos(x[i]), 1e-15) << level << " at " << std::hexfloat << x[i];
    }
  }
}

// A select whose dear side is taken by some lanes, all or none gives what a plain one does, also
// where the two sides share parts and where what the branch computed is used again after it.
TEST(Math, RareSelectsAreSelects) {
  const auto kernel = [](bool rare) {
    KernelBuilder k("rare");
    const Dim n = k.symbol("n"), j = Dim::symbol("j");
    auto x = k.in("x", DType::kF32, n);
    auto y = k.out("y", DType::kF32, n);
    const ValueRef v = load_masked(x, j, 16, n - j);
    const ValueRef square = mul(v, v), cube = mul(square, v);
    const ValueRef c = compare(CompareOp::kGt, v, f32(100, 16));
    const auto choose = rare ? select_rare : build::select;
    const ValueRef first = choose(c, add(cube, square), square);
    const ValueRef again = choose(compare(CompareOp::kLt, v, f32(-100, 16)), cube, first);
    return k.body({loop(LoopKind::kSerial, "j", 0, n,
                        store_masked(y, j, add(again, mul(cube, first)), n - j), 16)});
  };
  std::vector<float> x;
  for (int i = 0; i < 16 * 8 + 5; ++i)
    x.push_back(static_cast<float>((i / 16 == 2 || i % 23 == 7) ? 101 + i
                                   : i % 31 == 5                ? -200 - i
                                                                : i % 90));
  for (const std::string& level : testing::runnable_levels()) {
    std::vector<float> want(x.size()), got(x.size());
    const auto n = static_cast<int64_t>(x.size());
    testing::Native(kernel(false), level).run({bytes_of(x), bytes_of(want)}, {n});
    testing::Native(kernel(true), level).run({bytes_of(x), bytes_of(got)}, {n});
    EXPECT_EQ(got, want) << level;
  }
}

// Signs of zero, infinities: as the C library has them.
TEST(Math, SpecialValues) {
  using CFunction = float (*)(float);
  const std::pair<Unary, CFunction> functions[] = {
      {math::exp, std::exp},     {math::expm1, std::expm1}, {math::log, std::log},
      {math::log1p, std::log1p}, {math::tanh, std::tanh},   {math::erf, std::erf},
      {math::sin, std::sin},     {math::atan, std::atan},   {math::cos, std::cos}};
  for (const auto& [ours, c] : functions) {
    std::vector<float> x = {0.f, -0.f, INFINITY, -INFINITY, NAN, -2.f}, y(x.size());
    const testing::Native native(map_kernel<float>(ours), "native");
    native.run({bytes_of(x), bytes_of(y)}, {static_cast<int64_t>(x.size())});
    for (size_t i = 0; i + 1 < x.size(); ++i) {
      const float want = c(x[i]);
      EXPECT_EQ(std::isnan(y[i]), std::isnan(want)) << x[i];
      if (!std::isnan(want)) {
        EXPECT_EQ(y[i], want) << x[i];
        EXPECT_EQ(std::signbit(y[i]), std::signbit(want)) << x[i];
      }
    }
    EXPECT_EQ(std::isnan(y.back()), std::isnan(c(x.back())));
  }
}

TEST(Math, Powers) {
  KernelBuilder k("power");
  const Dim n = k.symbol("n"), j = Dim::symbol("j");
  auto x = k.in("x", DType::kF32, n), y = k.in("y", DType::kF32, n);
  auto z = k.out("z", DType::kF32, n);
  const Function f = k.body(
      {loop(LoopKind::kSerial, "j", 0, n,
            store_masked(z, j, math::pow(load_masked(x, j, 8, n - j), load_masked(y, j, 8, n - j)),
                         n - j),
            8)});
  const std::vector<float> special = {0.f,       -0.f,  1.f,   -1.f,   2.f,   -2.f,
                                      0.5f,      -0.5f, 3.f,   -3.f,   2.5f,  INFINITY,
                                      -INFINITY, NAN,   1e30f, -1e30f, 1e-40f};
  std::vector<float> a, b;
  for (float p : special)
    for (float q : special) a.push_back(p), b.push_back(q);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    a.push_back(static_cast<float>(random() % 100000) / 1000 + 1e-3f);
    b.push_back((static_cast<float>(random() % 20000) - 10000) / 1000);
  }
  for (const std::string& level : testing::runnable_levels()) {
    std::vector<float> c(a.size());
    testing::Native(f, level).run({bytes_of(a), bytes_of(b), bytes_of(c)},
                                  {static_cast<int64_t>(a.size())});
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_LE(ulps(c[i], powl(a[i], b[i])), 2) << a[i] << " ^ " << b[i] << " is " << c[i];
  }
}

}  // namespace
}  // namespace nimble::codegen
