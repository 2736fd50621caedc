// How messages of the virtual machine name what an instruction was made for: the words of the
// model, never those of its lowered form.
#pragma once

#include <string>

#include "compiler/ir/expr.h"

namespace nimble::emit {

// Of a place in the model: "/encoder/layer.0/MatMul", "model.nir:12", or "" if it is not known.
// Without the folder of a file: a model compiles to the same bytes wherever it lies.
std::string source_place(const ir::Location& at);

// What an expression does and where: "matmul at /encoder/layer.0/MatMul", "extents at model.nir:7".
std::string source_note(const ir::Expr& e);

}  // namespace nimble::emit
