// Messages survive the trip; anything else is refused by name.
#include "tuner/measure/protocol.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "tuner/measure/test/fault_executable.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using ::testing::HasSubstr;

Case sample_case() {
  Case c = copy_case(3, 2);
  c.symbols = {64, -1};
  c.threads = 2;
  c.stepping = {1, 0};
  c.inputs.push_back({0, 100, true});
  return c;
}

struct Pipe {
  int ends[2];
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void write(const void* data, size_t size) {
    EXPECT_EQ(::write(ends[1], data, size), static_cast<ssize_t>(size));
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
};

std::string error_of_reading(std::vector<uint8_t> bytes) {
  Pipe p;
  p.write(bytes.data(), bytes.size());
  p.close_writer();
  Frame f;
  try {
    read_frame(p.ends[0], &f);
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kCorrupt);
    return e.what();
  }
  return "";
}

std::vector<uint8_t> frame(uint32_t magic, uint16_t version, uint16_t type, uint64_t length) {
  ByteWriter w;
  w.u32(magic);
  w.u16(version);
  w.u16(type);
  w.u64(length);
  return w.take();
}

TEST(Protocol, CasesAndResultsRoundTrip) {
  Case c = sample_case();
  EXPECT_EQ(decode_case(encode(c)), c);
  c.policy.choose_class("cold");
  c.limit_ns = 5'000'000;
  EXPECT_EQ(decode_case(encode(c)), c);
  const CaseCost cost{1, 20, 300};
  EXPECT_EQ(decode_cost(encode(cost)), cost);
  EntryResult r{4, EntryState::kTimeout, 0.5, 1, 77, "ci", "no progress", 12, {1.5, 2.5}};
  EXPECT_EQ(decode_entry_result(encode(r)), r);
}

TEST(Protocol, EveryTruncationIsRefused) {
  const std::vector<uint8_t> bytes = encode(sample_case());
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(decode_case(std::span(bytes).first(n)), Error) << n;
  std::vector<uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_THROW(decode_case(longer), Error);
}

TEST(Protocol, FramesTravel) {
  Pipe p;
  const std::vector<uint8_t> payload = {1, 2, 3};
  EXPECT_TRUE(write_frame(p.ends[1], MessageType::kEntry, payload));
  EXPECT_TRUE(write_frame(p.ends[1], MessageType::kMeasured, {}));
  p.close_writer();
  Frame f;
  ASSERT_TRUE(read_frame(p.ends[0], &f));
  EXPECT_EQ(f.type, MessageType::kEntry);
  EXPECT_EQ(f.payload, payload);
  ASSERT_TRUE(read_frame(p.ends[0], &f));
  EXPECT_EQ(f.type, MessageType::kMeasured);
  EXPECT_FALSE(read_frame(p.ends[0], &f));
}

TEST(Protocol, StrangeFramesAreNamed) {
  EXPECT_THAT(error_of_reading(frame(0x12345678, 1, 1, 0)), HasSubstr("begins with 12345678"));
  EXPECT_THAT(error_of_reading(frame(kFrameMagic, 9, 1, 0)), HasSubstr("version 9"));
  EXPECT_THAT(error_of_reading(frame(kFrameMagic, kProtocolVersion, 77, 0)),
              HasSubstr("unknown type 77"));
  EXPECT_THAT(error_of_reading(frame(kFrameMagic, kProtocolVersion, 1, UINT64_MAX)),
              HasSubstr("bytes"));
  EXPECT_THAT(error_of_reading(frame(kFrameMagic, kProtocolVersion, 1, 10)),
              HasSubstr("ends within"));
  EXPECT_THAT(error_of_reading({0x4e, 0x4d}), HasSubstr("ends within"));
}

TEST(Protocol, AReaderThatLeftIsNoticed) {
  Pipe p;
  ::signal(SIGPIPE, SIG_IGN);
  ::close(p.ends[0]);
  p.ends[0] = ::dup(0);
  EXPECT_FALSE(write_frame(p.ends[1], MessageType::kEntry, {}));
}

}  // namespace
}  // namespace nimble::tuner
