// How far two names are apart, for "did you mean …" in errors.
#pragma once

#include <cstddef>
#include <string_view>

namespace nimble {

// Levenshtein's distance, but a swap of two neighbours counts once (optimal string alignment):
// "copmile" is one slip from "compile".
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace nimble
