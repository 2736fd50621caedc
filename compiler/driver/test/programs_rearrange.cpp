// Operators that move elements, alone and in chains that fuse into one kernel.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

struct Row {
  const char *name, *parameters, *call;
  int64_t smallest = 0;
  std::map<std::string, Range> special = {};
};

const Row kRows[] = {
    {"reshape_flatten", "%x: Tensor[(n, m), f32]", "reshape(%x) {shape = (-1,)}"},
    {"reshape_swap", "%x: Tensor[(n, m), f32]", "reshape(%x) {shape = (m, n)}"},
    {"reshape_heads", "%x: Tensor[(b, n, 12), f32]", "reshape(%x) {shape = (b, n, 4, -1)}", 1},
    {"reshape_copy_dims", "%x: Tensor[(b, n, 6), f32]", "reshape(%x) {shape = (0, -1, 3)}", 1},
    {"reshape_divides", "%x: Tensor[(n), f32]", "reshape(%x) {shape = (floordiv(n, 2), 2)}"},
    {"reshape_infers_quotient", "%x: Tensor[(n), f32]", "reshape(%x) {shape = (-1, 13)}"},
    {"transpose", "%x: Tensor[(n, m), f32]", "transpose(%x) {axes = [1, 0]}"},
    {"transpose_heads", "%x: Tensor[(b, n, 4, 3), f32]", "transpose(%x) {axes = [0, 2, 1, 3]}"},
    {"transpose_rotate", "%x: Tensor[(b, n, m), i64]", "transpose(%x) {axes = [2, 0, 1]}"},
    {"transpose_f16", "%x: Tensor[(n, m), f16]", "transpose(%x) {axes = [1, 0]}"},
    {"squeeze", "%x: Tensor[(n, 1, m, 1), f32]", "squeeze(%x) {axes = [1, -1]}"},
    {"squeeze_symbol", "%x: Tensor[(n, m), f32]", "squeeze(%x) {axes = [0]}"},
    {"unsqueeze", "%x: Tensor[(n, m), f32]", "unsqueeze(%x) {axes = [0, 3]}"},
    {"expand", "%x: Tensor[(n, 1), f32]", "expand(%x) {shape = (3, n, 5)}"},
    {"expand_symbol", "%x: Tensor[(n, 1), f32], %y: Tensor[(m), f32]",
     "expand(%x) {shape = (n, m)}"},
    {"slice", "%x: Tensor[(n, m), f32]", "slice(%x) {axes = [1], starts = (2,), ends = (9,)}"},
    {"slice_negative", "%x: Tensor[(n, m), f32]",
     "slice(%x) {axes = [1], starts = (-5,), ends = (100,), steps = [2]}"},
    {"slice_backwards", "%x: Tensor[(n, m), f32]",
     "slice(%x) {axes = [0], starts = (-1,), ends = (-9999,), steps = [-1]}"},
    {"slice_backwards_by_3", "%x: Tensor[(n, m), f32]",
     "slice(%x) {axes = [0, 1], starts = (n - 2, 7), ends = (0, 1), steps = [-3, -2]}"},
    {"slice_symbols", "%x: Tensor[(n, 6), f32], %y: Tensor[(m), f32]",
     "slice(%x) {axes = [0], starts = (floordiv(n, 3),), ends = (n - 1,)}", 1},
    {"concat_rows", "%x: Tensor[(n, m), f32], %y: Tensor[(k, m), f32]",
     "concat(%x, %y, %x) {axis = 0}"},
    {"concat_columns", "%x: Tensor[(n, m), f32], %y: Tensor[(n, k), f32], %z: Tensor[(n, 3), f32]",
     "concat(%x, %y, %z) {axis = -1}"},
    {"concat_middle", "%x: Tensor[(2, m, 3), i64], %y: Tensor[(2, k, 3), i64]",
     "concat(%x, %y) {axis = 1}"},
    {"concat_one", "%x: Tensor[(n, m), f32]", "concat(%x) {axis = 0}"},
    {"pad", "%x: Tensor[(n, m), f32]", "pad(%x) {before = [0, 3], after = [2, 1], value = 2.5}"},
    {"gather_rows",
     "%x: Tensor[(9, m), f32], %i: Tensor[(b, n), i64]",
     "gather(%x, %i) {axis = 0}",
     0,
     {{"i", {-9, 8}}}},
    {"gather_middle",
     "%x: Tensor[(n, 7, m), f32], %i: Tensor[(3), i64]",
     "gather(%x, %i) {axis = 1}",
     0,
     {{"i", {-7, 6}}}},
    {"gather_last",
     "%x: Tensor[(n, m), f32], %i: Tensor[(4), i32]",
     "gather(%x, %i) {axis = -1}",
     3,
     {{"i", {-3, 2}}}},
    {"gather_scalar",
     "%x: Tensor[(n, m), f32], %i: Tensor[(), i64]",
     "gather(%x, %i) {axis = 1}",
     4,
     {{"i", {-4, 3}}}},
    {"gather_elements",
     "%x: Tensor[(n, m), f32], %i: Tensor[(n, k), i64]",
     "gather_elements(%x, %i) {axis = 1}",
     3,
     {{"i", {-3, 2}}}},
    {"take_row",
     "%x: Tensor[(n, m), f32], %i: Tensor[(), i64]",
     "take_row(%x, %i)",
     3,
     {{"i", {0, 2}}}},
    {"take_row_of_vector",
     "%x: Tensor[(n), i64], %i: Tensor[(), i64]",
     "take_row(%x, %i)",
     3,
     {{"i", {0, 2}}}},
    {"write_row",
     "%x: Tensor[(n, m), f32], %i: Tensor[(), i64], %v: Tensor[(m), f32]",
     "write_row(%x, %i, %v)",
     3,
     {{"i", {0, 2}}}},
    {"write_row_scalar",
     "%x: Tensor[(n), i64], %i: Tensor[(), i64], %v: Tensor[(), i64]",
     "write_row(%x, %i, %v)",
     3,
     {{"i", {0, 2}}}},
    {"shape_of", "%x: Tensor[(n, 3, m), f32]", "shape_of(%x)"},
    {"size", "%x: Tensor[(n, m), f32]", "size() {value = n*m + 2*n - 1}"},
};

}  // namespace

