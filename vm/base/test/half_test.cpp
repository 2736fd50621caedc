#include "vm/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace nimble {
namespace {

// The correctly rounded f16 by its definition: the nearest of all finite values, ties to the one
// with an even mantissa, values at or beyond half a unit above the largest to infinity.
uint16_t nearest_f16(float value) {
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0)
    return static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | 0x7c00);
  int low = 0, high = 0x7bff;  // finite magnitudes are ordered as their bits
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (static_cast<double>(f32_from_f16(static_cast<uint16_t>(middle))) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  const double below = f32_from_f16(static_cast<uint16_t>(low));
  const double above = low == 0x7bff ? 65536.0 : f32_from_f16(static_cast<uint16_t>(low + 1));
  const double to_below = magnitude - below, to_above = above - magnitude;
  const int picked = to_below < to_above || (to_below == to_above && low % 2 == 0) ? low : low + 1;
  return static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | picked);
}

TEST(HalfTest, EveryF16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float wide = f32_from_f16(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(wide))));
    } else {
      ASSERT_EQ(f16_from_f32(wide), half);
    }
  }
}

TEST(HalfTest, F16OfKnownValues) {
  EXPECT_EQ(f32_from_f16(0x3c00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xc000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7bff), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(f32_from_f16(0x0400), std::ldexp(1.0f, -14));
  EXPECT_TRUE(std::isinf(f32_from_f16(0x7c00)));
  EXPECT_EQ(f16_from_f32(0.1f), 0x2e66);
}

TEST(HalfTest, F16RoundsToNearestEvenEverywhere) {
  // Every f16 neighbourhood: the midpoint and its two neighbours in f32.
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float a = f32_from_f16(bits), b = f32_from_f16(static_cast<uint16_t>(bits + 1));
    const float middle = a + (b - a) / 2;
    for (float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e30f)}) {
      ASSERT_EQ(f16_from_f32(v), nearest_f16(v)) << v;
      ASSERT_EQ(f16_from_f32(-v), nearest_f16(-v)) << -v;
    }
  }
  for (float v : {65519.99f, 65520.0f, 1e30f, std::numeric_limits<float>::infinity(), 1e-30f, 0.0f})
    EXPECT_EQ(f16_from_f32(v), nearest_f16(v)) << v;
}

TEST(HalfTest, EveryBf16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float wide = f32_from_bf16(static_cast<uint16_t>(bits));
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(wide))));
    else
      ASSERT_EQ(bf16_from_f32(wide), bits);
  }
}

TEST(HalfTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3f80);
  EXPECT_EQ(bf16_from_f32(1.00390625f), 0x3f80);  // a tie, down to even
  EXPECT_EQ(bf16_from_f32(1.01171875f), 0x3f82);  // a tie, up to even
  EXPECT_EQ(bf16_from_f32(1.0039064f), 0x3f81);   // just above the tie
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose payload lies only in the lost bits must not become infinity.
  const uint32_t bits = 0x7f800001u;
  float nan;
  std::memcpy(&nan, &bits, sizeof nan);
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(nan))));
}

}  // namespace
}  // namespace nimble
