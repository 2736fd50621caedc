// Text from outside (of a process, of a file) for what takes UTF-8 alone.
#pragma once

#include <string>
#include <string_view>

namespace nimble {

// Text that JSON and every database hold: each byte that is part of no UTF-8, and each NUL, becomes
// U+FFFD.
inline std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto at = [&](size_t ahead) -> unsigned {
      return i + ahead < text.size() ? static_cast<unsigned char>(text[i + ahead]) : 0;
    };
    const unsigned c = at(0), second = at(1);
    size_t length = 0;  // of the character; 0: it is none
    if (c > 0 && c < 0x80)
      length = 1;
    else if (c >= 0xC2 && c < 0xF5)
      length = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    bool whole = length > 0;
    for (size_t k = 1; k < length; ++k) whole &= (at(k) & 0xC0) == 0x80;
    // More bytes than it takes, halves of UTF-16's pairs, and what lies beyond the last character.
    whole &= !(c == 0xE0 && second < 0xA0) && !(c == 0xED && second > 0x9F) &&
             !(c == 0xF0 && second < 0x90) && !(c == 0xF4 && second > 0x8F);
    out += whole ? text.substr(i, length) : std::string_view("\xEF\xBF\xBD");
    i += whole ? length : 1;
  }
  return out;
}

}  // namespace nimble
