// Shapes on a command line, "--shapes n=16,27 --set b=1", and random inputs of such shapes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "vm/tools/tensor_arguments.h"

namespace nimble {

using ShapeValues = std::map<std::string, int64_t>;  // extents by the name of the dim

// Every combination of the values that `lists` gives ("n=16,27"), with those of `fixed` ("b=1") in
// each. Error(kInvalidArgument) for anything else.
std::vector<ShapeValues> shape_combinations(const std::vector<std::string>& lists,
                                            const std::vector<std::string>& fixed);
// "b=1 n=16"; "-" for no dims.
std::string text_of(const ShapeValues& shape);

// Arrays for all ports of tensors without a default, seeded by the shape too: a shape has the same
// inputs whatever else runs. Error(kInvalidArgument), with `place`, for a dim without a value.
NamedArrays random_inputs(const std::vector<api::Port>& ports, const ShapeValues& shape,
                          const RandomOptions& options, const std::string& place);

}  // namespace nimble
