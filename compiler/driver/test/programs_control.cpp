// Branches, calls, tuples through both, checks of extents at run time.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

std::vector<Program> control_programs() {
  std::vector<Program> out;
  auto add = [&](const char* name, const char* text, std::map<std::string, Range> special = {},
                 int64_t smallest = 0) -> Program& {
    out.push_back({name, text, {-2, 2}, std::move(special), smallest});
    return out.back();
  };
  add("if_of_parameter", R"(fn @main(%x: Tensor[(n, m), f32], %p: Tensor[(), bool]) {
  let %y = if (%p) { let %a = exp(%x); let %b = add(%a, %x); %b } else { let %c = relu(%x); %c };
  let %z = add(%y, 1.0f32);
  %z
})");
  add("if_passes_on", R"(fn @main(%x: Tensor[(n), f32], %p: Tensor[(), bool]) {
  let %e = exp(%x);
  let %y = if (%p) { %e } else { %x };
  let %z = if (%p) { %x } else { let %a = neg(%e); %a };
  let %s = add(%y, %z);
  let %r = (%s, %y, %z, %e);
  %r
})");
  add("if_nested", R"(fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %neg = less(%k, 0i64);
  let %y = if (%neg) {
    let %small = less(%k, -1i64);
    let %a = if (%small) { let %b = exp(%x); %b } else { %x };
    let %c = tanh(%a);
    %c
  } else {
    let %zero = equal(%k, 0i64);
    let %d = if (%zero) { let %e = neg(%x); %e } else {
      let %f = mul(%x, %x);
      let %one = equal(%k, 1i64);
      let %g = if (%one) { %f } else { let %h = sqrt(%f); %h };
      %g
    };
    %d
  };
  %y
})",
      {{"k", {-2, 2}}});
  add("if_scalar_result", R"(fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %p = greater(%k, 0i64);
  let %j = if (%p) { let %a = mul(%k, 2i64); %a } else { 7i64 };
  let %q = if (%p) { let %n = not(%p); %n } else { true };
  let %f = cast(%j) {dtype = f32};
  let %y = mul(%x, %f);
  let %r = (%j, %q, %y);
  %r
})",
      {{"k", {-2, 2}}});
  add("if_tuple", R"(fn @main(%x: Tensor[(n), f32], %p: Tensor[(), bool]) {
  let %t = if (%p) {
    let %a = exp(%x);
    let %u = (%a, %x, 3i64);
    %u
  } else {
    let %b = neg(%x);
    let %v = (%x, %b, 4i64);
    %v
  };
  let %l = %t[0];
  let %m = %t[1];
  let %k = %t[2];
  let %s = sub(%l, %m);
  let %r = (%s, %k, %m);
  %r
})");
  add("if_different_extents", R"(fn @main(%x: Tensor[(n, 3), f32], %p: Tensor[(), bool]) {
  let %y = if (%p) { let %a = concat(%x, %x) {axis = 0}; %a }
           else { let %b = slice(%x) {axes = [0], starts = (1,), ends = (1000,)}; %b };
  let %z = exp(%y);
  let %s = shape_of(%z);
  let %r = (%z, %s);
  %r
})");
  add("if_then_unequal", R"(fn @main(%x: Tensor[(n, 3), f32], %p: Tensor[(), bool]) {
  let %y = if (%p) { %x } else { let %b = slice(%x) {axes = [0], starts = (1,), ends = (1000,)}; %b };
  let %z = sub(%y, %x);
  %z
})",
      {}, 2);
  add("if_constants", R"(fn @main(%x: Tensor[(n), f32], %p: Tensor[(), bool]) {
  let %y = if (%p) { f32[2]{1, 2} } else { f32[2]{3, 4} };
  let %k = if (true) { 5i64 } else { 6i64 };
  let %s = sum(%x) {axes = [0], keepdims = true};
  let %z = add(%y, %s);
  let %r = (%z, %y, %k);
  %r
})");
  add("if_on_extent", R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %n = size() {value = n};
  let %m = size() {value = m};
  let %tall = greater(%n, %m);
  let %y = if (%tall) { let %a = sum(%x) {axes = [0], keepdims = false}; %a }
           else { let %b = sum(%x) {axes = [1], keepdims = false}; %b };
  %y
})");
  add("calls", R"(fn @half(%x: Tensor[(k), f32]) -> Tensor[(k), f32] {
  let %y = mul(%x, 0.5f32);
  %y
}
fn @norm(%x: Tensor[(a, c), f32]) -> Tensor[(a), f32] {
  let %s = mul(%x, %x);
  let %t = sum(%s) {axes = [1], keepdims = false};
  let %u = @half(%t);
  %u
}
fn @main(%x: Tensor[(n, m), f32], %y: Tensor[(m, 5), f32]) {
  let %a = @norm(%x);
  let %b = @norm(%y);
  let %t = transpose(%x) {axes = [1, 0]};
  let %c = @norm(%t);
  let %d = sub(%b, %c);
  let %e = @half(%d);
  let %r = (%a, %e);
  %r
})");
  add("call_returns_tuple",
      R"(fn @both(%x: Tensor[(k, 4), f32], %s: Tensor[(), i64]) -> (Tensor[(k, 4), f32], Tensor[(), i64], Tensor[(k), f32]) {
  let %e = exp(%x);
  let %t = add(%s, 1i64);
  let %u = sum(%e) {axes = [1], keepdims = false};
  let %r = (%e, %t, %u);
  %r
}
fn @main(%x: Tensor[(n, 4), f32], %k: Tensor[(), i64]) {
  let %a = @both(%x, %k);
  let %x2 = %a[0];
  let %k2 = %a[1];
  let %sc = mul(%x2, 0.1f32);
  let %b = @both(%sc, %k2);
  let %y = %b[0];
  let %k3 = %b[1];
  let %u = %b[2];
  let %r = (%y, %k3, %u);
  %r
})");
  add("tuple_parameter",
      R"(fn @swap(%t: (Tensor[(a), f32], Tensor[(c), f32])) -> (Tensor[(c), f32], Tensor[(a), f32]) {
  let %l = %t[0];
  let %r = %t[1];
  let %s = (%r, %l);
  %s
}
fn @main(%x: Tensor[(n), f32], %y: Tensor[(m), f32]) {
  let %t = (%x, %y);
  let %s = @swap(%t);
  let %a = %s[0];
  let %e = exp(%a);
  let %b = %s[1];
  let %r = (%e, %b);
  %r
})");
  add("nested_tuple", R"(fn @pair(%x: Tensor[(k), f32]) {
  let %a = neg(%x);
  let %i = (%a, 2i64);
  let %o = (%i, %x);
  %o
}
fn @main(%x: Tensor[(n), f32]) {
  let %t = @pair(%x);
  let %i = %t[0];
  let %a = %i[0];
  let %k = %i[1];
  let %b = %t[1];
  let %s = sub(%a, %b);
  let %r = (%s, %k);
  %r
})");
  add("assert_equal_symbols", R"(fn @main(%x: Tensor[(n, 2), f32], %y: Tensor[(m, 2), f32]) {
  let %c = concat(%x, %y) {axis = 1};
  let %e = exp(%c);
  %e
})")
      .sizes = {
      {{"n", 3}, {"m", 3}}, {{"n", 3}, {"m", 4}}, {{"n", 0}, {"m", 0}}, {{"n", 1}, {"m", 3}}};
  add("assert_explicit", R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %y = assert_shape(%x) {left = (n, m), right = (2*m, 5), what = "twice as tall"};
  let %z = exp(%y);
  %z
})")
      .sizes = {{{"n", 10}, {"m", 5}}, {{"n", 9}, {"m", 5}}, {{"n", 10}, {"m", 6}}};
  add("several_results_share", R"(fn @main(%x: Tensor[(n), f32]) {
  let %e = exp(%x);
  let %r = reshape(%e) {shape = (n, 1)};
  let %t = (%e, %r, %e, %x, %x);
  %t
})");
  // The result of a call may be its argument.
  add("call_returns_argument", R"(
fn @id(%x: Tensor[(n, m), f32]) -> Tensor[(n, m), f32] { %x }
fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64]) {
  let %y = exp(%x);
  let %same = @id(%y);
  let %v = full() {shape = (m), dtype = f32, value = 7.0};
  let %w = write_row(%y, %i, %v);
  let %r = (%same, %w);
  %r
})",
      {{"i", {0, 0}}}, 1);
  // A tuple becomes a value in both branches (storage must dominate its uses across if).
  add("tuple_made_in_both_branches",
      R"(fn @first(%p: (Tensor[(n), f32], Tensor[(), i64])) -> Tensor[(n), f32] { let %a = %p[0]; %a }
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) {
  let %e = exp(%x);
  let %p = (%e, %k);
  let %positive = greater(%k, 0i64);
  let %r = if (%positive) {
    let %a = @first(%p);
    let %b = neg(%a);
    %b
  } else {
    let %a = @first(%p);
    %a
  };
  %r
})",
      {{"k", {-2, 2}}});
  // The entry calls itself: its scalars are boxed for callers outside only.
  add("entry_called_from_inside", R"(
fn @main(%x: Tensor[(n), f32], %k: Tensor[(), i64]) -> (Tensor[(n), f32], Tensor[(), i64]) {
  let %more = greater(%k, 0i64);
  let %r = if (%more) {
    let %y = tanh(%x);
    let %j = sub(%k, 1i64);
    let %s = @main(%y, %j);
    %s
  } else { let %s = (%x, %k); %s };
  %r
})",
      {{"k", {0, 9}}});
  return out;
}

}  // namespace nimble::driver::testing
