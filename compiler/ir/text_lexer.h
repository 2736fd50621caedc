// Tokens of the text form, and what printer and parser share. Private to compiler/ir.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/ir/tensor.h"

namespace nimble::ir {

struct Token {
  enum class Kind {
    kEnd,
    kIdentifier,   // matmul, let, f32
    kVariable,     // %x; text without the sigil
    kGlobal,       // @f
    kNumber,       // 3, -1.5e3; text as written, without suffix
    kString,       // "…", unescaped
    kPunctuation,  // one of ( ) { } [ ] , ; : = ? + - * ` or -> =>
    kFault,        // text says what is wrong
  };
  Kind kind = Kind::kEnd;
  std::string text;
  size_t begin = 0, end = 0;  // bytes of the source
};

bool is_identifier_char(char c);
bool is_identifier(std::string_view s);
std::string quote(std::string_view s);

// The token that starts at or after `pos`, behind white space and comments.
Token lex(std::string_view text, size_t pos);

// The shortest text that reads back as the same number.
std::string shortest_text(double v);
// One element of a constant as text, and back (false if it is no value of the type).
std::string element_text(const Tensor& t, int64_t i);
bool parse_element(std::string_view text, DType dtype, uint8_t* to);

// Gives out every name once: x, x.1, x.2. A taken name that is numbered already is numbered anew
// from its stem, so that a pass adds the same names to a module that was printed and parsed.
class UniqueNames {
 public:
  std::string take(const std::string& wanted);

 private:
  std::set<std::string> used_;
  std::unordered_map<std::string, int> next_;  // the lowest number that may be free, by stem
};

// Names the constants that do not stand in the text.
struct SideFile {
  std::vector<std::pair<std::string, TensorRef>> tensors;
  std::string name_of(const TensorRef& t);

 private:
  std::unordered_map<const Tensor*, std::string> names_;
  UniqueNames unique_;
};

}  // namespace nimble::ir
