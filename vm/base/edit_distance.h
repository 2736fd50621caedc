// How far two names are apart, for "did you mean …" in errors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace nimble {

// Levenshtein's distance, but a swap of two neighbours counts once (optimal string alignment):
// "copmile" is one slip from "compile".
size_t edit_distance(std::string_view a, std::string_view b);

// The name among `names` that was probably meant by `typed`: at most two slips away, of short names
// one, or begun by it if it has `shortest_prefix` letters or more. Empty if there is none.
template <typename Names>
std::string_view nearest_name(std::string_view typed, const Names& names,
                              size_t shortest_prefix = std::string_view::npos) {
  std::string_view best;
  size_t least = 3;  // more than two slips are no slip
  for (const auto& candidate : names) {
    const std::string_view name = candidate;
    const bool begun = typed.size() >= shortest_prefix && name.starts_with(typed);
    const size_t distance = begun ? 0 : edit_distance(typed, name);
    if (distance < least && 2 * distance <= std::max(typed.size(), name.size())) {
      best = name;
      least = distance;
    }
  }
  return best;
}

}  // namespace nimble
