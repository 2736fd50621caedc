// Inference of data types, match, type variables, function types; and several faults at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/infer.h"
#include "compiler/ir/test/inference.h"
#include "compiler/ir/text.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

const std::string kList = "data List[A] { Nil; Cons(A, List[A]) }\n";
const std::string kTree = "data Tree { Leaf(Tensor[(1, ?), f32]); Node(Tree, Tree) }\n";

TEST(InferData, MapIsPolymorphic) {
  const std::string t = infer(kList + R"(
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
fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4, 8), f32]) {
  let %nil = Nil();
  let %one = Cons(%x, %nil);
  let %two = Cons(%x, %one);
  let %f = fn(%a: Tensor[(k, 4), f32]) { let %b = matmul(%a, %w); %b };
  let %ys = @map(%f, %two);
  %ys
})");
  EXPECT_THAT(t, HasSubstr("%two: List[Tensor[(n, 4), f32]]"));
  EXPECT_THAT(t, HasSubstr("%nil: List[Tensor[(n, 4), f32]] = Nil()"));
  EXPECT_THAT(t, HasSubstr("%ys: List[Tensor[(n, 8), f32]]"));
  EXPECT_THAT(t, HasSubstr("%n: List[B] = Nil()"));
}

TEST(InferData, ExtentsOfElementsAreJoined) {
  const std::string t = infer(kList + R"(
fn @main(%x: Tensor[(n, 4), f32], %y: Tensor[(m, 4), f32], %c: Tensor[(), bool]) {
  let %nil = Nil();
  let %one = Cons(%x, %nil);
  let %other = Cons(%y, %nil);
  let %two = Cons(%y, %one);
  let %r = if (%c) { %one } else { %other };
  let %s = match (%two) {
    Nil => { %x }
    Cons(%head, Nil) => { %head }
    Cons(_, Cons(%second: Tensor[(k, 4), f32], _)) => {
      let %d = full() {shape = (k, 4), dtype = f32, value = 1.0};
      let %e = add(%second, %d);
      %e
    }
  };
  let %t = (%r, %s);
  %t
})");
  EXPECT_THAT(t, HasSubstr("%two: List[Tensor[(?, 4), f32]]"));
  EXPECT_THAT(t, HasSubstr("%r: List[Tensor[(?, 4), f32]]"));
  EXPECT_THAT(t, ContainsRegex("%s: Tensor\\[\\(\\?[0-9]+, 4\\), f32\\]"));
  EXPECT_THAT(t, HasSubstr("%e: Tensor[(k, 4), f32]"));
}

TEST(InferData, TreeRecursionAndMutualRecursion) {
  const std::string t = infer(kTree + R"(
fn @sum(%t: Tree) -> Tensor[(1, ?), f32] {
  let %r = match (%t) {
    Leaf(%x) => { %x }
    Node(%l, %r) => { let %s = @pair(%l, %r); %s }
  };
  %r
}
fn @pair(%l: Tree, %r: Tree) -> Tensor[(1, ?), f32] {
  let %a = @sum(%l);
  let %b = @sum(%r);
  let %c = concat(%a, %b) {axis = 1};
  %c
}
fn @main(%x: Tensor[(b, 3), f32]) {
  let %leaf = Leaf(%x);
  let %node = Node(%leaf, %leaf);
  let %s = @sum(%node);
  %s
})");
  EXPECT_THAT(t, HasSubstr("assert_shape(%x) {left = (b), right = (1)"));
}

TEST(InferData, OpenVariablesAreSettledByTheirUse) {
  infer(kList + R"(
fn @f(%l: List[Tensor[(?, 4), f32]]) -> List[Tensor[(?, 4), f32]] { %l }
fn @declared() -> List[Tensor[(3), i64]] { let %n = Nil(); %n }
fn @main(%x: Tensor[(n, 4), f32], %c: Tensor[(), bool]) {
  let %a: List[Tensor[(), bool]] = Nil();
  let %b = Nil();
  let %l = @f(%b);
  let %d = if (%c) { let %e = Nil(); %e } else { let %e2 = Cons(%x, %l); %e2 };
  let %r = (%a, %d);
  %r
})");
  EXPECT_THAT(error_of(kList + "fn @main() {\n  let %n = Nil();\n  %n\n}"),
              HasSubstr("t.nir:3:7: the type List[_] of %n stays open; annotate it"));
}

