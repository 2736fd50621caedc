// ONNX models.
#pragma once

#include <string>

#include "compiler/frontend/frontend.h"

namespace nimble::frontend {

// Imports an .onnx file. Symbolic dims keep their names (reduced to identifiers), inputs and
// outputs theirs; the names of nodes become the locations of operators. An input dim without name
// or value becomes a symbol named after its input and axis. LSTM and GRU become recursive functions
// over time; model-local functions are inlined. Errors as frontend.h says; unsupported operators
// are all in one error. Of the options, new names and extents of symbols are in place before the
// first operator is typed; `random_input` makes one more input; `decode` is not looked at.
ir::Module import_onnx(const std::string& path, const ImportOptions& options);
Coverage onnx_coverage(const std::string& path);

}  // namespace nimble::frontend
