// Features of dispatch trees as text: what the regions of tuning records and overrides are keyed
// by.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "vm/executable/dispatch.h"

namespace nimble::exec {

// "s0", "ceildiv(s0,8)", "mod(s0,8)", "s0*s1", "threads".
std::string text_of(const DispatchFeature& f, std::span<const std::string> symbols);
// The inverse; nothing if the text is not of that form or names another symbol.
std::optional<DispatchFeature> feature_from_text(std::string_view text,
                                                 std::span<const std::string> symbols);

}  // namespace nimble::exec
