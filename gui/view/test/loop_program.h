// An executable file to run: six turns of a loop, each of which doubles its input by a kernel that
// has a checked form alone.
#pragma once

#include <string>

#include "vm/executable/assembler.h"
#include "vm/executable/portable_kernel.h"
#include "vm/executable/writer.h"

namespace nimble::gui {

// `evidence`: what its provenance says of the kernel's dispatch, JSON.
inline void write_loop_program(const std::string& file, const std::string& evidence = {}) {
  exec::Executable e = exec::assemble(R"ASM(
scalar "minus" [a0 1 -]
scalar "bytes" [a0 4 *]
kernel "double" { source "add" symbols s0 in f32 ([a0]) out f32 ([a0]) scratch [0]
  dispatch { 0: 0 } native "absent" }
function "main" 1 3 {
  LoadConsti r1, 6
  Invoke r2, f"turn", (r0, r1)
  Move r1, r2
  Ret r1
}
function "turn" 2 8 {
  If r1, @more, @done
more:
  .origin "loop at /Loop"
  .note "add at /Loop/Add"
  ShapeOf r3, 1, r0
  Invoke r4, f"bytes", (r3)
  AllocStorage r4, r4, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r5, r4, r5, f32, (r3)
  InvokePacked k"double", (r0, r5)
  Invoke r1, f"minus", (r1)
  Invoke r6, f"turn", (r5, r1)
  Ret r6
done:
  Ret r0
}
entry "main" f0 { input "x" f32 ["n"] [-1] output "y" f32 ["n"] [-1] }
)ASM");
  using Op = exec::PortableOp;
  exec::PortableKernel k;
  k.indices = 3;
  k.values = {{DType::kF32, 1}};
  k.code = {{Op::kLoop, {2, 1, 0, 1}},
            {Op::kLoad, {0, 0, 1, 2, 0}},
            {Op::kAdd, {0, 0, 0}},
            {Op::kStore, {1, 1, 2, 0, 0}},
            {Op::kEnd, {}}};
  e.kernels[0].portable = k;
  if (!evidence.empty()) e.provenance.kernels["double"] = evidence;
  exec::write(e, file);
}

}  // namespace nimble::gui
