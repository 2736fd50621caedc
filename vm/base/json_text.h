// JSON of nlohmann's library as text, and back, in the same way everywhere.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "vm/base/error.h"

namespace nimble {

// For people and programs: two spaces a level, or all on one line (`indent` -1). Names of files
// may be any bytes: what is no UTF-8 becomes U+FFFD, where dump() would throw.
template <class Json>
std::string json_text(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// The value that `text` says, in which no object names a key twice (the library would keep the last
// one silently). Calls `fail` with what is wrong ("is not valid JSON"); it must not return.
template <class Fail>
nlohmann::json parse_json(std::string_view text, Fail&& fail) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  const auto see = [&](int, Event event, nlohmann::json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second)
      duplicate = value.get<std::string>();
    return true;
  };
  nlohmann::json out;
  try {
    out = nlohmann::json::parse(text, see);
  } catch (const nlohmann::json::exception&) {
    fail("is not valid JSON");
  }
  if (!duplicate.empty()) fail("has the key \"" + duplicate + "\" twice");
  return out;
}

// The whole number that a value is. get() would take a fraction, cut off what does not fit, and is
// undefined for 1e99. Error(kCorrupt) naming `place` and `name`.
template <class T>
T integer_of(const nlohmann::json& value, const std::string& place, std::string_view name) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  if (!fits)
    throw Error(Status::kCorrupt, place, fmt::format("{} is no whole number in range", name));
  return value.get<T>();
}
template <class T>
T integer_at(const nlohmann::json& object, const char* name, const std::string& place) {
  return integer_of<T>(object.at(name), place, name);
}
template <class T>
std::vector<T> integers_at(const nlohmann::json& object, const char* name,
                           const std::string& place) {
  std::vector<T> out;
  if (!object.at(name).is_array())
    throw Error(Status::kCorrupt, place, fmt::format("{} is no list", name));
  for (const nlohmann::json& value : object.at(name))
    out.push_back(integer_of<T>(value, place, name));
  return out;
}

// How deep the brackets of `text` nest. Parsing takes any depth, but copying and writing a value
// recurse: text from outside is bounded first.
inline int json_nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace nimble
