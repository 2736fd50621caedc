// Extents that the values of tensors decide: operands of reshape, slice and their like, and
// operators that count, select and sort. Where an operand's values make no sense (a negative
// repeat, k above the extent) reference and VM must both refuse.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

struct Row {
  const char *name, *parameters, *call;
  std::map<std::string, Range> special = {};
  int64_t smallest = 0;
};

const Row kOperands[] = {
    {"expand_by_operand",
     "%x: Tensor[(n, 1), f32], %s: Tensor[(3), i64]",
     "expand(%x, %s)",
     {{"s", {1, 3}}}},
    {"expand_keeps_minus_one",
     "%x: Tensor[(n, 1), f32], %s: Tensor[(2), i64]",
     "expand(%x, %s)",
     {{"s", {-1, 1}}}},
    {"slice_by_operands",
     "%x: Tensor[(n, m), f32], %a: Tensor[(2), i64], %e: Tensor[(2), i64]",
     "slice(%x, %a, %e) {axes = [0, 1]}",
     {{"a", {-9, 9}}, {"e", {-9, 9}}}},
    {"slice_backwards_by_operands",
     "%x: Tensor[(n, m), f32], %a: Tensor[(2), i64], %e: Tensor[(2), i64]",
     "slice(%x, %a, %e) {axes = [1, 0], steps = [-2, -1]}",
     {{"a", {-9, 9}}, {"e", {-9, 9}}}},
    {"slice_steps_by_operand",
     "%x: Tensor[(n), f32], %a: Tensor[(1), i64], %e: Tensor[(1), i64], %t: Tensor[(1), i64]",
     "slice(%x, %a, %e, %t) {axes = [0]}",
     {{"a", {-20, 20}}, {"e", {-20, 20}}, {"t", {-3, 3}}}},
    {"slice_i32_bounds",
     "%x: Tensor[(n, m), f32], %a: Tensor[(1), i32], %e: Tensor[(1), i32]",
     "slice(%x, %a, %e) {axes = [1]}",
     {{"a", {-4, 4}}, {"e", {-4, 9}}}},
    {"tile_by_operand",
     "%x: Tensor[(n, m), f32], %q: Tensor[(2), i64]",
     "tile(%x, %q)",
     {{"q", {-1, 4}}}},
    {"tile", "%x: Tensor[(n, m), i32]", "tile(%x) {repeats = (2, n)}"},
    {"tile_last_axis", "%x: Tensor[(n, m), f16]", "tile(%x) {repeats = (1, 3)}"},
    {"tile_none", "%x: Tensor[(n, m), f32]", "tile(%x) {repeats = (0, 3)}"},
    {"pad_by_operand",
     "%x: Tensor[(n, m), f32], %p: Tensor[(4), i64]",
     "pad(%x, %p) {value = 1.5}",
     {{"p", {-2, 3}}}},
    {"pad_crops", "%x: Tensor[(n, m), f32]", "pad(%x) {before = [-1, 2], after = [0, -1]}", {}, 1},
    {"repeat_by_scalar",
     "%x: Tensor[(n, m), f32], %q: Tensor[(), i64]",
     "repeat(%x, %q) {axis = 1}",
     {{"q", {-1, 4}}}},
    {"repeat", "%x: Tensor[(n, m), f32]", "repeat(%x) {axis = 0, repeats = 3}"},
    {"full_by_operand",
     "%s: Tensor[(2), i64]",
     "full(%s) {dtype = f32, value = 2.5}",
     {{"s", {-1, 4}}}},
    {"full_of_scalar_by_operand",
     "%v: Tensor[(), f32], %s: Tensor[(2), i32]",
     "full(%v, %s) {dtype = f32}",
     {{"s", {0, 7}}}},
    {"range_of_integers",
     "%a: Tensor[(), i64], %b: Tensor[(), i64], %c: Tensor[(), i64]",
     "range(%a, %b, %c)",
     {{"a", {-9, 9}}, {"b", {-20, 20}}, {"c", {-3, 3}}}},
    {"range_of_i32",
     "%a: Tensor[(), i32], %b: Tensor[(), i32], %c: Tensor[(), i32]",
     "range(%a, %b, %c)",
     {{"a", {-9, 9}}, {"b", {-20, 20}}, {"c", {-3, 3}}}},
    {"range_of_floats",
     "%a: Tensor[(), f32], %b: Tensor[(), f32], %c: Tensor[(), f32]",
     "range(%a, %b, %c)",
     {{"a", {-9, 0}}, {"b", {1, 20}}, {"c", {0.1, 3}}}},
    {"range_of_doubles_down",
     "%a: Tensor[(), f64], %b: Tensor[(), f64], %c: Tensor[(), f64]",
     "range(%a, %b, %c)",
     {{"a", {0, 9}}, {"b", {-20, 1}}, {"c", {-3, -0.1}}}},
};

