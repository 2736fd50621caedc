// Data types, match, closures and deep recursion in the reference interpreter.
#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/reference/reference.h"

namespace nimble::reference {
namespace {

using ir::Tensor;

std::string run(const std::string& text, const std::vector<ValueRef>& args = {},
                const std::string& function = "main") {
  Interpreter interpreter(ir::infer_types(ir::parse_module(text, "t.nir")));
  return str(interpreter.run(function, args));
}

const std::string kList = R"(
data List[A] { Nil; Cons(A, List[A]) }
fn @map[A, B](%f: fn(A) -> B, %l: List[A]) -> List[B] {
  let %r = match (%l) {
    Nil => { let %n = Nil(); %n }
    Cons(%x, %rest) => {
      let %y = %f(%x);
      let %ys = @map(%f, %rest);
      let %c = Cons(%y, %ys);
      %c
    }
  };
  %r
}
fn @upto(%i: Tensor[(), i64], %l: List[Tensor[(), i64]]) -> List[Tensor[(), i64]] {
  let %done = less(%i, 1i64);
  let %r = if (%done) { %l } else {
    let %c = Cons(%i, %l);
    let %j = sub(%i, 1i64);
    let %all = @upto(%j, %c);
    %all
  };
  %r
}
fn @sum(%l: List[Tensor[(), i64]]) -> Tensor[(), i64] {
  let %r = match (%l) {
    Nil => { 0i64 }
    Cons(%x, %rest) => { let %s = @sum(%rest); let %t = add(%x, %s); %t }
  };
  %r
}
)";

// The order of vm/library/linearise.cpp: tasks by height, then constructor, then discovery; what is
// shared is one task, though recursion would visit it each time.
TEST(Data, Linearise) {
  const std::string text = R"(
data Tree { Leaf(Tensor[(2), f32]); Node(Tree, Tree) }
fn @main(%x: Tensor[(2), f32]) {
  let %y = neg(%x);
  let %a = Leaf(%x);
  let %b = Leaf(%y);
  let %n = Node(%a, %b);
  let %m = Node(%n, %n);
  let %t = Node(%a, %m);
  let %counts = count.linearise(%t) {schema = [2, 0, 0, 0, 1, 0, 11, 1, 2, 0, 1, 2, 0, 0, 1, 0, 0]};
  let %order = linearise(%t) {schema = [2, 0, 0, 0, 1, 0, 11, 1, 2, 0, 1, 2, 0, 0, 1, 0, 0], steps = 4, counts = (2, 3)};
  let %r = (%counts, %order);
  %r
})";
  EXPECT_EQ(run(text, {value_of(Tensor::of<float>(DType::kF32, {2}, {1, 2}))}),
            "(i64[4]{4, 9, 2, 3}, "
            "(i64[4, 4]{0, 2, 0, 0, 1, 1, 0, 2, 1, 1, 1, 3, 1, 1, 2, 4}, f32[2, 2]{1, 2, -1, -2}, "
            "i64[3]{0, 2, 0}, i64[3]{1, 2, 3}))");
}

TEST(Data, MapOverAList) {
  EXPECT_EQ(run(kList + R"(
fn @main(%n: Tensor[(), i64]) {
  let %nil = Nil();
  let %l = @upto(%n, %nil);
  let %f = fn(%x: Tensor[(), i64]) { let %y = mul(%x, %n); %y };
  let %m = @map(%f, %l);
  let %s = @sum(%m);
  let %r = (%m, %s);
  %r
})",
                {value_of(Tensor::scalar_i64(3))}),
            "(Cons(3i64, Cons(6i64, Cons(9i64, Nil))), 18i64)");
}

TEST(Data, NestedPatternsTakeTheFirstCaseThatFits) {
  const std::string text = R"(
data Tree { Leaf(Tensor[(), i64]); Node(Tree, Tree) }
fn @pick(%t: Tree) -> Tensor[(), i64] {
  let %r = match (%t) {
    Node(Leaf(%a), Leaf(%b)) => { let %s = add(%a, %b); %s }
    Node(Node(%l, _), _) => { let %x = @pick(%l); %x }
    Leaf(%a) => { %a }
    _ => { -1i64 }
  };
  %r
}
fn @main() {
  let %a = Leaf(3i64);
  let %b = Leaf(4i64);
  let %ab = Node(%a, %b);
  let %abb = Node(%ab, %b);
  let %bab = Node(%b, %ab);
  let %v = @pick(%a);
  let %w = @pick(%ab);
  let %x = @pick(%abb);
  let %y = @pick(%bab);
  let %r = (%v, %w, %x, %y);
  %r
})";
  EXPECT_EQ(run(text), "(3i64, 7i64, 3i64, -1i64)");
}

