#include "vm/base/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace nimble {
namespace {

template <typename T>
double number(DType dtype, T stored) {
  uint8_t bytes[1 + sizeof stored];  // elements need not be aligned
  std::memcpy(bytes + 1, &stored, sizeof stored);
  return number_at(dtype, bytes + 1);
}

TEST(Element, IsTheNumberThatItsBytesMean) {
  EXPECT_EQ(number<uint8_t>(DType::kBool, 1), 1);
  EXPECT_EQ(number<uint8_t>(DType::kU8, 200), 200);
  EXPECT_EQ(number<int8_t>(DType::kI8, -100), -100);
  EXPECT_EQ(number<uint16_t>(DType::kU16, 65535), 65535);
  EXPECT_EQ(number<int16_t>(DType::kI16, -32768), -32768);
  EXPECT_EQ(number<uint32_t>(DType::kU32, 4294967295), 4294967295.0);
  EXPECT_EQ(number<int32_t>(DType::kI32, -7), -7);
  EXPECT_EQ(number<uint64_t>(DType::kU64, uint64_t{1} << 63), 0x1p63);
  EXPECT_EQ(number<int64_t>(DType::kI64, std::numeric_limits<int64_t>::min()), -0x1p63);
  EXPECT_EQ(number<uint16_t>(DType::kF16, 0xc100), -2.5);
  EXPECT_EQ(number<uint16_t>(DType::kBF16, 0x3fc0), 1.5);
  EXPECT_EQ(number<float>(DType::kF32, 0.25f), 0.25);
  EXPECT_EQ(number<double>(DType::kF64, 0.1), 0.1);
  EXPECT_TRUE(std::isnan(number<uint16_t>(DType::kF16, 0x7e00)));
}

TEST(Element, IsVisitedInItsOwnType) {
  const int64_t odd = (int64_t{1} << 53) + 1;  // no double
  const auto* bytes = reinterpret_cast<const uint8_t*>(&odd);
  EXPECT_EQ(visit_element(DType::kI64, bytes, [](auto v) { return std::to_string(v); }),
            "9007199254740993");
  EXPECT_TRUE(
      visit_element(DType::kF16, bytes, [](auto v) { return std::is_same_v<decltype(v), float>; }));
}

}  // namespace
}  // namespace nimble
