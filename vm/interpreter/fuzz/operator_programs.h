// Seeds of the fuzz target `vm` that call the host operators as compiled programs do: what a count
// says becomes the extent of a result. Between them, with programs.h, they call every one.
#pragma once

#include <string>
#include <vector>

#include "vm/interpreter/fuzz/programs.h"

namespace nimble::fuzz {

// Results in registers r10 and up stand in a storage r1 of 1024 bytes, at multiples of 128.
inline std::string operator_program(const std::string& head, const std::string& body,
                                    const std::string& result, const std::string& port) {
  return head + "function \"main\" 1 24 {\nLoadConsti r1, 1024\nAllocStorage r1, r1, 64, d0\n" +
         "LoadConsti r2, 0\nLoadConsti r3, 128\nLoadConsti r4, 256\nLoadConsti r5, 384\n" +
         "LoadConsti r6, 1\n" + body + "Ret " + result +
         "\n}\nentry \"main\" f0 {\ninput \"x\" f32 [\"n\"] [-1]\noutput \"y\" " + port + "\n}\n";
}

// A kernel of one host operator.
inline std::string operator_kernel(const std::string& name, const std::string& contract) {
  return "kernel \"" + name + "\" {\n" + contract +
         "\nscratch [0]\ndispatch { 0: 0 }\nhost \"host." + name + "\"\n}\n";
}

inline const std::vector<Program>& operator_programs() {
  static const std::vector<Program> kAll = {
      {"nonzero",
       operator_program(
           "constant \"w\" f32 [2, 3] { 0, 1, 0, 2, 3, 0 }\n" +
               operator_kernel("count_nonzero", "symbols m n\nin f32 ([a0], [a1])\nout i64 ([1])") +
               operator_kernel("nonzero",
                               "symbols m n s\nin f32 ([a0], [a1])\nscalar s\n"
                               "out i64 ([2], [a2])"),
           "LoadConst r7, c\"w\"\nAllocTensor r10, r1, r2, i64, [1]\n"
           "InvokePacked k\"count_nonzero\", (r7, r10)\nGetElement r8, r10, 0\nLoadConsti r9, 2\n"
           "AllocTensorReg r11, r1, r3, i64, (r9, r8)\n"
           "InvokePacked k\"nonzero\", (r7, r8, r11)\n",
           "r11", "i64 [\"2\", \"k\"] [2, -1]")},
      {"compress",
       operator_program("constant \"w\" f32 [2, 3] { 1, 2, 3, 4, 5, 6 }\n"
                        "constant \"m\" bool [3] { 1, 0, 1 }\n" +
                            operator_kernel("compress",
                                            "symbols m n c a\nin f32 ([a0], [a1])\nin bool ([a2])\n"
                                            "scalar a\nout f32 ([a0], [2])"),
                        "LoadConst r7, c\"w\"\nLoadConst r8, c\"m\"\n"
                        "AllocTensor r10, r1, r2, f32, [2, 2]\n"
                        "InvokePacked k\"compress\", (r7, r8, r6, r10)\n",
                        "r10", "f32 [\"2\", \"2\"] [2, 2]")},
      {"repeat",
       operator_program(
           "constant \"w\" i16 [3] { 1, 2, 3 }\nconstant \"r\" i64 [3] { 2, 0, 1 }\n" +
               operator_kernel("count_repeat", "symbols m\nin i64 ([a0])\nout i64 ([1])") +
               operator_kernel("repeat",
                               "symbols m a k\nin i16 ([a0])\nin i64 ([a0])\nscalar a\n"
                               "scalar k\nout i16 ([a2])"),
           "LoadConst r7, c\"w\"\nLoadConst r8, c\"r\"\nAllocTensor r10, r1, r2, i64, [1]\n"
           "InvokePacked k\"count_repeat\", (r8, r10)\nGetElement r9, r10, 0\n"
           "AllocTensorReg r11, r1, r3, i16, (r9)\n"
           "InvokePacked k\"repeat\", (r7, r8, r2, r9, r11)\n",
           "r11", "i16 [\"k\"] [-1]")},
      {"range",
       operator_program(
           "constant \"a\" i32 [] { 1 }\nconstant \"b\" i32 [] { 9 }\n"
           "constant \"c\" i32 [] { 3 }\n" +
               operator_kernel("count_range", "in i32 ()\nin i32 ()\nin i32 ()\nout i64 ([1])"),
           "LoadConst r7, c\"a\"\nLoadConst r8, c\"b\"\nLoadConst r9, c\"c\"\n"
           "AllocTensor r10, r1, r2, i64, [1]\n"
           "InvokePacked k\"count_range\", (r7, r8, r9, r10)\n",
           "r10", "i64 [\"1\"] [1]")},
      {"unique",
       operator_program(
           "constant \"w\" i8 [2, 3] { 1, 2, 1, 3, 0, 3 }\n" +
               operator_kernel("count_unique",
                               "symbols m n a\nin i8 ([a0], [a1])\nscalar a\nout i64 ([1])") +
               operator_kernel("unique",
                               "symbols m n a s u\nin i8 ([a0], [a1])\nscalar a\nscalar s\n"
                               "scalar u\nout i8 ([a0], [a4])\nout i64 ([a4])\n"
                               "out i64 ([a1])\nout i64 ([a4])"),
           "LoadConst r7, c\"w\"\nAllocTensor r10, r1, r2, i64, [1]\n"
           "InvokePacked k\"count_unique\", (r7, r6, r10)\nGetElement r8, r10, 0\nLoadConsti r9, "
           "2\n"
           "AllocTensorReg r11, r1, r3, i8, (r9, r8)\nAllocTensorReg r12, r1, r4, i64, (r8)\n"
           "AllocTensor r13, r1, r5, i64, [3]\nLoadConsti r9, 512\n"
           "AllocTensorReg r14, r1, r9, i64, (r8)\n"
           "InvokePacked k\"unique\", (r7, r6, r2, r8, r11, r12, r13, r14)\n",
           "r11", "i8 [\"2\", \"u\"] [2, -1]")},
      {"topk",
       operator_program("constant \"w\" f16 [2, 4] { 1, 3, 2, 0, 5, 5, 6, 5 }\n" +
                            operator_kernel("topk",
                                            "symbols m n a l\nin f16 ([a0], [a1])\nscalar a\n"
                                            "scalar l\nout f16 ([a0], [2])\nout i64 ([a0], [2])"),
                        "LoadConst r7, c\"w\"\nAllocTensor r10, r1, r2, f16, [2, 2]\n"
                        "AllocTensor r11, r1, r3, i64, [2, 2]\n"
                        "InvokePacked k\"topk\", (r7, r6, r6, r10, r11)\n",
                        "r11", "i64 [\"2\", \"2\"] [2, 2]")},
      {"nms",
       operator_program(
           "constant \"b\" f32 [1, 2, 4] { 0, 0, 1, 1, 0, 0, 1, 2 }\n"
           "constant \"s\" f32 [1, 1, 2] { 1, 2 }\nconstant \"o\" f32 [1] { 0 }\n" +
               operator_kernel("nms",
                               "symbols b n c l s\nin f32 ([a0], [a1], [4])\n"
                               "in f32 ([a0], [a2], [a1])\nin f32 ([1])\nin f32 ([1])\nscalar l\n"
                               "scalar s\nout i64 ([2], [3])\nout i64 ([1])"),
           "LoadConst r7, c\"b\"\nLoadConst r8, c\"s\"\nLoadConst r9, c\"o\"\n"
           "AllocTensor r10, r1, r2, i64, [2, 3]\nAllocTensor r11, r1, r3, i64, [1]\n"
           "InvokePacked k\"nms\", (r7, r8, r9, r9, r3, r2, r10, r11)\n",
           "r10", "i64 [\"2\", \"3\"] [2, 3]")},
      {"scatter",
       operator_program(
           "constant \"w\" u8 [3, 2] { 1, 2, 3, 4, 5, 6 }\n"
           "constant \"i\" i64 [2] { -1, 0 }\nconstant \"u\" u8 [2, 2] { 9, 8, 7, 6 }\n" +
               operator_kernel("scatter",
                               "symbols m n k r\nin u8 ([a0], [a1])\nin i64 ([a2])\n"
                               "in u8 ([a2], [a1])\nscalar r\nout u8 ([a0], [a1])"),
           "LoadConst r7, c\"w\"\nLoadConst r8, c\"i\"\nLoadConst r9, c\"u\"\n"
           "AllocTensor r10, r1, r2, u8, [3, 2]\n"
           "InvokePacked k\"scatter\", (r7, r8, r9, r6, r10)\n",
           "r10", "u8 [\"3\", \"2\"] [3, 2]")},
      // A value of the caller's, and one that comes back.
      {"typed", R"(type "Tree" data { "Leaf" (1) "Node" (0, 0) }
type "Tensor[(k), f32]" tensor f32 ["k"] [-1]
type "Pair" tuple (0, 3)
type "i64" scalar i64
function "main" 2 6 {
  GetTag r2, r0
  If r2, @node, @leaf
node:
  GetField r3, r0, 0
  GetField r4, r0, 1
  AllocADT r0, 1, (r4, r3)
leaf:
  AllocADT r5, 0, (r0, r1)
  Ret r5
}
entry "main" f0 {
  input "t" type 0
  input "n" type 3
  output "y" type 2
}
)"}};
  return kAll;
}

// A portable kernel over rows: kPortableText's, called with a matrix.
inline constexpr const char* kRowsText = R"(scalar "bytes" [a0 a1 * 4 *]
kernel "portable" {
  symbols n
  in rows f32 ([a0])
  out rows f32 ([a0])
  dispatch { 0: 0 }
  portable "portable"
}
function "main" 1 6 {
  ShapeOf r1, 2, r0
  Invoke r3, f"bytes", (r1, r2)
  AllocStorage r3, r3, 64, d0
  LoadConsti r4, 0
  AllocTensorReg r5, r3, r4, f32, (r1, r2)
  InvokePacked k"portable", (r0, r5)
  Ret r5
}
entry "main" f0 {
  input "x" f32 ["m", "n"] [-1, -1]
  output "y" f32 ["m", "n"] [-1, -1]
}
)";

}  // namespace nimble::fuzz
