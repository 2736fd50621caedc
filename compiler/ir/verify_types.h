// What the verifier knows of types: when one may stand for another, and which are well formed.
// Private to compiler/ir; shares no code with inference.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

struct TypeRules {
  const Module& module;
  const DimContext& facts;
  const std::set<std::string>& symbols;  // bound at this place
  bool unknown_is_equal = false;         // of dims: what is not refuted

  // Whether a value of type `given` may stand where `expected` is stated. Symbols of `open`, on
  // either side, stand for any extent; so does `?` of `expected`.
  bool fits(const Type& given, const Type& expected, const std::set<std::string>& open) const;

 private:
  bool fits_dim(const Dim& given, const Dim& expected, const std::set<std::string>& open) const;
  bool fits_function(const Type& given, const Type& expected,
                     const std::set<std::string>& open) const;
};

// A function's type seen from outside: its symbols and type variables are none of ours, whatever
// their names. Its type variables, where nothing tells what they are, stand for any type.
Type foreign_type(const Function& f);
std::string foreign_name(const std::string& name);
bool is_foreign_variable(const Type& t);

// Whether every extent of a tensor, also in a tuple, is said. Inside arguments of data types and
// in function types `?` has a meaning of its own.
bool is_complete(const Type& t);
// What is wrong with a type in a place where `variables` may occur; empty if nothing.
std::string type_fault(const Type& t, const Module& m, const std::vector<std::string>& variables);
// The symbols of a type outside of function types; those that stand alone in a tensor's dims.
void collect_symbols(const Type& t, std::set<std::string>& out);
void collect_bare_symbols(const Type& t, std::set<std::string>& out);
// What the plain symbols of a pattern are in `actual`, first those of tensors, then those inside
// data types. Entries that exist stay.
void bind_symbols(const Type& pattern, const Type& actual, std::map<std::string, Dim>& bound);
// What the variables `names` of a pattern are in `actual`: where they meet several types, the
// dims that differ are `?`.
void bind_variables(const Type& pattern, const Type& actual, const std::set<std::string>& names,
                    std::map<std::string, Type>& bound);
// The same for variables that only function types or results tell: what is bound stays, and
// symbols outside of `known` become `?`.
void bind_rest(const Type& pattern, const Type& actual, const std::set<std::string>& names,
               const std::set<std::string>& known, std::map<std::string, Type>& bound);

}  // namespace nimble::ir
