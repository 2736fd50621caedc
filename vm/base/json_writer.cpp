#include "vm/base/json_writer.h"

#include <algorithm>
#include <cstdint>

namespace nimble {
namespace {

// Bytes of the well-formed UTF-8 sequence that `text` begins with; 0 if there is none.
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  // The second byte's range leaves out what a shorter sequence says, halves of surrogate pairs and
  // what lies beyond U+10FFFF.
  const uint8_t least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return length;
}

}  // namespace

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ':';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

void JsonWriter::separate() {
  if (!first_) text_ += ',';
  first_ = false;
}

void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = sequence_length(text);
    if (length == 0)
      text_ += "\xef\xbf\xbd";
    else if (c == '"' || c == '\\')
      (text_ += '\\') += c;
    else if (static_cast<uint8_t>(c) < 0x20)
      text_ += fmt::format("\\u{:04x}", c);
    else
      text_ += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  text_ += '"';
}

}  // namespace nimble
