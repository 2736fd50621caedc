#include "vm/base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/base/checked.h"
#include "vm/base/hash.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

TEST(BytesTest, NumbersRoundTrip) {
  const uint64_t unsigned_values[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX};
  const int64_t signed_values[] = {0, -1, 1, 63, -64, 64, INT64_MAX, INT64_MIN};
  ByteWriter out;
  for (uint64_t v : unsigned_values) out.varint(v);
  for (int64_t v : signed_values) out.svarint(v);
  out.u8(7);
  out.u16(0x1234);
  out.u32(0x12345678);
  out.u64(0x123456789abcdef0);
  out.text("text");
  const std::vector<uint8_t> bytes = out.take();
  ByteReader in(bytes, "test");
  for (uint64_t v : unsigned_values) EXPECT_EQ(in.varint(), v);
  for (int64_t v : signed_values) EXPECT_EQ(in.svarint(), v);
  EXPECT_EQ(in.u8(), 7);
  EXPECT_EQ(in.u16(), 0x1234);
  EXPECT_EQ(in.u32(), 0x12345678u);
  EXPECT_EQ(in.u64(), 0x123456789abcdef0u);
  EXPECT_EQ(in.text(), "text");
  in.expect_end();
}

TEST(BytesTest, SmallNumbersTakeOneByte) {
  ByteWriter out;
  out.varint(127);
  out.svarint(-64);
  EXPECT_EQ(out.size(), 2u);
}

std::string failure(std::vector<uint8_t> bytes, void (*read)(ByteReader*)) {
  ByteReader in(bytes, "here");
  try {
    read(&in);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCorrupt);
    return e.what();
  }
  return "no failure";
}

TEST(BytesTest, DamageIsRefused) {
  EXPECT_THAT(failure({1, 2}, [](ByteReader* in) { in->u32(); }), HasSubstr("here: ends early"));
  EXPECT_THAT(failure({0x80}, [](ByteReader* in) { in->varint(); }), HasSubstr("ends early"));
  EXPECT_THAT(failure({0x80, 0}, [](ByteReader* in) { in->varint(); }), HasSubstr("needless"));
  EXPECT_THAT(failure(std::vector<uint8_t>(11, 0xff), [](ByteReader* in) { in->varint(); }),
              HasSubstr("64 bits"));
  // A claim of 2^35 elements in a file of a few bytes must not allocate.
  EXPECT_THAT(failure({0x80, 0x80, 0x80, 0x80, 0x80, 1}, [](ByteReader* in) { in->count("n"); }),
              HasSubstr("at most"));
  EXPECT_THAT(failure({5, 'a', 'b'}, [](ByteReader* in) { in->text(); }), HasSubstr("at most 2"));
  EXPECT_THAT(failure({2}, [](ByteReader* in) { in->boolean(); }), HasSubstr("boolean is 2"));
  EXPECT_THAT(failure({2}, [](ByteReader* in) { in->expect_end(); }),
              HasSubstr("1 bytes too many"));
}

TEST(CheckedTest, OverflowIsNoticed) {
  EXPECT_EQ(try_add<int64_t>(INT64_MAX, 0), INT64_MAX);
  EXPECT_EQ(try_add<int64_t>(INT64_MAX, 1), std::nullopt);
  EXPECT_EQ(try_mul<int64_t>(int64_t{1} << 32, int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_mul<int64_t>(6, 7), 42);
  EXPECT_THROW(checked_add<int64_t>(INT64_MIN, -1), Error);
  EXPECT_THROW(checked_mul<int64_t>(INT64_MIN, -1), Error);
}

TEST(CheckedTest, SizesOfShapes) {
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(try_element_count(Shape{}), 1);
  EXPECT_EQ(try_element_count(Shape{2, 3}), 6);
  EXPECT_EQ(try_element_count(Shape{2, -1}), std::nullopt);
  EXPECT_EQ(try_element_count(Shape{INT64_MAX, 2}), std::nullopt);
  EXPECT_EQ(try_element_count(Shape{INT64_MAX, 2, 0}), 0);
  EXPECT_EQ(try_byte_size(DType::kF32, Shape{5}), 20);
  EXPECT_EQ(try_byte_size(DType::kF32, Shape{INT64_MAX / 2}), std::nullopt);
  EXPECT_EQ(try_align_up(65, 64), 128u);
  EXPECT_EQ(try_align_up(UINT64_MAX, 64), std::nullopt);
}

TEST(HashTest, MatchesThePublishedValues) {
  // XXH3 of the empty input, seed 0: from xxHash's own sanity checks.
  EXPECT_EQ(hex(hash64("")), "2d06800538d394c2");
  EXPECT_EQ(hex(hash128("")), "99aa06d3014798d86001c324468d497f");
}

TEST(HashTest, PiecesHashAsTheWhole) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31);
  Hasher64 hasher;
  const std::span<const uint8_t> all(bytes);
  hasher.update(all.first(17));
  hasher.update(all.subspan(17, 3000));
  hasher.update(all.subspan(3017));
  EXPECT_EQ(hasher.digest(), hash64(all));
  Hasher128 wide;
  wide.update(all.first(17));
  wide.update(std::string_view(reinterpret_cast<const char*>(all.data()) + 17, 3000));
  wide.update(all.subspan(3017));
  EXPECT_EQ(wide.digest(), hash128(all));
}

}  // namespace
}  // namespace nimble
