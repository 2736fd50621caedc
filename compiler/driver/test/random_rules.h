// What the generator of random programs must know of types, and of operators beyond
// their rows in Ops.def.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/op.h"
#include "compiler/ir/type.h"

namespace nimble::driver::testing {

// The row needs attributes that only passes know how to make.
bool is_internal(const ir::OpInfo& op);
// What the elements of an operand are decides whether it succeeds, or what its extents are.
bool needs_values(const ir::OpInfo& op);
// Of an exact operand exact, of a rough one rough, and continuous.
bool moves_values(const ir::OpInfo& op);
// Discontinuous in a float operand.
bool jumps(const std::string& op);
// Index of the operand that must stay away from zero and below, or -1.
int guarded_operand(const std::string& op);

// The symbols of a type; `bare`: those that stand alone as an extent of a tensor.
void collect_symbols(const ir::Type& t, std::set<std::string>& all, std::set<std::string>& bare);
// How the names of extents begin that arise in a body, rather than with a parameter.
inline constexpr char kBornExtent = 'k';
bool is_born(const std::string& symbol);
// The variables of `scope` whose annotations let an attribute name the extents that arose: the
// first that has an extent as it is, for each. Nothing if an extent has none.
std::optional<std::set<const ir::Var*>> variables_that_name(const ir::Attrs& attrs,
                                                            const std::vector<ir::VarRef>& scope);
// What inference finds out by itself is not stated, except of constructors (an empty list does not
// say what it is a list of) and of the extents that the annotations of `naming` name.
void forget_types(const ir::Block& b, const std::set<const ir::Var*>& naming);
// A type that can be written down: without extents that only a run decides.
bool is_stated(const ir::Type& t);
// Whether a function with these parameters is told every extent that their types mention.
bool closed(const std::vector<ir::Type>& types);

}  // namespace nimble::driver::testing
