// An executable that uses every part of the format, for the tests of this folder.
#pragma once

#include "vm/base/device_number.h"
#include "vm/executable/assembler.h"
#include "vm/executable/executable.h"

namespace nimble::exec {

inline constexpr const char* kSampleText = R"ASM(
text "negative \"length\"\n"
constant "w" f32 [2, 3] hot { 1, -0.5, 3.25e-10, 0x7fc00001, 0x7f800000, -0 }
constant "ids" i64 [3] { -9223372036854775808, 0, 9223372036854775807 }
constant "flags" bool [2] { 0, 1 }
constant "h" f16 [3] { 1, 0.1, 0x7e01 }
constant "bh" bf16 [2] { 1.5, -2 }
constant "empty" f32 [0, 4] { }
constant "far" f32 [2] hot device d1 { 1, 2 }
scalar "bytes" [a0 12 * 4096 max]
scalar "split" [2->3: a0 a1 a0 a1 <]
kernel "dense" {
  source "matmul+add"
  workload "matmul(m,3,2)"
  symbols m "b*n"
  in f32 ([a0], [3])
  in f32 ([2], [3])
  scalar "b*n"
  out f32 ([a0], [2])
  require [a0 a1 2 * <=]
  scratch [a0 a2 * 64 *]
  dispatch {
    0: m <= 16 ? 1 : 2
    1: 0
    2: mod(m, 8) == 0 ? 3 : 4
    3: 1
    4: ceil(m, 8) <= 3 ? 5 : 6
    5: 0
    6: m * "b*n" <= 1000000 ? 7 : 8
    7: 1
    8: threads <= 1 ? 9 : 10
    9: 0
    10: 2
  }
  native "dense_0" template "matmul" config "{\"mr\":12}" threads 1 hash 0x123456789abcdef0
  native "dense_1" template "matmul" divisible
  vendor "onednn.matmul"
}
kernel "less" {
  in i64 ()
  out bool ()
  scratch [0]
  dispatch { 0: 0 }
  host "host.less"
}
kernel "far" {
  symbols "device" m
  device d1
  in f32 ([a0], [a1])
  out f32 ([a0], [a1])
  scratch [0]
  dispatch { 0: 0 }
  host "host.copy"
}
kernel "tree" {
  symbols s
  data
  scalar s
  out i64 ([2])
  scratch [0]
  dispatch { 0: 0 }
  host "host.tree"
}
kernel "gpu" {
  symbols m n
  device d2
  in f32 ([a0], [a1])
  out f32 ([a0], [a1])
  scratch [a0 8 *]
  dispatch {
    0: m <= 16 ? 1 : 2
    1: 0
    2: 1
  }
  native "gpu_0" template "matmul" launch ([a0 15 + 16 //], [1], [1]) block 128 shared 0 map 0 ([a1] by 16, [a0] by 8)
  native "gpu_1" hash 0x7 launch ([a0 63 + 64 //], [a1 63 + 64 //], [2]) block 1024 shared 232448 aligned 8 steps [a1 1 +]
}
function "main" 1 12 {
  .origin "graph at sample.nir:1"
  .note "shape_of"
  ShapeOf r1, 2, r0
  Invoke r3, f"bytes", (r1)
  AllocStorage r4, r3, 64, d0
  LoadConsti r5, 0
  AllocTensorReg r6, r4, r5, f32, (r1, r2)
  LoadConst r7, c"w"
  .note "matmul at /encoder/MatMul"
  InvokePacked k"dense", (r0, r7, r1, r6)
  Invoke r8, f"split", (r1, r2)
  If r10, @less, @more
less:
  AllocADT r11, 0, (r6, r0)
  FreeTensor r0
  Goto @done
more:
  AllocClosure r9, f"helper", (r6)
  InvokeClosure r11, r9, (r0)
  Goto @done
done:
  Ret r11
}
function "helper" 2 5 {
  LoadConsti r2, 7
  AllocStorage r2, r2, 8, d0
  LoadConsti r3, 0
  AllocTensor r3, r2, r3, i8, [1, 2]
  AllocADT r4, 1, (r0, r1, r3)
  GetTag r3, r4
  If r3, @fine, @bad
bad:
  Fatal t0, (r3)
fine:
  GetField r3, r4, 1
  Ret r3
}
function "far" 1 5 {
  DeviceCopy r1, r0, d1
  LoadConsti r2, 64
  AllocStorage r3, r2, 64, d1
  LoadConsti r2, 0
  AllocTensor r4, r3, r2, f32, [2, 8]
  InvokePacked k"far", (r1, r4)
  DeviceCopy r4, r4, d0
  Ret r4
}
entry "main" f0 {
  input "x" f32 ["n", "3"] [-1, 3]
  output "y" f32 ["n", "2"] [-1, 2]
  output "z" f32 ["n", "3"] [-1, 3]
}
entry "second" f1 {
  input "a" f32 [] [] default "ones"
  input "b" i64 ["?"] [-1] default "zeros"
  output "c" f32 [] []
}
type "i64" scalar i64
type "List[(i64, Tensor[(n, 3), f32])]" data { "Nil" () "Cons" (2, 1) }
type "(i64, Tensor[(n, 3), f32])" tuple (0, 3)
type "Tensor[(n, 3), f32]" tensor f32 ["n", "3"] [-1, 3]
entry "third" f1 {
  input "l" type 1
  input "x" f32 ["n", "3"] [-1, 3]
  output "pair" type 2
}
)ASM";

// A portable form of kernel "dense" (b0, b1 in, b2 out, symbols m and b*n) with a scratch buffer
// and every kind of operand. It copies nothing that "dense" would compute.
inline PortableKernel sample_portable() {
  using Op = PortableOp;
  PortableKernel k;
  k.indices = 5;
  k.values = {{DType::kF32, 8}, {DType::kF32, 1}, {DType::kBool, 8}, {DType::kI64, 1}};
  k.scratch = {{DType::kF32, {2, 1, {{DimOp::kArg, 0}, {DimOp::kConst, 3}, {DimOp::kMul}}}}};
  k.code = {{Op::kIndexConst, {2, 0}},
            {Op::kLoop, {3, 2, 0, 8}},
            {Op::kIndexMulAdd, {4, 0, 3, -1}},
            {Op::kConst, {0, 0x3f800000}},
            {Op::kLoadMasked, {0, 0, 2, 3, 0, 4, 0}},
            {Op::kFma, {0, 0, 0, 0}},
            {Op::kLt, {2, 0, 0}},
            {Op::kStoreMasked, {3, 2, 3, 0, 0, 4}},
            {Op::kIndexLt, {4, 3, 1}},
            {Op::kCheck, {4, 1}},
            {Op::kIf, {4}},
            {Op::kReduceAdd, {1, 0}},
            {Op::kElse, {}},
            {Op::kExtract, {1, 0, 7}},
            {Op::kEnd, {}},
            {Op::kStore, {2, 2, 2, 0, 1}},
            {Op::kEnd, {}},
            {Op::kFromIndex, {3, 1}}};
  k.template_name = "matmul";
  k.config = "{\"mr\":12}";
  return k;
}

// With portable code, images and provenance, for which the assembler has no statements.
inline Executable sample() {
  Executable e = assemble(kSampleText);
  e.kernels[0].portable = sample_portable();
  for (const char* target : {"x86-64-v2", "x86-64-v4"}) {
    auto bytes = std::make_shared<std::vector<uint8_t>>(300, static_cast<uint8_t>(target[8]));
    e.images.push_back({target, {"sse4_2", "popcnt"}, *bytes, bytes});
  }
  auto cubin = std::make_shared<std::vector<uint8_t>>(500, uint8_t{9});
  e.images.push_back({"sm_90a", {}, *cubin, cubin, kCudaDevice, {{"gpu_0", 200}, {"gpu_1", 300}}});
  e.provenance = {"nimble 0.1",           "LLVM 19", "tiny", "db 7", {{"dense", "{\"trials\":12}"}},
                  {{"precision", "bf16"}}};
  return e;
}

}  // namespace nimble::exec
