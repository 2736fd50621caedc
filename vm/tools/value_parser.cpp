// Reads values. A value of data types may be a list of a million cells, so constructors that are
// open stand on a stack of the parser's own; nothing recurses.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "vm/base/checked.h"
#include "vm/base/error.h"
#include "vm/base/file.h"
#include "vm/base/npy.h"
#include "vm/tools/tensor_arguments.h"
#include "vm/tools/value_text.h"

namespace nimble {
namespace {

using api::Type;
using api::Value;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& place, const std::string& folder,
         const std::vector<Type>& types)
      : text_(text), place_(place), folder_(folder), types_(types) {}

  bool at_end() {
    skip();
    return at_ == text_.size();
  }

  Value value(uint32_t root) {
    labels_.clear();
    std::vector<Open> open;
    uint32_t type = root;
    while (true) {  // a value of `type` begins here
      skip();
      const std::optional<Label> label = read_label();
      Value v;
      if (label && !label->defines) {
        v = labelled(*label, type);
      } else if (types_[type].kind == NIMBLE_TYPE_TENSOR) {
        v = tensor(types_[type]);
        if (label) define(*label, type, v);
      } else {
        Open next{type, at_, read_tag(types_[type]), {}, label};
        const size_t fields = constructor(next).fields.size();
        const bool parenthesis = peek() == '(';
        if (parenthesis) ++at_;
        if (fields > 0) {
          if (!parenthesis)
            fail(at_, fmt::format("{} has {} fields", name_of(next), fields),
                 fmt::format("write \"(\" and the fields at once after it: {}", shape_of(next)));
          type = constructor(next).fields[0];
          open.push_back(std::move(next));
          continue;
        }
        if (parenthesis) close(next);
        v = Value::data(next.tag);
        if (label) define(*label, type, v);
      }
      // `v` is complete, and with it perhaps what it is a part of.
      while (true) {
        if (open.empty()) return v;
        Open& top = open.back();
        top.fields.push_back(std::move(v));
        skip();
        const std::vector<uint32_t>& wanted = constructor(top).fields;
        if (top.fields.size() < wanted.size()) {
          if (peek() != ',')
            fail(at_,
                 at_ == text_.size()
                     ? fmt::format("the text ends inside {} of {}", name_of(top), where(top.begin))
                     : fmt::format("after field {} of {} stands {}", top.fields.size(),
                                   name_of(top), next_text()),
                 fmt::format("write {}", shape_of(top)));
          ++at_;
          type = wanted[top.fields.size()];
          break;
        }
        if (peek() == ',') ++at_;  // as in "(x,)"
        close(top);
        v = Value::data(top.tag, top.fields);
        if (top.label) define(*top.label, top.type, v);
        open.pop_back();
      }
    }
  }

