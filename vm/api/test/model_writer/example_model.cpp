// Writes the model that the examples run: main(x (n, 4) f32) -> y (n, 4) f32, a copy made by the
// host kernel host.copy, so that no compiler and no native code is needed.
#include <cstdio>

#include "vm/executable/assembler.h"
#include "vm/executable/writer.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s FILE\n", argv[0]), 2;
  nimble::exec::write(nimble::exec::assemble(R"(
scalar "bytes" [a0 16 *]
kernel "copy" {
  source "copy"
  symbols n
  in f32 ([a0], [4])
  out f32 ([a0], [4])
  dispatch { 0: 0 }
  host "host.copy"
}
function "main" 1 7 {
  ShapeOf r1, 2, r0
  Invoke r3, f"bytes", (r1)
  AllocStorage r4, r3, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r6, r4, r5, f32, (r1, r2)
  InvokePacked k"copy", (r0, r6)
  Ret r6
}
entry "main" f0 {
  input "x" f32 ["n", "4"] [-1, 4]
  output "y" f32 ["n", "4"] [-1, 4]
}
)"),
                      argv[1]);
  return 0;
}
