// Each fragment against its definition, written here once more without multiply-adds, and its
// expansion against the fragment.
#include "compiler/kernels/fragments.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <functional>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/test/fragment_cases.h"
#include "vm/base/half.h"

namespace nimble::kir {
namespace {

using namespace build;  // NOLINT
using testing::bytes_of;
using testing::dot_kernel;
using testing::DotCase;
using testing::element_at;
using testing::flushed;
using ::testing::HasSubstr;
using testing::KernelBuilder;
using testing::same_sum;
using testing::sum_of;

float bf16_pairs(const DotCase& c, size_t i) {
  const auto number = [i](const std::vector<std::byte>& v, size_t element) {
    return flushed(f32_from_bf16(element_at<uint16_t>(v, 2 * i + element)));
  };
  double t = flushed(element_at<float>(c.sum, i));
  for (const size_t element : {1, 0})
    t = flushed(sum_of(number(c.a, element), number(c.b, element), t));
  return static_cast<float>(t);
}

int32_t u8s8_quads(const DotCase& c, size_t i) {
  auto t = element_at<uint32_t>(c.sum, i);
  for (size_t element = 0; element < 4; ++element)
    t += static_cast<uint32_t>(element_at<uint8_t>(c.a, 4 * i + element) *
                               element_at<int8_t>(c.b, 4 * i + element));
  return static_cast<int32_t>(t);
}

int32_t u8s7_quads(const DotCase& c, size_t i) {
  auto t = element_at<uint32_t>(c.sum, i);
  for (size_t first = 0; first < 4; first += 2) {
    int pair = 0;
    for (size_t element = first; element < first + 2; ++element)
      pair += element_at<uint8_t>(c.a, 4 * i + element) * element_at<int8_t>(c.b, 4 * i + element);
    t += static_cast<uint32_t>(pair > 32767 ? 32767 : pair < -32768 ? -32768 : pair);
  }
  return static_cast<int32_t>(t);
}

int32_t s16_pairs(const DotCase& c, size_t i) {
  auto t = element_at<uint32_t>(c.sum, i);
  for (size_t element = 0; element < 2; ++element)
    t += static_cast<uint32_t>(element_at<int16_t>(c.a, 2 * i + element) *
                               element_at<int16_t>(c.b, 2 * i + element));
  return static_cast<int32_t>(t);
}

// Both products are exact in f32.
float f16_pairs(const DotCase& c, size_t i) {
  const auto number = [i](const std::vector<std::byte>& v, size_t element) {
    return f32_from_f16(element_at<uint16_t>(v, 2 * i + element));
  };
  const float odd = number(c.a, 1) * number(c.b, 1), even = number(c.a, 0) * number(c.b, 0);
  return element_at<float>(c.sum, i) + odd + even;
}

void run(const Function& f, DotCase& c, int64_t n, bool fused = true) {
  ASSERT_EQ(verify(f), "");
  ASSERT_EQ(Interpreter(f, {.fused = fused}).run(c.arguments(), {{n}}), 0);
}

template <class Expected>
void expect_the_row(Fragment fragment, const Expected& expected) {
  std::mt19937_64 random(1);
  const FragmentRow& row = row_of(fragment);
  for (int lanes = 1; lanes * row.group <= 64; lanes *= 2) {
    const Function f = dot_kernel(fragment, lanes);
    for (const bool tame : {true, false}) {
      const int64_t n = 20000 / lanes;
      DotCase c(fragment, lanes, n, tame, random);
      run(f, c, n);
      DotCase want = c;
      for (size_t i = 0; i < static_cast<size_t>(n * lanes); ++i) {
        const auto e = expected(c, i);
        std::memcpy(&want.y[i * sizeof e], &e, sizeof e);
        ASSERT_TRUE(same_sum(row.sum, c.y, want.y, i))
            << row.name << " of " << lanes << " sums: " << std::hex << element_at<uint32_t>(c.y, i)
            << " instead of " << element_at<uint32_t>(want.y, i);
      }
    }
  }
}

TEST(Fragments, OfBf16FollowTheirRow) {
  expect_the_row(Fragment::kBf16Pairs, bf16_pairs);
}
TEST(Fragments, OfBytesFollowTheirRow) {
  expect_the_row(Fragment::kU8S8Quads, u8s8_quads);
}
TEST(Fragments, OfSmallWeightsFollowTheirRow) {
  expect_the_row(Fragment::kU8S7Quads, u8s7_quads);
}
TEST(Fragments, OfWordsFollowTheirRow) {
  expect_the_row(Fragment::kS16Pairs, s16_pairs);
}

TEST(Fragments, OfHalvesFollowTheirRow) {
  expect_the_row(Fragment::kF16Pairs, f16_pairs);
}

// What the row fixes where formulas agree: which element comes first, and that zeros keep signs.
TEST(Fragments, OfBf16TakeTheOddElementFirst) {
  const auto pair = [](float even, float odd) {
    return std::vector<uint16_t>{bf16_from_f32(even), bf16_from_f32(odd)};
  };
  const Function f = dot_kernel(Fragment::kBf16Pairs, 1);
  const auto dot_of = [&](std::vector<uint16_t> a, std::vector<uint16_t> b, float sum) {
    std::vector<float> sums = {sum}, y(1);
    EXPECT_EQ(Interpreter(f).run({{bytes_of(a), bytes_of(b), bytes_of(sums), bytes_of(y)}}, {{1}}),
              0);
    return y[0];
  };
  // 2^24 - 2^24 + 1: the cancellation comes first, or the 1 is lost.
  EXPECT_EQ(dot_of(pair(1, -0x1p24f), pair(1, 1), 0x1p24f), 1);
  EXPECT_EQ(dot_of(pair(-0x1p24f, 1), pair(1, 1), 0x1p24f), 0);
  EXPECT_EQ(dot_of(pair(0, 0), pair(1, 1), 0x1p-127f), 0) << "a subnormal sum is zero";
  EXPECT_TRUE(std::signbit(dot_of(pair(-0.f, -0.f), pair(1, 1), -0x1p-127f)));
  EXPECT_EQ(dot_of(pair(0x1p-127f, 0), pair(0x1p127f, 1), 2), 2) << "a subnormal factor is zero";
  EXPECT_TRUE(std::isnan(dot_of(pair(INFINITY, 0), pair(0x1p-127f, 0), 2)));
}

TEST(Fragments, OfHalvesTakeTheOddElementFirstAndFlushNothing) {
  const auto pair = [](float even, float odd) {
    return std::vector<uint16_t>{f16_from_f32(even), f16_from_f32(odd)};
  };
  const Function f = dot_kernel(Fragment::kF16Pairs, 1);
  const auto dot_of = [&](std::vector<uint16_t> a, std::vector<uint16_t> b, float sum) {
    std::vector<float> sums = {sum}, y(1);
    EXPECT_EQ(Interpreter(f).run({{bytes_of(a), bytes_of(b), bytes_of(sums), bytes_of(y)}}, {{1}}),
              0);
    return y[0];
  };
  EXPECT_EQ(dot_of(pair(1, -0x1p12f), pair(1, 0x1p12f), 0x1p24f), 1);
  EXPECT_EQ(dot_of(pair(-0x1p12f, 1), pair(0x1p12f, 1), 0x1p24f), 0);
  EXPECT_EQ(dot_of(pair(0, 0), pair(1, 1), 0x1p-149f), 0x1p-149f) << "a subnormal sum is itself";
  EXPECT_EQ(dot_of(pair(0x1p-24f, 0), pair(0x1p-24f, 0), 0), 0x1p-48f) << "and so is a factor";
  EXPECT_EQ(dot_of(pair(65504, 65504), pair(65504, 65504), 0), 2 * (65504.f * 65504.f))
      << "no sum overflows";
}

// Each pair of products by itself, before anything else is added, which wraps.
TEST(Fragments, OfSmallWeightsSaturatePairByPair) {
  const Function own = dot_kernel(Fragment::kU8S7Quads, 1),
                 expanded = dot_kernel(Fragment::kU8S7Quads, 1, {.expanded = true});
  const auto dot_of = [&](std::vector<uint8_t> a, std::vector<int8_t> b, int32_t sum) {
    std::vector<int32_t> sums = {sum}, y(1), other(1);
    const auto run_on = [&](const Function& f, std::vector<int32_t>& out) {
      return Interpreter(f).run({{bytes_of(a), bytes_of(b), bytes_of(sums), bytes_of(out)}}, {{1}});
    };
    EXPECT_EQ(run_on(own, y), 0);
    EXPECT_EQ(run_on(expanded, other), 0);
    EXPECT_EQ(y, other);
    return y[0];
  };
  const std::vector<uint8_t> most(4, 255);
  EXPECT_EQ(dot_of(most, {64, 64, 64, 64}, 5), 5 + 4 * 255 * 64) << "the bound saturates nothing";
  EXPECT_EQ(dot_of(most, {-64, -64, -64, -64}, 5), 5 - 4 * 255 * 64);
  EXPECT_EQ(dot_of(most, {127, 1, -128, 0}, 0), 0) << "nor do others of 128 together";
  EXPECT_EQ(dot_of(most, {65, 64, 0, 0}, 0), 32767) << "one more does";
  EXPECT_EQ(dot_of(most, {-65, -64, 0, 0}, 0), -32768);
  EXPECT_EQ(dot_of(most, {127, 127, -128, -128}, 0), -1) << "each pair by itself";
  EXPECT_EQ(dot_of(most, {127, -128, 127, -128}, 0), -2 * 255) << "not each product";
  EXPECT_EQ(dot_of(most, {64, 64, 0, 0}, INT32_MAX), INT32_MIN + 32640 - 1) << "sums wrap";
}

// A row with a bound is another one where that is kept: who looks for a row without one finds it.
TEST(Fragments, WithABoundAreOthersWhereItIsKept) {
  std::mt19937_64 random(6);
  for (const FragmentRow& row : all_fragments()) {
    if (row.within == 0) continue;
    EXPECT_TRUE(keep_bound(row, row.within)) << row.name;
    EXPECT_FALSE(keep_bound(row, row.within + 1)) << row.name;
    EXPECT_FALSE(keep_bound(row, kAnyWeight)) << row.name;
    const FragmentRow* plain = nullptr;
    for (const FragmentRow& f : all_fragments())
      if (f.within == 0 && f.a == row.a && f.b == row.b && f.sum == row.sum && f.group == row.group)
        plain = &f;
    ASSERT_NE(plain, nullptr) << row.name;
    ASSERT_EQ(row.b, DType::kI8) << "the elements below are bytes";
    const int64_t n = 4000;
    DotCase c(row.id, 4, n, true, random);
    for (std::byte& b : c.b)
      b = static_cast<std::byte>(
          static_cast<int64_t>(random() % static_cast<uint64_t>(2 * row.within + 1)) - row.within);
    for (size_t i = 0; i < c.a.size(); ++i)
      if (random() % 2) c.a[i] = std::byte{255};
    DotCase want = c;
    run(dot_kernel(row.id, 4), c, n);
    run(dot_kernel(plain->id, 4), want, n);
    EXPECT_EQ(c.y, want.y) << row.name;
  }
}

TEST(Fragments, ExpandToTheSameOnTameNumbers) {
  std::mt19937_64 random(2);
  for (const FragmentRow& row : all_fragments())
    for (int lanes = 1; lanes * row.group <= 64; lanes *= 2) {
      const int64_t n = 300;
      DotCase c(row.id, lanes, n, true, random);
      run(dot_kernel(row.id, lanes), c, n);
      DotCase expanded = c;
      run(dot_kernel(row.id, lanes, {.expanded = true}), expanded, n);
      for (size_t i = 0; i < static_cast<size_t>(n * lanes); ++i)
        ASSERT_TRUE(same_sum(row.sum, expanded.y, c.y, i)) << row.name;
    }
}

TEST(Fragments, OfBytesExpandToTheSameEverywhere) {
  std::mt19937_64 random(3);
  const int64_t n = 2000;
  for (const Fragment f : {Fragment::kU8S8Quads, Fragment::kU8S7Quads}) {
    DotCase c(f, 16, n, false, random);
    run(dot_kernel(f, 16), c, n);
    DotCase expanded = c;
    run(dot_kernel(f, 16, {.expanded = true}), expanded, n);
    EXPECT_EQ(expanded.y, c.y) << row_of(f).name;
  }
}

TEST(Fragments, OfHalvesExpandToTheSameEverywhere) {
  std::mt19937_64 random(3);
  const int64_t n = 2000;
  DotCase c(Fragment::kF16Pairs, 16, n, false, random);
  run(dot_kernel(Fragment::kF16Pairs, 16), c, n);
  for (const bool fused : {true, false}) {
    DotCase expanded = c;
    run(dot_kernel(Fragment::kF16Pairs, 16, {.expanded = true}), expanded, n, fused);
    for (size_t i = 0; i < static_cast<size_t>(16 * n); ++i)
      ASSERT_TRUE(same_sum(DType::kF32, expanded.y, c.y, i)) << "with FMA: " << fused;
  }
}

// Only where a target has instructions for it are weights packed for a row that has none of its
// own.
TEST(Fragments, OfHalvesAreTakenWhereTheyAreMultiplied) {
  const auto taken = [](Fragment f, const char* level) {
    return is_taken(row_of(f), kernels::target_by_name(level));
  };
  EXPECT_TRUE(taken(Fragment::kF16Pairs, "aarch64-fp16fml"));
  for (const char* level : {"aarch64-bf16", "x86-64-v4-amx-fp16", "x86-64-v2", "portable"}) {
    EXPECT_FALSE(taken(Fragment::kF16Pairs, level)) << level;
    EXPECT_TRUE(taken(Fragment::kBf16Pairs, level)) << level;
  }
}

// The bound of Fragments.def: roundings of what is summed, and what is flushed on the way. Checked
// with and without FMA where nothing overflows.
TEST(Fragments, OfBf16ExpandWithinTheirBound) {
  std::mt19937_64 random(4);
  const int64_t n = 4000;
  DotCase c(Fragment::kBf16Pairs, 4, n, false, random);
  run(dot_kernel(Fragment::kBf16Pairs, 4), c, n);
  for (const bool fused : {true, false}) {
    DotCase expanded = c;
    run(dot_kernel(Fragment::kBf16Pairs, 4, {.expanded = true}), expanded, n, fused);
    int checked = 0;
    for (size_t i = 0; i < static_cast<size_t>(4 * n); ++i) {
      double magnitude = std::fabs(element_at<float>(c.sum, i)), lost = magnitude;
      if (lost >= 0x1p-126) lost = 0;
      for (size_t element : {2 * i, 2 * i + 1}) {
        const double x = std::fabs(f32_from_bf16(element_at<uint16_t>(c.a, element))),
                     y = std::fabs(f32_from_bf16(element_at<uint16_t>(c.b, element)));
        magnitude += x * y;
        if (x < 0x1p-126 || y < 0x1p-126) lost += x * y;
      }
      if (!(magnitude < 0x1p127)) continue;  // or NaN
      ++checked;
      const double bound = 8 * 0x1p-24 * magnitude + lost + 4 * 0x1p-126;
      ASSERT_NEAR(element_at<float>(expanded.y, i), element_at<float>(c.y, i), bound);
    }
    EXPECT_GT(checked, n);
  }
}

// --- What goes with them -------------------------------------------------------------------------

TEST(Groups, AreBroadcastLaneByLane) {
  for (const int group : {1, 2, 4, 16}) {
    KernelBuilder k("groups");
    auto x = k.in("x", DType::kI16, 16);
    auto y = k.out("y", DType::kI16, 16);
    const Function f = k.body({store(y, 0, broadcast(load(x, 0, group), 16))});
    ASSERT_EQ(verify(f), "");
    std::vector<int16_t> in(16), out(16);
    for (int16_t i = 0; i < 16; ++i) in[i] = static_cast<int16_t>(i - 5);
    ASSERT_EQ(Interpreter(f).run({{bytes_of(in), bytes_of(out)}}, {}), 0);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], in[i % group]) << group;
  }
}

