// The passes of Passes.def, one function and one .cpp file each.
#pragma once

#include "compiler/passes/pass.h"

namespace nimble::passes {

#define NIMBLE_PASS(name, function, need, summary) \
  ir::Module function(const ir::Module& m, PassContext& context);
#include "compiler/passes/Passes.def"
#undef NIMBLE_PASS

}  // namespace nimble::passes
