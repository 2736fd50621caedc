// The --input arguments of a program, for ports of tensors and of data types alike.
#pragma once

#include <string>
#include <vector>

#include "vm/tools/tensor_arguments.h"
#include "vm/tools/value_text.h"

namespace nimble {

struct GivenInputs {
  NamedArrays tensors;
  std::vector<api::NamedValue> values;  // of ports of data types

  bool has(const std::string& name) const;
  // All of them as values; tensors are copied.
  std::vector<api::NamedValue> all() const;
};

// What "NAME=VALUE" arguments mean for a model's ports: those of parse_inputs(), values of data
// types as text, and NAME=@FILE or NAME=@FILE[7] for one in a file. Errors as theirs.
GivenInputs parse_given(const std::vector<std::string>& arguments,
                        const std::vector<api::Port>& ports, const std::vector<api::Type>& types,
                        const RandomOptions& options);

// The one value that TEXT means for a port of the data type with the index `type`.
api::Value parse_one_value(const std::string& text, const std::string& place,
                           const std::vector<api::Type>& types, int32_t type);

}  // namespace nimble
