// Who may overwrite a tensor in place.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// Answers, for each write_row, append, concat, group and call of a module, whether an operand is
// the only live reference to its memory. See ownership.cpp for the method.
class Ownership {
 public:
  explicit Ownership(const ir::Module& m);
  // The operand `arg` of the binding may be overwritten: nothing reads its old value afterwards.
  bool consumable(const ir::Binding& binding, size_t arg) const;

 private:
  void analyse(const std::string& name, const ir::Function& f);
  bool drop_parameters(const std::string& function);
  std::set<std::pair<std::string, size_t>> unique_parameters_;
  std::unordered_map<const ir::Var*, std::unordered_set<size_t>> consumable_;
  bool changed_ = false;
};

// A constant without elements. What a loop grows often begins with one: a call is given a fresh
// tensor in its place, which the function may extend.
bool is_empty_constant(const ir::Atom& a);

}  // namespace nimble::passes