TEST(Bitcasts, RegroupLanes) {
  KernelBuilder k("words");
  auto x = k.in("x", DType::kU8, 8);
  auto y = k.out("y", DType::kU32, 2);
  auto z = k.out("z", DType::kU8, 8);
  auto w = k.out("w", DType::kI64, 1);
  const ValueRef bytes = load(x, 0, 8), words = bitcast(DType::kU32, bytes);
  const Function f = k.body({store(y, 0, words), store(z, 0, bitcast(DType::kU8, words)),
                             store(w, 0, bitcast(DType::kI64, bytes))});
  ASSERT_EQ(verify(f), "");
  std::vector<uint8_t> in = {1, 2, 3, 4, 0xff, 0, 0, 0x80}, back(8);
  std::vector<uint32_t> out(2);
  std::vector<int64_t> wide(1);
  ASSERT_EQ(Interpreter(f).run({{bytes_of(in), bytes_of(out), bytes_of(back), bytes_of(wide)}}, {}),
            0);
  EXPECT_EQ(out, (std::vector<uint32_t>{0x04030201, 0x800000ff}));
  EXPECT_EQ(back, in);
  EXPECT_EQ(static_cast<uint64_t>(wide[0]), 0x800000ff04030201u);
}

TEST(Dots, ArePrintedWithTheirFragment) {
  EXPECT_EQ(print(dot_kernel(Fragment::kBf16Pairs, 16, {.one_group = true})),
            "kernel dots(a: bf16[32*n], b: bf16[2*n], sum: f32[16*n], out y: f32[16*n]) "
            "symbols(n) {\n"
            "  serial j from 0 count n {\n"
            "    store y[16*j] = dot.bf16_pairs((load.bf16x32 a[32*j]), "
            "broadcast.bf16x32((load.bf16x2 b[2*j])), (load.f32x16 sum[16*j]))\n"
            "  }\n"
            "}\n");
}

