// Constants in another element type.
#pragma once

#include <map>
#include <utility>

#include "compiler/ir/expr.h"

namespace nimble::passes {

// A constant that several operators read is converted once, and they share what that gives.
class RoundedConstants {
 public:
  // The elements as a cast to `type` gives them; `location` is what errors name.
  ir::TensorRef as(const ir::TensorRef& c, DType type, const ir::Location& location);

 private:
  // The originals are kept, lest another constant take the place of one.
  std::map<std::pair<ir::TensorRef, DType>, ir::TensorRef> made_;
};

}  // namespace nimble::passes
