// Elements of constants as text, both ways, and the likeness of names.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "compiler/ir/text_lexer.h"
#include "vm/base/half.h"

namespace nimble::ir {
namespace {

template <class T>
std::string shortest(T v) {
  char buffer[64];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
}

// Parses all of `text` as a T and stores it.
template <class T>
bool store(std::string_view text, uint8_t* to) {
  T v{};
  const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return false;
  std::memcpy(to, &v, sizeof v);
  return true;
}

// A NaN is its bits: nan.ffc00000; the plain quiet one just nan.
constexpr std::string_view kNan = "nan.";

uint64_t plain_nan(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x7ff8000000000000;
    case DType::kF32:
      return 0x7fc00000;
    case DType::kF16:
      return 0x7e00;
    default:
      return 0x7fc0;  // bf16
  }
}

std::string nan_text(const Tensor& t, int64_t i) {
  uint64_t bits = 0;
  const size_t width = size_of(t.dtype);
  std::memcpy(&bits, t.bytes.data() + static_cast<size_t>(i) * width, width);
  if (bits == plain_nan(t.dtype)) return "nan";
  return fmt::format("{}{:0{}x}", kNan, bits, 2 * width);
}

bool parse_nan(std::string_view digits, DType dtype, uint8_t* to) {
  uint64_t bits = 0;
  const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  const size_t width = size_of(dtype);
  if (digits.size() != 2 * width || r.ec != std::errc() || r.ptr != digits.data() + digits.size())
    return false;
  // Above infinity, the sign aside.
  const uint64_t infinity = dtype == DType::kF64   ? 0x7ff0000000000000
                            : dtype == DType::kF32 ? 0x7f800000
                            : dtype == DType::kF16 ? 0x7c00
                                                   : 0x7f80;
  const uint64_t magnitude = bits & ~(uint64_t{1} << (8 * width - 1));
  std::memcpy(to, &bits, width);
  return magnitude > infinity;
}

}  // namespace

std::string shortest_text(double v) {
  return shortest(v);
}

std::string element_text(const Tensor& t, int64_t i) {
  if (is_float(t.dtype) && std::isnan(t.value(i))) return nan_text(t, i);
  switch (t.dtype) {
    case DType::kBool:
      return t.integer(i) ? "true" : "false";
    case DType::kU64:
      return std::to_string(t.as<uint64_t>()[static_cast<size_t>(i)]);
    case DType::kF64:
      return shortest(t.value(i));
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return shortest(static_cast<float>(t.value(i)));
    default:
      return std::to_string(t.integer(i));
  }
}

bool parse_element(std::string_view text, DType dtype, uint8_t* to) {
  if (is_float(dtype) && text.starts_with(kNan))
    return parse_nan(text.substr(kNan.size()), dtype, to);
  switch (dtype) {
    case DType::kBool:
      *to = text == "true";
      return text == "true" || text == "false";
    case DType::kI8:
      return store<int8_t>(text, to);
    case DType::kI16:
      return store<int16_t>(text, to);
    case DType::kI32:
      return store<int32_t>(text, to);
    case DType::kI64:
      return store<int64_t>(text, to);
    case DType::kU8:
      return store<uint8_t>(text, to);
    case DType::kU16:
      return store<uint16_t>(text, to);
    case DType::kU32:
      return store<uint32_t>(text, to);
    case DType::kU64:
      return store<uint64_t>(text, to);
    case DType::kF32:
      return store<float>(text, to);
    case DType::kF64:
      return store<double>(text, to);
    case DType::kF16:
    case DType::kBF16: {
      uint8_t wide[sizeof(float)];
      if (!store<float>(text, wide)) return false;
      float v;
      std::memcpy(&v, wide, sizeof v);
      const uint16_t bits = dtype == DType::kF16 ? f16_from_f32(v) : bf16_from_f32(v);
      std::memcpy(to, &bits, sizeof bits);
      return true;
    }
  }
  return false;
}

}  // namespace nimble::ir
