// Plans that break a rule of verify_plan.cpp, one for each way to break it, written out by hand.
#include "compiler/passes/analysis/verify_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"

namespace nimble::passes {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Text in the lowered dialect with abbreviations: SOFTMAX(%x, %y) is a kernel that reads all of %x
// for each element of %y, EXP an element-wise one; STORAGE makes room for the n floats of TENSOR;
// VEC and MEM are the types; ! is let, and _ a name of its own.
ir::Module lowered(std::string text) {
  auto replace = [&text](const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  auto kernel = [](const char* op) {
    return std::string(
               "group fn(%p: Tensor[(n), f32]) -> Tensor[(n), f32] attrs {primitive = true}"
               " { let %q: Tensor[(n), f32] = ") +
           op + "; %q } ";
  };
  // Names of groups' variables may repeat: each group is a scope.
  replace("SOFTMAX", kernel("softmax(%p) {axis = 0}"));
  replace("EXP", kernel("exp(%p)"));
  replace("STORAGE", "memory.alloc_storage() {bytes = 4*n, alignment = 64, device = 0}");
  replace("TENSOR", "{shape = (n), dtype = f32, offset = 0}");
  replace("VEC", "Tensor[(n), f32]");
  replace("MEM", "Storage");
  replace("!", "let ");
  int unit = 0;
  for (size_t at = 0; (at = text.find("let _", at)) != std::string::npos;)
    text.replace(at, 5, "let %u" + std::to_string(unit++) + ": ()");
  return ir::parse_module(text);
}

std::vector<std::string> faults(const std::string& text) {
  return verify_plan(lowered(text)).faults;
}

struct Bad {
  const char* rule;
  const char* message;
  const char* text;
};

// One function @main(%x) unless the text has several.
const Bad kBad[] = {
    {"P2", "%y is killed twice", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.kill(%y);
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  %x
})"},
    {"P2", "%y is used after its life was ended", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.kill(%y);
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !_ = memory.kill(%s);
  %x
})"},
    {"P2", "%s is killed twice", R"(fn @main(%x: VEC, %c: Tensor[(), bool]) -> VEC {
  !%s: MEM = STORAGE;
  !%r: VEC = if (%c) { !_ = memory.kill(%s); %x } else { %x };
  !_ = memory.kill(%s);
  %r
})"},
    {"P3", "%y is used after %s was freed", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !_ = memory.kill(%s);
  %y
})"},
    {"P3", "%y is used after %s was freed", R"(fn @main(%x: VEC, %c: Tensor[(), bool]) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%r: VEC = if (%c) { !_ = memory.kill(%s); %x } else { !_ = memory.kill(%s); %x };
  !%t: MEM = STORAGE;
  !%z: VEC = memory.alloc_tensor(%t) TENSOR;
  !_ = memory.invoke_mut EXP(%y, %z) {inputs = 1};
  !_ = memory.release(%t);
  !_ = memory.kill(%y);
  %z
})"},
    {"P4", "%s is freed, and may still be held elsewhere", R"(fn @main(%x: VEC) -> (VEC, VEC) {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%t: (VEC, VEC) = (%y, %x);
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  %t
})"},
    {"P4", "%s is freed, and may still be held elsewhere", R"(fn @id(%y: VEC) -> VEC { %y }
fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%r: VEC = @id(%y);
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  %x
})"},
    {"P4", "%s is freed, and may still be held elsewhere",
     R"(fn @main(%x: VEC, %c: Tensor[(), bool]) -> VEC {
  !%r: VEC = if (%c) {
    !%s: MEM = STORAGE;
    !%y: VEC = memory.alloc_tensor(%s) TENSOR;
    !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
    !%t: (VEC,) = (%y,);
    !_ = memory.kill(%s);
    !%z: VEC = %t[0];
    !_ = memory.kill(%y);
    %z
  } else { %x };
  %r
})"},
    {"P4", "%s is freed, and may be another's memory", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = memory.storage_of(%x);
  !_ = memory.kill(%s);
  !%t: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%t) TENSOR;
  !_ = memory.release(%t);
  %y
})"},
    // Two live tensors in one storage.
    {"P5", "%y is used after its memory was given to %z", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%z: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut SOFTMAX(%y, %z) {inputs = 1};
  !_ = memory.kill(%y);
  !_ = memory.release(%s);
  %z
})"},
    // Through a view, and only on one path.
    {"P5", "%v is used after its memory was given to %z",
     R"(fn @main(%x: VEC, %c: Tensor[(), bool]) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%v: Tensor[(n, 1), f32] = memory.reshape(%y) {shape = (n, 1)};
  !%r: VEC = if (%c) {
    !%z: VEC = memory.alloc_tensor(%s) TENSOR;
    !_ = memory.invoke_mut EXP(%x, %z) {inputs = 1};
    !_ = memory.kill(%z);
    %x
  } else { %x };
  !%w: VEC = memory.reshape(%v) {shape = (n)};
  !_ = memory.release(%s);
  !_ = memory.kill(%y);
  !_ = memory.kill(%v);
  %w
})"},
    // An overwritten operand is read again.
    {"P5", "%y is used after %z was written over it", R"(fn @main(%x: VEC) -> (VEC, VEC) {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%z: VEC = memory.alloc_tensor(%y) TENSOR;
  !_ = memory.invoke_mut EXP(%y, %z) {inputs = 1};
  !%t: (VEC, VEC) = (%y, %z);
  !_ = memory.release(%s);
  !_ = memory.kill(%y);
  !_ = memory.kill(%z);
  %t
})"},
    // The old row is read after the new one was written.
    {"P5", "%old is used after %row was written over it",
     R"(fn @main(%x: Tensor[(4), f32], %i: Tensor[(), i64]) -> (Tensor[(2, 4), f32], Tensor[(4), f32]) {
  !%k: i64 = memory.read_scalar(%i);
  !%s: MEM = memory.alloc_storage() {bytes = 32, alignment = 64, device = 0};
  !%y: Tensor[(2, 4), f32] = memory.alloc_tensor(%s) {shape = (2, 4), dtype = f32, offset = 0};
  !%old: Tensor[(4), f32] = memory.row_view(%y, %k) {shape = (4), dtype = f32, row_bytes = 16};
  !%row: Tensor[(4), f32] = memory.row_view(%y, %k) {shape = (4), dtype = f32, row_bytes = 16};
  !_ = memory.invoke_mut group fn(%p: Tensor[(4), f32]) -> Tensor[(4), f32] attrs {primitive = true} { let %q: Tensor[(4), f32] = exp(%p); %q } (%x, %row) {inputs = 1};
  !_ = memory.kill(%row);
  !%t: (Tensor[(2, 4), f32], Tensor[(4), f32]) = (%y, %old);
  !_ = memory.release(%s);
  !_ = memory.kill(%y);
  !_ = memory.kill(%old);
  %t
})"},
    // The user's input is overwritten.
    {"P6", "%y may lie in an argument of the user's", R"(fn @main(%x: VEC) -> VEC {
  !%y: VEC = memory.alloc_tensor(%x) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  %y
})"},
    {"P6", "%x may lie in an argument of the user's", R"(fn @f(%a: VEC) -> VEC {
  !%y: VEC = memory.alloc_tensor(%a) TENSOR;
  !_ = memory.invoke_mut EXP(%a, %y) {inputs = 1};
  %y
}
fn @main(%x: VEC) -> VEC { !%r: VEC = @f(%x); %r })"},
    {"P6", "%y is given away to @f and passed to it again", R"(fn @f(%a: VEC, %b: VEC) -> VEC {
  !%y: VEC = memory.alloc_tensor(%a) TENSOR;
  !_ = memory.invoke_mut EXP(%a, %y) {inputs = 1};
  %y
}
fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%r: VEC = @f(%y, %y);
  !_ = memory.release(%s);
  !_ = memory.kill(%y);
  %r
})"},
    {"P5", "%y is used after it was given away to @f", R"(fn @f(%a: VEC) -> VEC {
  !%y: VEC = memory.alloc_tensor(%a) TENSOR;
  !_ = memory.invoke_mut EXP(%a, %y) {inputs = 1};
  %y
}
fn @main(%x: VEC) -> (VEC, VEC) {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%r: VEC = @f(%y);
  !%t: (VEC, VEC) = (%r, %y);
  !_ = memory.release(%s);
  !_ = memory.kill(%y);
  %t
})"},
    // Softmax reads what it has overwritten.
    {"P7", "%z is written while %y is read", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%z: VEC = memory.alloc_tensor(%y) TENSOR;
  !_ = memory.invoke_mut SOFTMAX(%y, %z) {inputs = 1};
  !_ = memory.release(%s);
  !_ = memory.kill(%y);
  %z
})"},
    // The rows that are read reach into the one that is written.
    {"P7", "%row is written while %known is read",
     R"(fn @main(%i: Tensor[(1), i64]) -> Tensor[(n, 4), f32] {
  !%k: i64 = memory.read_scalar(%i) {index = 0, symbol = "k"};
  !%s: MEM = memory.alloc_storage() {bytes = 16*n, alignment = 64, device = 0};
  !%y: Tensor[(n, 4), f32] = memory.alloc_tensor(%s) {shape = (n, 4), dtype = f32, offset = 0};
  !%known: Tensor[(k + 1, 4), f32] = memory.alloc_tensor(%y) {shape = (k + 1, 4), dtype = f32, offset = 0};
  !%row: Tensor[(4), f32] = memory.row_view(%y, %k) {shape = (4), dtype = f32, row_bytes = 16};
  !_ = memory.invoke_mut group fn(%p: Tensor[(k + 1, 4), f32]) -> Tensor[(4), f32] attrs {primitive = true} { let %q: Tensor[(4), f32] = sum(%p) {axes = [0], keepdims = false}; %q } (%known, %row) {inputs = 1};
  !_ = memory.kill(%known);
  !_ = memory.kill(%row);
  !_ = memory.release(%s);
  %y
})"},
    {"P8", "%y needs 4*n bytes, and there are 4*n - 4", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = memory.alloc_storage() {bytes = 4*n - 4, alignment = 64, device = 0};
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.release(%s);
  %y
})"},
    {"P8", "%y needs 64 bytes, and %x has 16",
     R"(fn @main(%x: Tensor[(4), f32]) -> Tensor[(16), f32] {
  !%y: Tensor[(16), f32] = memory.alloc_tensor(%x) {shape = (16), dtype = f32, offset = 0};
  %y
})"},
    // The bound from below is not enough (a plan for the smallest case only).
    {"P8", "%y needs 4*n bytes, and there are 256",
     R"(fn @main(%x: VEC) -> VEC attrs {range.n = [64, 128]} {
  !%s: MEM = memory.alloc_storage() {bytes = 256, alignment = 64, device = 0};
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.release(%s);
  %y
})"},
    {"P10", "%r is read before all of it was written", R"(fn @main(%x: VEC) -> Tensor[(2*n), f32] {
  !%s: MEM = memory.alloc_storage() {bytes = 8*n, alignment = 64, device = 0};
  !%y: VEC = memory.alloc_tensor(%s) {shape = (n), dtype = f32, offset = 0, part = (1, 2*n, 0, n)};
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !_ = memory.kill(%y);
  !%r: Tensor[(2*n), f32] = memory.alloc_tensor(%s) {shape = (2*n), dtype = f32, offset = 0, part = (1, 2*n, 0, 2*n)};
  !_ = memory.release(%s);
  %r
})"},
    {"P10", "%y is written beyond its columns",
     R"(fn @main(%x: Tensor[(m, 8), f32]) -> Tensor[(m, 8), f32] {
  !%s: MEM = memory.alloc_storage() {bytes = 32*m, alignment = 64, device = 0};
  !%y: Tensor[(m, 8), f32] = memory.alloc_tensor(%s) {shape = (m, 8), dtype = f32, offset = 0, part = (1, 8, 0, 5)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 8), f32]) -> Tensor[(m, 8), f32] attrs {primitive = true} { let %q: Tensor[(m, 8), f32] = exp(%p); %q } (%x, %y) {inputs = 1};
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  %x
})"},
    {"P10", "%y is read beyond its columns",
     R"(fn @main(%x: Tensor[(m, 5), f32]) -> Tensor[(m, 8), f32] {
  !%s: MEM = memory.alloc_storage() {bytes = 32*m, alignment = 64, device = 0};
  !%t: MEM = memory.alloc_storage() {bytes = 32*m, alignment = 64, device = 0};
  !%y: Tensor[(m, 8), f32] = memory.alloc_tensor(%s) {shape = (m, 8), dtype = f32, offset = 0, part = (1, 8, 0, 5)};
  !%z: Tensor[(m, 8), f32] = memory.alloc_tensor(%t) {shape = (m, 8), dtype = f32, offset = 0};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 5), f32]) -> Tensor[(m, 8), f32] attrs {primitive = true} { let %q: Tensor[(m, 8), f32] = pitched(%p) {axis = 1, extent = 8}; %q } (%x, %y) {inputs = 1};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 8), f32]) -> Tensor[(m, 8), f32] attrs {primitive = true} { let %q: Tensor[(m, 8), f32] = exp(%p); %q } (%y, %z) {inputs = 1};
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  !_ = memory.release(%t);
  %z
})"},
    {"P10", "%y does not begin at its first column", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = memory.alloc_storage() {bytes = 8*n, alignment = 64, device = 0};
  !%y: VEC = memory.alloc_tensor(%s) {shape = (n), dtype = f32, offset = 0, part = (1, 2*n, n, 2*n)};
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  %x
})"},
    {"P7", "%z is written while %y is read or written in its place",
     R"(fn @main(%x: Tensor[(m, 5), f32]) -> Tensor[(m, 5), f32] {
  !%s: MEM = memory.alloc_storage() {bytes = 64*m + 64, alignment = 64, device = 0};
  !%y: Tensor[(m, 16), f32] = memory.alloc_tensor(%s) {shape = (m, 16), dtype = f32, offset = 0, part = (1, 16, 0, 5)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 5), f32]) -> Tensor[(m, 16), f32] attrs {primitive = true} { let %q: Tensor[(m, 16), f32] = pitched(%p) {axis = 1, extent = 16}; %q } (%x, %y) {inputs = 1};
  !%z: Tensor[(m, 16), f32] = memory.alloc_tensor(%s) {shape = (m, 16), dtype = f32, offset = 16, part = (1, 16, 4, 9)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 16), f32]) -> Tensor[(m, 16), f32] attrs {primitive = true} { let %i: Tensor[(m, 5), f32] = slice(%p) {axes = [1], starts = (0), ends = (5)}; let %q: Tensor[(m, 16), f32] = pitched(%i) {axis = 1, extent = 16}; %q } (%y, %z) {inputs = 1};
  !_ = memory.kill(%y);
  !_ = memory.kill(%z);
  !_ = memory.kill(%s);
  %x
})"},
    // Columns of rows of another length lie anywhere among these.
    {"P7", "%z is written while %y is read or written in its place",
     R"(fn @main(%x: Tensor[(m, 5), f32], %w: Tensor[(m, 3), f32]) -> Tensor[(m, 5), f32] {
  !%s: MEM = memory.alloc_storage() {bytes = 64*m + 64, alignment = 64, device = 0};
  !%y: Tensor[(m, 16), f32] = memory.alloc_tensor(%s) {shape = (m, 16), dtype = f32, offset = 0, part = (1, 16, 0, 5)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 5), f32]) -> Tensor[(m, 16), f32] attrs {primitive = true} { let %q: Tensor[(m, 16), f32] = pitched(%p) {axis = 1, extent = 16}; %q } (%x, %y) {inputs = 1};
  !%z: Tensor[(m, 8), f32] = memory.alloc_tensor(%s) {shape = (m, 8), dtype = f32, offset = 20, part = (1, 8, 5, 8)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 16), f32], %o: Tensor[(m, 3), f32]) -> Tensor[(m, 8), f32] attrs {primitive = true} { let %i: Tensor[(m, 3), f32] = slice(%p) {axes = [1], starts = (0), ends = (3)}; let %j: Tensor[(m, 3), f32] = add(%i, %o); let %q: Tensor[(m, 8), f32] = pitched(%j) {axis = 1, extent = 8}; %q } (%y, %w, %z) {inputs = 2};
  !_ = memory.kill(%y);
  !_ = memory.kill(%z);
  !_ = memory.kill(%s);
  %x
})"},
    {"P10", "%y has columns that its rows have not", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = memory.alloc_storage() {bytes = 64*n, alignment = 64, device = 0};
  !%y: Tensor[(n, 8), f32] = memory.alloc_tensor(%s) {shape = (n, 8), dtype = f32, offset = 24, part = (1, 8, 6, 10)};
  !_ = memory.kill(%y);
  !_ = memory.kill(%s);
  %x
})"},
    {"P9", "%s is still there at the end of its block", R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.kill(%y);
  %x
})"},
    // Ended on one path only.
    {"P9", "%s is still there at the end of its block",
     R"(fn @main(%x: VEC, %c: Tensor[(), bool]) -> VEC {
  !%s: MEM = STORAGE;
  !%r: VEC = if (%c) { !_ = memory.kill(%s); %x } else { %x };
  %r
})"},
};

