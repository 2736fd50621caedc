// Tensors on a command line: "name=@ids.npy", "name=@all.npz", "name=[[1, 2], [3, 4]]",
// "name=random:2x16", "name=zeros:2x16", "name=ones:2x16".
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "vm/api/nimble.hpp"
#include "vm/base/npy.h"

namespace nimble {

struct RandomOptions {
  uint64_t seed = 1;
  int64_t int_range = 100;  // integers are drawn from 0 … int_range - 1
};

// Floats uniform in [-1, 1), integers in [0, int_range), bools 0 or 1.
Array random_array(DType dtype, std::vector<int64_t> shape, int64_t int_range,
                   std::mt19937_64* random);

// The arrays that "--input" arguments mean for a model's ports. "@file.npz" without a name gives
// every member of the file. Errors: kInvalidArgument for what cannot be read as above, those of
// npy.h for files.
NamedArrays parse_inputs(const std::vector<std::string>& arguments,
                         const std::vector<api::Port>& ports, const RandomOptions& options);

// Splits at the first '='; Error(kInvalidArgument) that names `option` if there is none.
std::pair<std::string, std::string> split_assignment(const std::string& text,
                                                     const std::string& option);
// Writes one element: `real` if the dtype has fractions, else the low bytes of `integer`.
void store_element(DType dtype, double real, int64_t integer, uint8_t* to);
// A view that borrows the array.
api::View view_of(const Array& array);
Array array_of(const api::Tensor& tensor);
// Of a value that is a tensor.
Array array_of(const api::Value& tensor);

}  // namespace nimble
