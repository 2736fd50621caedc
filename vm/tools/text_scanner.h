// A place in a text that is being read, and faults with line and column.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "vm/base/error.h"

namespace nimble {

class TextScanner {
 public:
  // Both must outlive the scanner; `place` names the text in messages.
  TextScanner(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  bool at_end() {
    skip();
    return at_ == text_.size();
  }

 protected:
  static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // The character here; 0 at the end.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Passes blanks, ends of lines and comments.
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

  // Throws Error(kInvalidArgument) at "PLACE:LINE:COLUMN".
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

  // The letters and digits that begin here with a letter; may be empty.
  std::string_view identifier() {
    const size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > begin && is_digit(text_[at_]))))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // A whole number that is not negative, at most `most`.
  int64_t whole(int64_t most) {
    int64_t n = -1;
    const char* begin = text_.data() + at_;
    const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), n);
    if (code != std::errc() || n < 0 || n > most)
      fail(at_, fmt::format("{} is not a whole number up to {}", next_text(), most),
           "write digits alone");
    at_ += static_cast<size_t>(end - begin);
    return n;
  }

  std::string_view text_;
  const std::string& place_;
  size_t at_ = 0;
};

}  // namespace nimble
