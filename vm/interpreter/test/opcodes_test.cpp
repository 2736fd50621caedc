// Each instruction of Opcodes.def by itself: what it does, at the edges too, and every failure
// that it can raise at run time, which must name function, instruction and source operator.
//
// A row is the body of main, whose r0 is the input, f32 (3), and whose r2 becomes the result, an
// integer. The verifier refuses what it can prove wrong; `hide` returns its argument, after which
// the kind of a value is unknown to it and only the machine can tell.
#include "vm/executable/opcodes.h"

#include <set>

#include "vm/interpreter/test/harness.h"

namespace nimble::rt {
namespace {

using exec::Opcode;
using ::testing::HasSubstr;

constexpr char kPrelude[] = R"(
text "stopped here"
text "{} has n = {}, m = {};"
constant "ints" i64 [3] { 4, 8, -1 }
constant "one" i64 [1] { 1 }
constant "two" u8 [2] { 200, 7 }
constant "small" i8 [2] { -128, 127 }
constant "i16" i16 [1] { -32768 }
constant "i32" i32 [1] { -2147483648 }
constant "u16" u16 [1] { 65535 }
constant "u32" u32 [1] { 4294967295 }
constant "u64" u64 [1] { 9223372036854775807 }
constant "true" bool [1] { 1 }
constant "false" bool [] { 0 }
constant "real" f32 [1] { 1 }
constant "empty" i64 [0] { }
constant "grid" i64 [2, 3] { 1, 2, 3, 4, 5, 6 }
scalar "minus" [a0 a1 -]
scalar "divide" [a0 a1 //]
scalar "square" [a0 a0 *]
scalar "both" [2->2: a1 a0]
scalar "seven" [7]
kernel "copy" { source "copy" symbols n in i64 ([a0]) out i64 ([a0]) scratch [0]
  dispatch { 0: 0 } host "host.copy" }
kernel "shorter" { symbols n in i64 ([a0]) out i64 ([a0 1 -]) scratch [0]
  dispatch { 0: 0 } host "test.nothing" }
kernel "even" { symbols n in i64 ([a0]) require [a0 2 % 0 ==] scratch [0] dispatch { 0: 0 } host "test.nothing" }
kernel "matrix" { symbols m in i64 ([a0], [3]) in i64 ([a0]) scratch [0]
  dispatch { 0: 0 } host "test.nothing" }
kernel "rows" { symbols m in rows i64 ([a0], [3]) scratch [0] dispatch { 0: 0 } vendor "test.routine" }
kernel "bump" { symbols n inout i64 ([a0]) scratch [0] dispatch { 0: 0 } host "test.bump" }
kernel "sized" { symbols n scalar n out i64 ([a0]) scratch [0] dispatch { 0: 0 } host "host.zero" }
kernel "twice" { symbols n in i64 ([a0]) scalar n scratch [0] dispatch { 0: 0 } host "test.nothing" }
kernel "fails" { source "take" symbols n in i64 ([a0]) scratch [0] dispatch { 0: 0 }
  host "test.fail" }
kernel "scratch" { symbols n scalar n scratch [a0] dispatch { 0: 0 } host "test.nothing" }
function "hide" 1 1 { Ret r0 }
function "second" 3 3 { Ret r1 }
function "none" 0 1 {
  LoadConsti r0, 5
  Ret r0
}
function "storage" 0 2 {
  LoadConsti r0, 64
  AllocStorage r1, r0, 64, d0
  Ret r1
}
)";

constexpr char kEntry[] = R"(
  Ret r2
}
entry "main" f4 { input "x" f32 ["n"] [-1] output "y" i64 [] [] }
)";

struct Row {
  Opcode op;
  std::string what;
  std::string body;
  int64_t result = 0;
  std::string failure = "";  // instead of a result; of the last `op` in main
  Status status = Status::kFatal;
};

// A storage of 64 bytes in r3 and the offset 0 in r4.
const std::string kStorage = "Invoke r3, f\"storage\", ()\nLoadConsti r4, 0\n";
// What the verifier knows nothing of, in r5.
std::string hidden(const std::string& reg) {
  return "Invoke r5, f\"hide\", (" + reg + ")\n";
}
// An i64 (3) of pool memory in r6.
const std::string kTensor =
    "LoadConsti r3, 64\nAllocStorage r3, r3, 64, d0\nLoadConsti r4, 0\n"
    "AllocTensor r6, r3, r4, i64, [3]\n";
const std::string kCopied = kTensor + "LoadConst r7, c\"ints\"\nInvokePacked k\"copy\", (r7, r6)\n";

