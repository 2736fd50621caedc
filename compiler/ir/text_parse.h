// The lower layers of the parser of the text form: tokens and faults, types, values. Private to
// compiler/ir; text_parse.cpp stands on them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/diagnostic.h"
#include "compiler/ir/op.h"
#include "compiler/ir/safetensors.h"
#include "compiler/ir/text_lexer.h"

namespace nimble::ir {

struct SyntaxFault {};  // thrown after the diagnostic is noted

// Whether an identifier may name a data type, a constructor or a type variable.
bool is_capitalised(std::string_view name);

// One token of look-ahead over a text, and its faults.
class TokenStream {
 protected:
  using Kind = Token::Kind;
  TokenStream(std::shared_ptr<const std::string> text, std::string file);

  void advance();
  Location location(size_t at) const;
  void note(const Location& at, const std::string& problem, const std::string& remedy) {
    diagnostics_.add(at, problem, remedy);
  }
  void note(const Token& t, const std::string& problem, const std::string& remedy) {
    note(location(t.begin), problem, remedy);
  }
  [[noreturn]] void fail(const Token& t, const std::string& problem, const std::string& remedy);

  std::string shown(const Token& t) const;
  bool is(std::string_view punctuation) const {
    return token_.kind == Kind::kPunctuation && token_.text == punctuation;
  }
  bool is_word(std::string_view word) const {
    return token_.kind == Kind::kIdentifier && token_.text == word;
  }
  bool take(std::string_view punctuation);
  bool take_word(std::string_view word);
  void expect(std::string_view punctuation, const char* where);
  std::string expect_kind(Kind kind, const char* what);
  int64_t integer(const Token& t);

  struct Nesting {  // one level of the recursive descent
    explicit Nesting(TokenStream& s);
    ~Nesting() { --stream.depth_; }
    TokenStream& stream;
  };

  std::shared_ptr<const std::string> owner_;
  std::string_view text_;
  std::string file_;
  std::vector<size_t> line_starts_ = {0};
  size_t pos_ = 0;
  Token token_;
  int depth_ = 0;
  int braces_ = 0;  // open ones before the token
  Diagnostics diagnostics_;
};

// Dims, element types and types.
class TypeParser : protected TokenStream {
 protected:
  using TokenStream::TokenStream;

  Dim dim();
  std::vector<Dim> dim_list();
  DType dtype();
  Type type();
  std::vector<Type> type_list();
  // [A, B] after the name of a function or a data type; nothing if there is none.
  std::vector<std::string> type_variable_list();

  struct UsedName {  // resolved once the whole text is read
    std::string name;
    size_t count;  // of arguments
    Location at;
  };
  std::set<std::string> type_variables_;  // of the item being read
  std::vector<UsedName> used_types_;
};

// Constants and attributes.
class ValueParser : protected TypeParser {
 protected:
  ValueParser(std::shared_ptr<const std::string> text, std::string file, std::string constants_file)
      : TypeParser(std::move(text), std::move(file)), constants_file_(std::move(constants_file)) {}

  bool starts_constant() const;
  Atom number();    // 3i64
  Atom constant();  // true, -inff32, f32[2]{1, 2}, const("name")
  // {name = value, …}; the operator's row says what kind each value has, if there is one.
  Attrs attributes(const OpInfo* op);

 private:
  TensorRef side_constant(const Token& name);
  void element(const Token& t, DType dtype, uint8_t* to);
  bool boolean();
  double floating();
  int64_t integer_token();
  std::string string_token() { return expect_kind(Kind::kString, "a quoted string"); }
  AttrValue value_of(const AttrSpec& spec);
  AttrValue any_value();
  template <class F>
  auto list(F element);

  std::string constants_file_;
  std::optional<SafeTensors> side_file_;
  std::map<std::string, TensorRef> side_tensors_;
};

}  // namespace nimble::ir
