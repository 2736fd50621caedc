// Matching of types: calls, constructors, annotations and joins. Private to compiler/ir.
//
// A type matches a pattern if it may stand where the pattern is expected (sub-shaping):
//   tensors     dims of the pattern that are `?` take anything; its free symbols bind; all else
//               must be equal, proved or checked at run time
//   data types  covariant in their arguments, invariant where a variable is a function's
//               parameter somewhere in the data type. Inside an argument `?` is no single extent
//               but "another for each value": nothing can be checked there at run time
//   functions   contravariant parameters, covariant result. Symbols that only the function type
//               knows are its own: the value must work for all extents that the pattern's allow
//   variables   flexible ones ('1, '2, …) stand for a type that is to be found: of a call, or of
//               a value such as Nil() until its use decides. Those of the call at hand widen to
//               the join of what they meet; all others are fixed by their first use
// Function types are matched last: by then the values have said what the variables are.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/type.h"
#include "compiler/ir/type_dims.h"

namespace nimble::ir {

// Flexible type variables of a function's inference and what was found for them.
struct TypeSolutions {
  std::map<std::string, Type> found;
  int created = 0;

  Type fresh();
  static bool is_flexible(const Type& t);
  Type resolve(const Type& t) const;      // the outermost variable only
  Type resolve_all(const Type& t) const;  // everywhere
  bool occurs(const std::string& name, const Type& in) const;
  std::string str(const Type& t) const;  // for messages: what is not found is _
};

// What matching needs from its surroundings.
struct MatchContext {
  const Module& module;  // its data types
  DimContext& facts;
  TypeSolutions& types;
  const std::set<std::string>& known;  // symbols that the function can read at run time
  const std::set<std::string>& entry;  // of them, those that its parameters bind
  // Demands equality: proves, refutes (throws) or notes a run-time check.
  std::function<void(const Dim&, const Dim&, const std::string& what)> require_equal;
  std::function<Dim()> fresh;
  // Reports a mismatch of kind, rank or dtype; throws.
  std::function<void(const std::string& problem, const std::string& remedy)> fail;
};

// Binds the symbols of `pattern` (a parameter's type) that are neither bound yet nor in `rigid`
// so that `actual` may stand where it is expected. `widening` are the flexible variables of the
// call at hand. A symbol may be bound to `?`.
void match_parameter(const Type& pattern, const Type& actual, const std::set<std::string>& rigid,
                     const std::set<std::string>& widening, std::map<std::string, Dim>& bound,
                     const std::string& what, const MatchContext& c);

// The result type of a call: bound symbols replaced; `?` and unbound symbols that are not in
// `rigid` (extents that only the callee's run decides) become fresh symbols, inside data types
// `?`; symbols of function types stay theirs.
Type instantiate(const Type& type, const std::set<std::string>& rigid,
                 std::map<std::string, Dim>& bound, const MatchContext& c);

// Replaces symbols, some of them by `?`: what depends on one is `?` itself.
Dim substitute_any(const Dim& d, const std::map<std::string, Dim>& bound);

// The type of an `if` or match: dims that are equal in both branches stay, others become fresh
// symbols, inside data types `?`.
Type join(const Type& a, const Type& b, const std::string& what, const MatchContext& c);

// The type outside of a block whose symbols `inner` mean nothing there. With `rename`, dims of
// tensors too become fresh symbols (a join renames them anyway).
Type leave_block(const Type& t, const std::set<std::string>& inner, bool rename,
                 const MatchContext& c);

// The symbols that occur in a type outside of function types; those that occur as a whole dim of
// a tensor or a tuple's tensor, where the run can read them. (All: type_dims.h.)
void symbols_of(const Type& t, std::set<std::string>& all);
void bare_symbols_of(const Type& t, std::set<std::string>& bare);
// Applies `f` to every dim of tensors and tuples of them (not inside arguments of data types, nor
// function types).
Type map_direct_dims(const Type& t, const std::function<Dim(const Dim&)>& f);

// Whether a data type's variable occurs as a parameter of a function in its fields.
bool is_invariant(const Module& m, const DataType& d, size_t variable);

}  // namespace nimble::ir
