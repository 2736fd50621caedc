// The wire format of protocol buffers, read in place.
//
// A message is a sequence of fields, each a key (field number and wire type, as a varint) and a
// payload. Reading ONNX needs nothing else of protobuf, and reading in place has what the generated
// classes lack: weights stay views of the mapped file, files may exceed 2 GiB, and every fault
// names the byte. Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "vm/base/error.h"

namespace nimble::frontend::onnx {

class WireReader {
 public:
  // Reads `bytes`, part of a file that starts at `file_start`; `place` names the file in errors.
  WireReader(std::span<const uint8_t> bytes, const uint8_t* file_start, const std::string* place,
             int depth = 0)
      : bytes_(bytes), file_start_(file_start), place_(place), depth_(depth) {
    // Readers recurse, so depth is bounded: a graph inside a graph is three messages (node,
    // attribute, graph). Real models stay under 12.
    constexpr int kDeepest = 200;
    if (depth > kDeepest)
      fail(fmt::format("messages are nested more than {} deep, as in more than {} graphs inside "
                       "each other",
                       kDeepest, kDeepest / 3),
           "export the model with fewer Ifs and Loops inside each other");
  }

  // Moves to the next field; false at the end of the message. What the last field did not read of
  // its payload is skipped.
  bool next() {
    if (pending_) skip();
    if (at_ == bytes_.size()) return false;
    const uint64_t key = raw_varint();
    field_ = static_cast<uint32_t>(key >> 3);
    type_ = static_cast<uint32_t>(key & 7);
    if (field_ == 0 || key >> 32) fail("a field number is out of range");
    pending_ = true;
    return true;
  }
  uint32_t field() const { return field_; }

  uint64_t varint() {
    expect(0, "an integer");
    return raw_varint();
  }
  int64_t integer() { return static_cast<int64_t>(varint()); }
  float f32() {
    expect(5, "a float");
    return std::bit_cast<float>(fixed<uint32_t>());
  }
  double f64() {
    expect(1, "a double");
    return std::bit_cast<double>(fixed<uint64_t>());
  }
  std::span<const uint8_t> bytes() {
    expect(2, "bytes");
    return raw_bytes();
  }
  // Any bytes as a string.
  std::string string() {
    const std::span<const uint8_t> b = bytes();
    return {b.begin(), b.end()};
  }
  // A name: it will stand in messages and signatures.
  std::string text() {
    std::string s = string();
    for (char c : s)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fail("a name has a control character");
    return s;
  }
  WireReader message() { return {bytes(), file_start_, place_, depth_ + 1}; }

  // A repeated number, packed into one payload or a field of its own: calls add() for each.
  template <class F>
  void repeated_varint(F add) {
    if (type_ == 0) return add(varint());
    WireReader packed = message();
    while (packed.at_ < packed.bytes_.size()) add(packed.raw_varint());
  }
  template <class Bits, class F>
  void repeated_fixed(F add) {
    if (type_ == (sizeof(Bits) == 4 ? 5 : 1)) {
      pending_ = false;
      return add(fixed<Bits>());
    }
    WireReader packed = message();
    while (packed.at_ < packed.bytes_.size()) add(packed.fixed<Bits>());
  }

  [[noreturn]] void fail(const std::string& problem,
                         const std::string& remedy =
                             "the file is truncated or no ONNX model; export or download it "
                             "again") const {
    const auto byte = static_cast<size_t>(bytes_.data() - file_start_) + at_;
    throw Error(Status::kCorrupt, fmt::format("{}: byte {}", *place_, byte), problem, remedy);
  }

 private:
  void expect(uint32_t type, const char* what) {
    if (type_ != type) fail(fmt::format("field {} is not {}", field_, what));
    pending_ = false;
  }

  uint64_t raw_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == bytes_.size()) fail("an integer is cut off");
      const uint8_t byte = bytes_[at_++];
      if (shift == 63 && byte > 1) fail("an integer exceeds 64 bits");
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("an integer exceeds 64 bits");
  }

  template <class T>
  T fixed() {
    if (bytes_.size() - at_ < sizeof(T)) fail("a number is cut off");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::span<const uint8_t> raw_bytes() {
    const uint64_t size = raw_varint();
    if (size > bytes_.size() - at_)
      fail(fmt::format("{} bytes are announced where {} are left", size, bytes_.size() - at_));
    const std::span<const uint8_t> out = bytes_.subspan(at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
    return out;
  }

  void skip() {
    pending_ = false;
    switch (type_) {
      case 0:
        raw_varint();
        return;
      case 1:
        fixed<uint64_t>();
        return;
      case 2:
        raw_bytes();
        return;
      case 5:
        fixed<uint32_t>();
        return;
      default:
        fail(fmt::format("wire type {} does not occur in ONNX", type_));
    }
  }

  std::span<const uint8_t> bytes_;
  const uint8_t* file_start_;
  const std::string* place_;
  int depth_;
  size_t at_ = 0;
  uint32_t field_ = 0, type_ = 0;
  bool pending_ = false;  // a field whose payload has not been read
};

}  // namespace nimble::frontend::onnx
