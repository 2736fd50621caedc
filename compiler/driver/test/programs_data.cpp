// Data types, match and polymorphic functions: lists, options, pairs and trees whose fields are
// tensors, scalars and each other.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

// What the programs share. @rows makes the list of a matrix's rows, from row i on; @stack puts a
// list of rows back into the matrix %y, from row i on.
constexpr const char* kList = R"(
data List[A] { Nil; Cons(A, List[A]) }
fn @map[A, B](%f: fn(A) -> B, %l: List[A]) -> List[B] {
  let %r = match (%l) {
    Nil => { let %n: List[B] = Nil(); %n }
    Cons(%x, %rest) => {
      let %y = %f(%x);
      let %ys = @map(%f, %rest);
      let %c = Cons(%y, %ys);
      %c
    }
  };
  %r
}
fn @fold[A, B](%f: fn(A, B) -> A, %a: A, %l: List[B]) -> A {
  let %r = match (%l) {
    Nil => { %a }
    Cons(%x, %rest) => {
      let %b = %f(%a, %x);
      let %c = @fold(%f, %b, %rest);
      %c
    }
  };
  %r
}
fn @filter[A](%p: fn(A) -> Tensor[(), bool], %l: List[A]) -> List[A] {
  let %r = match (%l) {
    Nil => { %l }
    Cons(%x, %rest) => {
      let %kept = @filter(%p, %rest);
      let %yes = %p(%x);
      let %c = if (%yes) { let %d = Cons(%x, %kept); %d } else { %kept };
      %c
    }
  };
  %r
}
fn @append[A](%l: List[A], %m: List[A]) -> List[A] {
  let %r = match (%l) {
    Cons(%x, %rest) => {
      let %tail = @append(%rest, %m);
      let %c = Cons(%x, %tail);
      %c
    }
    _ => { %m }
  };
  %r
}
fn @rows(%i: Tensor[(), i64], %x: Tensor[(n, m), f32]) -> List[Tensor[(m), f32]] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %j = add(%i, 1i64);
    let %rest = @rows(%j, %x);
    let %c = Cons(%row, %rest);
    %c
  } else { let %e: List[Tensor[(m), f32]] = Nil(); %e };
  %r
}
fn @stack(%i: Tensor[(), i64], %l: List[Tensor[(m), f32]], %y: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] {
  let %r = match (%l) {
    Nil => { %y }
    Cons(%x, %rest) => {
      let %z = write_row(%y, %i, %x);
      let %j = add(%i, 1i64);
      let %s = @stack(%j, %rest, %z);
      %s
    }
  };
  %r
}
// The numbers from i up to n.
fn @range(%i: Tensor[(), i64], %n: Tensor[(), i64]) -> List[Tensor[(), i64]] {
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %j = add(%i, 1i64);
    let %rest = @range(%j, %n);
    let %c = Cons(%i, %rest);
    %c
  } else { let %e: List[Tensor[(), i64]] = Nil(); %e };
  %r
}
)";

constexpr const char* kTree = R"(
data Tree { Leaf(Tensor[(1, 4), f32]); Node(Tree, Tree) }
// A tree over the rows i … j - 1, split in the middle.
fn @grow(%i: Tensor[(), i64], %j: Tensor[(), i64], %x: Tensor[(n, 4), f32]) -> Tree {
  let %size = sub(%j, %i);
  let %one = less_equal(%size, 1i64);
  let %r = if (%one) {
    let %row = take_row(%x, %i);
    let %v = unsqueeze(%row) {axes = [0]};
    let %leaf = Leaf(%v);
    %leaf
  } else {
    let %half = div(%size, 2i64);
    let %k = add(%i, %half);
    let %a = @grow(%i, %k, %x);
    let %b = @grow(%k, %j, %x);
    let %node = Node(%a, %b);
    %node
  };
  %r
}
)";

}  // namespace

