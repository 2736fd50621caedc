// A signature holds its dims as text (vm/executable/executable.h), in the language's notation:
//
//   sum     = ["-"] product { ("+" | "-") product }
//   product = factor { "*" factor }
//   factor  = integer | symbol | function "(" sum {"," sum} ")" | "(" sum ")"
//   symbol  = letter { letter | digit | "." } | "`" any text "`"
//
// Values are 64-bit and every operation is checked: an extent that does not exist is nothing, never
// a wrong number.
#include "vm/tools/dim_text.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "vm/base/error.h"
#include "vm/tools/text_scanner.h"

namespace nimble {
namespace {

using Value = std::optional<int64_t>;

class DimReader : TextScanner {
 public:
  // `value_of` is asked for each symbol.
  DimReader(const std::string& text, std::function<Value(const std::string&)> value_of)
      : TextScanner(text, text), value_of_(std::move(value_of)) {}

  // Error(kInvalidArgument) where the text is no dim.
  Value read() {
    const Value v = sum();
    if (!at_end()) fail(at_, "unexpected text", "");
    return v;
  }

 private:
  // Whether `c` stands here; passes it.
  bool take(char c) {
    skip();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(at_, "no dim", "");
  }

  template <class Op>
  static Value combine(const Value& a, const Value& b, Op op) {
    int64_t result = 0;
    if (!a || !b || op(*a, *b, &result)) return std::nullopt;
    return result;
  }
  static Value plus(const Value& a, const Value& b) {
    return combine(a, b, [](auto x, auto y, auto* r) { return __builtin_add_overflow(x, y, r); });
  }
  static Value minus(const Value& a, const Value& b) {
    return combine(a, b, [](auto x, auto y, auto* r) { return __builtin_sub_overflow(x, y, r); });
  }
  static Value times(const Value& a, const Value& b) {
    return combine(a, b, [](auto x, auto y, auto* r) { return __builtin_mul_overflow(x, y, r); });
  }
  // Divisors of dims are positive.
  static Value divided(const Value& a, const Value& b) {
    if (!a || !b || *b <= 0) return std::nullopt;
    return *a / *b - (*a % *b < 0);
  }

  Value sum() {
    Value v = take('-') ? minus(0, product()) : product();
    for (;;) {
      if (take('+'))
        v = plus(v, product());
      else if (take('-'))
        v = minus(v, product());
      else
        return v;
    }
  }

  Value product() {
    Value v = factor();
    while (take('*')) v = times(v, factor());
    return v;
  }

  Value factor() {
    skip();
    if (is_digit(peek())) return whole(INT64_MAX);
    if (take('(')) {
      const Value v = nested();
      expect(')');
      return v;
    }
    if (take('`')) {
      const size_t end = std::min(text_.find('`', at_), text_.size());
      const std::string name(text_.substr(at_, end - at_));
      at_ = end;
      expect('`');
      return value_of_(name);
    }
    const size_t begin = at_;
    while (is_letter(peek()) || (at_ > begin && (is_digit(peek()) || peek() == '.'))) ++at_;
    if (at_ == begin) fail(at_, "no dim", "");
    const std::string name(text_.substr(begin, at_ - begin));
    return take('(') ? call(name) : value_of_(name);
  }

  Value call(const std::string& name) {
    static const std::set<std::string> kFunctions = {"floordiv", "ceildiv", "mod",
                                                     "min",      "max",     "broadcast"};
    if (!kFunctions.contains(name)) fail(at_, "no function of dims", "");
    std::vector<Value> operands = {nested()};
    while (take(',')) operands.push_back(nested());
    expect(')');
    Value v = operands[0];
    for (size_t i = 1; i < operands.size(); ++i) {
      const Value& b = operands[i];
      if (!v || !b) return std::nullopt;
      if (name == "floordiv")
        v = divided(v, b);
      else if (name == "ceildiv")
        v = minus(0, divided(minus(0, v), b));
      else if (name == "mod")
        v = minus(v, times(divided(v, b), b));
      else if (name == "min")
        v = std::min(*v, *b);
      else if (name == "max")
        v = std::max(*v, *b);
      else
        v = *v == *b || *b == 1 ? v : *v == 1 ? b : std::nullopt;
    }
    return v;
  }

  Value nested() {
    constexpr int kDeepest = 200;  // as the compiler's own reader
    if (++depth_ > kDeepest) fail(at_, "a dim is nested too deeply", "");
    const Value v = sum();
    --depth_;
    return v;
  }

  std::function<Value(const std::string&)> value_of_;
  int depth_ = 0;
};

}  // namespace

std::set<std::string> symbols_of_dim(const std::string& text) {
  std::set<std::string> names;
  try {
    DimReader(text, [&](const std::string& name) -> Value {
      names.insert(name);
      return std::nullopt;
    }).read();
  } catch (const Error&) {
    return {text};
  }
  return names;
}

std::optional<int64_t> extent_of_dim(const std::string& text,
                                     const std::map<std::string, int64_t>& values) {
  const auto value_of = [&](const std::string& name) -> Value {
    const auto it = values.find(name);
    return it == values.end() ? Value() : it->second;
  };
  if (const Value whole = value_of(text)) return whole;
  try {
    return DimReader(text, value_of).read();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace nimble
