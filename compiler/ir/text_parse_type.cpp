// Types of the text form.
#include <algorithm>

#include "compiler/ir/dim_node.h"
#include "compiler/ir/text_parse.h"

namespace nimble::ir {

Dim TypeParser::dim() {
  if (token_.kind == Kind::kFault || token_.kind == Kind::kEnd)
    fail(token_, "expected a dim", "write an integer, a symbol or `?`");
  size_t at = token_.begin;
  std::string problem;
  auto d = parse_dim_prefix(text_, &at, &problem);
  if (!d) {
    Token fault = token_;
    fault.begin = std::min(at, text_.size());
    note(fault, problem, "write an integer, a symbol or an expression such as 2*n + 1");
    throw SyntaxFault{};
  }
  pos_ = at;
  token_.end = at;
  advance();
  return *d;
}

std::vector<Dim> TypeParser::dim_list() {
  expect("(", "before a list of dims");
  std::vector<Dim> dims;
  while (!is(")")) {
    dims.push_back(dim());
    if (!take(",")) break;
  }
  expect(")", "after a list of dims");
  return dims;
}

DType TypeParser::dtype() {
  const Token t = token_;
  auto d = token_.kind == Kind::kIdentifier ? dtype_from_name(token_.text) : std::nullopt;
  if (!d) {
    fail(t, fmt::format("{} is not an element type", shown(t)),
         "use f32, f64, f16, bf16, i8 … i64, u8 … u64 or bool");
  }
  advance();
  return *d;
}

Type TypeParser::type() {
  Nesting nesting(*this);
  const Token t = token_;
  if (take_word("Tensor")) {
    expect("[", "before the extents of a tensor type");
    std::vector<Dim> dims = dim_list();
    for (const Dim& d : dims) {
      if (auto c = d.as_constant(); c && *c < 0) {
        fail(t, fmt::format("the extent {} is negative", *c), "extents are 0 or more");
      }
    }
    expect(",", "before the element type");
    const DType d = dtype();
    expect("]", "after the element type");
    return tensor_type(std::move(dims), d);
  }
  if (take_word("i64")) return scalar_type();
  if (take_word("Storage")) return storage_type();
  if (take_word("fn")) {
    auto parameters = type_list();
    expect("->", "before the result of a function type");
    return function_type(std::move(parameters), type());
  }
  if (is("(")) return tuple_type(type_list());
  if (t.kind == Kind::kIdentifier && is_capitalised(t.text)) {
    advance();
    std::vector<Type> arguments;
    if (take("[")) {
      while (!is("]")) {
        arguments.push_back(type());
        if (!take(",")) break;
      }
      expect("]", "after the arguments of a type");
    }
    if (arguments.empty() && type_variables_.contains(t.text)) return variable_type(t.text);
    used_types_.push_back({t.text, arguments.size(), location(t.begin)});
    return data_type(t.text, std::move(arguments));
  }
  fail(t, fmt::format("{} is not a type", shown(t)),
       "write Tensor[(n, 4), f32], a tuple, fn(…) -> … or the name of a data type");
}

std::vector<Type> TypeParser::type_list() {
  expect("(", "before a list of types");
  std::vector<Type> types;
  while (!is(")")) {
    types.push_back(type());
    if (!take(",")) break;
  }
  expect(")", "after a list of types");
  return types;
}

std::vector<std::string> TypeParser::type_variable_list() {
  std::vector<std::string> out;
  if (!take("[")) return out;
  while (!is("]")) {
    const Token t = token_;
    expect_kind(Kind::kIdentifier, "a type variable such as A");
    if (!is_capitalised(t.text) || t.text == "Tensor" || t.text == "Storage") {
      fail(t, fmt::format("{} cannot name a type variable", shown(t)),
           "begin the name with a capital letter, as in A");
    }
    if (std::find(out.begin(), out.end(), t.text) != out.end()) {
      fail(t, fmt::format("the type variable {} is listed twice", t.text), "rename one of them");
    }
    out.push_back(t.text);
    if (!take(",")) break;
  }
  expect("]", "after the type variables");
  return out;
}

}  // namespace nimble::ir
