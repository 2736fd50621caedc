// Rank-0 integers and bools: unboxed in registers, in and out of kernels and entries.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {

std::vector<Program> scalar_programs() {
  std::vector<Program> out;
  auto add = [&](const char* name, const char* text, Range values = {-9, 9},
                 std::map<std::string, Range> special = {}) -> Program& {
    out.push_back({name, text, values, std::move(special)});
    return out.back();
  };
  add("scalar_arithmetic", R"(fn @main(%a: Tensor[(), i64], %b: Tensor[(), i64]) {
  let %s = add(%a, %b);
  let %d = sub(%s, 3i64);
  let %m = mul(%d, %a);
  let %q = div(%m, 4i64);
  let %r = mod(%m, -5i64);
  let %x = maximum(%q, %r);
  let %y = minimum(%x, %b);
  let %n = neg(%y);
  let %t = (%s, %d, %m, %q, %r, %x, %y, %n);
  %t
})");
  add("scalar_division_signs", R"(fn @main(%a: Tensor[(), i64], %b: Tensor[(), i64]) {
  let %na = neg(%a);
  let %nb = neg(%b);
  let %t = (div(%a, %b), div(%na, %b), div(%a, %nb), div(%na, %nb));
  %t
})",
      {1, 9});
  out.back().text = R"(fn @main(%a: Tensor[(), i64], %b: Tensor[(), i64]) {
  let %na = neg(%a);
  let %nb = neg(%b);
  let %p = div(%a, %b);
  let %q = div(%na, %b);
  let %r = div(%a, %nb);
  let %s = div(%na, %nb);
  let %u = mod(%na, %b);
  let %v = mod(%a, %nb);
  let %t = (%p, %q, %r, %s, %u, %v);
  %t
})";
  add("scalar_logic", R"(fn @main(%a: Tensor[(), i64], %p: Tensor[(), bool], %q: Tensor[(), bool]) {
  let %l = less(%a, 3i64);
  let %g = greater(%a, -3i64);
  let %ge = greater_equal(%a, 2i64);
  let %le = less_equal(%a, 2i64);
  let %e = equal(%a, 0i64);
  let %ne = not_equal(%a, 0i64);
  let %x = and(%p, %l);
  let %y = or(%x, %q);
  let %z = not(%y);
  let %w = where(%z, %a, 100i64);
  let %c = cast(%p) {dtype = i64};
  let %b = cast(%a) {dtype = bool};
  let %t = (%l, %g, %ge, %le, %e, %ne, %x, %y, %z, %w, %c, %b);
  %t
})");
  add("scalar_identity",
      R"(fn @main(%a: Tensor[(), i64], %p: Tensor[(), bool], %x: Tensor[(n), f32]) {
  let %t = (%a, %p, %x, %a);
  %t
})");
  add("identity", "fn @main(%x: Tensor[(n, m), f32]) { %x }");
  add("identity_scalar", "fn @main(%x: Tensor[(), i64]) { %x }");
  add("identity_float_scalar", "fn @main(%x: Tensor[(), f32]) { let %y = exp(%x); %y }", {-1, 1});
  add("scalar_result_of_kernel", R"(fn @main(%x: Tensor[(n), i64]) {
  let %s = sum(%x) {axes = [0], keepdims = false};
  let %t = add(%s, 1i64);
  let %p = greater(%s, 0i64);
  let %y = mul(%x, %t);
  let %r = (%s, %t, %p, %y);
  %r
})");
  add("scalar_into_kernel",
      R"(fn @main(%x: Tensor[(n, m), i64], %k: Tensor[(), i64], %p: Tensor[(), bool]) {
  let %k2 = mul(%k, 2i64);
  let %y = add(%x, %k2);
  let %z = where(%p, %y, %x);
  let %f = cast(%k2) {dtype = f32};
  let %g = cast(%z) {dtype = f32};
  let %h = mul(%g, %f);
  let %r = (%z, %h);
  %r
})");
  add("scalar_index", R"(fn @main(%x: Tensor[(6, m), f32], %i: Tensor[(), i64]) {
  let %a = take_row(%x, %i);
  let %j = add(%i, 1i64);
  let %b = take_row(%x, %j);
  let %c = add(%a, %b);
  let %y = write_row(%x, %i, %c);
  let %r = (%c, %y);
  %r
})",
      {-9, 9}, {{"i", {0, 4}}});
  add("scalar_of_argmax", R"(fn @main(%x: Tensor[(n, m), f32], %v: Tensor[(m), f32]) {
  let %k = argmax(%v) {axis = 0, keepdims = false};
  let %n = size() {value = n};
  let %i = mod(%k, %n);
  let %row = take_row(%x, %i);
  let %r = (%k, %row);
  %r
})")
      .smallest = 1;
  add("scalar_all", R"(fn @main(%x: Tensor[(n), i64]) {
  let %p = greater(%x, 0i64);
  let %c = cast(%p) {dtype = i64};
  let %count = sum(%c) {axes = [0], keepdims = false};
  let %n = size() {value = n};
  let %all = equal(%count, %n);
  let %y = if (%all) { let %a = neg(%x); %a } else { let %b = add(%x, %count); %b };
  let %r = (%all, %y);
  %r
})",
      {1, 4}, {});
  add("boxed_and_unboxed", R"(fn @main(%a: Tensor[(), i64], %x: Tensor[(n), i64]) {
  let %v = reshape(%a) {shape = (1,)};
  let %c = concat(%v, %x, %v) {axis = 0};
  let %back = reshape(%v) {shape = ()};
  let %e = expand(%a) {shape = (n,)};
  let %d = add(%back, 1i64);
  let %r = (%c, %d, %e);
  %r
})");
  return out;
}

}  // namespace nimble::driver::testing
