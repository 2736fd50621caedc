#include "compiler/ir/text_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace nimble::ir {
namespace {

bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool starts_identifier(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}

Token fault(size_t begin, size_t end, std::string problem) {
  return {Token::Kind::kFault, std::move(problem), begin, end};
}

Token lex_string(std::string_view text, size_t begin) {
  std::string value;
  size_t i = begin + 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] == '\n') break;
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    if (++i == text.size()) break;
    switch (text[i]) {
      case 'n':
        value += '\n';
        break;
      case 't':
        value += '\t';
        break;
      case 'r':
        value += '\r';
        break;
      case '"':
      case '\\':
        value += text[i];
        break;
      case 'x': {
        if (i + 2 >= text.size() || !std::isxdigit(static_cast<unsigned char>(text[i + 1])) ||
            !std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
          return fault(i, i + 1, "\\x needs two hexadecimal digits");
        }
        value += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
        i += 2;
        break;
      }
      default:
        return fault(i - 1, i + 1, fmt::format("unknown escape \\{}", text[i]));
    }
  }
  if (i >= text.size() || text[i] != '"') return fault(begin, i, "the string does not end");
  return {Token::Kind::kString, std::move(value), begin, i + 1};
}

Token lex_number(std::string_view text, size_t begin) {
  size_t i = begin;
  if (text[i] == '-') ++i;
  while (i < text.size() && digit(text[i])) ++i;
  if (i + 1 < text.size() && text[i] == '.' && digit(text[i + 1])) {
    for (++i; i < text.size() && digit(text[i]);) ++i;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    size_t j = i + 1;
    if (j < text.size() && (text[j] == '+' || text[j] == '-')) ++j;
    if (j < text.size() && digit(text[j])) {
      while (j < text.size() && digit(text[j])) ++j;
      i = j;
    }
  }
  return {Token::Kind::kNumber, std::string(text.substr(begin, i - begin)), begin, i};
}

}  // namespace

bool is_identifier_char(char c) {
  return starts_identifier(c) || digit(c) || c == '.';
}

bool is_identifier(std::string_view s) {
  return !s.empty() && starts_identifier(s[0]) &&
         std::all_of(s.begin(), s.end(), is_identifier_char);
}

std::string quote(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

Token lex(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    if (std::isspace(static_cast<unsigned char>(text[pos]))) {
      ++pos;
    } else if (text.substr(pos, 2) == "//") {
      while (pos < text.size() && text[pos] != '\n') ++pos;
    } else {
      break;
    }
  }
  if (pos >= text.size()) return {Token::Kind::kEnd, "", text.size(), text.size()};
  const char c = text[pos];
  if (c == '%' || c == '@') {
    const auto kind = c == '%' ? Token::Kind::kVariable : Token::Kind::kGlobal;
    size_t i = pos + 1;
    if (c == '@' && i < text.size() && text[i] == '"') {
      Token t = lex_string(text, i);
      if (t.kind == Token::Kind::kString) t.kind = kind;
      t.begin = pos;
      return t;
    }
    while (i < text.size() && is_identifier_char(text[i])) ++i;
    if (i == pos + 1) return fault(pos, i, fmt::format("`{}` needs a name", c));
    return {kind, std::string(text.substr(pos + 1, i - pos - 1)), pos, i};
  }
  if (starts_identifier(c)) {
    size_t i = pos;
    while (i < text.size() && is_identifier_char(text[i])) ++i;
    return {Token::Kind::kIdentifier, std::string(text.substr(pos, i - pos)), pos, i};
  }
  if (digit(c) || (c == '-' && pos + 1 < text.size() && digit(text[pos + 1]))) {
    return lex_number(text, pos);
  }
  if (c == '"') return lex_string(text, pos);
  if (text.substr(pos, 2) == "->") return {Token::Kind::kPunctuation, "->", pos, pos + 2};
  if (text.substr(pos, 2) == "=>") return {Token::Kind::kPunctuation, "=>", pos, pos + 2};
  if (std::string_view("(){}[],;:=?+-*`").find(c) != std::string_view::npos) {
    return {Token::Kind::kPunctuation, std::string(1, c), pos, pos + 1};
  }
  // One fault per character of whatever encoding.
  size_t end = pos + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return fault(pos, end, "unexpected character");
}

}  // namespace nimble::ir