const Row kSelections[] = {
    {"nonzero", "%x: Tensor[(n, m), i64]", "nonzero(%x)", {{"x", {-1, 1}}}},
    {"nonzero_of_floats", "%x: Tensor[(n), f32]", "nonzero(%x)"},
    {"nonzero_of_bools", "%x: Tensor[(n, 3, m), bool]", "nonzero(%x)"},
    {"argwhere", "%x: Tensor[(n, m), i32]", "argwhere(%x)", {{"x", {-1, 1}}}},
    {"compress", "%x: Tensor[(n, m), f32], %c: Tensor[(m), bool]", "compress(%x, %c) {axis = 1}"},
    {"compress_by_fewer", "%x: Tensor[(3, n), i64], %c: Tensor[(2), bool]",
     "compress(%x, %c) {axis = 0}"},
    {"compress_flat", "%x: Tensor[(n, 2), f16], %c: Tensor[(n), bool]", "compress(%x, %c)"},
    {"masked_select", "%x: Tensor[(n, m), f32], %c: Tensor[(n, m), bool]", "masked_select(%x, %c)"},
    {"repeat_by_vector",
     "%x: Tensor[(n, m), f32], %q: Tensor[(n), i64]",
     "repeat(%x, %q) {axis = 0}",
     {{"q", {0, 3}}}},
    {"repeat_refuses_negative",
     "%x: Tensor[(n, m), f32], %q: Tensor[(m), i64]",
     "repeat(%x, %q) {axis = -1}",
     {{"q", {-1, 9}}}},
    {"unique", "%x: Tensor[(n, m), i64]", "unique(%x) {sorted = true}", {{"x", {-3, 3}}}},
    {"unique_by_appearance",
     "%x: Tensor[(n), i32]",
     "unique(%x) {sorted = false}",
     {{"x", {-3, 3}}}},
    {"unique_floats", "%x: Tensor[(n), f32]", "unique(%x) {sorted = true}"},
    {"unique_rows",
     "%x: Tensor[(n, 2, m), i8]",
     "unique(%x) {axis = 0, sorted = true}",
     {{"x", {0, 1}}}},
    {"unique_columns", "%x: Tensor[(2, n), bool]", "unique(%x) {axis = -1, sorted = true}"},
    {"scatter",
     "%x: Tensor[(n, m), f32], %i: Tensor[(3), i64], %u: Tensor[(3, m), f32]",
     "scatter(%x, %i, %u) {reduction = \"none\"}",
     {{"i", {-3, 3}}},
     4},
    {"scatter_may_miss",
     "%x: Tensor[(n), i32], %i: Tensor[(k), i64], %u: Tensor[(k), i32]",
     "scatter(%x, %i, %u) {reduction = \"add\"}",
     {{"i", {-7, 7}}}},
    {"scatter_max_f16",
     "%x: Tensor[(n, m), f16], %i: Tensor[(5), i64], %u: Tensor[(5, m), f16]",
     "scatter(%x, %i, %u) {reduction = \"max\"}",
     {{"i", {-2, 2}}},
     3},
    {"topk", "%x: Tensor[(n, m), f32]", "topk(%x) {axis = 1, largest = true, k = 2}", {}, 2},
    {"topk_smallest",
     "%x: Tensor[(n, m), i64]",
     "topk(%x) {axis = 0, largest = false, k = n}",
     {{"x", {-3, 3}}}},
    {"topk_none", "%x: Tensor[(n, m), f32]", "topk(%x) {axis = -1, largest = true, k = 0}"},
    {"topk_by_operand",
     "%x: Tensor[(n, m), f32], %k: Tensor[(1), i64]",
     "topk(%x, %k) {axis = 1, largest = true}",
     {{"k", {-1, 5}}}},
    {"topk_by_scalar",
     "%x: Tensor[(n), f16], %k: Tensor[(), i64]",
     "topk(%x, %k) {axis = 0, largest = true}",
     {{"k", {0, 3}}}},
    {"nms",
     "%b: Tensor[(2, n, 4), f32], %s: Tensor[(2, c, n), f32]",
     "nms(%b, %s, 0.3f32, 0.2f32) {center = false, limit = 5}",
     {{"b", {0, 2}}, {"s", {0, 1}}}},
    {"nms_by_operands",
     "%b: Tensor[(b, n, 4), f32], %s: Tensor[(b, 2, n), f32], %t: Tensor[(1), f32], %u: Tensor[(), "
     "f32], %k: Tensor[(), i64]",
     "nms(%b, %s, %t, %u, %k) {center = true}",
     {{"b", {0.1, 1}}, {"s", {0, 1}}, {"t", {0, 1}}, {"u", {0, 1}}, {"k", {-1, 9}}}},
};

