// Which function may call which, directly or through others.
#pragma once

#include <map>
#include <set>
#include <string>

#include "compiler/ir/expr.h"

namespace nimble::passes {

class Recursion {
 public:
  explicit Recursion(const ir::Module& m);
  // A function used as a value counts as called.
  bool calls(const std::string& from, const std::string& to) const;
  // A call through a value, from `from`, may come back to it: some function on the way is a value.
  bool may_return_through_values(const std::string& from) const;

 private:
  std::map<std::string, std::set<std::string>> reached_;
  std::set<std::string> values_;
};

}  // namespace nimble::passes
