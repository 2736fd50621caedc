// Constants and attributes of the text form.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "compiler/ir/text_parse.h"

namespace nimble::ir {
namespace {

bool looks_float(const Token& t) {
  if (t.kind == Token::Kind::kNumber) return t.text.find_first_of(".eE") != std::string::npos;
  return (t.kind == Token::Kind::kIdentifier && (t.text == "inf" || t.text == "nan")) ||
         (t.kind == Token::Kind::kPunctuation && t.text == "-");
}

// inff32, nanbf16: of scalars the type follows at once, as in 1.5f32.
constexpr size_t kSpecialFloatLetters = 3;
std::optional<DType> special_float(const std::string& word) {
  if (!word.starts_with("inf") && !word.starts_with("nan")) return std::nullopt;
  const auto type = dtype_from_name(word.substr(kSpecialFloatLetters));
  return type && is_float(*type) ? type : std::nullopt;
}

}  // namespace

template <class F>
auto ValueParser::list(F element) {
  std::vector<decltype(element())> out;
  expect("[", "before a list");
  while (!is("]")) {
    out.push_back(element());
    if (!take(",")) break;
  }
  expect("]", "after a list");
  return out;
}

bool ValueParser::starts_constant() const {
  if (is("-")) {
    const Token word = lex(text_, pos_);
    return word.kind == Kind::kIdentifier && special_float(word.text);
  }
  if (token_.kind != Kind::kIdentifier) return false;
  const std::string& t = token_.text;
  return t == "true" || t == "false" || t == "const" || special_float(t) || dtype_from_name(t);
}

Atom ValueParser::number() {
  const Token t = token_;
  advance();
  auto type = token_.kind == Kind::kIdentifier && token_.begin == t.end
                  ? dtype_from_name(token_.text)
                  : std::nullopt;
  if (!type) {
    fail(t, fmt::format("the constant {} has no element type", t.text),
         fmt::format("write {}i64 or {}f32", t.text, t.text));
  }
  advance();
  uint8_t* data = nullptr;
  auto tensor = Tensor::make(*type, {}, &data);
  element(t, *type, data);
  return Atom::of(std::move(tensor));
}

Atom ValueParser::constant() {
  const bool negative = take("-");
  Token t = token_;
  advance();
  if (const auto type = special_float(t.text)) {
    t.text = (negative ? "-" : "") + t.text.substr(0, kSpecialFloatLetters);
    uint8_t* data = nullptr;
    auto tensor = Tensor::make(*type, {}, &data);
    element(t, *type, data);
    return Atom::of(std::move(tensor));
  }
  if (t.text == "true" || t.text == "false") {
    return Atom::of(Tensor::of<uint8_t>(DType::kBool, {}, {t.text == "true"}));
  }
  if (t.text == "const") {
    expect("(", "before the constant's name");
    const Token name = token_;
    expect_kind(Kind::kString, "a quoted name");
    expect(")", "after the constant's name");
    return Atom::of(side_constant(name));
  }
  const DType dtype = *dtype_from_name(t.text);
  expect("[", "before the extents of a constant");
  std::vector<int64_t> shape;
  int64_t elements = 1;
  while (!is("]")) {
    const Token extent = token_;
    expect_kind(Kind::kNumber, "an extent");
    shape.push_back(integer(extent));
    if (shape.back() < 0 || __builtin_mul_overflow(elements, shape.back(), &elements)) {
      fail(extent, "the extents of the constant have no meaning", "use non-negative extents");
    }
    if (!take(",")) break;
  }
  expect("]", "after the extents of a constant");
  expect("{", "before the values of a constant");
  // Bounded by the text's own length before memory is allocated.
  std::vector<uint8_t> bytes;
  int64_t count = 0;
  while (!is("}")) {
    Token value = token_;
    const bool negative = take("-");
    if (token_.kind != Kind::kNumber && token_.kind != Kind::kIdentifier) {
      fail(token_, fmt::format("expected a value but found {}", shown(token_)),
           "write a number, or true and false in a bool constant");
    }
    value.text = (negative ? "-" : "") + token_.text;
    advance();
    bytes.resize(bytes.size() + size_of(dtype));
    element(value, dtype, bytes.data() + bytes.size() - size_of(dtype));
    ++count;
    if (!take(",")) break;
  }
  expect("}", "after the values of a constant");
  if (count != elements) {
    fail(t, fmt::format("the constant has {} values for {} elements", count, elements),
         "give one value per element");
  }
  uint8_t* data = nullptr;
  auto tensor = Tensor::make(dtype, std::move(shape), &data);
  std::copy(bytes.begin(), bytes.end(), data);
  return Atom::of(std::move(tensor));
}

TensorRef ValueParser::side_constant(const Token& name) {
  if (!side_file_) {
    if (constants_file_.empty()) {
      fail(name, fmt::format("const({}) needs a side file", quote(name.text)),
           "read the module from a file next to its .safetensors");
    }
    try {
      side_file_ = read_safetensors(constants_file_);
    } catch (const Error& e) {
      fail(name, e.what(), "write text and side file together");
    }
  }
  auto [it, added] = side_tensors_.try_emplace(name.text);
  if (added) it->second = side_file_->find(name.text);
  if (!it->second) {
    fail(name, fmt::format("{} has no tensor {}", constants_file_, quote(name.text)),
         "write text and side file together");
  }
  return it->second;
}

void ValueParser::element(const Token& t, DType dtype, uint8_t* to) {
  if (!parse_element(t.text, dtype, to)) {
    fail(t, fmt::format("`{}` is not a value of type {}", t.text, name_of(dtype)),
         "write a value in the range of the type");
  }
}

Attrs ValueParser::attributes(const OpInfo* op) {
  expect("{", "before attributes");
  Attrs attrs;
  while (!is("}")) {
    const Token name = token_;
    if (name.kind != Kind::kIdentifier && name.kind != Kind::kString) {
      fail(name, fmt::format("expected the name of an attribute but found {}", shown(name)),
           "write name = value");
    }
    advance();
    expect("=", "after the name of an attribute");
    const AttrSpec* spec = nullptr;
    if (op) {
      for (const AttrSpec& s : op->attrs) {
        if (s.name == name.text) spec = &s;
      }
    }
    AttrValue value = spec ? value_of(*spec) : any_value();
    if (!attrs.emplace(name.text, std::move(value)).second) {
      fail(name, fmt::format("the attribute {} is given twice", name.text), "give it once");
    }
    if (!take(",")) break;
  }
  expect("}", "after attributes");
  return attrs;
}

bool ValueParser::boolean() {
  if (take_word("true")) return true;
  if (take_word("false")) return false;
  fail(token_, fmt::format("expected true or false but found {}", shown(token_)),
       "write true or false");
}

double ValueParser::floating() {
  const Token t = token_;
  const bool negative = take("-");
  double v = 0;
  if (take_word("inf")) {
    v = INFINITY;
  } else if (take_word("nan")) {
    v = NAN;
  } else {
    const std::string s = expect_kind(Kind::kNumber, "a number");
    const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
    if (r.ec != std::errc())
      fail(t, fmt::format("`{}` is not a number of 64 bits", s), "write a number such as 0.5");
  }
  return negative ? -v : v;
}

int64_t ValueParser::integer_token() {
  const Token t = token_;
  expect_kind(Kind::kNumber, "an integer");
  return integer(t);
}

AttrValue ValueParser::value_of(const AttrSpec& spec) {
  using K = AttrSpec::Kind;
  switch (spec.kind) {
    case K::kBool:
      return boolean();
    case K::kInt:
      return integer_token();
    case K::kFloat:
      return floating();
    case K::kString:
      return string_token();
    case K::kInts:
      return list([&] { return integer_token(); });
    case K::kFloats:
      return list([&] { return floating(); });
    case K::kStrings:
      return list([&] { return string_token(); });
    case K::kDType:
      return dtype();
    case K::kDim:
      return dim();
    case K::kDims:
      return is("[") ? list([&] { return dim(); }) : dim_list();
  }
  NIMBLE_UNREACHABLE("attribute kind");
}

// A value whose kind shows in its text.
AttrValue ValueParser::any_value() {
  if (is_word("true") || is_word("false")) return boolean();
  if (take_word("dtype")) return dtype();
  if (take_word("dim")) return dim();
  if (take_word("floats")) return list([&] { return floating(); });
  if (take_word("strings")) return list([&] { return string_token(); });
  if (token_.kind == Kind::kString) return string_token();
  if (is("(")) return dim_list();
  if (is("[")) {
    const Token first = lex(text_, pos_);
    if (first.kind == Kind::kString) return list([&] { return string_token(); });
    if (looks_float(first)) return list([&] { return floating(); });
    return list([&] { return integer_token(); });
  }
  if (looks_float(token_)) return floating();
  if (token_.kind == Kind::kNumber) return integer_token();
  fail(token_, fmt::format("{} is not a value of an attribute", shown(token_)),
       "write a number, a string, true, false or a list");
}

}  // namespace nimble::ir