std::vector<Program> data_programs() {
  std::vector<Program> out;
  auto add = [&](const char* name, const std::string& text,
                 std::map<std::string, Range> special = {}, int64_t smallest = 0) -> Program& {
    out.push_back({name, text, {-1, 1}, std::move(special), smallest});
    return out.back();
  };
  add("list_map_tensors", std::string(kList) + R"(
fn @main(%x: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] {
  let %l = @rows(0i64, %x);
  let %f = fn(%v: Tensor[(m), f32]) -> Tensor[(m), f32] { let %e = exp(%v); let %s = add(%e, %v); %s };
  let %ys = @map(%f, %l);
  let %y = full() {shape = (n, m), dtype = f32, value = 0.0};
  let %r = @stack(0i64, %ys, %y);
  %r
})");
  add("list_map_scalars", std::string(kList) + R"(
fn @main(%n: Tensor[(), i64], %k: Tensor[(), i64]) -> (Tensor[(), i64], Tensor[(), i64]) {
  let %l = @range(0i64, %n);
  let %f = fn(%v: Tensor[(), i64]) -> Tensor[(), i64] { let %e = mul(%v, %k); %e };
  let %g = fn(%a: Tensor[(), i64], %b: Tensor[(), i64]) -> Tensor[(), i64] { let %c = add(%a, %b); %c };
  let %ys = @map(%f, %l);
  let %s = @fold(%g, 0i64, %ys);
  let %t = @fold(%g, 5i64, %l);
  let %r = (%s, %t);
  %r
})",
      {{"n", {0, 40}}, {"k", {-9, 9}}});
  add("list_filter_append", std::string(kList) + R"(
fn @odd(%v: Tensor[(), i64]) -> Tensor[(), bool] { let %a = mod(%v, 2i64); let %b = equal(%a, 1i64); %b }
fn @digits(%a: Tensor[(), i64], %b: Tensor[(), i64]) -> Tensor[(), i64] {
  let %c = mul(%a, 3i64);
  let %d = add(%c, %b);
  let %e = mod(%d, 10007i64);
  %e
}
fn @main(%n: Tensor[(), i64]) {
  let %l = @range(0i64, %n);
  let %o = @filter(@odd, %l);
  let %both = @append(%o, %l);
  let %r = @fold(@digits, 1i64, %both);
  %r
})",
      {{"n", {0, 30}}});
  add("option_and_pair", R"(
data Option[A] { None; Some(A) }
data Pair[A, B] { Pair(A, B) }
fn @swap[A, B](%p: Pair[A, B]) -> Pair[B, A] {
  let %r = match (%p) { Pair(%a, %b) => { let %q = Pair(%b, %a); %q } };
  %r
}
fn @or_else[A](%o: Option[A], %otherwise: A) -> A {
  let %r = match (%o) { None => { %otherwise } Some(%x) => { %x } };
  %r
}
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %p = Pair(%x, %k);
  let %q = @swap(%p);
  let %positive = greater(%k, 0i64);
  let %o = if (%positive) { let %s = Some(%q); %s } else { let %z: Option[Pair[Tensor[(), i64], Tensor[(n), f32]]] = None(); %z };
  let %zero = sub(%x, %x);
  let %d = Pair(7i64, %zero);
  let %got = @or_else(%o, %d);
  let %r = match (%got) {
    Pair(%i, %v) => {
      let %f = cast(%i) {dtype = f32};
      let %w = mul(%v, %f);
      let %t = (%w, %i);
      %t
    }
  };
  %r
})",
      {{"k", {-3, 3}}});
  // The paper's Tree-LSTM in small: leaves through one matrix, nodes through another.
  add("tree_recursion", std::string(kTree) + R"(
fn @encode(%t: Tree, %w: Tensor[(4, 4), f32], %u: Tensor[(8, 4), f32]) -> Tensor[(1, 4), f32] {
  let %r = match (%t) {
    Leaf(%x) => { let %a = matmul(%x, %w); let %b = tanh(%a); %b }
    Node(%l, %m) => {
      let %a = @encode(%l, %w, %u);
      let %b = @encode(%m, %w, %u);
      let %both = concat(%a, %b) {axis = 1};
      let %c = matmul(%both, %u);
      let %d = sigmoid(%c);
      %d
    }
  };
  %r
}
fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4, 4), f32], %u: Tensor[(8, 4), f32]) {
  let %n = size() {value = n};
  let %t = @grow(0i64, %n, %x);
  let %r = @encode(%t, %w, %u);
  %r
})",
      {}, 1);
  add("mutual_recursion", std::string(kList) + R"(
fn @even[A](%l: List[A]) -> Tensor[(), bool] {
  let %r = match (%l) { Nil => { true } Cons(_, %t) => { let %o = @odd(%t); %o } };
  %r
}
fn @odd[A](%l: List[A]) -> Tensor[(), bool] {
  let %r = match (%l) { Nil => { false } Cons(_, %t) => { let %e = @even(%t); %e } };
  %r
}
fn @main(%x: Tensor[(n, 2), f32], %k: Tensor[(), i64]) {
  let %l = @rows(0i64, %x);
  let %m = @range(0i64, %k);
  let %a = @even(%l);
  let %b = @even(%m);
  let %r = (%a, %b);
  %r
})",
      {{"k", {0, 9}}});
  // Symbols that only a match knows: each leaf has an extent of its own.
  add("existential_extents", R"(
data Rope { Piece(Tensor[(?), f32]); Join(Rope, Rope) }
fn @total(%r: Rope) -> Tensor[(), f32] {
  let %s = match (%r) {
    Piece(%x) => { let %e = exp(%x); let %t = sum(%e) {axes = [0], keepdims = false}; %t }
    Join(%a, %b) => {
      let %s1 = @total(%a);
      let %s2 = @total(%b);
      let %t = add(%s1, %s2);
      %t
    }
  };
  %s
}
fn @doubled(%r: Rope) -> Rope {
  let %s = match (%r) {
    Piece(%x) => { let %y = concat(%x, %x) {axis = 0}; let %p = Piece(%y); %p }
    Join(%a, %b) => {
      let %s1 = @doubled(%a);
      let %s2 = @doubled(%b);
      let %t = Join(%s2, %s1);
      %t
    }
  };
  %s
}
fn @main(%x: Tensor[(n), f32], %y: Tensor[(m), f32]) {
  let %p = Piece(%x);
  let %q = Piece(%y);
  let %j = Join(%p, %q);
  let %k = Join(%j, %p);
  let %d = @doubled(%k);
  let %r = @total(%d);
  %r
})")
      .tolerance = 2e-4;
  add("nested_patterns", std::string(kList) + R"(
data Expr { Num(Tensor[(), i64]); Add(Expr, Expr); Mul(Expr, Expr); Neg(Expr) }
fn @simple(%e: Expr) -> Expr {
  let %r = match (%e) {
    Add(Num(%a), Num(%b)) => { let %c = add(%a, %b); let %n = Num(%c); %n }
    Add(%a, Neg(%b)) => { let %x = @simple(%a); let %y = @simple(%b); let %z = Neg(%y); let %s = Add(%x, %z); %s }
    Mul(Neg(%a), Neg(%b)) => { let %m = Mul(%a, %b); let %s = @simple(%m); %s }
    Mul(Num(%a), _) => { let %z = mul(%a, 0i64); let %n = Num(%z); %n }
    Neg(Neg(%a)) => { let %s = @simple(%a); %s }
    Neg(Num(%a)) => { let %m = sub(0i64, %a); let %n = Num(%m); %n }
    _ => { %e }
  };
  %r
}
fn @value(%e: Expr) -> Tensor[(), i64] {
  let %r = match (%e) {
    Num(%a) => { %a }
    Add(%a, %b) => { let %x = @value(%a); let %y = @value(%b); let %s = add(%x, %y); %s }
    Mul(%a, %b) => { let %x = @value(%a); let %y = @value(%b); let %s = mul(%x, %y); %s }
    Neg(%a) => { let %x = @value(%a); let %s = neg(%x); %s }
  };
  %r
}
fn @main(%i: Tensor[(), i64], %j: Tensor[(), i64]) {
  let %a = Num(%i);
  let %b = Num(%j);
  let %nb = Neg(%b);
  let %na = Neg(%a);
  let %nna = Neg(%na);
  let %s1 = Add(%a, %b);
  let %s2 = Add(%s1, %nb);
  let %s3 = Mul(%nna, %nb);
  let %s4 = Mul(%na, %nb);
  let %s5 = Mul(%b, %s2);
  let %v1 = @simple(%s1);
  let %v2 = @simple(%s2);
  let %v3 = @simple(%s3);
  let %v4 = @simple(%s4);
  let %v5 = @simple(%s5);
  let %v6 = @simple(%nna);
  let %v7 = @simple(%nb);
  let %r1 = @value(%v1);
  let %r2 = @value(%v2);
  let %r3 = @value(%v3);
  let %r4 = @value(%v4);
  let %r5 = @value(%v5);
  let %r6 = @value(%v6);
  let %r7 = @value(%v7);
  let %r = (%r1, %r2, %r3, %r4, %r5, %r6, %r7);
  %r
})",
      {{"i", {-5, 5}}, {"j", {-5, 5}}});
  // Pairs of lists matched together; tuples in patterns and in fields.
  add("tuple_patterns", std::string(kList) + R"(
fn @zip[A, B](%l: List[A], %m: List[B]) -> List[(A, B)] {
  let %p = (%l, %m);
  let %r = match (%p) {
    (Cons(%a, %s), Cons(%b, %t)) => {
      let %pair = (%a, %b);
      let %rest = @zip(%s, %t);
      let %c = Cons(%pair, %rest);
      %c
    }
    _ => { let %e: List[(A, B)] = Nil(); %e }
  };
  %r
}
fn @dot(%l: List[(Tensor[(), i64], Tensor[(m), f32])], %a: Tensor[(m), f32]) -> Tensor[(m), f32] {
  let %r = match (%l) {
    Nil => { %a }
    Cons((%i, %x), %rest) => {
      let %f = cast(%i) {dtype = f32};
      let %y = mul(%x, %f);
      let %b = add(%a, %y);
      let %s = @dot(%rest, %b);
      %s
    }
  };
  %r
}
fn @main(%k: Tensor[(), i64], %x: Tensor[(n, m), f32]) {
  let %l = @range(1i64, %k);
  let %rows = @rows(0i64, %x);
  let %z = @zip(%l, %rows);
  let %a = full() {shape = (m), dtype = f32, value = 0.25};
  let %r = @dot(%z, %a);
  %r
})",
      {{"k", {0, 12}}})
      .tolerance = 1e-4;
  // A data value still sees the tensor: no write in place.
  add("kept_in_data", R"(
data Box[A] { Box(A); Empty }
fn @open[A](%b: Box[A], %otherwise: A) -> A {
  let %r = match (%b) { Box(%x) => { %x } Empty => { %otherwise } };
  %r
}
fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64]) {
  let %y = exp(%x);
  let %b = Box(%y);
  let %v = full() {shape = (m), dtype = f32, value = 7.0};
  let %w = write_row(%y, %i, %v);
  let %old = @open(%b, %x);
  let %z = mul(%w, 2.0f32);
  let %r = (%old, %w, %z);
  %r
})",
      {{"i", {0, 0}}}, 1);
  // A match in the middle, its value used by kernels; memory shared around it.
  add("match_between_kernels", R"(
data Choice[A] { Left(A); Right(A); Both(A, A) }
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %e = exp(%x);
  let %t = tanh(%e);
  let %zero = equal(%k, 0i64);
  let %one = equal(%k, 1i64);
  let %c = if (%zero) { let %l = Left(%e); %l } else {
    let %d = if (%one) { let %r = Right(%t); %r } else { let %b = Both(%t, %x); %b };
    %d
  };
  let %m = match (%c) {
    Left(%a) => { let %s = sqrt(%a); %s }
    Right(%a) => { %a }
    Both(%a, %b) => { let %p = mul(%a, %b); let %q = add(%p, %a); %q }
  };
  let %y = add(%m, %e);
  let %z = mul(%y, %t);
  %z
})",
      {{"k", {0, 2}}});
  return out;
}

}  // namespace nimble::driver::testing
