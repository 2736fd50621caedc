// The text form: prints and parses back exactly (parse(print(m)) prints the same text).
//
//   fn @main(%x: Tensor[(n, 300), f32], %w: Tensor[(300, 512), f32]) -> Tensor[(n, 512), f32] {
//     let %y: Tensor[(n, 512), f32] = matmul(%x, %w);
//     let %z = if (%c) { let %a = relu(%y); %a } else { %y };
//     %z
//   }
//
// Small constants are written in place (f32[2, 2]{1, 2, 3, 4}, 1.5f32, 3i64, true); big ones
// as const("name"), which refers to a tensor of the side file (safetensors) next to the text.
#pragma once

#include <string>
#include <string_view>

#include "compiler/ir/expr.h"

namespace nimble::ir {

struct PrintOptions {
  int64_t inline_constant_elements = 16;  // larger constants go to the side file
  bool types = true;                      // annotate bindings once inferred
};
std::string print(const Module& m, PrintOptions options = {});
std::string print(const Function& f, const std::string& name, PrintOptions options = {});

// All errors of a text, not only the first: each with file:line:column, a caret line, a remedy.
struct Diagnostic {
  Location location;
  std::string problem, remedy, source_line;
  std::string str() const;
};
// Throws nimble::Error that carries every diagnostic's text.
Module parse_module(std::string_view text, const std::string& file = "<text>",
                    const std::string& constants_file = {});
Module read_module(const std::string& path);                     // .nir, with its side file
void write_module(const Module& m, const std::string& path);     // both files, atomically

}  // namespace nimble::ir