std::vector<Program> rearrange_programs() {
  std::vector<Program> out;
  for (const Row& r : kRows) {
    Program p{r.name, fmt::format("fn @main({}) {{ let %r = {}; %r }}", r.parameters, r.call)};
    p.smallest = r.smallest;
    p.special = r.special;
    out.push_back(std::move(p));
  }
  out.push_back({"split_heads_and_back",
                 R"(fn @main(%x: Tensor[(b, n, 12), f32]) {
  let %r = reshape(%x) {shape = (b, n, 4, 3)};
  let %t = transpose(%r) {axes = [0, 2, 1, 3]};
  let %e = exp(%t);
  let %u = transpose(%e) {axes = [0, 2, 1, 3]};
  let %y = reshape(%u) {shape = (b, n, 12)};
  let %z = add(%y, %x);
  %z
})"});
  out.push_back({"expand_transpose_slice",
                 R"(fn @main(%x: Tensor[(n, 1, m), f32]) {
  let %e = expand(%x) {shape = (n, 4, m)};
  let %t = transpose(%e) {axes = [1, 2, 0]};
  let %s = slice(%t) {axes = [0, 2], starts = (1, -1), ends = (4, -1000), steps = [2, -1]};
  let %p = pad(%s) {before = [1, 0, 0], after = [0, 2, 0], value = -1.0};
  let %r = relu(%p);
  %r
})"});
  out.push_back({"shape_chain",  // as exporters write view(b, n, -1)
                 R"(fn @main(%x: Tensor[(b, n, 4, 3), f32]) {
  let %s = shape_of(%x);
  let %bn = slice(%s) {axes = [0], starts = (0,), ends = (2,)};
  let %to = concat(%bn, i64[1]{-1}) {axis = 0};
  let %y = reshape(%x, %to);
  let %z = tanh(%y);
  %z
})",
                 {-2, 2},
                 {},
                 1});
  out.push_back({"shape_as_data",
                 R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %s = shape_of(%x);
  let %f = cast(%s) {dtype = f32};
  let %sum = sum(%f) {axes = [0], keepdims = false};
  let %d = div(%x, %sum);
  let %twice = mul(%s, 2i64);
  let %r = (%d, %twice, %sum);
  %r
})",
                 {-2, 2},
                 {},
                 1});
  out.push_back({"size_in_every_dtype",
                 R"(fn @main(%x: Tensor[(n), f32]) {
  let %n = size() {value = n};
  let %a = cast(%n) {dtype = i32};
  let %b = cast(%n) {dtype = f64};
  let %c = cast(%n) {dtype = bool};
  let %d = cast(%c) {dtype = f32};
  let %e = add(%x, %d);
  let %r = (%a, %b, %c, %d, %e);
  %r
})"});
  out.push_back({"size_as_data",
                 R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %n = size() {value = n};
  let %f = cast(%n) {dtype = f32};
  let %y = mul(%x, %f);
  let %m1 = size() {value = m + 1};
  let %sum = add(%n, %m1);
  let %r = (%y, %sum);
  %r
})"});
  out.push_back({"cat_slices",  // rotary embedding's half rotation
                 R"(fn @main(%x: Tensor[(b, n, 8), f32]) {
  let %l = slice(%x) {axes = [2], starts = (0,), ends = (4,)};
  let %h = slice(%x) {axes = [2], starts = (4,), ends = (8,)};
  let %m = neg(%h);
  let %c = concat(%m, %l) {axis = 2};
  let %y = mul(%c, %x);
  %y
})"});
  out.push_back({"embedding",
                 R"(fn @main(%ids: Tensor[(b, n), i64], %table: Tensor[(20, 6), f32]) {
  let %e = gather(%table, %ids) {axis = 0};
  let %at = range() {count = n, start = 0, step = 1, dtype = i64};
  let %pos = mod(%at, 20i64);
  let %p = gather(%table, %pos) {axis = 0};
  let %y = add(%e, %p);
  %y
})",
                 {-2, 2},
                 {{"ids", {0, 19}}}});
  return out;
}

}  // namespace nimble::driver::testing
