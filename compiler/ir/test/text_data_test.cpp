// The text form of data types, match, polymorphic functions and converted closures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"

namespace nimble::ir {
namespace {

using testing::HasSubstr;

const char* const kData = R"(data List[A] {
  Nil;
  Cons(A, List[A])
}

data Tree {
  Leaf(Tensor[(1, ?), f32]);
  Node(Tree, Tree)
}

fn @map[A, B](%f: fn(A) -> B, %l: List[A]) -> List[B] {
  let %r = match (%l) {
    Nil => {
      let %n = Nil();
      %n
    }
    Cons(%x, %rest) => {
      let %y = %f(%x);
      let %ys = @map(%f, %rest);
      let %c = Cons(%y, %ys);
      %c
    }
  };
  %r
}

fn @nested(%t: Tree, %p: (Tree, List[(Tree, Tensor[(?), i64])])) -> Tree {
  let %g = closure @nested(%t);
  let %r = match (%p) {
    (Node(Leaf(_), %a), Cons((%b, _), Nil)) => {
      %a
    }
    (%c: Tree, _) => {
      %c
    }
  } from "here";
  %r
}
)";

TEST(TextData, RoundTrips) {
  const Module m = parse_module(kData, "data.nir");
  EXPECT_EQ(print(m), kData);
  ASSERT_EQ(m.data_types.size(), 2u);
  EXPECT_EQ(m.find_constructor("Node").second, 1);
  const Function& map = *m.find("map");
  EXPECT_EQ(map.type_variables, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(map.parameters[0]->type->elements[0]->kind, TypeKind::kVariable);
  EXPECT_EQ(m.find("nested")->body->bindings[1].value->cases[0].pattern.location.line, 30);
  EXPECT_EQ(m.find("map")->body->location.line, 24);
}

TEST(TextData, FormsThatPrintOtherwise) {
  const Module m = parse_module(
      "data L{N();C(L);} fn @f(%l: L)->L{let %r=match(%l){N()=>{%l}C(%x)=>{%x}};%r}", "d.nir");
  const std::string text = print(m);
  EXPECT_THAT(text, HasSubstr("data L {\n  N;\n  C(L)\n}"));
  EXPECT_THAT(text, HasSubstr("    N => {"));
  EXPECT_EQ(print(parse_module(text)), text);
}

struct Wrong {
  const char* text;
  const char* message;
};

TEST(TextData, FaultsAreNamed) {
  const Wrong cases[] = {
      {"data list { A }", "expected the name of a data type but"},
      {"data L { nil }", "expected the name of a constructor"},
      {"data L { }", "has no constructor"},
      {"data Tensor { A }", "Tensor is a type of the language"},
      {"data L { A; A }", "the constructor A is defined twice"},
      {"data L { A } data M { A }", "the constructor A is defined twice"},
      {"data L { A } data L { B }", "the data type L is defined twice"},
      {"data L[a] { A }", "cannot name a type variable"},
      {"data L[A, A] { X }", "listed twice"},
      {"data L { A(Lst) }", "there is no type Lst"},
      {"data List { A(Lost) }", "did you mean List?"},
      {"data L[A] { X(A, L) }", "L takes 1 type argument, not 0"},
      {"data L { X } fn @f() { let %x = Y(); %x }", "there is no constructor Y"},
      {"data L { X } fn @f(%a: L) { let %x = X(%a); %x }", "X has 0 fields, not 1"},
      {"data L { X } fn @f(%a: L) { let %x = X; %x }", "expected `(`"},
      {"data L { X } fn @f(%a: L) { let %x = match (%a) { }; %x }", "the match has no case"},
      {"data L { X } fn @f(%a: L) { let %x = match (%a) { X { %a } }; %x }", "expected `=>`"},
      {"data L { X } fn @f(%a: L) { let %x = match (%a) { x => { %a } }; %x }",
       "expected a pattern"},
      {"data L { X } fn @f(%a: L) { let %x = match (%a) { %a => { %a } }; %x }",
       "%a is already defined"},
      {"data L { X } fn @f(%a: L) { let %x = match (%a) { %b => { %a } }; %b }",
       "%b is not defined here"},
  };
  for (const Wrong& w : cases) {
    const ParseResult r = parse_text(w.text, "w.nir");
    std::string all;
    for (const Diagnostic& d : r.diagnostics) {
      all += d.str() + "\n";
      EXPECT_NE(d.remedy, "") << d.str();
    }
    EXPECT_THAT(all, HasSubstr(w.message)) << w.text;
    EXPECT_LE(r.diagnostics.size(), 2u) << all;
  }
}

TEST(TextData, TruncationsNeverCrash) {
  const std::string all = kData;
  for (size_t n = 0; n < all.size(); ++n) parse_text(all.substr(0, n), "cut.nir");
}

}  // namespace
}  // namespace nimble::ir