TEST(InferData, FunctionsAsArguments) {
  const std::string t = infer(R"(
fn @apply[A, B](%f: fn(A) -> B, %x: A) -> B { let %y = %f(%x); %y }
fn @compose[A, B, C](%f: fn(A) -> B, %g: fn(B) -> C) {
  let %h = fn(%x: A) -> C { let %y = %f(%x); let %z = %g(%y); %z };
  %h
}
fn @double(%x: Tensor[(n), f32]) { let %y = concat(%x, %x) {axis = 0}; %y }
fn @main(%x: Tensor[(n), f32]) {
  let %a = @apply(@double, %x);
  let %b = @apply(@double, %a);
  let %f = @double;
  let %c = %f(%x);
  let %h = @compose(@double, @double);
  let %d = %h(%x);
  let %r = (%b, %c, %d);
  %r
})");
  EXPECT_THAT(t, HasSubstr("%b: Tensor[(4*n), f32]"));
  EXPECT_THAT(t, HasSubstr("%c: Tensor[(2*n), f32]"));
  EXPECT_THAT(t, ContainsRegex("%d: Tensor\\[\\(\\?[0-9]+\\), f32\\]"));
}

TEST(InferData, FunctionTypesOfParameters) {
  const std::string t = infer(R"(
fn @any(%f: fn(Tensor[(?, 4), f32]) -> Tensor[(?, 4), f32], %x: Tensor[(m, 4), f32]) {
  let %y = %f(%x);
  let %z = %f(%y);
  %z
}
fn @own(%f: fn(Tensor[(k, 4), f32]) -> Tensor[(k, 4), f32], %x: Tensor[(m, 4), f32]) {
  let %y = %f(%x);
  %y
}
fn @main(%x: Tensor[(n, 4), f32]) {
  let %f = fn(%a: Tensor[(k, 4), f32]) { let %b = relu(%a); %b };
  let %y = @any(%f, %x);
  let %z = @own(%f, %x);
  let %r = (%y, %z);
  %r
})");
  EXPECT_THAT(t, HasSubstr("%z: Tensor[(n, 4), f32]"));
  const std::string head = R"(
fn @own(%f: fn(Tensor[(k, 4), f32]) -> Tensor[(k, 4), f32]) { 1i64 }
fn @main(%x: Tensor[(n, 4), f32]) {
)";
  EXPECT_THAT(error_of(head + "  let %f = fn(%a: Tensor[(n, 4), f32]) { %a };\n"
                              "  let %y = @own(%f);\n  %y\n}"),
              HasSubstr("t.nir:5:12: argument 1 of @own"));
  EXPECT_THAT(error_of(head + "  let %f = fn(%a: Tensor[(k, 4), f32]) {\n"
                              "    let %b = concat(%a, %a) {axis = 0};\n    %b\n  };\n"
                              "  let %y = @own(%f);\n  %y\n}"),
              HasSubstr("t.nir:8:12"));
}

TEST(InferData, APolymorphicFunctionIsAValue) {
  const std::string t = infer(R"(
fn @id[A](%x: A) -> A { let %y = @id(%x); %y }
fn @main(%x: Tensor[(3), f32]) {
  let %y = @id(@id);
  let %z = %y(%x);
  %z
})");
  EXPECT_THAT(t, HasSubstr("%y: fn(Tensor[(3), f32]) -> Tensor[(3), f32] = @id(@id)"));
}

TEST(InferData, ConvertedClosures) {
  const std::string t = infer(R"(
fn @f(%captured: Tensor[(n, 8), f32], %a: Tensor[(k, 8), f32]) {
  let %r = concat(%a, %captured) {axis = 0};
  %r
}
fn @main(%x: Tensor[(b, 8), f32], %y: Tensor[(m, 8), f32]) {
  let %f = closure @f(%x);
  let %z = %f(%y);
  %z
})");
  EXPECT_THAT(t, HasSubstr("%f: fn(Tensor[(k, 8), f32]) -> Tensor[(b + k, 8), f32]"));
  EXPECT_THAT(t, HasSubstr("%z: Tensor[(b + m, 8), f32]"));
}