TEST(Data, MatchedExtentsAreKnown) {
  EXPECT_EQ(run(R"(
data List[A] { Nil; Cons(A, List[A]) }
fn @sizes(%l: List[Tensor[(?), f32]]) -> Tensor[(), i64] {
  let %r = match (%l) {
    Nil => { 0i64 }
    Cons(%x: Tensor[(k), f32], %rest) => {
      let %n = size() {value = k * k};
      let %s = @sizes(%rest);
      let %t = add(%n, %s);
      %t
    }
  };
  %r
}
fn @main() {
  let %nil = Nil();
  let %a = Cons(f32[2]{1, 2}, %nil);
  let %b = Cons(f32[3]{1, 2, 3}, %a);
  let %r = @sizes(%b);
  %r
})"),
            "13i64");
}

TEST(Data, ConvertedClosuresTakeTheirCapturesFirst) {
  EXPECT_EQ(run(R"(
fn @f(%a: Tensor[(n), f32], %x: Tensor[(n), f32]) { let %y = sub(%a, %x); %y }
fn @main() {
  let %f = closure @f(f32[2]{5, 7});
  let %y = %f(f32[2]{1, 2});
  let %r = (%f, %y);
  %r
})"),
            "(fn, f32[2]{4, 5})");
}

TEST(Data, AClosureChecksWhatItsSymbolsSay) {
  const std::string text = R"(
fn @main(%a: Tensor[(n), f32], %x: Tensor[(m), f32]) {
  let %f = fn(%y: Tensor[(n), f32]) { let %z = add(%a, %y); %z };
  let %r = %f(%x);
  %r
})";
  const auto vector = [](std::vector<float> v) {
    const auto n = static_cast<int64_t>(v.size());
    return value_of(Tensor::of<float>(DType::kF32, {n}, v));
  };
  EXPECT_EQ(run(text, {vector({1, 2}), vector({3, 4})}), "f32[2]{4, 6}");
  try {
    run(text, {vector({1, 2}), vector({3, 4, 5})});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kFatal);
    EXPECT_NE(std::string(e.what()).find("(m = n): m is 3, but n is 2"), std::string::npos)
        << e.what();
  }
}

TEST(Data, ResidualChecksNameOperatorExtentsAndPlace) {
  const std::string text =
      "fn @main(%x: Tensor[(n, k), f32], %w: Tensor[(512, 4), f32]) {\n"
      "  let %y = matmul(%x, %w);\n  %y\n}";
  try {
    run(text, {value_of(Tensor::of<float>(DType::kF32, {1, 2}, std::vector<float>{1, 2})),
               value_of(Tensor::of<float>(DType::kF32, {512, 4}, std::vector<float>(2048)))});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("matmul at t.nir:2:12: "), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("(k = 512): k is 2, not 512"), std::string::npos)
        << e.what();
  }
}

TEST(Data, AHundredThousandLevels) {
  const ir::Module m = ir::infer_types(ir::parse_module(kList + R"(
fn @copy[A](%l: List[A]) -> List[A] {
  let %id = fn(%x: A) { %x };
  let %m = @map(%id, %l);
  %m
})"));
  ValueRef list = construct("Nil", {});
  const ValueRef x = value_of(Tensor::scalar_i64(7));
  for (int i = 0; i < 100000; ++i) list = construct("Cons", {x, std::move(list)});
  const ValueRef copy = Interpreter(m).run("copy", {list});
  int64_t length = 0;
  for (const Value* v = copy.get(); v->constructor == "Cons"; v = v->fields[1].get()) ++length;
  EXPECT_EQ(length, 100000);
}

TEST(Data, LongValuesPrintAndDieWithoutRecursion) {
  ValueRef list = construct("Nil", {});
  for (int i = 0; i < 300000; ++i)
    list = construct("Cons", {value_of(Tensor::scalar_i64(i)), std::move(list)});
  const std::string text = str(list);
  EXPECT_EQ(text.find("Cons(299999i64, Cons(299998i64, "), 0u);
  EXPECT_NE(text.find("…"), std::string::npos);
}

}  // namespace
}  // namespace nimble::reference