void add_flows(std::vector<Program>& out) {
  // Found coordinates index what they were found in; groups read what a data-dependent one made.
  out.push_back({"nonzero_feeds_kernels",
                 R"(fn @main(%x: Tensor[(n), f32]) {
  let %p = greater(%x, 0.0f32);
  let %at = nonzero(%p);
  let %i = squeeze(%at) {axes = [0]};
  let %v = gather(%x, %i) {axis = 0};
  let %e = exp(%v);
  let %s = sum(%e) {axes = [0], keepdims = false};
  let %y = div(%e, %s);
  let %r = (%y, %i);
  %r
})"});
  out.push_back(
      {"equal_operands_give_equal_dims",
       R"(fn @main(%x: Tensor[(n, 1), f32], %y: Tensor[(n, 1), f32], %s: Tensor[(2), i64]) {
  let %a = expand(%x, %s);
  let %b = expand(%y, %s);
  let %c = concat(%a, %b) {axis = 1};
  let %d = add(%a, %b);
  let %r = (%c, %d);
  %r
})",
       {-2, 2},
       {{"s", {1, 3}}}});
  out.push_back({"named_elements",  // what read_extents names may stand in attributes
                 R"(fn @main(%x: Tensor[(n, m), f32], %s: Tensor[(2), i64]) {
  let %t = read_extents(%s) {symbols = ["a", "b"]};
  let %y = expand(%x) {shape = (max(a, 0), n, m)};
  let %z = size() {value = a - b};
  let %f = cast(%t) {dtype = f32};
  let %r = (%y, %z, %f);
  %r
})",
                 {-2, 2},
                 {{"s", {-1, 4}}}});
  out.push_back({"shape_of_data_dependent",
                 R"(fn @main(%x: Tensor[(n, m), f32], %c: Tensor[(n), bool]) {
  let %k = compress(%x, %c) {axis = 0};
  let %s = shape_of(%k);
  let %t = concat(%s, i64[1]{2}) {axis = 0};
  let %z = full(%t) {dtype = f32, value = 1.0};
  let %u = unsqueeze(%k) {axes = [2]};
  let %y = add(%u, %z);
  %y
})"});
  out.push_back({"unique_twice",
                 R"(fn @main(%x: Tensor[(n), i64], %y: Tensor[(n), i64]) {
  let %u = unique(%x) {sorted = true};
  let %v = unique(%y) {sorted = true};
  let %a = %u[0];
  let %b = %v[0];
  let %j = concat(%a, %b) {axis = 0};
  let %w = unique(%j) {sorted = true};
  let %all = %w[0];
  let %inverse = %u[2];
  let %back = gather(%a, %inverse) {axis = 0};
  let %r = (%all, %back);
  %r
})",
                 {-4, 4}});
  out.push_back({"data_dependent_in_branches",
                 R"(fn @main(%x: Tensor[(n), f32], %p: Tensor[(), bool], %k: Tensor[(), i64]) {
  let %r = if (%p) {
    let %a = repeat(%x, %k) {axis = 0};
    let %b = relu(%a);
    %b
  } else {
    let %m = less(%x, 0.5f32);
    let %c = compress(%x, %m) {axis = 0};
    let %d = neg(%c);
    %d
  };
  let %y = exp(%r);
  %y
})",
                 {-2, 2},
                 {{"k", {0, 3}}}});
  out.push_back({"loop_filters",  // a tensor that shrinks until nothing is left
                 R"(fn @loop(%x: Tensor[(k), f32], %steps: Tensor[(), i64]) -> Tensor[(), i64] {
  let %n = size() {value = k};
  let %more = greater(%n, 0i64);
  let %r = if (%more) {
    let %y = sub(%x, 0.5f32);
    let %keep = greater(%y, 0.0f32);
    let %z = compress(%y, %keep) {axis = 0};
    let %s = add(%steps, 1i64);
    let %t = @loop(%z, %s);
    %t
  } else { %steps };
  %r
}
fn @main(%x: Tensor[(n), f32]) { let %r = @loop(%x, 0i64); %r })",
                 {-1, 5}});
}

