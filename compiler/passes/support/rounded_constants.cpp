#include "compiler/passes/support/rounded_constants.h"

#include "compiler/reference/reference.h"

namespace nimble::passes {

ir::TensorRef RoundedConstants::as(const ir::TensorRef& c, DType type,
                                   const ir::Location& location) {
  ir::TensorRef& made = made_[{c, type}];
  if (!made) {
    const ir::ExprRef cast = ir::make_call("cast", {ir::Atom::of(c)}, {{"dtype", type}}, location);
    made = reference::evaluate_op(*cast, {c}, {}).at(0);
  }
  return made;
}

}  // namespace nimble::passes
