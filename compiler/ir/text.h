// The text form: prints and parses back exactly (parse(print(m)) prints the same text).
// docs/text-ir.md describes it for users. In short:
//
//   fn @main(%x: Tensor[(n, 300), f32], %w: Tensor[(300, 512), f32]) -> Tensor[(n, 512), f32] {
//     let %y: Tensor[(n, 512), f32] = matmul(%x, %w);
//     let %z = if (%c) { let %a = relu(%y); %a } else { %y };
//     %z
//   }
//
//   module    = { source "text" ; | signature @f {inputs = [..], outputs = [..], defaults = [..]} ;
//               | function }
//   function  = fn @name(%p: type, …) [-> type] [attrs {…}] block
//   block     = { { let %x [: type] = expression [from "name"]; } atom }
//   expression= operator(atoms) [{name = value, …}]        an operator of Ops.def
//             | @f(atoms) | %f(atoms)                       a function or a closure
//             | (atoms) | %t[0]                             a tuple (one element: (%a,)), a field
//             | if (atom) block else block | atom
//             | Constructor(atoms)                          a value of a data type
//             | match (atom) { { pattern => block } }       the first case that fits
//             | fn(%p: type, …) [-> type] [attrs {…}] block             a closure
//             | closure @f(atoms)                           a converted closure: captured values
//             | group fn(%p: type, …) [-> type] [attrs {…}] block (atoms)   a fused group, called
//   pattern   = _ | %x [: type] | Constructor [(patterns)] | (patterns)
//   atom      = %x | @f | constant
//   constant  = 1.5f32 | 3i64 | true | f32[2, 2]{1, 2, 3, 4} | const("name")
//   type      = Tensor[(dims), dtype] | (types) | fn(types) -> type | Name[types] | A
//             | i64 | Storage
//   value     = true | 3 | 0.5 | "text" | [3, 4] | [0.5] | ["a"] | f32 | n + 1 | (b, n, -1)
//
// The kind of an attribute's value follows from the operator's row in Ops.def; attributes of
// functions write dtypes and dims as `dtype f32`, `dim n`. `from` names the operator of the
// source model. Comments run from // to the end of the line. Big constants stand in the side
// file (safetensors) next to the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/diagnostic.h"
#include "compiler/ir/expr.h"

namespace nimble::ir {

struct PrintOptions {
  int64_t inline_constant_elements = 16;  // larger constants go to the side file
  bool types = true;                      // annotate bindings once inferred
};
std::string print(const Module& m, PrintOptions options = {});
// A constant: "f32[2]{1, 2.5}", "3i64", "true".
std::string print(const Tensor& t);
std::string print(const Function& f, const std::string& name, PrintOptions options = {});

// All errors of a text, not only the first: each with file:line:column, a caret line, a remedy.
struct ParseResult {
  Module module;                        // of no use if there are diagnostics
  std::vector<Diagnostic> diagnostics;  // in order of their place
};
ParseResult parse_text(std::string_view text, const std::string& file = "<text>",
                       const std::string& constants_file = {});
// Throws nimble::Error that carries every diagnostic's text.
Module parse_module(std::string_view text, const std::string& file = "<text>",
                    const std::string& constants_file = {});
std::string side_file_of(const std::string& path);            // path + ".safetensors"
Module read_module(const std::string& path);                  // .nir, with its side file
void write_module(const Module& m, const std::string& path);  // both files, atomically

}  // namespace nimble::ir
