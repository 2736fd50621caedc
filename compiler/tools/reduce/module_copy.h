// A module that may be edited in place.
//
// The IR is immutable and shared, which is right for passes and wrong for a reducer, whose edits
// are many, small and mostly thrown away. So each candidate is a deep copy, variables included:
// nothing of it is shared with the module it came from, and `Copy` hands out what it made without
// const.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::reduce {

// What stands before a place, outermost first: the function's parameters, then what is bound.
struct Scope {
  const std::string* function = nullptr;  // the global one
  std::vector<ir::VarRef> parameters;     // of it and of enclosing closures
  std::vector<ir::VarRef> bound;
};

// What a visit of a binding wants done with it.
enum class Fate { kKeep, kDrop };

class Copy {
 public:
  explicit Copy(const ir::Module& m);
  ir::Module& module() { return module_; }

  // Visits every binding before the blocks inside it, in order; bodies of closures and groups too.
  // The visit may change the expression, append bindings that come before it to `before`, and
  // drop the binding (then a substitute for its variable is due, if anything uses it).
  using Visit =
      std::function<Fate(Scope&, const ir::VarRef&, ir::Expr&, std::vector<ir::Binding>& before)>;
  void visit_bindings(const Visit& visit);
  // Every function, closures and groups included, with the name of the global one it is part of.
  void visit_functions(const std::function<void(const std::string&, ir::Function&)>& visit);
  // Every atom that is read, results of blocks included.
  void visit_atoms(const std::function<void(ir::Atom&)>& visit);
  // Every dim: of types, annotations and attributes.
  void replace_dims(const std::string& function,
                    const std::function<ir::Dim(const ir::Dim&)>& replace);

  // From now on `a` stands for `v`; takes effect with `finish`.
  void substitute(const ir::VarRef& v, ir::Atom a) { substitutes_[v.get()] = std::move(a); }
  void finish();
  // Drops what inference can find out again. Without it an edit would contradict the types of what
  // depends on it. Results that recursion needs stay.
  void forget_types();

  // A copy of a block with variables of its own; `map` gives substitutes for what is free in it.
  ir::BlockRef copy_of(const ir::BlockRef& b, std::unordered_map<const ir::Var*, ir::Atom> map);

 private:
  ir::Module module_;
  std::unordered_map<const ir::Var*, ir::Atom> substitutes_;
};

// How often each variable is read.
std::unordered_map<const ir::Var*, int> uses(Copy& copy);
// Whether the global function may come to call itself.
bool is_recursive(const ir::Module& m, const std::string& name);

}  // namespace nimble::reduce
