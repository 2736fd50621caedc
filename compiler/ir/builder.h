// Builds functions binding by binding, for frontends, passes and tests.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

class BlockBuilder {
 public:
  // Binds `value` to a new variable named after `hint`; returns it.
  VarRef bind(ExprRef value, const std::string& hint = "t");
  // Shorthand for bind(make_call(op, args, attrs)).
  VarRef call(const std::string& op, std::vector<Atom> args, Attrs attrs = {},
              const std::string& hint = "t", Location location = {});
  void append(Binding b) { bindings_.push_back(std::move(b)); }
  const std::vector<Binding>& bindings() const { return bindings_; }
  BlockRef finish(Atom result, Location location = {});

 private:
  std::vector<Binding> bindings_;
};

FunctionRef make_function_of(std::vector<VarRef> parameters, BlockRef body,
                             Type result_type = nullptr, Attrs attrs = {}, Location location = {});

}  // namespace nimble::ir
