// The pass `fuse` without its gain, to tell its faults from those of others.
#pragma once

#include "compiler/passes/pass.h"

namespace nimble::passes {

// As `fuse`, but every operator is a group of its own.
ir::Module fuse_nothing(const ir::Module& m, PassContext& context);

}  // namespace nimble::passes
