// Seeds of the fuzz target `vm`: small programs that between them use every instruction and
// the operators on data-type values.
#pragma once

#include <string>
#include <vector>

namespace nimble::fuzz {

struct Program {
  std::string name, text;
};

inline const std::vector<Program>& programs() {
  static const std::vector<Program> kAll = {
      {"copy", R"(scalar "bytes" [a0 4 *]
kernel "copy" {
  source "copy"
  symbols n
  in f32 ([a0])
  out f32 ([a0])
  scratch [a0 4 *]
  dispatch { 0: n <= 4 ? 1 : 2
    1: 0
    2: mod(n, 8) == 0 ? 3 : 4
    3: 0
    4: 0 }
  host "host.copy"
}
function "main" 1 6 {
  ShapeOf r1, 1, r0
  Invoke r2, f"bytes", (r1)
  AllocStorage r3, r2, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1)
  InvokePacked k"copy", (r0, r5)
  FreeStorage r3
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" f32 ["n"] [-1]
}
)"},
      {"loop", R"(scalar "less" [a0 a1 <]
scalar "next" [2->2: a0 1 + a1 a0 +]
function "main" 1 5 {
  ShapeOf r1, 1, r0
  LoadConsti r2, 0
  LoadConsti r3, 0
loop:
  Invoke r4, f"less", (r2, r1)
  If r4, @body, @done
body:
  Invoke r2, f"next", (r2, r3)
  Goto @loop
done:
  Ret r3
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" i64 [] []
}
)"},
      {"closures", R"(scalar "sub" [a0 a1 -]
text "too deep"
function "main" 1 8 {
  LoadConsti r1, 50
  LoadConsti r2, 8
  AllocClosure r3, f"minus", (r1)
  InvokeClosure r4, r3, (r2)
  AllocADT r5, 7, (r4, r3)
  GetTag r6, r5
  GetField r7, r5, 1
  InvokeClosure r7, r7, (r6)
  If r7, @fine, @bad
bad:
  Fatal t0, (r6)
fine:
  AllocADT r5, 0, (r6, r4)
  Ret r5
}
function "minus" 2 3 {
  Invoke r2, f"sub", (r0, r1)
  Ret r2
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "tag" i64 [] []
  output "y" i64 [] []
}
)"},
      {"recursion", R"(scalar "minus" [a0 1 -]
scalar "plus" [a0 1 +]
function "main" 1 3 {
  ShapeOf r1, 1, r0
  Invoke r2, f"count", (r1)
  Move r1, r2
  Ret r1
}
function "count" 1 3 {
  If r0, @more, @done
more:
  Invoke r1, f"minus", (r0)
  Invoke r2, f"count", (r1)
  Invoke r0, f"plus", (r2)
done:
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" i64 [] []
}
)"},
      {"tree", R"(scalar "minus" [a0 1 -]
scalar "sum" [a0 a1 +]
function "main" 1 3 {
  LoadConsti r1, 4
  Invoke r1, f"grow", (r1)
  Invoke r2, f"leaves", (r1)
  Ret r2
}
function "grow" 1 3 {
  If r0, @inner, @leaf
inner:
  Invoke r1, f"minus", (r0)
  Invoke r1, f"grow", (r1)
  AllocADT r2, 1, (r1, r1)
  Ret r2
leaf:
  AllocADT r1, 0, ()
  Ret r1
}
function "leaves" 1 4 {
  GetTag r1, r0
  If r1, @inner, @leaf
inner:
  GetField r2, r0, 0
  GetField r3, r0, 1
  FreeTensor r0
  Invoke r2, f"leaves", (r2)
  Invoke r3, f"leaves", (r3)
  Invoke r1, f"sum", (r2, r3)
  Ret r1
leaf:
  LoadConsti r1, 1
  Ret r1
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "y" i64 [] []
}
)"},
      {"tensors", R"(constant "w" i64 [2, 3] { 1, 2, 3, 4, 5, 6 }
constant "b" bool [] { 1 }
kernel "zero" {
  source "zero"
  symbols n
  scalar n
  out i64 ([a0], [2])
  dispatch { 0: 0 }
  host "host.zero"
}
function "main" 1 9 {
  LoadConst r1, c"w"
  LoadConsti r2, 3
  LoadConsti r3, 2
  ReshapeTensor r4, r1, (r2, r3)
  GetElement r5, r4, 1
  DeviceCopy r6, r4, d0
  LoadConsti r7, 96
  AllocStorage r7, r7, 64, d0
  LoadConsti r8, 48
  AllocTensor r8, r7, r8, i64, [3, 2]
  InvokePacked k"zero", (r2, r8)
  LoadConst r0, c"b"
  If r0, @one, @other
one:
  AllocADT r0, 0, (r8, r6)
  Ret r0
other:
  AllocADT r0, 0, (r6, r6)
  Ret r0
}
entry "main" f0 {
  input "x" bool [] [] default "ones"
  output "y" i64 ["3", "2"] [3, 2]
  output "z" i64 ["?", "?"] [-1, -1]
}
)"},
      // The tree Node(Leaf(w), Leaf(w)): two kinds, the leaf with a field f32 [4], the node with
      // two calls of function 0.
      {"linearise", R"(constant "w" f32 [4] { 1, 2, 3, 4 }
kernel "count" {
  source "count.linearise"
  symbols s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 s13 s14 s15 s16
  data
  scalar s0
  scalar s1
  scalar s2
  scalar s3
  scalar s4
  scalar s5
  scalar s6
  scalar s7
  scalar s8
  scalar s9
  scalar s10
  scalar s11
  scalar s12
  scalar s13
  scalar s14
  scalar s15
  scalar s16
  out i64 ([4])
  dispatch { 0: 0 }
  host "host.count_linearise"
}
kernel "order" {
  source "linearise"
  symbols s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 s13 s14 s15 s16
  data
  scalar s0
  scalar s1
  scalar s2
  scalar s3
  scalar s4
  scalar s5
  scalar s6
  scalar s7
  scalar s8
  scalar s9
  scalar s10
  scalar s11
  scalar s12
  scalar s13
  scalar s14
  scalar s15
  scalar s16
  out i64 ([2], [3])
  out f32 ([2], [4])
  out i64 ([1])
  out i64 ([1])
  dispatch { 0: 0 }
  host "host.linearise"
}
function "main" 1 16 {
  LoadConst r1, c"w"
  AllocADT r2, 0, (r1)
  AllocADT r3, 0, (r1)
  AllocADT r4, 1, (r2, r3)
  LoadConsti r5, 0
  LoadConsti r6, 1
  LoadConsti r7, 2
  LoadConsti r8, 4
  LoadConsti r9, 11
  LoadConsti r10, 320
  AllocStorage r10, r10, 64, d0
  AllocTensor r11, r10, r5, i64, [4]
  InvokePacked k"count", (r4, r7, r5, r5, r5, r6, r5, r9, r6, r8, r5, r6, r7, r5, r5, r6, r5, r5, r11)
  LoadConsti r12, 64
  AllocTensor r12, r10, r12, i64, [2, 4]
  LoadConsti r13, 128
  AllocTensor r13, r10, r13, f32, [2, 4]
  LoadConsti r14, 192
  AllocTensor r14, r10, r14, i64, [1]
  LoadConsti r15, 256
  AllocTensor r15, r10, r15, i64, [1]
  InvokePacked k"order", (r4, r7, r5, r5, r5, r6, r5, r9, r6, r8, r5, r6, r7, r5, r5, r6, r5, r5, r12, r13, r14, r15)
  AllocADT r0, 0, (r11, r12, r13)
  Ret r0
}
entry "main" f0 {
  input "x" f32 ["n"] [-1]
  output "counts" i64 ["4"] [4]
  output "steps" i64 ["2", "4"] [2, 4]
  output "fields" f32 ["2", "4"] [2, 4]
}
)"}};
  return kAll;
}

}  // namespace nimble::fuzz