class VerifyDots : public ::testing::Test {
 protected:
  // The fault of storing a dot that `change` has spoiled.
  std::string fault(Fragment fragment, const std::function<void(Value&)>& change) {
    const FragmentRow& row = row_of(fragment);
    KernelBuilder k("k");
    auto y = k.out("y", row.sum, 4);
    auto v = std::make_shared<Value>(*dot(fragment, number(row.a, 1, 4 * row.group),
                                          number(row.b, 1, 4 * row.group), number(row.sum, 1, 4)));
    change(*v);
    return verify(k.body({store(y, 0, v)}));
  }
};

TEST_F(VerifyDots, AcceptsEachFragment) {
  for (const FragmentRow& row : all_fragments())
    EXPECT_EQ(fault(row.id, [](Value&) {}), "") << row.name;
}
TEST_F(VerifyDots, RejectsOtherTypes) {
  EXPECT_EQ(
      fault(Fragment::kBf16Pairs, [](Value& v) { v.operands[0] = number(DType::kF16, 1, 8); }),
      "operand 0 of bf16_pairs is f16x8; bf16x8 is needed");
  EXPECT_EQ(fault(Fragment::kU8S8Quads, [](Value& v) { v.operands[1] = v.operands[0]; }),
            "operand 1 of u8s8_quads is u8x16; i8x16 is needed");
  EXPECT_EQ(fault(Fragment::kBf16Pairs, [](Value& v) { v.dtype = DType::kBF16; }),
            "bf16_pairs gives f32, not bf16");
}
TEST_F(VerifyDots, RejectsOtherLanes) {
  EXPECT_EQ(
      fault(Fragment::kBf16Pairs, [](Value& v) { v.operands[1] = number(DType::kBF16, 1, 4); }),
      "operand 1 of bf16_pairs is bf16x4; bf16x8 is needed");
  EXPECT_EQ(
      fault(Fragment::kU8S8Quads, [](Value& v) { v.operands[2] = number(DType::kI32, 1, 2); }),
      "operand 2 of u8s8_quads is i32x2; i32x4 is needed");
}
TEST_F(VerifyDots, RejectsAMissingOperand) {
  EXPECT_THAT(fault(Fragment::kBf16Pairs, [](Value& v) { v.operands.pop_back(); }),
              HasSubstr("2 operands instead of 3"));
}

TEST(VerifyLanes, RejectsBroadcastsAndBitcastsThatDoNotFit) {
  KernelBuilder k("k");
  auto x = k.in("x", DType::kF32, 8);
  auto y = k.out("y", DType::kF32, 8);
  const auto fault = [&](const ValueRef& v, int lanes) {
    auto changed = std::make_shared<Value>(*v);
    changed->lanes = lanes;
    return verify(k.body({store(y, 0, changed)}));
  };
  const ValueRef group = broadcast(load(x, 0, 4), 8);
  EXPECT_EQ(fault(group, 8), "");
  EXPECT_EQ(fault(group, 2),
            "broadcast of f32x4 to f32x2; it takes lanes of its type that divide its own");
  const ValueRef floats = bitcast(DType::kF32, bitcast(DType::kI64, load(x, 0, 8)));
  EXPECT_EQ(fault(floats, 8), "");
  EXPECT_EQ(fault(floats, 4), "a bitcast between i64x4 and f32x4");
}

}  // namespace
}  // namespace nimble::kir