 private:
  struct Label {
    int64_t number;
    bool defines;
    size_t begin;
  };
  // A constructor or tuple whose fields are being read.
  struct Open {
    uint32_t type;
    size_t begin;
    int64_t tag;
    std::vector<Value> fields;
    std::optional<Label> label;
  };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')
        ++at_;
      else if (text_.substr(at_, 2) == "//")
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        break;
    }
  }

  // "12:7": the line and column, both from 1, of a byte.
  std::string where(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const size_t newline = before.rfind('\n');
    return fmt::format("{}:{}", 1 + std::count(before.begin(), before.end(), '\n'),
                       newline == std::string_view::npos ? at + 1 : at - newline);
  }

  [[noreturn]] void fail(size_t at, const std::string& problem, const std::string& remedy) const {
    throw Error(Status::kInvalidArgument, fmt::format("{}:{}", place_, where(at)), problem, remedy);
  }

  // What stands here, for a message.
  std::string next_text() const {
    if (at_ == text_.size()) return "the end of the text";
    size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    return fmt::format("\"{}\"", text_.substr(at_, std::clamp<size_t>(end - at_, 1, 40)));
  }

  const Type::Constructor& constructor(const Open& o) const {
    return types_[o.type].constructors[static_cast<size_t>(o.tag)];
  }
  std::string name_of(const Open& o) const {
    const std::string& name = constructor(o).name;
    return name.empty() ? "the tuple" : name;
  }
  std::string shape_of(const Type::Constructor& c) const {
    std::string fields;
    for (uint32_t f : c.fields) fields += (fields.empty() ? "" : ", ") + types_[f].name;
    if (c.name.empty()) return "(" + fields + (c.fields.size() == 1 ? ",)" : ")");
    return c.name + (fields.empty() ? "" : "(" + fields + ")");
  }
  std::string shape_of(const Open& o) const { return shape_of(constructor(o)); }

  void close(const Open& o) {
    skip();
    if (peek() != ')') {
      const size_t fields = constructor(o).fields.size();
      fail(at_,
           at_ == text_.size()
               ? fmt::format("the text ends inside {} of {}", name_of(o), where(o.begin))
               : fmt::format("after the {} of {} stands {}",
                             fields == 1 ? "one field" : fmt::format("{} fields", fields),
                             name_of(o), next_text()),
           fmt::format("write {}", shape_of(o)));
    }
    ++at_;
  }

  std::string_view identifier() {
    const size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > begin && is_digit(text_[at_]))))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // The tag of the constructor whose name stands here; of a tuple 0, and its "(" is left.
  int64_t read_tag(const Type& type) {
    const size_t begin = at_;
    const std::string_view name = identifier();
    for (size_t tag = 0; tag < type.constructors.size(); ++tag)
      if (type.constructors[tag].name == name && (!name.empty() || peek() == '('))
        return static_cast<int64_t>(tag);
    at_ = begin;
    std::string all;
    for (const Type::Constructor& c : type.constructors)
      all += (all.empty() ? "" : " or ") + shape_of(c);
    fail(begin, fmt::format("{} stands where {} belongs", next_text(), type.name), "write " + all);
  }

  // ---- labels ------------------------------------------------------------------------------

  std::optional<Label> read_label() {
    if (peek() != '#') return std::nullopt;
    const size_t begin = at_++;
    const int64_t number = whole(INT64_MAX);
    const bool defines = peek() == '=';
    if (defines) ++at_, skip();
    return Label{number, defines, begin};
  }
  void define(const Label& label, uint32_t type, const Value& v) {
    if (!labels_.try_emplace(label.number, type, v).second)
      fail(label.begin, fmt::format("label #{} has a value already", label.number),
           "take another number");
  }
  Value labelled(const Label& label, uint32_t type) const {
    const auto found = labels_.find(label.number);
    if (found == labels_.end())
      fail(label.begin, fmt::format("nothing before is labelled #{}", label.number),
           fmt::format("write #{}= before the part that is meant", label.number));
    if (found->second.first != type)
      fail(label.begin,
           fmt::format("#{} is a {} where {} belongs", label.number,
                       types_[found->second.first].name, types_[type].name),
           "use a label for values of one type");
    return found->second.second;
  }

  // ---- tensors -----------------------------------------------------------------------------

  Value tensor(const Type& type) {
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
             fmt::format("write {0}[…]{{…}}, nested lists of numbers or @FILE.npy",
                         nimble::name_of(dtype)));
      }
    }
    check_shape(begin, array.shape, type);
    return Value::of(view_of(array));
  }

  static bool is_scalar_word(std::string_view word) {
    return (word.starts_with("inf") || word.starts_with("nan")) && dtype_from_name(word.substr(3));
  }

  void check_dtype(size_t at, DType found, const Type& type) const {
    const DType wanted = static_cast<DType>(type.dtype);
    if (found != wanted)
      fail(at, fmt::format("{} stands where {} belongs", nimble::name_of(found), type.name),
           fmt::format("give {}", nimble::name_of(wanted)));
  }
  void check_shape(size_t at, const std::vector<int64_t>& shape, const Type& type) const {
    bool fits = shape.size() == type.dims.size();
    for (size_t d = 0; fits && d < shape.size(); ++d)
      fits = type.extents[d] < 0 || type.extents[d] == shape[d];
    if (!fits)
      fail(at, fmt::format("a shape of ({}) where {} belongs", fmt::join(shape, ", "), type.name),
           fmt::format("give ({})", fmt::join(type.dims, ", ")));
  }

  // A whole number that is not negative, at most `most`.
  int64_t whole(int64_t most) {
    int64_t n = -1;
    const char* begin = text_.data() + at_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), n);
    if (code != std::errc() || n < 0 || n > most)
      fail(at_, fmt::format("{} is no whole number up to {}", next_text(), most),
           "write digits alone");
    at_ += static_cast<size_t>(end - begin);
    return n;
  }

  // One number of the type's dtype, with or without the dtype's name behind it.
  void number(const Type& type, std::vector<uint8_t>* bytes) {
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
      if (uint64_t large = 0; dtype == DType::kU64 && as_integer.ec == std::errc::result_out_of_range) {
        as_integer = std::from_chars(from, end, large);
        integer = static_cast<int64_t>(large);
      }
      if (as_real.ptr == from)
        fail(begin, fmt::format("{} is no number", next_text()), "write one like 2 or -1.5e-3");
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
             fmt::format("end it, or write {}", nimble::name_of(dtype)));
      }
      check_dtype(begin, *named, type);
    }
    const bool negative = text_[begin] == '-';
    if (!is_float(dtype) && (!whole || !fits(dtype, integer, negative)))
      fail(begin,
           fmt::format("{} is no {}", text_.substr(begin, at_ - begin), nimble::name_of(dtype)),
           "give a whole number in its range");
    const size_t size = bytes->size();
    bytes->resize(size + size_of(dtype));
    store_element(dtype, real, integer, bytes->data() + size);
  }

  static bool fits(DType dtype, int64_t n, bool negative) {
    if (dtype == DType::kBool) return n == 0 || n == 1;
    if (dtype == DType::kI64) return true;
    if (dtype == DType::kU64) return !negative;
    const int bits = static_cast<int>(8 * size_of(dtype));
    const bool is_signed = dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32;
    const int64_t low = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
    const int64_t high = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    return n >= low && n <= high;
  }

  // Nested lists, one level for each dim; extents are -1 until the first list of a level closes.
  void list(const Type& type, size_t depth, Array* array) {
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

  // "[2, 3]{1, 2, …}", after the dtype.
  void literal(const Type& type, Array* array) {
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

  // "@FILE.npy", "@FILE.npy[7]" (a row without its dim) or "@FILE.npy[7:9]" (rows).
  Value from_file(const Type& type) {
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
      if (peek() != ']')
        fail(at_, fmt::format("{} stands in an index", next_text()), "write \"]\"");
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
  void check_array(size_t at, const Array& array, const Type& type) const {
    check_dtype(at, array.dtype, type);
    check_shape(at, array.shape, type);
  }

  std::string_view text_;
  const std::string& place_;
  const std::string& folder_;
  const std::vector<Type>& types_;
  size_t at_ = 0;
  std::map<int64_t, std::pair<uint32_t, Value>> labels_;  // of the value being read
  std::map<std::string, Array> files_;
  // References to files as they are written: dtype and shape, and the tensor itself.
  std::map<std::string, std::pair<Array, Value>> rows_;
};

}  // namespace

std::vector<api::Value> parse_values(std::string_view text, const std::string& place,
                                     const std::string& folder, const std::vector<api::Type>& types,
                                     int32_t type) {
  Parser parser(text, place, folder, types);
  std::vector<api::Value> all;
  while (!parser.at_end()) all.push_back(parser.value(static_cast<uint32_t>(type)));
  return all;
}

std::vector<api::Value> read_values(const std::string& reference,
                                    const std::vector<api::Type>& types, int32_t type) {
  std::string path = reference;
  std::optional<size_t> index;
  if (const size_t bracket = path.rfind('['); path.ends_with("]")) {
    size_t n = 0;
    const char* end = path.data() + path.size() - 1;
    const auto [stop, code] = std::from_chars(path.data() + bracket + 1, end, n);
    if (code == std::errc() && stop == end) {
      index = n;
      path.resize(bracket);
    }
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::vector<api::Value> all = parse_values(read_text_file(path), path, folder, types, type);
  if (all.empty())
    throw Error(Status::kInvalidArgument, path, "it holds no value",
                fmt::format("write values of the type {}", types[static_cast<size_t>(type)].name));
  if (!index) return all;
  if (*index >= all.size())
    throw Error(Status::kInvalidArgument, path, fmt::format("it has no value {}", *index),
                fmt::format("give an index from 0 to {}", all.size() - 1));
  return {all[*index]};
}

}  // namespace nimble
