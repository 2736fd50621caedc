#include "vm/base/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>

#include "vm/base/bytes.h"
#include "vm/base/error.h"
#include "vm/base/file.h"

namespace nimble {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> npy(const std::string& header, const std::vector<uint8_t>& data,
                         uint8_t major = 1) {
  ByteWriter out;
  const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y', major, 0};
  out.bytes(magic);
  if (major == 1)
    out.u16(static_cast<uint16_t>(header.size()));
  else
    out.u32(static_cast<uint32_t>(header.size()));
  out.bytes({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
  out.bytes(data);
  return out.take();
}

std::string error_of(const std::vector<uint8_t>& bytes) {
  try {
    parse_npy(bytes, "x.npy");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(NpyTest, EveryDTypeRoundTrips) {
  for (int i = 0; i < kDTypeCount; ++i) {
    Array a{static_cast<DType>(i), {2, 3}, {}};
    a.bytes.resize(6 * size_of(a.dtype));
    for (size_t k = 0; k < a.bytes.size(); ++k)
      a.bytes[k] = static_cast<uint8_t>(a.dtype == DType::kBool ? k % 2 : k);
    EXPECT_EQ(parse_npy(serialize_npy(a.dtype, a.shape, a.bytes), "x"), a);
  }
}

TEST(NpyTest, WritesWhatNumPyWrites) {
  const std::vector<uint8_t> data(12, 1);
  const std::vector<uint8_t> bytes = serialize_npy(DType::kF32, std::vector<int64_t>{3}, data);
  const std::string text(bytes.begin() + 10, bytes.end());
  EXPECT_TRUE(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"))
      << text;
  EXPECT_EQ((bytes.size() - data.size()) % 64, 0u);
  EXPECT_EQ(bytes[bytes.size() - data.size() - 1], '\n');
}

TEST(NpyTest, ScalarsAndEmptyArrays) {
  const Array scalar{DType::kI64, {}, std::vector<uint8_t>(8, 5)};
  EXPECT_EQ(parse_npy(serialize_npy(scalar.dtype, scalar.shape, scalar.bytes), "x"), scalar);
  const Array empty{DType::kF32, {4, 0}, {}};
  EXPECT_EQ(parse_npy(serialize_npy(empty.dtype, empty.shape, empty.bytes), "x"), empty);
}

TEST(NpyTest, ConvertsColumnMajorAndBigEndian) {
  // [[1, 2, 3], [4, 5, 6]] in column-major order, big-endian.
  const std::vector<uint8_t> data = {0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6};
  const Array a =
      parse_npy(npy("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3)}", data, 3), "x");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.bytes, (std::vector<uint8_t>{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}));
}

TEST(NpyTest, RefusesWhatItCannotRead) {
  EXPECT_THAT(error_of({1, 2, 3}), HasSubstr("is not a .npy file"));
  EXPECT_THAT(error_of(npy("{'descr': '<c8', 'fortran_order': False, 'shape': ()}", {})),
              HasSubstr("element type \"<c8\""));
  EXPECT_THAT(error_of(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", {})),
              HasSubstr("records"));
  EXPECT_THAT(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", {0})),
              HasSubstr("truncated: 12 bytes of data expected, 1 there"));
  EXPECT_THAT(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': "
                           "(9223372036854775807, 9)}",
                           {})),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': "
                           "(99999999999999999999,)}",
                           {})),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(npy("{'descr': '<f4'", {})), HasSubstr("expected"));
  EXPECT_THAT(error_of(npy("{}", {}, 4)), HasSubstr("format 4"));
}

class NpzTest : public ::testing::Test {
 protected:
  std::string path_ = ::testing::TempDir() + "nimble-npz-" + std::to_string(::getpid()) + ".npz";
  void TearDown() override { std::filesystem::remove(path_); }
};

TEST_F(NpzTest, RoundTrip) {
  const NamedArrays arrays = {{"ids", {DType::kI64, {2}, std::vector<uint8_t>(16, 3)}},
                              {"empty", {DType::kF32, {0}, {}}},
                              {"mask", {DType::kBool, {1, 2}, {0, 1}}}};
  write_npz(path_, arrays);
  EXPECT_EQ(read_npz(path_), arrays);
}

TEST_F(NpzTest, DamageIsNoticed) {
  const NamedArrays arrays = {{"a", {DType::kU8, {200}, std::vector<uint8_t>(200, 9)}}};
  write_npz(path_, arrays);
  std::vector<uint8_t> bytes = read_file(path_);
  // Whatever byte is damaged, the reader returns the arrays or an Error, never other data.
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 0x10;
    try {
      const NamedArrays got = parse_npz(bytes, "x.npz");
      if (!got.empty()) {
        EXPECT_EQ(got[0].second, arrays[0].second) << "byte " << i;
      }
    } catch (const Error&) {
    }
    bytes[i] ^= 0x10;
  }
  for (size_t n = 0; n < bytes.size(); n += 7)
    EXPECT_THROW(parse_npz(std::span(bytes).first(n), "x.npz"), Error);
}

// One deflated member with zip64 sizes, as numpy.savez_compressed writes large ones; the directory
// may name it several times, and claim another size.
std::vector<uint8_t> deflated_archive(const std::vector<uint8_t>& data, uint16_t times = 1,
                                      uint64_t claimed = 0) {
  std::vector<uint8_t> packed(data.size() + 100);
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = const_cast<Bytef*>(data.data());
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  const uint32_t crc = static_cast<uint32_t>(crc32(0, data.data(), static_cast<uInt>(data.size())));
  const uint8_t name[] = {'a', '.', 'n', 'p', 'y'};
  ByteWriter out;
  auto common = [&] {
    for (uint16_t v : {uint16_t{45}, uint16_t{0}, uint16_t{8}, uint16_t{0}, uint16_t{0x21}})
      out.u16(v);
    out.u32(crc);
    out.u32(0xffffffffu);
    out.u32(0xffffffffu);
    out.u16(sizeof name);
    out.u16(20);
  };
  auto extra = [&] {
    out.u16(1);
    out.u16(16);
    out.u64(claimed ? claimed : data.size());
    out.u64(packed.size());
  };
  out.u32(0x04034b50);
  common();
  out.bytes(name);
  extra();
  out.bytes(packed);
  const uint32_t directory = static_cast<uint32_t>(out.size());
  for (uint16_t n = 0; n < times; ++n) {
    out.u32(0x02014b50);
    out.u16(45);
    common();
    for (int i = 0; i < 3; ++i) out.u16(0);
    out.u32(0);
    out.u32(0);
    out.bytes(name);
    extra();
  }
  const uint32_t size = static_cast<uint32_t>(out.size()) - directory;
  out.u32(0x06054b50);
  out.u32(0);
  out.u16(times);
  out.u16(times);
  out.u32(size);
  out.u32(directory);
  out.u16(0);
  return out.take();
}

TEST_F(NpzTest, ReadsDeflatedMembersWithZip64Sizes) {
  const Array a{DType::kF32, {100}, std::vector<uint8_t>(400, 2)};
  const std::vector<uint8_t> archive = deflated_archive(serialize_npy(a.dtype, a.shape, a.bytes));
  const NamedArrays got = parse_npz(archive, "x.npz");
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].first, "a");
  EXPECT_EQ(got[0].second, a);
}

