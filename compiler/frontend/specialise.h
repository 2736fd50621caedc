// Renames and fixes symbols of a module's entry function.
#pragma once

#include <set>

#include "compiler/frontend/frontend.h"

namespace nimble::frontend {

using Replacement = std::map<std::string, ir::Dim>;

// What the options make of an entry function's symbols: a new name or an extent each. Errors as of
// specialise; `source`: the model's name in them.
Replacement replacement_of(std::set<std::string> symbols, const ImportOptions& options,
                           const std::string& source);

// For modules that are read before they are typed: an importer that types as it goes asks
// replacement_of for its inputs' dims instead, so that fixed extents keep all others simple.
//
// nimble::Error(kInvalidArgument) for a symbol that the entry function lacks, a negative extent, a
// new name that is taken or is no identifier. Other functions keep their symbols: these are bound
// at each call.
ir::Module specialise(ir::Module module, const ImportOptions& options);

}  // namespace nimble::frontend