TEST(VerifyPlan, RejectsWhatBreaksARule) {
  for (const Bad& bad : kBad) {
    SCOPED_TRACE(bad.text);
    EXPECT_THAT(faults(bad.text), Contains(HasSubstr(std::string(bad.rule) + ": " + bad.message)));
  }
}

// The same shapes of programs, done right.
TEST(VerifyPlan, AcceptsSharingInPlaceUpdatesAndRows) {
  EXPECT_THAT(faults(R"(fn @main(%x: VEC) -> VEC attrs {range.n = [64, 128]} {
  !%s: MEM = memory.alloc_storage() {bytes = 512, alignment = 64, device = 0};
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%z: VEC = memory.alloc_tensor(%y) TENSOR;
  !_ = memory.invoke_mut EXP(%y, %z) {inputs = 1};
  !_ = memory.kill(%y);
  !%t: MEM = STORAGE;
  !%w: VEC = memory.alloc_tensor(%t) TENSOR;
  !_ = memory.release(%t);
  !_ = memory.invoke_mut SOFTMAX(%z, %w) {inputs = 1};
  !_ = memory.kill(%z);
  !%again: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut SOFTMAX(%w, %again) {inputs = 1};
  !_ = memory.invoke_mut SOFTMAX(%again, %w) {inputs = 1};
  !_ = memory.kill(%again);
  !_ = memory.kill(%s);
  %w
})"),
              IsEmpty());
  EXPECT_THAT(faults(R"(fn @main(%x: Tensor[(4), f32], %i: Tensor[(), i64]) -> Tensor[(2, 4), f32] {
  !%k: i64 = memory.read_scalar(%i);
  !%s: MEM = memory.alloc_storage() {bytes = 32, alignment = 64, device = 0};
  !%y: Tensor[(2, 4), f32] = memory.alloc_tensor(%s) {shape = (2, 4), dtype = f32, offset = 0};
  !_ = memory.release(%s);
  !%row: Tensor[(4), f32] = memory.row_view(%y, %k) {shape = (4), dtype = f32, row_bytes = 16};
  !_ = memory.invoke_mut group fn(%p: Tensor[(4), f32]) -> Tensor[(4), f32] attrs {primitive = true} { let %q: Tensor[(4), f32] = exp(%p); %q } (%x, %row) {inputs = 1};
  !_ = memory.kill(%row);
  %y
})"),
              IsEmpty());
  // What is read ends where the written row begins.
  EXPECT_THAT(faults(R"(fn @main(%i: Tensor[(1), i64]) -> Tensor[(n, 4), f32] {
  !%k: i64 = memory.read_scalar(%i) {index = 0, symbol = "k"};
  !%s: MEM = memory.alloc_storage() {bytes = 16*n, alignment = 64, device = 0};
  !%y: Tensor[(n, 4), f32] = memory.alloc_tensor(%s) {shape = (n, 4), dtype = f32, offset = 0};
  !%known: Tensor[(k, 4), f32] = memory.alloc_tensor(%y) {shape = (k, 4), dtype = f32, offset = 0};
  !%row: Tensor[(4), f32] = memory.row_view(%y, %k) {shape = (4), dtype = f32, row_bytes = 16};
  !_ = memory.invoke_mut group fn(%p: Tensor[(k, 4), f32]) -> Tensor[(4), f32] attrs {primitive = true} { let %q: Tensor[(4), f32] = sum(%p) {axes = [0], keepdims = false}; %q } (%known, %row) {inputs = 1};
  !_ = memory.kill(%known);
  !_ = memory.kill(%row);
  !_ = memory.release(%s);
  %y
})"),
              IsEmpty());
  // Two tensors side by side.
  EXPECT_THAT(faults(R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = memory.alloc_storage() {bytes = 8*n, alignment = 64, device = 0};
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.invoke_mut EXP(%x, %y) {inputs = 1};
  !%z: VEC = memory.alloc_tensor(%s) {shape = (n), dtype = f32, offset = 4*n};
  !_ = memory.invoke_mut SOFTMAX(%y, %z) {inputs = 1};
  !_ = memory.kill(%y);
  !_ = memory.release(%s);
  %z
})"),
              IsEmpty());
  // Two parts of the same rows: a kernel reads the one and writes the other.
  EXPECT_THAT(faults(R"(fn @main(%x: Tensor[(m, 5), f32]) -> Tensor[(m, 10), f32] {
  !%s: MEM = memory.alloc_storage() {bytes = 40*m + 40, alignment = 64, device = 0};
  !%y: Tensor[(m, 10), f32] = memory.alloc_tensor(%s) {shape = (m, 10), dtype = f32, offset = 0, part = (1, 10, 0, 5)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 5), f32]) -> Tensor[(m, 10), f32] attrs {primitive = true} { let %q: Tensor[(m, 10), f32] = pitched(%p) {axis = 1, extent = 10}; %q } (%x, %y) {inputs = 1};
  !%z: Tensor[(m, 10), f32] = memory.alloc_tensor(%s) {shape = (m, 10), dtype = f32, offset = 20, part = (1, 10, 5, 10)};
  !_ = memory.invoke_mut group fn(%p: Tensor[(m, 10), f32]) -> Tensor[(m, 10), f32] attrs {primitive = true} { let %i: Tensor[(m, 5), f32] = slice(%p) {axes = [1], starts = (0), ends = (5)}; let %q: Tensor[(m, 10), f32] = pitched(%i) {axis = 1, extent = 10}; %q } (%y, %z) {inputs = 1};
  !_ = memory.kill(%y);
  !_ = memory.kill(%z);
  !%r: Tensor[(m, 10), f32] = memory.alloc_tensor(%s) {shape = (m, 10), dtype = f32, offset = 0, part = (1, 10, 0, 10)};
  !_ = memory.release(%s);
  %r
})"),
              IsEmpty());
}

// Text that uses a name ahead of its binding does not parse: bindings are swapped here.
TEST(VerifyPlan, RejectsAUseAheadOfTheAllocation) {
  ir::Module m = lowered(R"(fn @main(%x: VEC) -> VEC {
  !%s: MEM = STORAGE;
  !%y: VEC = memory.alloc_tensor(%s) TENSOR;
  !_ = memory.release(%s);
  %y
})");
  auto f = std::make_shared<ir::Function>(*m.functions[0].second);
  auto body = std::make_shared<ir::Block>(*f->body);
  std::swap(body->bindings[0], body->bindings[1]);
  f->body = body;
  m.functions[0].second = f;
  EXPECT_THAT(verify_plan(m).faults, Contains(HasSubstr("P1: %s is used before it exists")));
}

}  // namespace
}  // namespace nimble::passes
