// Text of unknown origin in messages.
#pragma once

#include <string>
#include <string_view>

namespace nimble {

// Cut short, without control characters: a message stays one line, whatever a file holds.
inline std::string printable(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out(text.substr(0, kMost));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text.size() > kMost ? out + "…" : out;
}

}  // namespace nimble