TEST(InferData, MatchesAreExhaustiveAndReached) {
  const std::string head = kTree + "fn @main(%t: Tree, %c: (Tree, Tree)) {\n  let %r = match (%t) ";
  EXPECT_THAT(
      error_of(head + "{\n Leaf(_) => { 1i64 }\n Node(Leaf(_), _) => { 2i64 }\n };\n %r\n}"),
      HasSubstr("t.nir:3:12: no case for Node(Node(_, _), _); add one"));
  EXPECT_THAT(error_of(head + "{\n Node(_, Leaf(_)) => { 1i64 }\n Node(Leaf(_), _) => { 2i64 }\n"
                              " Leaf(_) => { 3i64 }\n };\n %r\n}"),
              HasSubstr("no case for Node(Node(_, _), Node(_, _))"));
  EXPECT_THAT(error_of(head + "{\n _ => { 1i64 }\n Leaf(_) => { 2i64 }\n };\n %r\n}"),
              HasSubstr("t.nir:5:2: the case is never reached"));
  EXPECT_THAT(
      error_of(kTree + "fn @main(%c: (Tree, Tree)) {\n let %r = match (%c) {\n (Leaf(_), _) "
                       "=> { 1i64 }\n (_, Leaf(_)) => { 2i64 }\n };\n %r\n}"),
      HasSubstr("no case for (Node(_, _), Node(_, _))"));
}

TEST(InferData, SymbolsInsideDataTypesCannotBeRead) {
  EXPECT_THAT(error_of(kList + "fn @main(%l: List[Tensor[(n, 4), f32]]) {\n  %l\n}"),
              HasSubstr("no parameter of @main binds the symbol n; give some parameter the plain"));
  EXPECT_THAT(error_of("data D { C(Tensor[(n), f32]) }\nfn @main(%d: D) { %d }"),
              HasSubstr("t.nir:1:10: the field Tensor[(n), f32] of C uses the symbol n"));
  EXPECT_THAT(error_of(kList + R"(
fn @f(%l: List[Tensor[(4, 4), f32]]) { 1i64 }
fn @main(%l: List[Tensor[(?, 4), f32]]) {
  let %y = @f(%l);
  %y
})"),
              HasSubstr("may differ from value to value"));
}

TEST(InferData, AllFaultsOfAModuleInOneRun) {
  const std::string e = error_of(R"(fn @main(%x: Tensor[(n, 3), f32], %w: Tensor[(4, 5), f32]) {
  let %a = matmul(%x, %w);
  let %b = relu(%a);
  let %c = add(%x, 1i64);
  let %d = if (true) {
    let %e = squeeze(%x) {axes = [7]};
    %e
  } else { %x };
  let %f = add(%d, %c);
  %f
}
fn @other(%x: Tensor[(n), f32]) {
  let %y = %x[0];
  let %z = @main(%x, %y);
  %z
}
)");
  EXPECT_THAT(e, HasSubstr("t.nir:2:12: matmul: "));
  EXPECT_THAT(e, HasSubstr("  let %a = matmul(%x, %w);\n             ^"));
  EXPECT_THAT(e, HasSubstr("t.nir:4:12: add"));
  EXPECT_THAT(e, HasSubstr("t.nir:6:14: squeeze"));
  EXPECT_THAT(e, HasSubstr("t.nir:13:12: field 0"));
  EXPECT_EQ(std::count(e.begin(), e.end(), '^'), 4) << e;
  EXPECT_LT(e.find(":2:12"), e.find(":4:12"));
}

TEST(InferData, NoMoreThanFiftyFaults) {
  std::string text = "fn @main(%x: Tensor[(3), f32]) {\n";
  for (int i = 0; i < 80; ++i) text += fmt::format("  let %y{} = add(%x, 1i64);\n", i);
  const std::string e = error_of(text + "  %x\n}");
  EXPECT_EQ(std::count(e.begin(), e.end(), '^'), 50);
}

}  // namespace
}  // namespace nimble::ir
