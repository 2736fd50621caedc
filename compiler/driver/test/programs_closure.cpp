// Closures: what they capture, where they go, how they are called.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

std::vector<Program> closure_programs() {
  std::vector<Program> out;
  auto add = [&](const char* name, const char* text, std::map<std::string, Range> special = {},
                 int64_t smallest = 0) -> Program& {
    out.push_back({name, text, {-1, 1}, std::move(special), smallest});
    return out.back();
  };
  add("captures_tensor_and_scalar", R"(
fn @twice(%f: fn(Tensor[(n), f32]) -> Tensor[(n), f32], %x: Tensor[(n), f32]) -> Tensor[(n), f32] {
  let %a = %f(%x);
  let %b = %f(%a);
  %b
}
fn @main(%x: Tensor[(n), f32], %y: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %f = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] {
    let %s = cast(%k) {dtype = f32};
    let %a = mul(%v, %s);
    let %b = add(%a, %y);
    %b
  };
  let %r = @twice(%f, %x);
  %r
})",
      {{"k", {-3, 3}}});
  // Only symbols are captured: no tensor of these extents is mentioned in the body.
  add("captures_symbols", R"(
fn @call(%f: fn() -> Tensor[(?, ?), f32]) -> Tensor[(?, ?), f32] { let %r = %f(); %r }
fn @main(%x: Tensor[(n, m), f32], %y: Tensor[(k), f32]) {
  let %f = fn() -> Tensor[(?, ?), f32] {
    let %a = full() {shape = (n + k, m), dtype = f32, value = 1.5};
    %a
  };
  let %g = fn(%i: Tensor[(), i64]) -> Tensor[(), i64] {
    let %n = size() {value = n * m};
    let %j = add(%n, %i);
    %j
  };
  let %a = @call(%f);
  let %b = %g(3i64);
  let %r = (%a, %b);
  %r
})");
  add("captures_closures", R"(
fn @compose[A, B, C](%f: fn(A) -> B, %g: fn(B) -> C) -> fn(A) -> C {
  let %h = fn(%x: A) -> C { let %y = %f(%x); let %z = %g(%y); %z };
  %h
}
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %f = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] { let %a = exp(%v); %a };
  let %g = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] { let %a = add(%v, %x); %a };
  let %h = @compose(%f, %g);
  let %hh = @compose(%h, %h);
  let %i = fn(%v: Tensor[(), i64]) -> Tensor[(), i64] { let %a = add(%v, %k); %a };
  let %ii = @compose(%i, %i);
  let %y = %hh(%x);
  let %j = %ii(100i64);
  let %r = (%y, %j);
  %r
})",
      {{"k", {-3, 3}}})
      .tolerance = 1e-4;
  add("chosen_by_if", R"(
fn @main(%x: Tensor[(n), f32], %p: Tensor[(), bool], %q: Tensor[(), bool]) {
  let %e = exp(%x);
  let %f = if (%p) {
    let %g = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] { let %a = add(%v, %e); %a };
    %g
  } else {
    let %g = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] { let %a = tanh(%v); %a };
    %g
  };
  let %a = %f(%x);
  let %b = if (%q) { let %c = %f(%a); %c } else { %a };
  let %r = (%a, %b);
  %r
})");
  add("stored_in_data", R"(
data List[A] { Nil; Cons(A, List[A]) }
fn @pipeline(%fs: List[fn(Tensor[(n), f32]) -> Tensor[(n), f32]], %x: Tensor[(n), f32]) -> Tensor[(n), f32] {
  let %r = match (%fs) {
    Nil => { %x }
    Cons(%f, %rest) => { let %y = %f(%x); let %z = @pipeline(%rest, %y); %z }
  };
  %r
}
fn @layers(%i: Tensor[(), i64], %ws: Tensor[(l, n), f32]) -> List[fn(Tensor[(n), f32]) -> Tensor[(n), f32]] {
  let %l = size() {value = l};
  let %more = less(%i, %l);
  let %r = if (%more) {
    let %w = take_row(%ws, %i);
    let %f = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] {
      let %a = mul(%v, %w);
      let %b = tanh(%a);
      %b
    };
    let %j = add(%i, 1i64);
    let %rest = @layers(%j, %ws);
    let %c = Cons(%f, %rest);
    %c
  } else { let %e: List[fn(Tensor[(n), f32]) -> Tensor[(n), f32]] = Nil(); %e };
  %r
}
fn @main(%x: Tensor[(n), f32], %ws: Tensor[(l, n), f32]) {
  let %fs = @layers(0i64, %ws);
  let %r = @pipeline(%fs, %x);
  %r
})");
  add("called_in_loop", R"(
fn @iterate[A](%f: fn(A) -> A, %i: Tensor[(), i64], %x: A) -> A {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %y = %f(%x);
    let %j = sub(%i, 1i64);
    let %z = @iterate(%f, %j, %y);
    %z
  } else { %x };
  %r
}
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %f = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] { let %a = add(%v, %x); let %b = tanh(%a); %b };
  let %y = @iterate(%f, %k, %x);
  let %g = fn(%c: Tensor[(), i64]) -> Tensor[(), i64] { let %d = mul(%c, 3i64); let %e = mod(%d, 101i64); %e };
  let %j = @iterate(%g, %k, 2i64);
  let %r = (%y, %j);
  %r
})",
      {{"k", {0, 50}}});
  // A step that is a tail call of a closure; closures made anew at each step.
  add("continuation_passing", R"(
fn @sum(%i: Tensor[(), i64], %k: fn(Tensor[(), i64]) -> Tensor[(), i64]) -> Tensor[(), i64] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %next = fn(%s: Tensor[(), i64]) -> Tensor[(), i64] {
      let %t = add(%s, %i);
      let %u = %k(%t);
      %u
    };
    let %j = sub(%i, 1i64);
    let %v = @sum(%j, %next);
    %v
  } else { let %v = %k(0i64); %v };
  %r
}
fn @main(%n: Tensor[(), i64]) {
  let %id = fn(%s: Tensor[(), i64]) -> Tensor[(), i64] { %s };
  let %r = @sum(%n, %id);
  %r
})",
      {{"n", {0, 300}}});
  // Literals inside of literals; a captured variable comes through both.
  add("nested_literals", R"(
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64], %p: Tensor[(), bool]) {
  let %e = exp(%x);
  let %f = fn(%i: Tensor[(), i64]) -> fn(Tensor[(n), f32]) -> Tensor[(n), f32] {
    let %j = add(%i, %k);
    let %g = fn(%v: Tensor[(n), f32]) -> Tensor[(n), f32] {
      let %s = cast(%j) {dtype = f32};
      let %a = mul(%v, %s);
      let %b = add(%a, %e);
      %b
    };
    %g
  };
  let %g1 = %f(1i64);
  let %g2 = %f(2i64);
  let %g = if (%p) { %g1 } else { %g2 };
  let %y = %g(%x);
  let %z = %g2(%y);
  let %r = (%y, %z);
  %r
})",
      {{"k", {-3, 3}}});
  // A closure still sees the tensor: it must not be overwritten.
  add("closure_sees_old_value", R"(
fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64]) {
  let %y = exp(%x);
  let %f = fn(%a: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] { let %b = sub(%a, %y); %b };
  let %v = full() {shape = (m), dtype = f32, value = 7.0};
  let %w = write_row(%y, %i, %v);
  let %d = %f(%w);
  let %r = (%d, %w);
  %r
})",
      {{"i", {0, 0}}}, 1);
  return out;
}

}  // namespace nimble::driver::testing