std::vector<Row> rows() {
  using enum Opcode;
  constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX;
  return {
      {kMove, "a scalar", "LoadConsti r3, 9\nMove r2, r3", 9},
      {kMove, "to itself", "LoadConsti r2, 9\nMove r2, r2", 9},
      {kMove, "a tensor over itself", "LoadConst r3, c\"ints\"\nMove r3, r3\nGetElement r2, r3, 1",
       8},
      {kMove, "the last reference away",
       kCopied + "LoadConsti r3, 0\nMove r8, r6\nMove r6, r3\nGetElement r2, r8, 0", 4},
      {kMove, "a parameter over another", "LoadConsti r2, 3\nMove r0, r2\nMove r2, r0", 3},

      {kRet, "from the middle", "LoadConsti r2, 1\nRet r2\nLoadConsti r2, 2", 1},
      {kRet, "a parameter", "LoadConsti r3, 6\nInvoke r2, f\"second\", (r0, r3, r0)", 6},

      {kIf, "zero",
       "LoadConsti r3, 0\nLoadConsti r2, 1\nIf r3, @y, @n\ny: LoadConsti r2, 2\nn: "
       "Move r2, r2",
       1},
      {kIf, "the least",
       "LoadConsti r3, -9223372036854775808\nLoadConsti r2, 1\nIf r3, @y, @n\n"
       "y: LoadConsti r2, 2\nn: Move r2, r2",
       2},
      {kIf, "a bool tensor",
       "LoadConst r3, c\"true\"\nLoadConsti r2, 1\nIf r3, @y, @n\n"
       "y: LoadConsti r2, 2\nn: Move r2, r2",
       2},
      {kIf, "a bool tensor without dims",
       "LoadConst r3, c\"false\"\nLoadConsti r2, 1\n"
       "If r3, @y, @n\ny: LoadConsti r2, 2\nn: Move r2, r2",
       1},
      {kIf, "many elements",
       "LoadConsti r2, 1\nLoadConst r3, c\"ints\"\nIf r3, @e, @e\n"
       "e: Move r2, r2",
       0, "a tensor of one integer is needed, not i64 (3)"},
      {kIf, "no elements",
       "LoadConsti r2, 1\nLoadConst r3, c\"empty\"\nIf r3, @e, @e\n"
       "e: Move r2, r2",
       0, "not i64 (0)"},
      {kIf, "a float", "LoadConsti r2, 1\nLoadConst r3, c\"real\"\nIf r3, @e, @e\ne: Move r2, r2",
       0, "not of f32 (1)"},
      {kIf, "a storage",
       kStorage + hidden("r3") +
           "LoadConsti r2, 1\nIf r5, @e, @e\n"
           "e: Move r2, r2",
       0, "a tensor is needed, the register holds a storage"},
      {kIf, "freed memory",
       kCopied + "AllocTensor r8, r3, r4, i64, [1]\nFreeStorage r3\n"
                 "LoadConsti r2, 1\nIf r8, @e, @e\ne: Move r2, r2",
       0, "storage was freed"},

      {kGoto, "forward", "LoadConsti r2, 1\nGoto @e\nLoadConsti r2, 2\ne: Move r2, r2", 1},

      {kLoadConst, "shares", "LoadConst r3, c\"ints\"\nGetElement r2, r3, 2", -1},
      {kLoadConst, "over itself",
       "LoadConst r3, c\"ints\"\nLoadConst r3, c\"ints\"\n"
       "GetElement r2, r3, 0",
       4},
      {kLoadConst, "nothing in it", "LoadConst r3, c\"empty\"\nShapeOf r2, 1, r3", 0},

      {kLoadConsti, "the least", "LoadConsti r2, -9223372036854775808", kLeast},
      {kLoadConsti, "the most", "LoadConsti r2, 9223372036854775807", kMost},

      {kAllocStorage, "of nothing",
       "LoadConsti r3, 0\nAllocStorage r4, r3, 1, d0\n"
       "AllocTensor r5, r4, r3, i64, [0]\nShapeOf r2, 1, r5",
       0},
      {kAllocStorage, "of a tensor's size",
       "LoadConst r3, c\"one\"\n" + hidden("r3") + "AllocStorage r4, r5, 64, d0\nLoadConsti r2, 1",
       1},
      {kAllocStorage, "over its own size",
       "LoadConsti r3, 64\nAllocStorage r3, r3, 64, d0\n"
       "LoadConsti r2, 1",
       1},
      {kAllocStorage, "negative",
       "LoadConsti r3, -1\nAllocStorage r4, r3, 64, d0\n"
       "LoadConsti r2, 1",
       0, "a storage of -1 bytes"},
      {kAllocStorage, "the most",
       "LoadConsti r3, 9223372036854775807\nAllocStorage r4, r3, 64, d0\n"
       "LoadConsti r2, 1",
       0, "too large", Status::kExhausted},
      {kAllocStorage, "beyond the limit",
       "LoadConsti r3, 16777217\nAllocStorage r4, r3, 64, d0\n"
       "LoadConsti r2, 1",
       0, "memory limit of 16777216 bytes", Status::kExhausted},
      {kAllocStorage, "on a device that is not there",
       "LoadConsti r3, 64\nAllocStorage r4, r3, 64, d77\nLoadConsti r2, 1", 0, "device 77",
       Status::kUnsupported},
      {kAllocStorage, "a size of many",
       "LoadConst r3, c\"ints\"\n" + hidden("r3") + "AllocStorage r4, r5, 64, d0\nLoadConsti r2, 1",
       0, "not i64 (3)"},

      {kAllocTensor, "fills its storage",
       kStorage + "AllocTensor r6, r3, r4, i64, [8]\n"
                  "ShapeOf r2, 1, r6",
       8},
      {kAllocTensor, "without dims", kStorage + "AllocTensor r6, r3, r4, i64, []\nLoadConsti r2, 1",
       1},
      {kAllocTensor, "nothing at the end",
       kStorage + "LoadConsti r4, 64\n"
                  "AllocTensor r6, r3, r4, i64, [0]\nShapeOf r2, 1, r6",
       0},
      {kAllocTensor, "inside a tensor",
       kCopied + "LoadConsti r4, 8\nAllocTensor r8, r6, r4, i64, "
                 "[2]\nGetElement r2, r8, 0",
       8},
      {kAllocTensor, "inside a part of a tensor",
       kCopied + "LoadConsti r4, 8\nAllocTensor r8, r6, r4, i64, [2]\n"
                 "AllocTensor r8, r8, r4, i64, [1]\nGetElement r2, r8, 0",
       -1},
      {kAllocTensor, "as other bytes",
       "LoadConst r3, c\"ints\"\nLoadConsti r4, 0\n"
       "AllocTensor r5, r3, r4, u8, [24]\nGetElement r2, r5, 16",
       255},
      {kAllocTensor, "one too many",
       kStorage + "AllocTensor r6, r3, r4, i8, [65]\nLoadConsti r2, 1", 0,
       "65 bytes at offset 0 do not fit a storage of 64 bytes"},
      {kAllocTensor, "too far",
       kStorage + "LoadConsti r4, 8\nAllocTensor r6, r3, r4, i64, [8]\n"
                  "LoadConsti r2, 1",
       0, "64 bytes at offset 8 do not fit"},
      {kAllocTensor, "before it",
       kStorage + "LoadConsti r4, -8\nAllocTensor r6, r3, r4, i64, [1]\n"
                  "LoadConsti r2, 1",
       0, "offset -8"},
      {kAllocTensor, "between elements",
       kStorage + "LoadConsti r4, 4\n"
                  "AllocTensor r6, r3, r4, i64, [1]\nLoadConsti r2, 1",
       0, "at offset 4"},
      {kAllocTensor, "outside of a tensor",
       kCopied + "LoadConsti r4, 16\n"
                 "AllocTensor r8, r6, r4, i64, [2]\nLoadConsti r2, 1",
       0, "lies outside of a tensor (3)"},
      {kAllocTensor, "in freed memory",
       kStorage + "Move r6, r3\nFreeStorage r3\n"
                  "AllocTensor r7, r6, r4, i64, [1]\nLoadConsti r2, 1",
       0, "storage that was freed"},
      {kAllocTensor, "in a scalar",
       "LoadConsti r4, 0\n" + hidden("r4") + "AllocTensor r6, r5, r4, i64, [1]\nLoadConsti r2, 1",
       0, "a storage is needed, the register holds a scalar"},

      {kAllocTensorReg, "of extents",
       kStorage + "LoadConsti r6, 2\nLoadConsti r7, 3\n"
                  "AllocTensorReg r8, r3, r4, i8, (r6, r7)\nShapeOf r8, 2, r8\n"
                  "Invoke r2, f\"minus\", (r9, r8)",
       1},
      {kAllocTensorReg, "without dims",
       kStorage + "AllocTensorReg r8, r3, r4, i8, ()\n"
                  "LoadConsti r2, 1",
       1},
      {kAllocTensorReg, "of eight dims",
       kStorage + "LoadConsti r6, 1\nAllocTensorReg r8, r3, r4, "
                  "i8, (r6, r6, r6, r6, r6, r6, r6, r6)\nLoadConsti r2, 1",
       1},
      {kAllocTensorReg, "negative",
       kStorage + "LoadConsti r6, -1\n"
                  "AllocTensorReg r8, r3, r4, i8, (r6)\nLoadConsti r2, 1",
       0, "the shape (-1) is negative or too large"},
      {kAllocTensorReg, "twice negative",
       kStorage + "LoadConsti r6, -2\n"
                  "AllocTensorReg r8, r3, r4, i8, (r6, r6)\nLoadConsti r2, 1",
       0, "(-2, -2)"},
      {kAllocTensorReg, "wraps around",
       kStorage + "LoadConsti r6, 4294967296\n"
                  "AllocTensorReg r8, r3, r4, i64, (r6, r6)\nLoadConsti r2, 1",
       0, "negative or too large"},
      {kAllocTensorReg, "beyond its declared bound",
       kStorage + "LoadConsti r6, 9\n"
                  "AllocTensorReg r8, r3, r4, i64, (r6)\nLoadConsti r2, 1",
       0, "72 bytes at offset 0 do not fit a storage of 64 bytes"},
      {kAllocTensorReg, "an extent of many",
       kStorage + "LoadConst r6, c\"ints\"\n" + hidden("r6") +
           "AllocTensorReg r8, r3, r4, i64, (r5)\nLoadConsti r2, 1",
       0, "not i64 (3)"},

      {kAllocADT, "without fields", "AllocADT r3, 2147483647, ()\nGetTag r2, r3", 2147483647},
      {kAllocADT, "of twenty fields",
       "LoadConsti r3, 3\nAllocADT r4, 0, (r3, r3, r3, r3, r3, r3, "
       "r3, r3, r3, r3, r3, r3, r3, r3, r3, r3, r3, r3, r3, r0)\nGetField r2, r4, 18",
       3},
      {kAllocADT, "over its own field",
       "LoadConsti r3, 3\nAllocADT r3, 1, (r3)\nAllocADT r3, 2, "
       "(r3, r3)\nGetField r4, r3, 1\nGetField r2, r4, 0",
       3},

      {kAllocClosure, "captures",
       "LoadConsti r3, 9\nLoadConsti r4, 4\n"
       "AllocClosure r5, f\"second\", (r3, r4)\nInvokeClosure r2, r5, (r0)",
       4},
      {kAllocClosure, "captures nothing",
       "AllocClosure r5, f\"none\", ()\n"
       "InvokeClosure r2, r5, ()",
       5},
      {kAllocClosure, "over what it captures",
       "LoadConsti r3, 9\n"
       "AllocClosure r3, f\"hide\", (r3)\nInvokeClosure r2, r3, ()",
       9},

      {kFreeStorage, "through two names",
       kStorage + "Move r6, r3\nFreeStorage r3\nFreeStorage r6\n"
                  "LoadConsti r2, 1",
       1},
      {kFreeStorage, "a tensor", "Invoke r5, f\"hide\", (r0)\nFreeStorage r5\nLoadConsti r2, 1", 0,
       "a storage is needed, the register holds a tensor"},

      {kFreeTensor, "one of two references",
       kCopied + "Move r8, r6\nFreeTensor r6\n"
                 "GetElement r2, r8, 0",
       4},
      {kFreeTensor, "a constant",
       "LoadConst r3, c\"ints\"\nFreeTensor r3\nLoadConst r3, c\"ints\"\n"
       "GetElement r2, r3, 0",
       4},
      {kFreeTensor, "a storage", kStorage + hidden("r3") + "FreeTensor r5\nLoadConsti r2, 1", 1},
      {kFreeTensor, "a scalar",
       "LoadConsti r3, 8\n" + hidden("r3") + "FreeTensor r5\nLoadConsti r2, 1", 0,
       "a tensor is needed, the register holds a scalar"},

      {kInvoke, "arguments in order",
       "LoadConsti r3, 8\nLoadConsti r4, 2\n"
       "Invoke r2, f\"minus\", (r3, r4)",
       6},
      {kInvoke, "several results over its arguments",
       "LoadConsti r3, 8\nLoadConsti r4, 2\n"
       "Invoke r3, f\"both\", (r3, r4)\nInvoke r2, f\"minus\", (r3, r4)",
       -6},
      {kInvoke, "no arguments",
       "Invoke r3, f\"seven\", ()\nInvoke r4, f\"none\", ()\n"
       "Invoke r2, f\"minus\", (r3, r4)",
       2},
      {kInvoke, "a tensor as a scalar",
       "LoadConst r3, c\"one\"\n" + hidden("r3") + "Invoke r2, f\"minus\", (r5, r5)", 0},
      {kInvoke, "result over an argument",
       "LoadConsti r3, 1\nInvoke r3, f\"second\", (r0, r3, r3)\n"
       "Move r2, r3",
       1},
      {kInvoke, "division by zero", "LoadConsti r3, 0\nInvoke r2, f\"divide\", (r3, r3)", 0,
       ": shape arithmetic: "},
      {kInvoke, "overflow", "LoadConsti r3, 4294967296\nInvoke r2, f\"square\", (r3)", 0,
       ": shape arithmetic: "},
      {kInvoke, "overflow of a quotient",
       "LoadConsti r3, -9223372036854775808\nLoadConsti r4, -1\n"
       "Invoke r2, f\"divide\", (r3, r4)",
       0, ": shape arithmetic: "},
      {kInvoke, "a closure as a scalar",
       "AllocClosure r3, f\"none\", ()\n" + hidden("r3") + "Invoke r2, f\"square\", (r5)", 0,
       "a tensor is needed, the register holds a closure"},

      {kInvokeClosure, "over itself",
       "AllocClosure r3, f\"none\", ()\nInvokeClosure r3, r3, ()\n"
       "Move r2, r3",
       5},
      {kInvokeClosure, "no closure",
       "AllocADT r3, 0, ()\n" + hidden("r3") + "InvokeClosure r2, r5, ()", 0,
       "a closure is needed, the register holds a data-type value"},
      {kInvokeClosure, "too few values",
       "AllocClosure r3, f\"second\", (r0)\n"
       "InvokeClosure r2, r3, (r0)",
       0, "\"second\" takes 3 values, the closure holds 1 and the call gives 1"},
      {kInvokeClosure, "too many values",
       "AllocClosure r3, f\"none\", ()\n"
       "InvokeClosure r2, r3, (r0)",
       0, "\"none\" takes 0 values"},

      {kInvokePacked, "copies", kCopied + "GetElement r2, r6, 1", 8},
      {kInvokePacked, "in place", kCopied + "InvokePacked k\"bump\", (r6)\nGetElement r2, r6, 1",
       9},
      {kInvokePacked, "on nothing",
       kStorage + "AllocTensor r6, r3, r4, i64, [0]\n"
                  "InvokePacked k\"copy\", (r6, r6)\nLoadConsti r2, 1",
       1},
      {kInvokePacked, "a dim from a scalar",
       kTensor + "LoadConsti r7, 3\n"
                 "InvokePacked k\"sized\", (r7, r6)\nGetElement r2, r6, 2",
       0},
      {kInvokePacked, "leading axes as one",
       "LoadConst r3, c\"grid\"\nLoadConsti r4, 1\n"
       "LoadConsti r5, 2\nLoadConsti r6, 3\nReshapeTensor r7, r3, (r4, r5, r6)\n"
       "InvokePacked k\"rows\", (r7)\nLoadConsti r2, 1",
       1},
      {kInvokePacked, "another dtype",
       kTensor + "InvokePacked k\"copy\", (r0, r6)\nLoadConsti r2, 1", 0,
       "kernel copy (copy): argument 0 must be i64 (n), it is f32 (3)"},
      {kInvokePacked, "another rank",
       "LoadConst r3, c\"ints\"\nInvokePacked k\"matrix\", (r3, r3)\n"
       "LoadConsti r2, 1",
       0, "argument 0 must be i64 (m, 3), it is i64 (3)"},
      {kInvokePacked, "dims that disagree",
       "LoadConst r3, c\"grid\"\nLoadConst r4, c\"ints\"\n"
       "InvokePacked k\"matrix\", (r3, r4)\nLoadConsti r2, 1",
       0, "argument 1 must be i64 (m = 2), it is i64 (3)"},
      {kInvokePacked, "a dim that is computed",
       kTensor + "LoadConst r7, c\"ints\"\n"
                 "InvokePacked k\"shorter\", (r7, r6)\nLoadConsti r2, 1",
       0, "argument 1 must be i64 (a0 - 1 = 2), it is i64 (3)"},
      {kInvokePacked, "another scalar",
       kTensor + "LoadConsti r7, 4\n"
                 "InvokePacked k\"sized\", (r7, r6)\nLoadConsti r2, 1",
       0, "argument 1 must be i64 (n = 4), it is i64 (3)"},
      {kInvokePacked, "a scalar that contradicts a dim",
       "LoadConst r3, c\"ints\"\nLoadConsti r4, 4\n"
       "InvokePacked k\"twice\", (r3, r4)\nLoadConsti r2, 1",
       0, "argument 1 must be n = 3, it is 4"},
      {kInvokePacked, "extents that break what the kernel requires",
       "LoadConst r3, c\"ints\"\nInvokePacked k\"even\", (r3)\nLoadConsti r2, 1", 0,
       "its arguments' extents (a0 = 3) break (a0 % 2) == 0"},
      {kInvokePacked, "a scalar for a tensor",
       "LoadConsti r3, 1\n" + hidden("r3") + "InvokePacked k\"bump\", (r5)\nLoadConsti r2, 1", 0,
       "argument 0 must be a tensor, it is a scalar"},
      {kInvokePacked, "a tensor for a scalar",
       hidden("r0") + "InvokePacked k\"scratch\", (r5)\nLoadConsti r2, 1", 0,
       "argument 0 must be a scalar, it is a tensor"},
      {kInvokePacked, "writes a constant",
       "LoadConst r3, c\"ints\"\n" + hidden("r3") +
           "InvokePacked k\"bump\", (r5)\nLoadConsti r2, 1",
       0, "would be written"},
      {kInvokePacked, "writes a view of a constant",
       "LoadConst r3, c\"ints\"\n" + hidden("r3") +
           "LoadConsti r4, 8\nAllocTensor r6, r5, r4, i64, [2]\n"
           "InvokePacked k\"bump\", (r6)\nLoadConsti r2, 1",
       0, "would be written"},
      {kInvokePacked, "freed memory",
       kCopied + "FreeStorage r3\nInvokePacked k\"bump\", (r6)\n"
                 "LoadConsti r2, 1",
       0, "lies in a storage that was freed"},
      {kInvokePacked, "a kernel's own check",
       "LoadConst r3, c\"ints\"\n"
       "InvokePacked k\"fails\", (r3)\nLoadConsti r2, 1",
       0, "index 9 is out of range"},
      {kInvokePacked, "negative scratch",
       "LoadConsti r3, -5\nInvokePacked k\"scratch\", (r3)\n"
       "LoadConsti r2, 1",
       0, "-5 bytes of scratch"},
      {kInvokePacked, "scratch beyond the limit",
       "LoadConsti r3, 16777217\n"
       "InvokePacked k\"scratch\", (r3)\nLoadConsti r2, 1",
       0, "memory limit", Status::kExhausted},

      {kGetField, "of a value", "LoadConsti r3, 4\nAllocADT r4, 1, (r0, r3)\nGetField r2, r4, 1",
       4},
      {kGetField, "over its object",
       "LoadConsti r3, 4\nAllocADT r4, 1, (r0, r3)\n"
       "GetField r4, r4, 1\nMove r2, r4",
       4},
      {kGetField, "that is not there", "AllocADT r4, 1, (r0)\nGetField r2, r4, 1", 0,
       "field 1 of a value with 1"},
      {kGetField, "of none", "AllocADT r4, 1, ()\nGetField r2, r4, 0", 0,
       "field 0 of a value with 0"},
      {kGetField, "of a closure",
       "AllocClosure r3, f\"none\", ()\n" + hidden("r3") + "GetField r2, r5, 0", 0,
       "a data-type value is needed, the register holds a closure"},
      {kGetField, "of a scalar", "LoadConsti r3, 4\n" + hidden("r3") + "GetField r2, r5, 0", 0,
       "a data-type value is needed, the register holds a scalar"},
      {kGetField, "of a tensor", hidden("r0") + "GetField r2, r5, 0", 0,
       "a data-type value is needed, the register holds a tensor"},

      {kGetElement, "u8", "LoadConst r3, c\"two\"\nGetElement r2, r3, 0", 200},
      {kGetElement, "i8", "LoadConst r3, c\"small\"\nGetElement r2, r3, 0", -128},
      {kGetElement, "i16", "LoadConst r3, c\"i16\"\nGetElement r2, r3, 0", -32768},
      {kGetElement, "i32", "LoadConst r3, c\"i32\"\nGetElement r2, r3, 0", INT32_MIN},
      {kGetElement, "u16", "LoadConst r3, c\"u16\"\nGetElement r2, r3, 0", 65535},
      {kGetElement, "u32", "LoadConst r3, c\"u32\"\nGetElement r2, r3, 0", UINT32_MAX},
      {kGetElement, "u64", "LoadConst r3, c\"u64\"\nGetElement r2, r3, 0", kMost},
      {kGetElement, "bool", "LoadConst r3, c\"true\"\nGetElement r2, r3, 0", 1},
      {kGetElement, "that is not there", "LoadConst r3, c\"ints\"\nGetElement r2, r3, 3", 0,
       "element 3 of a tensor of integers is needed, not of i64 (3)"},
      {kGetElement, "of nothing", "LoadConst r3, c\"empty\"\nGetElement r2, r3, 0", 0,
       "not of i64 (0)"},
      {kGetElement, "of floats", "GetElement r2, r0, 0", 0, "not of f32 (3)"},
      {kGetElement, "of freed memory", kCopied + "FreeStorage r3\nGetElement r2, r6, 0", 0,
       "storage was freed"},
      {kGetElement, "over its tensor", "LoadConst r2, c\"ints\"\nGetElement r2, r2, 1", 8},
      {kGetElement, "of a data-type value",
       "AllocADT r3, 0, (r0)\n" + hidden("r3") + "GetElement r2, r5, 0", 0,
       "a tensor is needed, the register holds a data-type value"},

      {kGetStorage, "of its own", kCopied + "GetStorage r4, r6\nGetCapacity r2, r4", 64},
      {kGetStorage, "over its tensor",
       kCopied + "Move r4, r6\nGetStorage r4, r4\nGetCapacity r2, r4", 64},
      {kGetStorage, "that a part lies in",
       kCopied + "LoadConsti r4, 8\nAllocTensor r8, r6, r4, i64, [2]\nGetStorage r2, r8", 0,
       "a tensor that has no storage of its own is extended"},
      {kGetStorage, "of a constant", "LoadConst r3, c\"ints\"\nGetStorage r2, r3", 0,
       "a tensor that has no storage of its own is extended"},
      {kGetStorage, "of an input", "GetStorage r2, r0", 0,
       "a tensor that has no storage of its own is extended"},
      {kGetStorage, "of a storage", kStorage + hidden("r3") + "GetStorage r2, r5", 0,
       "a tensor is needed, the register holds a storage"},

      {kGetCapacity, "of a storage", kStorage + "GetCapacity r2, r3", 64},
      {kGetCapacity, "over its storage", kStorage + "Move r2, r3\nGetCapacity r2, r2", 64},
      {kGetCapacity, "of a tensor", hidden("r0") + "GetCapacity r2, r5", 0,
       "a storage is needed, the register holds a tensor"},

      {kGetTag, "of a value", "AllocADT r3, 12, (r0)\nGetTag r2, r3", 12},
      {kGetTag, "over its object", "AllocADT r2, 12, (r0)\nGetTag r2, r2", 12},
      {kGetTag, "of a closure", "AllocClosure r3, f\"none\", ()\n" + hidden("r3") + "GetTag r2, r5",
       0, "a data-type value is needed, the register holds a closure"},
      {kGetTag, "of a tensor", hidden("r0") + "GetTag r2, r5", 0, "the register holds a tensor"},

      {kDeviceCopy, "copies",
       kCopied + "DeviceCopy r8, r6, d0\nInvokePacked k\"bump\", (r6)\n"
                 "GetElement r2, r8, 0",
       4},
      {kDeviceCopy, "nothing", "LoadConst r3, c\"empty\"\nDeviceCopy r4, r3, d0\nShapeOf r2, 1, r4",
       0},
      {kDeviceCopy, "a part of a constant",
       "LoadConst r3, c\"ints\"\nLoadConsti r4, 8\n"
       "AllocTensor r5, r3, r4, i64, [2]\nDeviceCopy r5, r5, d0\nGetElement r2, r5, 1",
       -1},
      {kDeviceCopy, "to a device that is not there", "DeviceCopy r3, r0, d77\nLoadConsti r2, 1", 0,
       "device 77", Status::kUnsupported},
      {kDeviceCopy, "a scalar",
       "LoadConsti r3, 4\n" + hidden("r3") +
           "DeviceCopy r6, r5, d0\n"
           "LoadConsti r2, 1",
       0, "a tensor is needed, the register holds a scalar"},
      {kDeviceCopy, "freed memory",
       kCopied + "FreeStorage r3\nDeviceCopy r7, r6, d0\n"
                 "LoadConsti r2, 1",
       0, "storage was freed"},

      {kShapeOf, "of a vector", "ShapeOf r2, 1, r0", 3},
      {kShapeOf, "of a matrix over itself",
       "LoadConst r3, c\"grid\"\nShapeOf r3, 2, r3\n"
       "Invoke r2, f\"minus\", (r4, r3)",
       1},
      {kShapeOf, "of no dims", "LoadConst r3, c\"false\"\nShapeOf r3, 0, r3\nLoadConsti r2, 1", 1},
      {kShapeOf, "of freed memory", kCopied + "FreeStorage r3\nShapeOf r2, 1, r6", 3},
      {kShapeOf, "another rank", "ShapeOf r2, 2, r0", 0, "a tensor of 2 dims is needed, it has 1"},
      {kShapeOf, "of a storage", kStorage + hidden("r3") + "ShapeOf r2, 1, r5", 0,
       "a tensor is needed, the register holds a storage"},

      {kReshapeTensor, "shares data",
       kCopied + "LoadConsti r7, 1\nLoadConsti r8, 3\n"
                 "ReshapeTensor r8, r6, (r7, r8, r7)\nInvokePacked k\"bump\", (r6)\n"
                 "GetElement r2, r8, 0",
       5},
      {kReshapeTensor, "to no dims",
       "LoadConst r3, c\"one\"\nReshapeTensor r3, r3, ()\n"
       "GetElement r2, r3, 0",
       1},
      {kReshapeTensor, "nothing",
       "LoadConst r3, c\"empty\"\nLoadConsti r4, 0\nLoadConsti r5, 7\n"
       "ReshapeTensor r3, r3, (r5, r4)\nShapeOf r2, 2, r3",
       7},
      {kReshapeTensor, "to more", "LoadConsti r3, 4\nReshapeTensor r4, r0, (r3)\nLoadConsti r2, 1",
       0, "shape (3) cannot become (4)"},
      {kReshapeTensor, "to negative extents",
       "LoadConsti r3, -1\nLoadConsti r4, -3\n"
       "ReshapeTensor r4, r0, (r3, r4)\nLoadConsti r2, 1",
       0, "cannot become (-1, -3)"},
      {kReshapeTensor, "to a product that wraps",
       "LoadConst r3, c\"empty\"\n"
       "LoadConsti r4, 4294967296\nReshapeTensor r4, r3, (r4, r4)\nLoadConsti r2, 1",
       0, "cannot become (4294967296, 4294967296)"},
      {kReshapeTensor, "a closure",
       "AllocClosure r3, f\"none\", ()\n" + hidden("r3") +
           "ReshapeTensor r4, r5, ()\nLoadConsti r2, 1",
       0, "holds a closure"},
      {kReshapeTensor, "freed memory",
       kCopied + "FreeStorage r3\nLoadConsti r7, 3\n"
                 "ReshapeTensor r7, r6, (r7)\nLoadConsti r2, 1",
       0, "storage that was freed"},

      {kFatal, "stops", "LoadConsti r2, 1\nFatal t0, ()\nMove r2, r2", 0, "stopped here"},
      {kFatal, "names values",
       "LoadConsti r2, -3\nLoadConsti r3, 4\nFatal t1, (r2, r3)\nMove r2, r2", 0,
       "{} has n = -3, m = 4;"},
      {kFatal, "lacks a place for a value", "LoadConsti r2, 1\nFatal t0, (r2)\nMove r2, r2", 0,
       "stopped here"},
      {kFatal, "names no tensor", hidden("r0") + "Fatal t1, (r5, r5)\nMove r2, r2", 0, "is needed"},
      {kFatal, "is jumped over", "LoadConsti r2, 1\nGoto @e\nFatal t0, ()\ne: Move r2, r2", 1},
  };
}

