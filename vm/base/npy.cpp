#include "vm/base/npy.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "vm/base/bytes.h"
#include "vm/base/checked.h"
#include "vm/base/error.h"
#include "vm/base/file.h"

namespace nimble {
namespace {

constexpr uint8_t kMagic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

[[noreturn]] void corrupt(const std::string& place, std::string problem) {
  throw Error(Status::kCorrupt, place, std::move(problem), "save the array anew with numpy.save");
}

// The header is a Python dict literal of three fixed keys; this parser takes just that much of
// Python: quoted strings, True and False, and a tuple of integers.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  void parse() {
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        skip_space();
        if (at_ < text_.size() && text_[at_] == '[')
          throw Error(Status::kUnsupported, place_, "holds records (a structured dtype)",
                      "save one array per field");
        descr = quoted();
      } else if (key == "fortran_order") {
        fortran_order = boolean();
      } else if (key == "shape") {
        shape = tuple();
      } else {
        corrupt(place_, fmt::format("unknown key \"{}\" in the header", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (descr.empty()) corrupt(place_, "no dtype in the header");
  }

  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;

 private:
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) corrupt(place_, fmt::format("\"{}\" expected at header byte {}", c, at_));
  }
  std::string quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"')
      corrupt(place_, fmt::format("no string at header byte {}", at_));
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) corrupt(place_, "unterminated string in the header");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)})
      if (text_.substr(at_).starts_with(word)) {
        at_ += std::strlen(word);
        return value;
      }
    corrupt(place_, "fortran_order is neither True nor False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> out;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t value = 0;
      const size_t begin = at_;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
        const auto scaled = try_mul(value, int64_t{10});
        const auto sum = scaled ? try_add(*scaled, int64_t{text_[at_] - '0'}) : std::nullopt;
        if (!sum) corrupt(place_, "an extent of the shape is too large");
        value = *sum;
      }
      if (at_ == begin) corrupt(place_, "the shape is not a tuple of integers");
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
      out.push_back(value);
      if (out.size() > 64) corrupt(place_, "more than 64 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
};

DType dtype_of(const std::string& descr, const std::string& place) {
  static constexpr std::pair<const char*, DType> kTable[] = {
      {"b1", DType::kBool}, {"i1", DType::kI8},  {"i2", DType::kI16},  {"i4", DType::kI32},
      {"i8", DType::kI64},  {"u1", DType::kU8},  {"u2", DType::kU16},  {"u4", DType::kU32},
      {"u8", DType::kU64},  {"f2", DType::kF16}, {"V2", DType::kBF16}, {"f4", DType::kF32},
      {"f8", DType::kF64}};
  for (const auto& [code, dtype] : kTable)
    if (descr.size() == 3 && std::strchr("<>|=", descr[0]) && descr.substr(1) == code) return dtype;
  throw Error(Status::kUnsupported, place, fmt::format("element type \"{}\"", descr),
              "convert it first, for example with .astype('float32')");
}

const char* descr_of(DType t) {
  static constexpr const char* kDescr[kDTypeCount] = {
      "|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "|V2", "<f4", "<f8"};
  return kDescr[static_cast<int>(t)];
}

void swap_bytes(std::vector<uint8_t>* bytes, size_t width) {
  for (size_t i = 0; i + width <= bytes->size(); i += width)
    std::reverse(bytes->begin() + static_cast<ptrdiff_t>(i),
                 bytes->begin() + static_cast<ptrdiff_t>(i + width));
}

// Column-major to row-major: walks the result in order with an odometer of indices.
std::vector<uint8_t> to_row_major(std::span<const uint8_t> in, std::span<const int64_t> shape,
                                  size_t width) {
  std::vector<uint8_t> out(in.size());
  const size_t rank = shape.size();
  std::vector<size_t> stride(rank), index(rank);
  size_t step = width;
  for (size_t d = 0; d < rank; ++d) {
    stride[d] = step;
    step *= static_cast<size_t>(shape[d]);
  }
  size_t from = 0;
  for (size_t to = 0; to < out.size(); to += width) {
    std::memcpy(out.data() + to, in.data() + from, width);
    for (size_t d = rank; d-- > 0;) {
      from += stride[d];
      if (++index[d] < static_cast<size_t>(shape[d])) break;
      from -= stride[d] * index[d];
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace

Array parse_npy(std::span<const uint8_t> bytes, const std::string& place) {
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    corrupt(place, "is not a .npy file");
  ByteReader in(bytes, place);
  in.skip(sizeof kMagic);
  const uint8_t major = in.u8();
  in.u8();  // minor
  if (major < 1 || major > 3)
    throw Error(Status::kIncompatible, place, fmt::format(".npy format {}", major),
                "save it with format 1, 2 or 3");
  const size_t header_size = major == 1 ? in.u16() : in.u32();
  const std::span<const uint8_t> text = in.bytes(header_size);
  HeaderParser header({reinterpret_cast<const char*>(text.data()), text.size()}, place);
  header.parse();

  Array array;
  array.dtype = dtype_of(header.descr, place);
  array.shape = header.shape;
  const std::optional<int64_t> size = try_byte_size(array.dtype, array.shape);
  if (!size) corrupt(place, "the shape is too large");
  if (in.left() < static_cast<size_t>(*size))
    corrupt(place,
            fmt::format("is truncated: {} bytes of data expected, {} there", *size, in.left()));
  const std::span<const uint8_t> data = in.bytes(static_cast<size_t>(*size));
  const size_t width = size_of(array.dtype);
  if (header.fortran_order && array.shape.size() > 1)
    array.bytes = to_row_major(data, array.shape, width);
  else
    array.bytes.assign(data.begin(), data.end());
  if (header.descr[0] == '>' && array.dtype != DType::kBF16) swap_bytes(&array.bytes, width);
  if (array.dtype == DType::kBool)
    for (uint8_t& b : array.bytes) b = b != 0;
  return array;
}

Array read_npy(const std::string& path) {
  return parse_npy(MappedFile::open(path)->bytes(), path);
}

std::vector<uint8_t> serialize_npy(DType dtype, std::span<const int64_t> shape,
                                   std::span<const uint8_t> bytes) {
  const std::optional<int64_t> size = try_byte_size(dtype, shape);
  NIMBLE_CHECK(size && static_cast<size_t>(*size) == bytes.size(), "{} bytes", bytes.size());
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (", descr_of(dtype));
  for (size_t i = 0; i < shape.size(); ++i) header += fmt::format("{}{}", i ? ", " : "", shape[i]);
  header += shape.size() == 1 ? ",), }" : "), }";
  // NumPy aligns the data to 64 bytes, so that it can be mapped.
  const size_t fixed = sizeof kMagic + 4;
  header.append((64 - (fixed + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  NIMBLE_CHECK(header.size() <= 0xffff, "{} bytes of header", header.size());
  ByteWriter out;
  out.bytes(kMagic);
  out.u8(1);
  out.u8(0);
  out.u16(static_cast<uint16_t>(header.size()));
  out.bytes({reinterpret_cast<const uint8_t*>(header.data()), header.size()});
  out.bytes(bytes);
  return out.take();
}

void write_npy(const std::string& path, DType dtype, std::span<const int64_t> shape,
               std::span<const uint8_t> bytes) {
  write_file_atomically(path, std::span<const uint8_t>(serialize_npy(dtype, shape, bytes)));
}

void write_npy(const std::string& path, const Array& array) {
  write_npy(path, array.dtype, array.shape, array.bytes);
}

}  // namespace nimble
