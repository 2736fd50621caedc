// Matching of types with symbols: calls, annotations and joins. Private to compiler/ir.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "compiler/ir/type.h"

namespace nimble::ir {

// What matching needs from its surroundings.
struct MatchContext {
  DimContext& facts;
  // Demands equality: proves, refutes (throws) or notes a run-time check.
  std::function<void(const Dim&, const Dim&, const std::string& what)> require_equal;
  std::function<Dim()> fresh;
  // Reports a mismatch of kind, rank or dtype; throws.
  std::function<void(const std::string& problem, const std::string& remedy)> fail;
};

// Binds the symbols of `pattern` (a parameter's type) that are neither bound yet nor in `rigid`
// so that it equals `actual`, a more specific type or the same; `?` takes anything.
void match_parameter(const Type& pattern, const Type& actual, const std::set<std::string>& rigid,
                     std::map<std::string, Dim>& bound, const std::string& what,
                     const MatchContext& c);

// The result type of a call: bound symbols replaced; `?` and unbound symbols that are not in
// `rigid` (extents that only the callee's run decides) become fresh symbols.
Type instantiate(const Type& type, const std::set<std::string>& rigid,
                 std::map<std::string, Dim>& bound, const MatchContext& c);

// The type of an `if`: dims that are equal in both branches stay, others become fresh symbols.
Type join(const Type& a, const Type& b, const MatchContext& c);

// The symbols that occur in a type, and those that occur as a whole dim.
void symbols_of(const Type& t, std::set<std::string>& all);
void bare_symbols_of(const Type& t, std::set<std::string>& bare);
// Applies `f` to every dim of a type.
Type map_dims(const Type& t, const std::function<Dim(const Dim&)>& f);

}  // namespace nimble::ir
