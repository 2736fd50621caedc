// The functions that the text of a dim may have.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "compiler/ir/dim.h"

namespace nimble::ir {

struct DimFunction {
  std::string_view name;
  Dim (*apply)(const Dim&, const Dim&);
  bool binary;                            // else it takes two operands or more
  std::optional<Dim::Function> function;  // that prints so; none: it is made of others
};
std::span<const DimFunction> dim_functions();
// Null: there is none of that name.
const DimFunction* find_dim_function(std::string_view name);

}  // namespace nimble::ir