Status status_of(std::span<const uint8_t> archive) {
  try {
    parse_npz(archive, "x.npz");
  } catch (const Error& e) {
    return e.status();
  }
  return Status::kOk;
}

// A thousand names for one compressed stream would be read a thousand times.
TEST_F(NpzTest, RefusesMembersThatShareBytes) {
  const std::vector<uint8_t> data =
      serialize_npy(DType::kF32, std::vector<int64_t>{100}, std::vector<uint8_t>(400, 2));
  EXPECT_EQ(status_of(deflated_archive(data)), Status::kOk);
  EXPECT_EQ(status_of(deflated_archive(data, 2)), Status::kCorrupt);
  EXPECT_EQ(status_of(deflated_archive(data, 1000)), Status::kCorrupt);
}

TEST_F(NpzTest, BoundsWhatAllMembersHave) {
  // Two MiB pack to two KiB. What is claimed is refused before it is allocated: as impossible where
  // no packing reaches it, and as too much for so small a file where one would.
  const std::vector<uint8_t> data =
      serialize_npy(DType::kU8, std::vector<int64_t>{2 << 20}, std::vector<uint8_t>(2 << 20));
  EXPECT_EQ(status_of(deflated_archive(data)), Status::kOk);
  EXPECT_EQ(status_of(deflated_archive(data, 1, uint64_t{1} << 30)), Status::kCorrupt);
  EXPECT_EQ(status_of(deflated_archive(data, 1, (uint64_t{1} << 30) + 1)), Status::kExhausted);
}

}  // namespace
}  // namespace nimble
