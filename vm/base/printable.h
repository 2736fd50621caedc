// Text of unknown origin in messages and tables.
#pragma once

#include <string>
#include <string_view>

namespace nimble {

// Each character that may steer a terminal, or turn the order of what stands beside it, becomes
// `instead`: those of ASCII but for the ones in `but`, U+0080 to U+009F (U+009B begins a command as
// ESC [ does), and the marks, embeddings and isolates of Unicode's bidirectional text.
inline std::string without_controls(std::string_view text, char instead,
                                    std::string_view but = {}) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto at = [&](size_t ahead) {
      return i + ahead < text.size() ? static_cast<unsigned char>(text[i + ahead]) : 0;
    };
    const unsigned c = at(0), second = at(1), third = at(2);
    size_t length = 1;
    bool steers = (c < 0x20 || c == 0x7f) && but.find(text[i]) == std::string_view::npos;
    if (c == 0xC2 && second >= 0x80 && second <= 0x9F) {
      steers = true;
      length = 2;
    } else if (c == 0xE2 && ((second == 0x80 && (third == 0x8E || third == 0x8F ||
                                                 (third >= 0xA8 && third <= 0xAE))) ||
                             (second == 0x81 && third >= 0xA6 && third <= 0xA9))) {
      steers = true;
      length = 3;
    }
    if (steers)
      out += instead;
    else
      out += text[i];
    i += length - 1;
  }
  return out;
}

// Cut short, without control characters: a message stays one line, whatever a file holds.
inline std::string printable(std::string_view text) {
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return without_controls(text, '?');
  // Not within a character.
  size_t end = kMost;
  while (end > kMost - 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return without_controls(text.substr(0, end), '?') + "…";
}

}  // namespace nimble
