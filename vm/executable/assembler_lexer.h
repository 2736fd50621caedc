// What the assembler reads: words, numbers and strings of its text, and what several of its
// statements have in common. Errors carry line and column.
#pragma once

#include <fmt/format.h>

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/executable/executable.h"

namespace nimble::exec {

class AssemblerLexer {
 public:
  explicit AssemblerLexer(std::string_view text) : text_(text) { skip(); }

  [[noreturn]] void fail(const std::string& problem) const;
  bool at_end() const { return at_ == text_.size(); }
  bool peek(std::string_view token) const { return text_.substr(at_).starts_with(token); }
  bool accept(std::string_view token);
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("\"{}\" expected", token));
  }
  bool at_digit() const {
    return !at_end() && std::isdigit(static_cast<unsigned char>(text_[at_]));
  }
  bool at_word() const { return !at_end() && is_word(text_[at_]); }
  std::string word();
  // A run of characters up to white space or one of the delimiters.
  std::string raw(std::string_view delimiters);
  int64_t integer();
  uint32_t index();
  uint64_t hexadecimal();
  std::string string();
  DType dtype();
  // What follows `prefix` in a word: 7 of "r7".
  int64_t numbered(std::string_view prefix);
  // "d1": the number of a device.
  int32_t device();
  // open ITEM, ITEM, … close
  template <typename Item>
  void list(std::string_view open, std::string_view close, Item item) {
    expect(open);
    if (accept(close)) return;
    do item();
    while (accept(","));
    expect(close);
  }

 private:
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$';
  }
  // White space and comments.
  void skip();

  std::string_view text_;
  size_t at_ = 0;
};

DimProgram parse_program(AssemblerLexer* in);
// One of a tensor's elements.
void append_element(AssemblerLexer* in, DType dtype, std::vector<uint8_t>* out);
Kernel parse_kernel(AssemblerLexer* in);
// A symbol of such a name stands in quotes where a kernel lists its symbols.
bool begins_kernel_statement(std::string_view word);

}  // namespace nimble::exec
