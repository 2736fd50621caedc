// Programs that name devices themselves: copies, annotations, whole functions elsewhere. Placed
// wrongly they would fail; that they do what they should shows in device_test.cpp.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

std::vector<Program> device_programs() {
  std::vector<Program> out;
  auto add = [&](const char* name, const char* text, std::map<std::string, Range> special = {},
                 int64_t smallest = 0) -> Program& {
    out.push_back({name, text, {-1, 1}, std::move(special), smallest});
    return out.back();
  };
  add("device_there_and_back", R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %a = device_copy(%x) {device = 1};
  let %b = softmax(%a) {axis = 1};
  let %c = device_copy(%b) {device = 0, from = 1};
  let %d = sum(%c) {axes = [0], keepdims = false};
  %d
})",
      {}, 1);
  // Only the kernel in the middle is named; the softmax on both sides has no reason to be apart.
  add("device_annotated", R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %a = softmax(%x) {axis = 1};
  let %b = softmax(%a) {axis = 0};
  let %c = on_device(%b) {device = 1};
  let %d = softmax(%c) {axis = 1};
  %d
})",
      {}, 1);
  add("device_alternating",
      R"(fn @here(%x: Tensor[(k, m), f32]) -> Tensor[(k, m), f32] attrs {device = 0} {
  let %y = softmax(%x) {axis = 1};
  %y
}
fn @there(%x: Tensor[(k, m), f32]) -> Tensor[(k, m), f32] attrs {device = 1} {
  let %y = softmax(%x) {axis = 0};
  %y
}
fn @main(%x: Tensor[(n, m), f32]) {
  let %a = @there(%x);
  let %b = @here(%a);
  let %c = @there(%b);
  let %d = @here(%c);
  let %e = @there(%d);
  %e
})",
      {}, 1);
  // The matrix is the loop's, and both devices read it at every step.
  add("device_loop_invariant",
      R"(fn @left(%x: Tensor[(k, k), f32], %w: Tensor[(k, k), f32]) -> Tensor[(k, k), f32] attrs {device = 0} {
  let %y = matmul(%x, %w);
  let %z = tanh(%y);
  %z
}
fn @right(%x: Tensor[(k, k), f32], %w: Tensor[(k, k), f32]) -> Tensor[(k, k), f32] attrs {device = 1} {
  let %y = matmul(%w, %x);
  let %z = tanh(%y);
  %z
}
fn @loop(%i: Tensor[(), i64], %x: Tensor[(k, k), f32], %w: Tensor[(k, k), f32]) -> Tensor[(k, k), f32] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %a = @left(%x, %w);
    let %b = @right(%a, %w);
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %b, %w);
    %u
  } else { %x };
  %r
}
fn @main(%x: Tensor[(n, n), f32], %w: Tensor[(n, n), f32]) {
  let %r = @loop(4i64, %x, %w);
  %r
})")
      .tolerance = 3e-4;
  // The copy is asked for at every step, of a value that no step changes.
  add("device_copy_in_loop",
      R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(k, k), f32], %w: Tensor[(k, k), f32]) -> Tensor[(k, k), f32] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %there = device_copy(%w) {device = 1};
    let %y = matmul(%x, %there);
    let %z = tanh(%y);
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %z, %w);
    %u
  } else { %x };
  %r
}
fn @main(%x: Tensor[(n, n), f32], %w: Tensor[(n, n), f32]) {
  let %r = @loop(3i64, %x, %w);
  %r
})")
      .tolerance = 3e-4;
  add("device_branches",
      R"(fn @there(%x: Tensor[(k), f32]) -> Tensor[(k), f32] attrs {device = 1} {
  let %y = exp(%x);
  %y
}
fn @here(%x: Tensor[(k), f32]) -> Tensor[(k), f32] attrs {device = 0} {
  let %y = sin(%x);
  %y
}
fn @main(%x: Tensor[(n), f32], %p: Tensor[(), bool]) {
  let %y = cos(%x);
  let %a = if (%p) { let %t = @there(%y); %t } else { let %h = @here(%y); %h };
  let %b = if (%p) { %y } else { let %t2 = @there(%y); %t2 };
  let %c = add(%a, %b);
  %c
})");
  // A tuple of which one half has to move, and a scalar that a kernel there computes.
  add("device_tuple",
      R"(fn @there(%x: Tensor[(k), f32]) -> (Tensor[(k), f32], Tensor[(), i64]) attrs {device = 1} {
  let %y = exp(%x);
  let %i = argmax(%y) {axis = 0, keepdims = false};
  let %t = (%y, %i);
  %t
}
fn @both(%t: (Tensor[(k), f32], Tensor[(k), f32])) -> Tensor[(k), f32] attrs {device = 0} {
  let %a = %t[0];
  let %b = %t[1];
  let %c = mul(%a, %b);
  %c
}
fn @main(%x: Tensor[(n), f32]) {
  let %t = @there(%x);
  let %y = %t[0];
  let %i = %t[1];
  let %e = take_row(%x, %i);
  let %s = (%y, %x);
  let %z = @both(%s);
  let %w = add(%z, %e);
  let %r = (%w, %i);
  %r
})",
      {}, 1);
  add("device_condition",
      R"(fn @loop(%x: Tensor[(n), f32], %steps: Tensor[(), i64]) -> (Tensor[(n), f32], Tensor[(), i64]) attrs {device = 1} {
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
  add("device_rows",
      R"(fn @loop(%i: Tensor[(), i64], %ids: Tensor[(n), i64], %table: Tensor[(9, m), f32], %y: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] attrs {device = 1} {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %id = take_row(%ids, %i);
    let %row = take_row(%table, %id);
    let %e = exp(%row);
    let %y2 = write_row(%y, %i, %e);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %ids, %table, %y2);
    %u
  } else { %y };
  %r
}
fn @main(%ids: Tensor[(n), i64], %table: Tensor[(9, m), f32]) {
  let %y = full() {shape = (n, m), dtype = f32, value = 0.0};
  let %r = @loop(0i64, %ids, %table, %y);
  let %b = sum(%table) {axes = [0], keepdims = false};
  let %s = add(%r, %b);
  %s
})",
      {{"ids", {0, 8}}});
  // One constant, read on both devices, as an operand, in a tuple and as a branch's value.
  add("device_constants",
      R"(fn @there(%x: Tensor[(3), f32], %p: Tensor[(), bool]) -> Tensor[(3), f32] attrs {device = 1} {
  let %y = add(%x, f32[3]{1, 2, 3});
  let %c = if (%p) { f32[3]{1, 2, 3} } else { %y };
  let %z = mul(%c, %y);
  %z
}
fn @main(%x: Tensor[(3), f32], %p: Tensor[(), bool]) {
  let %a = @there(%x, %p);
  let %b = @there(f32[3]{4, 5, 6}, %p);
  let %c = sub(%a, f32[3]{1, 2, 3});
  let %r = (%b, %c);
  %r
})");
  return out;
}

}  // namespace nimble::driver::testing