class Opcodes : public Interpreter {
 protected:
  void SetUp() override {
    Interpreter::SetUp();
    static const bool once = [] {
      using Kind = exec::ImplementationKind;
      add_library_kernel({"test.nothing", Kind::kHost, "", "Does nothing.", accept, nullptr,
                          [](const LibraryCall&, int32_t, int32_t, nimble_barrier*) {}});
      add_library_kernel({"test.routine", Kind::kVendor, "", "Does nothing.", accept, nullptr,
                          [](const LibraryCall&, int32_t, int32_t, nimble_barrier*) {}});
      add_library_kernel({"test.bump", Kind::kHost, "x", "Adds one to each element.", accept,
                          nullptr,
                          [](const LibraryCall& call, int32_t thread, int32_t, nimble_barrier*) {
                            auto* x = static_cast<int64_t*>(call.tensors[0].data);
                            if (thread == 0)
                              for (int64_t i = 0; i < call.tensors[0].shape[0]; ++i) ++x[i];
                          }});
      return true;
    }();
    (void)once;
  }
};

TEST_F(Opcodes, DoWhatTheTableSaysAndFailWithAPlace) {
  std::set<Opcode> done;
  SessionOptions options;
  options.memory_limit = 16 << 20;
  for (const Row& row : rows()) {
    SCOPED_TRACE(std::string(exec::info_of(row.op).name) + " " + row.what);
    load(std::string(kPrelude) + "function \"main\" 1 12 {\n.note \"op at /model/Op\"\n" +
             row.body + kEntry,
         options, /*trust=*/true);
    const uint64_t objects = session_->live_objects();
    // Twice: nothing of the first run may be left.
    for (int time = 0; time < 2; ++time) {
      if (row.failure.empty()) {
        EXPECT_THAT(run({{{3}, {1, 2, 3}}})[0].integers, ::testing::ElementsAre(row.result));
        done.insert(row.op);
      } else {
        const auto& code = model_->functions().back().code;
        size_t at = code.size();
        while (code[--at].op != row.op) ASSERT_GT(at, 0u);
        const std::string text = failure({{{3}, {1, 2, 3}}}, row.status);
        EXPECT_THAT(text, HasSubstr(row.failure));
        EXPECT_THAT(text, HasSubstr(fmt::format(
                              "test: function \"main\", op at /model/Op, instruction {}: ", at)));
      }
      EXPECT_EQ(session_->live_objects(), objects);
    }
  }
  for (int op = 0; op < exec::kOpcodeCount; ++op)
    EXPECT_TRUE(done.contains(static_cast<Opcode>(op)))
        << exec::info_of(static_cast<Opcode>(op)).name << " has no row in which it succeeds";
}

}  // namespace
}  // namespace nimble::rt
