// Loops are recursive functions: counters in registers, accumulators written row by row. Where
// the old value of an accumulator is read again, the write must not happen in place.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

std::vector<Program> loop_programs() {
  std::vector<Program> out;
  auto add = [&](const char* name, const char* text, std::map<std::string, Range> special = {},
                 int64_t smallest = 0) -> Program& {
    out.push_back({name, text, {-1, 1}, std::move(special), smallest});
    return out.back();
  };
  add("count", R"(fn @loop(%i: Tensor[(), i64], %s: Tensor[(), i64]) -> Tensor[(), i64] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %t = add(%s, %i);
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %t);
    %u
  } else { %s };
  %r
}
fn @main(%n: Tensor[(), i64]) {
  let %r = @loop(%n, 0i64);
  %r
})",
      {{"n", {0, 1000}}});
  add("power",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(k, k), f32], %y: Tensor[(k, k), f32]) -> Tensor[(k, k), f32] {
  let %more = less(%i, 4i64);
  let %r = if (%more) {
    let %z = matmul(%y, %x);
    let %t = tanh(%z);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %t);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, n), f32]) {
  let %r = @loop(0i64, %x, %x);
  %r
})")
      .tolerance = 3e-4;
  // The accumulator is made by full and dead after each write: in place.
  add("rows_in_place",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %e = exp(%row);
    let %y2 = write_row(%y, %i, %e);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %y = full() {shape = (n, m), dtype = f32, value = 0.0};
  let %r = @loop(0i64, %x, %y);
  %r
})");
  // The caller still needs its accumulator: the loop must leave it alone.
  add("rows_kept_by_caller",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %e = exp(%row);
    let %y2 = write_row(%y, %i, %e);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %y = full() {shape = (n, m), dtype = f32, value = 0.5};
  let %a = @loop(0i64, %x, %y);
  let %b = sub(%a, %y);
  let %r = (%a, %b, %y);
  %r
})");
  // The same tensor is read and written.
  add("rows_of_itself",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %last = sub(%n, 1i64);
    let %k = sub(%last, %i);
    let %row = take_row(%x, %k);
    let %y2 = write_row(%y, %i, %row);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %z = mul(%x, 2.0f32);
  let %r = @loop(0i64, %z, %z);
  %r
})");
  // A row view of the old value lives on after the write.
  add("view_survives_write", R"(fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64]) {
  let %y = exp(%x);
  let %old = take_row(%y, %i);
  let %zero = full() {shape = (m,), dtype = f32, value = 0.0};
  let %z = write_row(%y, %i, %zero);
  let %s = add(%old, 1.0f32);
  let %r = (%z, %s);
  %r
})",
      {{"i", {0, 1}}}, 2);
  // Several rows at once, of a tensor that is then overwritten from its beginning.
  add("views_and_writes_of_rows", R"(fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64]) {
  let %y = exp(%x);
  let %part = take_rows(%y, %i) {count = n - 2};
  let %twice = mul(%part, 2.0f32);
  let %s = add(%part, 1.0f32);
  let %z = write_row(%y, 0i64, %twice);
  let %w = write_row(%z, %i, %s);
  let %r = (%w, %s);
  %r
})",
      {{"i", {0, 2}}}, 2);
  // Blocks of two rows, in place.
  add("rows_by_twos",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] {
  let %n = size() {value = n - 1};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %two = take_rows(%x, %i) {count = 2};
    let %e = exp(%two);
    let %y2 = write_row(%y, %i, %e);
    let %j = add(%i, 2i64);
    let %u = @loop(%j, %x, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %y = full() {shape = (n, m), dtype = f32, value = 0.5};
  let %r = @loop(0i64, %x, %y);
  %r
})");
  add("write_twice", R"(fn @main(%x: Tensor[(n, m), f32], %v: Tensor[(m), f32]) {
  let %y = exp(%x);
  let %a = write_row(%y, 0i64, %v);
  let %b = write_row(%a, 1i64, %v);
  let %c = write_row(%a, 0i64, %v);
  let %d = sub(%b, %c);
  let %r = (%b, %d);
  %r
})",
      {}, 2);
  add("write_in_branch",
      R"(fn @main(%x: Tensor[(n, m), f32], %p: Tensor[(), bool], %v: Tensor[(m), f32]) {
  let %y = exp(%x);
  let %z = if (%p) { let %a = write_row(%y, 0i64, %v); %a } else { %y };
  let %s = sub(%z, %y);
  let %r = (%s, %z);
  %r
})",
      {}, 1);
  add("write_in_both_branches",
      R"(fn @main(%x: Tensor[(n, m), f32], %p: Tensor[(), bool], %v: Tensor[(m), f32]) {
  let %y = exp(%x);
  let %z = if (%p) { let %a = write_row(%y, 0i64, %v); %a }
           else { let %w = neg(%v); let %b = write_row(%y, 1i64, %w); %b };
  let %s = add(%z, %x);
  %s
})",
      {}, 2);
  add("write_view", R"(fn @main(%x: Tensor[(n, 6), f32], %v: Tensor[(6), f32]) {
  let %y = exp(%x);
  let %f = reshape(%y) {shape = (n, 6)};
  let %g = reshape(%y) {shape = (n, 2, 3)};
  let %z = write_row(%f, 0i64, %v);
  let %s = sum(%g) {axes = [1], keepdims = false};
  let %r = (%z, %s);
  %r
})",
      {}, 1);
  add("write_parameter",
      R"(fn @put(%y: Tensor[(a, c), f32], %v: Tensor[(c), f32]) -> Tensor[(a, c), f32] {
  let %z = write_row(%y, 0i64, %v);
  %z
}
fn @main(%x: Tensor[(n, m), f32], %v: Tensor[(m), f32]) {
  let %a = @put(%x, %v);
  let %e = exp(%x);
  let %b = @put(%e, %v);
  let %c = @put(%e, %v);
  let %d = add(%b, %c);
  let %r = (%a, %d, %x);
  %r
})",
      {}, 1);
  add("carried_twice",
      R"(fn @loop(%i: Tensor[(), i64], %a: Tensor[(n, m), f32], %b: Tensor[(n, m), f32]) -> (Tensor[(n, m), f32], Tensor[(n, m), f32]) {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%b, %i);
    let %e = exp(%row);
    let %a2 = write_row(%a, %i, %e);
    let %row2 = take_row(%a2, 0i64);
    let %b2 = write_row(%b, %i, %row2);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %b2, %a2);
    %u
  } else { let %t = (%a, %b); %t };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %a = full() {shape = (n, m), dtype = f32, value = 0.25};
  let %b = mul(%x, 0.5f32);
  let %t = @loop(0i64, %a, %b);
  let %c = %t[0];
  let %d = %t[1];
  let %r = (%c, %d);
  %r
})")
      .sizes = {
      {{"n", 0}, {"m", 3}}, {{"n", 1}, {"m", 3}}, {{"n", 3}, {"m", 17}}, {{"n", 4}, {"m", 1}}};
  // The accumulator grows: its extent is unknown to the types.
  add("grows",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, m), f32], %y: Tensor[(?, m), f32]) -> Tensor[(?, m), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %u1 = unsqueeze(%row) {axes = [0]};
    let %y2 = concat(%y, %u1, %u1) {axis = 0};
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %y = full() {shape = (1, m), dtype = f32, value = 9.0};
  let %r = @loop(0i64, %x, %y);
  let %e = exp(%r);
  %e
})");
  add("mutual", R"(fn @even(%i: Tensor[(), i64], %x: Tensor[(k), f32]) -> Tensor[(k), f32] {
  let %stop = less_equal(%i, 0i64);
  let %r = if (%stop) { %x } else {
    let %y = add(%x, 1.0f32);
    let %j = sub(%i, 1i64);
    let %u = @odd(%j, %y);
    %u
  };
  %r
}
fn @odd(%i: Tensor[(), i64], %x: Tensor[(k), f32]) -> Tensor[(k), f32] {
  let %stop = less_equal(%i, 0i64);
  let %r = if (%stop) { let %z = neg(%x); %z } else {
    let %y = mul(%x, 0.5f32);
    let %j = sub(%i, 1i64);
    let %u = @even(%j, %y);
    %u
  };
  %r
}
fn @main(%x: Tensor[(n), f32], %i: Tensor[(), i64]) {
  let %r = @even(%i, %x);
  %r
})",
      {{"i", {0, 9}}});
  // Not a tail call: every level keeps a frame and a tensor.
  add("recursion", R"(fn @f(%i: Tensor[(), i64], %x: Tensor[(k), f32]) -> Tensor[(k), f32] {
  let %stop = less_equal(%i, 0i64);
  let %r = if (%stop) { %x } else {
    let %j = sub(%i, 1i64);
    let %h = mul(%x, 0.5f32);
    let %a = @f(%j, %h);
    let %b = @f(%j, %x);
    let %c = sub(%a, %b);
    let %d = add(%c, %x);
    %d
  };
  %r
}
fn @main(%x: Tensor[(n), f32], %i: Tensor[(), i64]) {
  let %r = @f(%i, %x);
  %r
})",
      {{"i", {0, 6}}});
  add("tuple_state",
      R"(fn @loop(%i: Tensor[(), i64], %s: (Tensor[(k), f32], Tensor[(), i64])) -> (Tensor[(k), f32], Tensor[(), i64]) {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %x = %s[0];
    let %c = %s[1];
    let %y = sin(%x);
    let %d = add(%c, %i);
    let %t = (%y, %d);
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %t);
    %u
  } else { %s };
  %r
}
fn @main(%x: Tensor[(n), f32]) {
  let %s = (%x, 0i64);
  let %t = @loop(5i64, %s);
  let %a = %t[0];
  let %b = %t[1];
  let %r = (%a, %b);
  %r
})");
  add("halt_on_data",
      R"(fn @loop(%x: Tensor[(n), f32], %steps: Tensor[(), i64]) -> (Tensor[(n), f32], Tensor[(), i64]) {
  let %top = reduce_max(%x) {axes = [0], keepdims = false};
  let %big = greater(%top, 0.1f32);
  let %less = less(%steps, 50i64);
  let %go = and(%big, %less);
  let %r = if (%go) {
    let %h = mul(%x, 0.5f32);
    let %s = add(%steps, 1i64);
    let %u = @loop(%h, %s);
    %u
  } else { let %t = (%x, %steps); %t };
  %r
}
fn @main(%x: Tensor[(n), f32]) {
  let %t = @loop(%x, 0i64);
  let %a = %t[0];
  let %b = %t[1];
  let %r = (%a, %b);
  %r
})",
      {}, 1);
  Program& lstm = add("lstm", R"(fn @main(%x: Tensor[(n, 1, 6), f32]) {
  let %zero = full() {shape = (1, 8), dtype = f32, value = 0.0};
  let %y0 = full() {shape = (n, 1, 8), dtype = f32, value = 0.0};
  let %wi = range() {count = 192, start = 0, step = 1, dtype = f32};
  let %ws = sin(%wi);
  let %w = reshape(%ws) {shape = (6, 32)};
  let %ui = range() {count = 256, start = 3, step = 2, dtype = f32};
  let %us = sin(%ui);
  let %u = reshape(%us) {shape = (8, 32)};
  let %y = @loop(0i64, %x, %zero, %zero, %y0, %w, %u);
  %y
}
fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, 1, 6), f32], %h: Tensor[(1, 8), f32],
         %c: Tensor[(1, 8), f32], %y: Tensor[(n, 1, 8), f32], %w: Tensor[(6, 32), f32],
         %u: Tensor[(8, 32), f32]) -> Tensor[(n, 1, 8), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %result = if (%more) {
    let %xt = take_row(%x, %i);
    let %p = matmul(%xt, %w);
    let %q = matmul(%h, %u);
    let %gates = add(%p, %q);
    let %gi = slice(%gates) {axes = [1], starts = (0,), ends = (8,)};
    let %gf = slice(%gates) {axes = [1], starts = (8,), ends = (16,)};
    let %gg = slice(%gates) {axes = [1], starts = (16,), ends = (24,)};
    let %go = slice(%gates) {axes = [1], starts = (24,), ends = (32,)};
    let %si = sigmoid(%gi);
    let %sf = sigmoid(%gf);
    let %tg = tanh(%gg);
    let %so = sigmoid(%go);
    let %kept = mul(%sf, %c);
    let %entered = mul(%si, %tg);
    let %c1 = add(%kept, %entered);
    let %tc = tanh(%c1);
    let %h1 = mul(%so, %tc);
    let %y1 = write_row(%y, %i, %h1);
    let %next = add(%i, 1i64);
    let %rest = @loop(%next, %x, %h1, %c1, %y1, %w, %u);
    %rest
  } else {
    %y
  };
  %result
})");
  lstm.tolerance = 3e-4;
  return out;
}

}  // namespace nimble::driver::testing