// Tensors that grow in a loop (paper, 3.1: such a dim types as Any).
void add_growing(std::vector<Program>& out) {
  out.push_back(
      {"grows_from_nothing",
       R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, 3), f32], %acc: Tensor[(?, 3), f32]) -> Tensor[(?, 3), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %rows = unsqueeze(%row) {axes = [0]};
    let %next = concat(%acc, %rows) {axis = 0};
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %next);
    %u
  } else { %acc };
  %r
}
fn @main(%x: Tensor[(n, 3), f32]) {
  let %none = full() {shape = (0, 3), dtype = f32, value = 0.0};
  let %y = @loop(0i64, %x, %none);
  let %z = tanh(%y);
  %z
})"});
  out.push_back(
      {"doubles",
       R"(fn @loop(%i: Tensor[(), i64], %acc: Tensor[(k, m), f32]) -> Tensor[(?, m), f32] {
  let %more = greater(%i, 0i64);
  let %r = if (%more) {
    let %twice = concat(%acc, %acc) {axis = 0};
    let %j = sub(%i, 1i64);
    let %u = @loop(%j, %twice);
    %u
  } else { %acc };
  %r
}
fn @main(%x: Tensor[(n, m), f32], %i: Tensor[(), i64]) {
  let %y = @loop(%i, %x);
  let %s = sum(%y) {axes = [0], keepdims = false};
  let %r = (%y, %s);
  %r
})",
       {-2, 2},
       {{"i", {0, 4}}}});
  // Keys and values of a decoder: both grow alike, which their product needs.
  out.push_back(
      {"keys_and_values_grow_alike",
       R"(fn @loop(%i: Tensor[(), i64], %x: Tensor[(n, 4), f32], %k: Tensor[(t, 4), f32], %v: Tensor[(t, 4), f32], %out: Tensor[(n, 1, 4), f32]) -> Tensor[(n, 1, 4), f32] {
  let %n = size() {value = n};
  let %more = less(%i, %n);
  let %r = if (%more) {
    let %row = take_row(%x, %i);
    let %q = unsqueeze(%row) {axes = [0]};
    let %kn = neg(%q);
    let %k2 = concat(%k, %kn) {axis = 0};
    let %v2 = concat(%v, %q) {axis = 0};
    let %s = matmul(%q, %k2) {transpose_b = true};
    let %p = softmax(%s) {axis = 1};
    let %o = matmul(%p, %v2);
    let %out2 = write_row(%out, %i, %o);
    let %j = add(%i, 1i64);
    let %u = @loop(%j, %x, %k2, %v2, %out2);
    %u
  } else { %out };
  %r
}
fn @main(%x: Tensor[(n, 4), f32]) {
  let %k = full() {shape = (0, 4), dtype = f32, value = 0.0};
  let %out = full() {shape = (n, 1, 4), dtype = f32, value = 0.0};
  let %y = @loop(0i64, %x, %k, %k, %out);
  %y
})"});
}

}  // namespace

std::vector<Program> dynamic_programs() {
  std::vector<Program> out;
  for (const auto& rows : {std::span<const Row>(kOperands), std::span<const Row>(kSelections)})
    for (const Row& r : rows) {
      Program p{r.name, fmt::format("fn @main({}) {{ let %r = {}; %r }}", r.parameters, r.call)};
      p.special = r.special;
      p.smallest = r.smallest;
      out.push_back(std::move(p));
    }
  add_flows(out);
  add_growing(out);
  return out;
}

}  // namespace nimble::driver::testing
