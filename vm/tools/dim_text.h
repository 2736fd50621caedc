// The dims of a signature, "n", "2*n + 1", "floordiv(n, 2)", at given values of their symbols.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace nimble {

// The symbols that occur in a dim's text. "?" and what cannot be read is its own only symbol.
std::set<std::string> symbols_of_dim(const std::string& text);

// The dim's extent; nothing if a symbol has no value, or the arithmetic has no result of 64 bits.
// A dim whose whole text has a value has that value.
std::optional<int64_t> extent_of_dim(const std::string& text,
                                     const std::map<std::string, int64_t>& values);

}  // namespace nimble
