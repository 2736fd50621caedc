// Values of data types as text, in the language's own notation; docs/values.md is the reference.
//
//   Node(Leaf(f32[2]{1, 2}), Leaf(@words.npy[7]))
//
// The types of a model say what each place of the text must hold, so that a constructor's name
// becomes its tag, a bare number gets its dtype, and a fault is reported where it stands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "vm/api/nimble.hpp"

namespace nimble {

// All values of `text`, each of the type with the index `type`. Names of .npy files in it are
// relative to `folder` (""; the current one). Error(kInvalidArgument) at "PLACE:LINE:COLUMN" for
// what is no such value; the errors of npy.h for files. Depth is bounded by memory alone.
std::vector<api::Value> parse_values(std::string_view text, const std::string& place,
                                     const std::string& folder, const std::vector<api::Type>& types,
                                     int32_t type);

// The values of a file, or value number I of it for "FILE[I]", counted from 0.
// Error(kInvalidArgument) also where there is none.
std::vector<api::Value> read_values(const std::string& reference,
                                    const std::vector<api::Type>& types, int32_t type);

// What parse_values reads as an equal value: every number in full, and a part that occurs more
// than once as one part with a label. Tensors with more than `elements` elements are shortened by
// an ellipsis, for people.
std::string text_of(const api::Value& value, const std::vector<api::Type>& types, int32_t type,
                    int64_t elements = INT64_MAX);

}  // namespace nimble
