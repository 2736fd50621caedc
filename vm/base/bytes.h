// Reading and writing of little-endian bytes. The reader trusts nothing: each read checks the
// bytes left, each count is checked against the bytes that its elements need at least, before
// anything is allocated. Failures are Error(kCorrupt) with the reader's place and offset.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/error.h"

namespace nimble {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  void u8(uint8_t v) { out_.push_back(v); }
  void u16(uint16_t v) { raw(&v, sizeof v); }
  void u32(uint32_t v) { raw(&v, sizeof v); }
  void u64(uint64_t v) { raw(&v, sizeof v); }
  // LEB128: seven bits a byte, low first; the high bit says that more follow.
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) u8(static_cast<uint8_t>(v | 0x80));
    u8(static_cast<uint8_t>(v));
  }
  // Zigzag, so that small negative numbers are short too.
  void svarint(int64_t v) {
    varint((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63));
  }
  void text(std::string_view s) {
    varint(s.size());
    raw(s.data(), s.size());
  }
  void bytes(std::span<const uint8_t> b) { raw(b.data(), b.size()); }
  void pad_to(size_t alignment) {
    out_.resize((out_.size() + alignment - 1) / alignment * alignment);
  }
  size_t size() const { return out_.size(); }
  std::span<const uint8_t> view() const { return out_; }
  std::vector<uint8_t> take() { return std::move(out_); }

 private:
  void raw(const void* p, size_t n) {
    if (n == 0) return;
    const size_t at = out_.size();
    out_.resize(at + n);
    std::memcpy(out_.data() + at, p, n);
  }
  std::vector<uint8_t> out_;
};

class ByteReader {
 public:
  ByteReader(std::span<const uint8_t> bytes, std::string place)
      : bytes_(bytes), place_(std::move(place)) {}

  uint8_t u8() { return *take(1); }
  uint16_t u16() { return fixed<uint16_t>(); }
  uint32_t u32() { return fixed<uint32_t>(); }
  uint64_t u64() { return fixed<uint64_t>(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = u8();
      const uint64_t bits = byte & 0x7fu;
      if (shift == 63 && bits > 1) fail("number of more than 64 bits");
      value |= bits << shift;
      if (!(byte & 0x80)) {
        if (byte == 0 && shift > 0) fail("number with needless bytes");
        return value;
      }
    }
    fail("number of more than 64 bits");
  }
  int64_t svarint() {
    const uint64_t v = varint();
    return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1));
  }
  // A varint no larger than `limit`.
  uint64_t varint_max(uint64_t limit, std::string_view what) {
    const uint64_t v = varint();
    if (v > limit) fail(fmt::format("{} is {}, at most {} is possible", what, v, limit));
    return v;
  }
  uint32_t varint32(std::string_view what) {
    return static_cast<uint32_t>(varint_max(UINT32_MAX, what));
  }
  // A count of elements that take at least `min_bytes` each of what is left, and `decoded` bytes
  // of memory each.
  size_t count(std::string_view what, size_t min_bytes = 1, size_t decoded = 0) {
    const uint64_t n = varint();
    if (n > left() / min_bytes)
      fail(fmt::format("{} is {}, at most {} is possible", what, n, left() / min_bytes));
    if (decoded > 0 && n > 0) needs_memory(n * decoded + kAllocation);  // n is below 2^57
    return n;
  }
  // Takes what is decoded from here on, as far as it says how much that is, from `left` bytes,
  // which outlive the reader; Error(kExhausted) with this remedy if they don't suffice.
  void limit_memory(uint64_t* left, std::string remedy) {
    memory_ = left;
    memory_remedy_ = std::move(remedy);
  }
  void needs_memory(uint64_t bytes) {
    if (!memory_) return;
    if (bytes > *memory_)
      throw Error(Status::kExhausted, place_,
                  fmt::format("what is decoded takes {} bytes more than may be used at byte {}",
                              bytes - *memory_, at_),
                  memory_remedy_);
    *memory_ -= bytes;
  }
  std::string text() {
    const size_t n = count("length of a text", 1, 1);
    const uint8_t* p = take(n);
    return std::string(reinterpret_cast<const char*>(p), n);
  }
  bool boolean() {
    const uint8_t v = u8();
    if (v > 1) fail(fmt::format("boolean is {}", v));
    return v == 1;
  }
  std::span<const uint8_t> bytes(size_t n) { return {take(n), n}; }
  void skip(size_t n) { take(n); }

  size_t left() const { return bytes_.size() - at_; }
  size_t offset() const { return at_; }
  void expect_end() const {
    if (left() != 0) fail(fmt::format("{} bytes too many", left()));
  }
  [[noreturn]] void fail(std::string_view problem) const {
    throw Error(Status::kCorrupt, place_, fmt::format("{} at byte {}", problem, at_),
                "make the file anew");
  }

 private:
  const uint8_t* take(size_t n) {
    if (n > left()) fail(fmt::format("ends early ({} bytes needed, {} left)", n, left()));
    const uint8_t* p = bytes_.data() + at_;
    at_ += n;
    return p;
  }
  template <typename T>
  T fixed() {
    T v;
    std::memcpy(&v, take(sizeof v), sizeof v);
    return v;
  }

  static constexpr size_t kAllocation = 16;  // what the allocator keeps beside each piece

  std::span<const uint8_t> bytes_;
  std::string place_, memory_remedy_;
  size_t at_ = 0;
  uint64_t* memory_ = nullptr;
};

}  // namespace nimble
