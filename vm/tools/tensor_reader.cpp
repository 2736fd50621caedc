#include "vm/tools/tensor_reader.h"

#include <optional>

#include "vm/base/checked.h"
#include "vm/tools/tensor_arguments.h"

namespace nimble {

using api::Type;
using api::Value;

Value TensorReader::tensor(const Type& type) {
  const size_t begin = at_;
  const DType dtype = static_cast<DType>(type.dtype);
  Array array{dtype, {}, {}};
  if (peek() == '@') {
    return from_file(type);
  } else if (peek() == '[') {
    array.shape.assign(type.dims.size(), -1);
    list(type, 0, &array);
    for (size_t d = 0; d < array.shape.size(); ++d)  // inside an empty list
      if (array.shape[d] < 0) array.shape[d] = std::max<int64_t>(type.extents[d], 0);
  } else if (is_digit(peek()) || peek() == '-' || peek() == '+') {
    number(type, &array.bytes);
  } else {
    const std::string_view word = identifier();
    if (word == "true" || word == "false" || word == "inf" || word == "nan" ||
        is_scalar_word(word)) {
      at_ = begin;
      number(type, &array.bytes);
    } else if (dtype_from_name(word) && peek() == '[') {
      check_dtype(begin, *dtype_from_name(word), type);
      literal(type, &array);
    } else {
      at_ = begin;
      fail(begin, fmt::format("{} stands where {} belongs", next_text(), type.name),
           fmt::format("write {0}[…]{{…}}, nested lists of numbers or @FILE.npy", name_of(dtype)));
    }
  }
  check_shape(begin, array.shape, type);
  return Value::of(view_of(array));
}

bool TensorReader::is_scalar_word(std::string_view word) {
  return (word.starts_with("inf") || word.starts_with("nan")) && dtype_from_name(word.substr(3));
}

void TensorReader::check_dtype(size_t at, DType found, const Type& type) const {
  const DType wanted = static_cast<DType>(type.dtype);
  if (found != wanted)
    fail(at, fmt::format("{} stands where {} belongs", name_of(found), type.name),
         fmt::format("give {}", name_of(wanted)));
}

void TensorReader::check_shape(size_t at, const std::vector<int64_t>& shape,
                               const Type& type) const {
  bool fits = shape.size() == type.dims.size();
  for (size_t d = 0; fits && d < shape.size(); ++d)
    fits = type.extents[d] < 0 || type.extents[d] == shape[d];
  if (!fits)
    fail(at, fmt::format("a shape of ({}) where {} belongs", fmt::join(shape, ", "), type.name),
         fmt::format("give ({})", fmt::join(type.dims, ", ")));
}

void TensorReader::number(const Type& type, std::vector<uint8_t>* bytes) {
  skip();
  const size_t begin = at_;
  const DType dtype = static_cast<DType>(type.dtype);
  double real = 0;
  int64_t integer = 0;
  bool whole = true;
  if (is_letter(peek()) && (text_.substr(at_, 4) == "true" || text_.substr(at_, 5) == "false")) {
    integer = peek() == 't';
    real = static_cast<double>(integer);
    at_ += integer ? 4 : 5;
    if (dtype != DType::kBool)
      fail(begin, fmt::format("a bool stands where {} belongs", type.name), "give numbers");
  } else {
    if (peek() == '+') ++at_;
    const char* from = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto as_real = std::from_chars(from, end, real);
    auto as_integer = std::from_chars(from, end, integer);
    if (uint64_t large = 0;
        dtype == DType::kU64 && as_integer.ec == std::errc::result_out_of_range) {
      as_integer = std::from_chars(from, end, large);
      integer = static_cast<int64_t>(large);
    }
    if (as_real.ptr == from)
      fail(begin, fmt::format("{} is not a number", next_text()), "write one like 2 or -1.5e-3");
    whole = as_integer.ec == std::errc() && as_integer.ptr == as_real.ptr;
    if (as_real.ec != std::errc() && !whole)
      fail(begin, "a number is too large or too small for any dtype", "give another");
    at_ += static_cast<size_t>(as_real.ptr - from);
  }
  if (const size_t suffix = at_; is_letter(peek())) {
    const std::optional<DType> named = dtype_from_name(identifier());
    if (!named) {
      at_ = suffix;
      fail(suffix, fmt::format("{} follows a number", next_text()),
           fmt::format("end it, or write {}", name_of(dtype)));
    }
    check_dtype(begin, *named, type);
  }
  const bool negative = text_[begin] == '-';
  if (!is_float(dtype) && (!whole || !fits(dtype, integer, negative)))
    fail(begin,
         fmt::format("{} is not a valid {}", text_.substr(begin, at_ - begin), name_of(dtype)),
         "give a whole number in its range");
  const size_t size = bytes->size();
  bytes->resize(size + size_of(dtype));
  store_element(dtype, real, integer, bytes->data() + size);
}

bool TensorReader::fits(DType dtype, int64_t n, bool negative) {
  if (dtype == DType::kBool) return n == 0 || n == 1;
  if (dtype == DType::kI64) return true;
  if (dtype == DType::kU64) return !negative;
  const int bits = static_cast<int>(8 * size_of(dtype));
  const bool is_signed = dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32;
  const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  return n >= low && n <= high;
}

void TensorReader::list(const Type& type, size_t depth, Array* array) {
  skip();
  if (depth == array->shape.size()) return number(type, &array->bytes);
  const size_t begin = at_;
  if (peek() != '[')
    fail(begin, fmt::format("{} stands where a list of numbers belongs", next_text()),
         fmt::format("give lists {} deep for {}", array->shape.size(), type.name));
  ++at_;
  int64_t count = 0;
  for (skip(); peek() != ']'; skip()) {
    if (count > 0 && peek() != ',')
      fail(at_, fmt::format("{} stands in a list", next_text()), "write \",\" or \"]\"");
    if (count > 0) ++at_;
    list(type, depth + 1, array);
    ++count;
  }
  ++at_;
  int64_t& extent = array->shape[depth];
  if (extent < 0) extent = count;
  if (extent != count)
    fail(begin, fmt::format("a list of {} after one of {}", count, extent),
         "give all lists of a level the same length");
}

void TensorReader::literal(const Type& type, Array* array) {
  const size_t begin = at_;
  auto separated = [&](char close, auto&& item) {
    ++at_;
    for (skip(); peek() != close; skip()) {
      item();
      skip();
      if (peek() == ',') {
        ++at_;
      } else if (peek() != close) {
        fail(at_, fmt::format("{} stands in a tensor", next_text()),
             fmt::format("write \",\" or \"{}\"", close));
      }
    }
    ++at_;
  };
  separated(']', [&] { array->shape.push_back(whole(int64_t{1} << 40)); });
  const std::optional<int64_t> count = try_element_count(array->shape);
  if (!count || *count > int64_t{1} << 40)
    fail(begin, "a tensor that is too large", "give smaller extents");
  if (peek() != '{') fail(at_, "a shape without elements", "write its elements in braces");
  separated('}', [&] { number(type, &array->bytes); });
  const size_t given = array->bytes.size() / size_of(array->dtype);
  if (given != static_cast<size_t>(*count))
    fail(begin,
         fmt::format("{} elements for a shape of ({})", given, fmt::join(array->shape, ", ")),
         fmt::format("give {}", *count));
}

Value TensorReader::from_file(const Type& type) {
  const size_t begin = at_++;
  std::string path;
  if (peek() == '"') {
    const size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) fail(at_, "a file name without its end", "write \"");
    path = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
  } else {
    const size_t end = std::min(text_.find_first_of(" \t\r\n,()[]", at_), text_.size());
    path = text_.substr(at_, end - at_);
    at_ = end;
  }
  if (path.empty()) fail(begin, "\"@\" without a file name", "write @FILE.npy");
  std::optional<int64_t> first, last;
  if (peek() == '[') {
    ++at_;
    first = whole(INT64_MAX);
    if (peek() == ':') ++at_, last = whole(INT64_MAX);
    if (peek() != ']') fail(at_, fmt::format("{} stands in an index", next_text()), "write \"]\"");
    ++at_;
  }
  const std::string key(text_.substr(begin, at_ - begin));
  const auto known = rows_.find(key);
  if (known != rows_.end()) {
    check_array(begin, known->second.first, type);
    return known->second.second;
  }
  if (!path.starts_with("/") && !folder_.empty()) path = folder_ + "/" + path;
  auto file = files_.find(path);
  if (file == files_.end()) file = files_.emplace(path, read_npy(path)).first;
  const Array& whole_array = file->second;
  Array part{whole_array.dtype, whole_array.shape, {}};
  if (first) {
    const int64_t rows = part.shape.empty() ? 0 : part.shape[0];
    const int64_t end = last ? *last : *first + 1;
    if (*first > end || end > rows || (!last && *first == rows))
      fail(begin, fmt::format("{} has {} rows", path, rows), "index one that is there");
    const size_t row = rows > 0 ? whole_array.bytes.size() / static_cast<size_t>(rows) : 0;
    if (last)
      part.shape[0] = end - *first;
    else
      part.shape.erase(part.shape.begin());
    part.bytes.assign(whole_array.bytes.begin() + static_cast<ptrdiff_t>(*first * row),
                      whole_array.bytes.begin() + static_cast<ptrdiff_t>(end * row));
  } else {
    part.bytes = whole_array.bytes;
  }
  check_array(begin, part, type);
  Value v = Value::of(view_of(part));
  part.bytes.clear();
  rows_.emplace(key, std::make_pair(std::move(part), v));
  return v;
}

void TensorReader::check_array(size_t at, const Array& array, const Type& type) const {
  check_dtype(at, array.dtype, type);
  check_shape(at, array.shape, type);
}

}  // namespace nimble
