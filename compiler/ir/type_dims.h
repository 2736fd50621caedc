// The dims of a type, wherever in it they stand: of tensors, arguments of data types, function
// types.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "compiler/ir/type.h"

namespace nimble::ir {

// Adds the symbols of every dim.
void all_symbols_of(const Type& t, std::set<std::string>& all);
// Applies `f` to every dim.
Type map_dims(const Type& t, const std::function<Dim(const Dim&)>& f);

}  // namespace nimble::ir
