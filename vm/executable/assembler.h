// The inverse of disassembler.h, where the grammar stands. For tests and for looking into the
// machine by hand: it checks syntax, not meaning, so that any bytecode can be written.
#pragma once

#include <string_view>

#include "vm/executable/executable.h"

namespace nimble::exec {

// Names (f"main", k"dense", c"w") and labels may be used before they are defined.
// Error(kInvalidArgument) with "line L:C" as its place.
Executable assemble(std::string_view text);

// A dim program from its postfix text, "[a0 4 *]".
DimProgram assemble_program(std::string_view text);

}  // namespace nimble::exec
