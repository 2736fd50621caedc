// Recursion over data types that batch-recursion computes height by height, and such that it must
// leave alone: trees, trees of many children, DAGs, lists; states of several tensors and types.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

// A tree over the rows [i, j) of a matrix, split at a third, so that heights differ.
constexpr const char* kTree = R"(
data Tree { Leaf(Tensor[(1, 4), f32]); Node(Tree, Tree) }
fn @grow(%i: Tensor[(), i64], %j: Tensor[(), i64], %x: Tensor[(n, 4), f32]) -> Tree {
  let %n = sub(%j, %i);
  let %one = less_equal(%n, 1i64);
  let %r = if (%one) {
    let %row = take_row(%x, %i);
    let %v = unsqueeze(%row) {axes = [0]};
    let %t = Leaf(%v);
    %t
  } else {
    let %part = div(%n, 3i64);
    let %some = maximum(%part, 1i64);
    let %m = add(%i, %some);
    let %a = @grow(%i, %m, %x);
    let %b = @grow(%m, %j, %x);
    let %t = Node(%a, %b);
    %t
  };
  %r
}
)";

}  // namespace

std::vector<Program> recursion_programs() {
  std::vector<Program> out;
  const auto add = [&](const std::string& name, const std::string& text) {
    Program p;
    p.name = name;
    p.text = text;
    out.push_back(std::move(p));
  };
  const std::string tree = kTree;

  // Child-sum Tree-LSTM (Tai et al., 2015): two states, gates in one product, a helper function.
  add("tree_lstm", tree + R"(
fn @cell(%iou: Tensor[(1, 9), f32], %fc: Tensor[(1, 3), f32]) {
  let %i = slice(%iou) {axes = [1], starts = (0), ends = (3)};
  let %o = slice(%iou) {axes = [-1], starts = (3), ends = (6)};
  let %u = slice(%iou) {axes = [1], starts = (6), ends = (9)};
  let %is = sigmoid(%i);
  let %os = sigmoid(%o);
  let %ut = tanh(%u);
  let %iu = mul(%is, %ut);
  let %c = add(%iu, %fc);
  let %ct = tanh(%c);
  let %h = mul(%os, %ct);
  let %r = (%h, %c);
  %r
}
fn @lstm(%t: Tree, %w: Tensor[(4, 9), f32], %u: Tensor[(3, 9), f32], %f: Tensor[(3, 3), f32], %b: Tensor[(9), f32]) -> (Tensor[(1, 3), f32], Tensor[(1, 3), f32]) {
  let %r = match (%t) {
    Leaf(%x) => {
      let %p = matmul(%x, %w);
      let %q = add(%p, %b);
      let %none = full() {dtype = f32, shape = (1, 3), value = 0.0};
      let %s = @cell(%q, %none);
      %s
    }
    Node(%l, %m) => {
      let %sl = @lstm(%l, %w, %u, %f, %b);
      let %sm = @lstm(%m, %w, %u, %f, %b);
      let %hl = %sl[0];
      let %hm = %sm[0];
      let %cl = %sl[1];
      let %cm = %sm[1];
      let %h = add(%hl, %hm);
      let %p = matmul(%h, %u);
      let %q = add(%p, %b);
      let %pl = matmul(%hl, %f);
      let %pm = matmul(%hm, %f);
      let %fl = sigmoid(%pl);
      let %fm = sigmoid(%pm);
      let %kl = mul(%fl, %cl);
      let %km = mul(%fm, %cm);
      let %fc = add(%kl, %km);
      let %s = @cell(%q, %fc);
      %s
    }
  };
  %r
}
fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4, 9), f32], %u: Tensor[(3, 9), f32], %f: Tensor[(3, 3), f32], %b: Tensor[(9), f32]) {
  let %n = size() {value = n};
  let %some = maximum(%n, 1i64);
  let %t = @grow(0i64, %some, %x);
  let %s = @lstm(%t, %w, %u, %f, %b);
  %s
})");
  out.back().sizes = {{{"n", 1}}, {{"n", 2}}, {{"n", 7}}, {{"n", 33}}};

  // A GRU over vectors; words are numbers that look up a table.
  add("tree_gru", R"(
data Words { Word(Tensor[(), i64]); Two(Words, Words) }
fn @read(%i: Tensor[(), i64], %j: Tensor[(), i64], %x: Tensor[(n), i64]) -> Words {
  let %n = sub(%j, %i);
  let %one = less_equal(%n, 1i64);
  let %r = if (%one) {
    let %v = take_row(%x, %i);
    let %t = Word(%v);
    %t
  } else {
    let %part = div(%n, 2i64);
    let %m = add(%i, %part);
    let %a = @read(%i, %m, %x);
    let %b = @read(%m, %j, %x);
    let %t = Two(%a, %b);
    %t
  };
  %r
}
fn @gru(%table: Tensor[(5, 3), f32], %t: Words, %u: Tensor[(6, 3), f32], %z: Tensor[(3, 6), f32]) -> Tensor[(3), f32] {
  let %zt = transpose(%z) {axes = [1, 0]};
  let %r = match (%t) {
    Word(%i) => {
      let %e = take_row(%table, %i);
      %e
    }
    Two(%l, %m) => {
      let %a = @gru(%table, %l, %u, %z);
      let %b = @gru(%table, %m, %u, %z);
      let %ab = concat(%a, %b) {axis = 0};
      let %g = matmul(%ab, %zt);
      let %gate = sigmoid(%g);
      let %p = matmul(%ab, %u);
      let %new = tanh(%p);
      let %d = sub(%a, %new);
      let %k = mul(%gate, %d);
      let %h = add(%k, %new);
      %h
    }
  };
  %r
}
fn @main(%x: Tensor[(n), i64], %table: Tensor[(5, 3), f32], %u: Tensor[(6, 3), f32], %z: Tensor[(3, 6), f32]) {
  let %n = size() {value = n};
  let %t = @read(0i64, %n, %x);
  let %h = @gru(%table, %t, %u, %z);
  %h
})");
  out.back().sizes = {{{"n", 1}}, {{"n", 3}}, {{"n", 20}}};
  out.back().special = {{"x", {0, 4}}};

  // Any number of children: two functions that call each other, over two data types.
  add("many_children", R"(
data List[A] { Nil; Cons(A, List[A]) }
data Bush { Twig(Tensor[(1, 4), f32], List[Bush]) }
fn @bush(%d: Tensor[(), i64], %x: Tensor[(1, 4), f32]) -> Bush {
  let %kids = @kids(%d, %d, %x);
  let %t = Twig(%x, %kids);
  %t
}
fn @kids(%k: Tensor[(), i64], %d: Tensor[(), i64], %x: Tensor[(1, 4), f32]) -> List[Bush] {
  let %more = greater(%k, 0i64);
  let %r = if (%more) {
    let %e = sub(%d, 1i64);
    let %y = cos(%x);
    let %b = @bush(%e, %y);
    let %j = sub(%k, 1i64);
    let %rest = @kids(%j, %d, %y);
    let %l = Cons(%b, %rest);
    %l
  } else {
    let %none: List[Bush] = Nil();
    %none
  };
  %r
}
fn @height(%t: Bush, %w: Tensor[(4, 4), f32]) -> (Tensor[(1, 4), f32], Tensor[(), i64]) {
  let %r = match (%t) {
    Twig(%x, %kids) => {
      let %s = @all(%w, %kids);
      let %sum = %s[0];
      let %n = %s[1];
      let %p = matmul(%x, %w);
      let %q = sub(%p, %sum);
      let %h = tanh(%q);
      let %m = add(%n, 1i64);
      let %both = (%h, %m);
      %both
    }
  };
  %r
}
fn @all(%w: Tensor[(4, 4), f32], %l: List[Bush]) -> (Tensor[(1, 4), f32], Tensor[(), i64]) {
  let %r = match (%l) {
    Cons(%t, %rest) => {
      let %a = @height(%t, %w);
      let %b = @all(%w, %rest);
      let %a0 = %a[0];
      let %b0 = %b[0];
      let %a1 = %a[1];
      let %b1 = %b[1];
      let %h = add(%a0, %b0);
      let %n = add(%a1, %b1);
      let %both = (%h, %n);
      %both
    }
    _ => {
      let %h = full() {dtype = f32, shape = (1, 4), value = 0.0};
      let %both = (%h, 0i64);
      %both
    }
  };
  %r
}
fn @main(%d: Tensor[(), i64], %x: Tensor[(1, 4), f32], %w: Tensor[(4, 4), f32]) {
  let %t = @bush(%d, %x);
  let %r = @height(%t, %w);
  %r
})");
  out.back().special = {{"d", {0, 5}}};

  // Forty nodes that plain recursion would visit a million times: shared parts are computed once.
  add("dag", tree + R"(
fn @ladder(%k: Tensor[(), i64], %t: Tree) -> Tree {
  let %more = greater(%k, 0i64);
  let %r = if (%more) {
    let %two = Node(%t, %t);
    let %j = sub(%k, 1i64);
    let %u = @ladder(%j, %two);
    %u
  } else { %t };
  %r
}
fn @value(%t: Tree) -> Tensor[(1, 4), f32] {
  let %r = match (%t) {
    Leaf(%x) => { %x }
    Node(%l, %m) => {
      let %a = @value(%l);
      let %b = @value(%m);
      let %c = neg(%b);
      let %d = sub(%a, %c);
      let %e = tanh(%d);
      %e
    }
  };
  %r
}
fn @main(%k: Tensor[(), i64], %x: Tensor[(1, 4), f32]) {
  let %leaf = Leaf(%x);
  let %t = @ladder(%k, %leaf);
  let %y = @value(%t);
  %y
})");
  out.back().special = {{"k", {0, 12}}};

  // Trees of one batch share their steps; what is done with each one's result is up to the program.
  add("batch_of_trees", tree + R"(
data List[A] { Nil; Cons(A, List[A]) }
fn @value(%w: Tensor[(4, 4), f32], %t: Tree) -> (Tensor[(1, 4), f32], Tensor[(), i64]) {
  let %r = match (%t) {
    Leaf(%x) => { let %one = (%x, 1i64); %one }
    Node(%l, %m) => {
      let %a = @value(%w, %l);
      let %b = @value(%w, %m);
      let %a0 = %a[0];
      let %b0 = %b[0];
      let %a1 = %a[1];
      let %b1 = %b[1];
      let %d = sub(%a0, %b0);
      let %p = matmul(%d, %w);
      let %h = tanh(%p);
      let %n = add(%a1, %b1);
      let %two = (%h, %n);
      %two
    }
  };
  %r
}
fn @all(%l: List[Tree], %k: Tensor[(), i64], %w: Tensor[(4, 4), f32]) -> List[Tensor[(1, 4), f32]] {
  let %r = match (%l) {
    Nil => { let %n: List[Tensor[(1, 4), f32]] = Nil(); %n }
    Cons(%t, %rest) => {
      let %v = @value(%w, %t);
      let %h = %v[0];
      let %n = %v[1];
      let %m = mul(%n, %k);
      let %odd = mod(%m, 2i64);
      let %is = equal(%odd, 1i64);
      let %j = add(%k, 1i64);
      let %tail = @all(%rest, %j, %w);
      let %c = if (%is) { let %d = Cons(%h, %tail); %d } else { let %e = neg(%h); let %d = Cons(%e, %tail); %d };
      %c
    }
  };
  %r
}
fn @trees(%i: Tensor[(), i64], %x: Tensor[(n, 4), f32]) -> List[Tree] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %t = @grow(%i, %n, %x);
    let %j = add(%i, 1i64);
    let %rest = @trees(%j, %x);
    let %c = Cons(%t, %rest);
    %c
  } else {
    let %none: List[Tree] = Nil();
    %none
  };
  %r
}
fn @stack(%l: List[Tensor[(1, 4), f32]], %y: Tensor[(?, 4), f32]) -> Tensor[(?, 4), f32] {
  let %r = match (%l) {
    Nil => { %y }
    Cons(%h, %rest) => {
      let %z = concat(%y, %h) {axis = 0};
      let %all = @stack(%rest, %z);
      %all
    }
  };
  %r
}
fn @main(%x: Tensor[(n, 4), f32], %w: Tensor[(4, 4), f32]) {
  let %l = @trees(0i64, %x);
  let %r = @all(%l, 3i64, %w);
  let %none = full() {dtype = f32, shape = (0, 4), value = 0.0};
  let %y = @stack(%r, %none);
  %y
})");
  out.back().sizes = {{{"n", 0}}, {{"n", 1}}, {{"n", 2}}, {{"n", 13}}};

  // The order itself, as a program may ask for it.
  add("linearise", tree + R"(
fn @main(%x: Tensor[(n, 4), f32]) {
  let %n = size() {value = n};
  let %some = maximum(%n, 1i64);
  let %t = @grow(0i64, %some, %x);
  let %counts = count.linearise(%t) {schema = [2, 0, 0, 0, 1, 0, 11, 2, 1, 4, 0, 1, 2, 0, 0, 1, 0, 0]};
  let %read = read_extents(%counts) {symbols = ["s", "v", "a", "b"]};
  let %order = linearise(%t) {schema = [2, 0, 0, 0, 1, 0, 11, 2, 1, 4, 0, 1, 2, 0, 0, 1, 0, 0], steps = s, counts = (a, b)};
  %order
})");
  out.back().sizes = {{{"n", 1}}, {{"n", 2}}, {{"n", 19}}};

  // What is not batched, and stays right: a parameter that changes on the way down, control by
  // values in a case, a field of an open extent, a list.
  add("not_batched", tree + R"(
data Rows { One(Tensor[(?, 4), f32]); Both(Rows, Rows) }
data List[A] { Nil; Cons(A, List[A]) }
fn @depth(%t: Tree, %d: Tensor[(), i64]) -> Tensor[(), i64] {
  let %r = match (%t) {
    Leaf(%x) => { %d }
    Node(%l, %m) => {
      let %e = add(%d, 1i64);
      let %a = @depth(%l, %e);
      let %b = @depth(%m, %e);
      let %c = maximum(%a, %b);
      %c
    }
  };
  %r
}
fn @choose(%t: Tree) -> Tensor[(1, 4), f32] {
  let %r = match (%t) {
    Leaf(%x) => { %x }
    Node(%l, %m) => {
      let %a = @choose(%l);
      let %b = @choose(%m);
      let %sa = sum(%a) {axes = [0, 1], keepdims = false};
      let %sb = sum(%b) {axes = [0, 1], keepdims = false};
      let %less = less(%sa, %sb);
      let %c = if (%less) { %a } else { let %n = neg(%b); %n };
      %c
    }
  };
  %r
}
fn @total(%t: Rows) -> Tensor[(1, 4), f32] {
  let %r = match (%t) {
    One(%x) => { let %s = sum(%x) {axes = [0], keepdims = true}; %s }
    Both(%l, %m) => {
      let %a = @total(%l);
      let %b = @total(%m);
      let %c = sub(%a, %b);
      %c
    }
  };
  %r
}
fn @sum(%l: List[Tensor[(1, 4), f32]]) -> Tensor[(1, 4), f32] {
  let %r = match (%l) {
    Nil => { let %z = full() {dtype = f32, shape = (1, 4), value = 0.0}; %z }
    Cons(%x, %rest) => {
      let %s = @sum(%rest);
      let %y = add(%x, %s);
      %y
    }
  };
  %r
}
fn @main(%x: Tensor[(n, 4), f32], %o: Tensor[(1, 4), f32]) {
  let %n = size() {value = n};
  let %some = maximum(%n, 1i64);
  let %t = @grow(0i64, %some, %x);
  let %d = @depth(%t, 0i64);
  let %c = @choose(%t);
  let %one = One(%x);
  let %other = One(%o);
  let %b1 = Both(%one, %other);
  let %b2 = Both(%b1, %one);
  let %s = @total(%b2);
  let %none: List[Tensor[(1, 4), f32]] = Nil();
  let %l1 = Cons(%o, %none);
  let %l2 = Cons(%c, %l1);
  let %ls = @sum(%l2);
  let %r = (%d, %c, %s, %ls);
  %r
})");
  out.back().sizes = {{{"n", 1}}, {{"n", 2}}, {{"n", 9}}};
  return out;
}

}  // namespace nimble::driver::testing
