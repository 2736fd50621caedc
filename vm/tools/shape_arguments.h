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
// each. Several lists of one dim are one list. Error(kInvalidArgument) for anything else, also for
// a dim that `fixed` names twice or that both name.
std::vector<ShapeValues> shape_combinations(const std::vector<std::string>& lists,
                                            const std::vector<std::string>& fixed);
// Error(kInvalidArgument), with `place`, for a dim that occurs in no port's.
void check_names(const ShapeValues& shape, const std::vector<api::Port>& ports,
                 const std::string& place);
// "b=1 n=16"; "-" for no dims.
std::string text_of(const ShapeValues& shape);

// Arrays for all ports of tensors without a default: the `given` ones, whose extents also give
// dims their values, and random ones for the others. They are seeded by the shape too: a shape has
// the same inputs whatever else runs. Dims such as "n + 1" are computed. Error(kInvalidArgument),
// with `place`, for a dim without a value, or a negative one.
NamedArrays complete_inputs(const std::vector<api::Port>& ports, const NamedArrays& given,
                            const ShapeValues& shape, const RandomOptions& options,
                            const std::string& place);

// Throws `e` again; where a run on random inputs failed a check, with the range of their integers,
// which an index may exceed.
[[noreturn]] void rethrow_with_range(const api::Error& e, const RandomOptions& options);

}  // namespace nimble
