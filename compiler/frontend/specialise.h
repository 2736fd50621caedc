// Renames and fixes symbols of a module's entry function.
#pragma once

#include "compiler/frontend/frontend.h"

namespace nimble::frontend {

// nimble::Error(kInvalidArgument) for a symbol that the entry function lacks, a negative extent, a
// new name that is taken or is no identifier. Other functions keep their symbols: these are bound
// at each call.
ir::Module specialise(ir::Module module, const ImportOptions& options);

// A copy of a function, with variables of its own, in which symbols have values.
ir::FunctionRef substituted(const ir::Function& f, const std::map<std::string, ir::Dim>& values);

}  // namespace nimble::frontend
