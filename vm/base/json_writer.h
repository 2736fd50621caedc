// JSON, written in order into one string: for a host process's own threads, where a library that
// builds a tree of values first would have to survive each of its allocations failing, and the one
// at hand does not.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace nimble {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  // A member's name; its value follows.
  JsonWriter& key(std::string_view name);

  JsonWriter& value(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& value(std::integral auto value) { return raw(fmt::format("{}", value)); }
  JsonWriter& value(double value) { return raw(fmt::format("{}", value)); }  // finite
  // Any bytes: what is no UTF-8 becomes U+FFFD.
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  template <typename T>
  JsonWriter& member(std::string_view name, const T& of) {
    return key(name).value(of);
  }

  const std::string& text() const { return text_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view text);
  void separate();
  void quote(std::string_view text);

  std::string text_;
  bool first_ = true;  // of its object or array, or after a key: no comma before it
};

}  // namespace nimble
