// Reductions over every axis, normalisations, running sums, pooling.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

struct Row {
  const char *name, *parameters, *call;
  int64_t smallest = 0;
  Range values = {-2, 2};
};

constexpr const char* kImage = "%x: Tensor[(b, 3, h, w), f32]";

const Row kRows[] = {
    {"sum_all_i64",
     "%x: Tensor[(n, m), i64]",
     "sum(%x) {axes = [0, 1], keepdims = false}",
     0,
     {-9, 9}},
    {"reduce_max_i32",
     "%x: Tensor[(n, m), i32]",
     "reduce_max(%x) {axes = [1], keepdims = false}",
     1,
     {-9, 9}},
    {"prod_i64", "%x: Tensor[(n, 5), i64]", "prod(%x) {axes = [1], keepdims = false}", 0, {-3, 3}},
    {"sum_f64", "%x: Tensor[(n, m), f64]", "sum(%x) {axes = [1], keepdims = true}"},
    {"sum_f16", "%x: Tensor[(n, 9), f16]", "sum(%x) {axes = [1], keepdims = true}", 0, {0, 1}},
    {"prod", "%x: Tensor[(n, m), f32]", "prod(%x) {axes = [1], keepdims = false}", 0, {0.9, 1.1}},
    {"argmax_last", "%x: Tensor[(n, m), f32]", "argmax(%x) {axis = 1, keepdims = true}", 1},
    {"argmax_first", "%x: Tensor[(n, m), f32]", "argmax(%x) {axis = 0, keepdims = false}", 1},
    {"argmax_ties",
     "%x: Tensor[(n, m), i64]",
     "argmax(%x) {axis = -1, keepdims = false}",
     1,
     {0, 2}},
    {"softmax_last", "%x: Tensor[(b, n, m), f32]", "softmax(%x) {axis = -1}", 0, {-30, 30}},
    {"softmax_middle", "%x: Tensor[(b, n, m), f32]", "softmax(%x) {axis = 1}"},
    {"softmax_first", "%x: Tensor[(n, m), f32]", "softmax(%x) {axis = 0}"},
    {"log_softmax", "%x: Tensor[(n, m), f32]", "log_softmax(%x) {axis = 1}"},
    {"log_softmax_first", "%x: Tensor[(n, m), f32]", "log_softmax(%x) {axis = 0}"},
    {"l2_normalize", "%x: Tensor[(n, m), f32]", "l2_normalize(%x) {axis = 1, epsilon = 1e-12}"},
    {"l2_normalize_first", "%x: Tensor[(n, m), f32]",
     "l2_normalize(%x) {axis = 0, epsilon = 0.01}"},
    {"layer_norm", "%x: Tensor[(b, n, 48), f32], %g: Tensor[(48), f32], %s: Tensor[(48), f32]",
     "layer_norm(%x, %g, %s) {epsilon = 1e-5, axis = -1}"},
    {"layer_norm_symbol", "%x: Tensor[(n, m), f32], %g: Tensor[(m), f32], %s: Tensor[(m), f32]",
     "layer_norm(%x, %g, %s) {epsilon = 0.01, axis = 1}"},
    {"layer_norm_two_axes",
     "%x: Tensor[(n, 4, 5), f32], %g: Tensor[(4, 5), f32], %s: Tensor[(4, 5), f32]",
     "layer_norm(%x, %g, %s) {epsilon = 0.01, axis = 1}"},
    {"cumprod", "%x: Tensor[(n, m), f32]", "cumprod(%x) {axis = 1}", 0, {0.8, 1.2}},
    {"cumprod_across",
     "%x: Tensor[(n, m), i64]",
     "cumprod(%x) {axis = 0, exclusive = true, reverse = true}",
     0,
     {-2, 2}},
    {"cumsum", "%x: Tensor[(n, m), f32]", "cumsum(%x) {axis = 1}"},
    {"cumsum_first", "%x: Tensor[(n, m), f32]", "cumsum(%x) {axis = 0}"},
    {"cumsum_exclusive",
     "%x: Tensor[(n, m), i64]",
     "cumsum(%x) {axis = 1, exclusive = true}",
     0,
     {-9, 9}},
    {"cumsum_reverse", "%x: Tensor[(n, m), f32]", "cumsum(%x) {axis = -1, reverse = true}"},
    {"cumsum_reverse_exclusive", "%x: Tensor[(n, 3, m), f32]",
     "cumsum(%x) {axis = 1, reverse = true, exclusive = true}"},
    {"max_pool", kImage,
     "max_pool2d(%x) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], "
     "dilations = [1, 1], ceil_mode = false}",
     3},
    {"max_pool_ceil", kImage,
     "max_pool2d(%x) {kernel = [2, 3], strides = [2, 2], pads = [0, 1, 0, 0], "
     "dilations = [1, 1], ceil_mode = true}",
     3},
    {"max_pool_dilated", kImage,
     "max_pool2d(%x) {kernel = [2, 2], strides = [1, 1], pads = [0, 0, 0, 0], "
     "dilations = [2, 1], ceil_mode = false}",
     3},
    {"avg_pool", kImage,
     "avg_pool2d(%x) {kernel = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], "
     "dilations = [1, 1], ceil_mode = false, count_include_pad = false}",
     3},
    {"avg_pool_of_padding", kImage,
     "avg_pool2d(%x) {kernel = [1, 2], strides = [1, 2], pads = [1, 1, 1, 0], "
     "dilations = [1, 1], ceil_mode = false, count_include_pad = false}",
     3},
    {"avg_pool_with_pad", kImage,
     "avg_pool2d(%x) {kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], "
     "dilations = [1, 1], ceil_mode = true, count_include_pad = true}",
     3},
};

}  // namespace

std::vector<Program> reduce_programs() {
  std::vector<Program> out;
  for (const Row& r : kRows) {
    Program p{r.name, fmt::format("fn @main({}) {{ let %r = {}; %r }}", r.parameters, r.call)};
    p.smallest = r.smallest;
    p.values = r.values;
    out.push_back(std::move(p));
  }
  // Every subset of three axes, both shapes of the result, the four common reductions.
  for (int set = 1; set < 8; ++set) {
    std::string axes;
    for (int a = 0; a < 3; ++a)
      if (set >> a & 1) axes += (axes.empty() ? "" : ", ") + std::to_string(a);
    std::string text = "fn @main(%x: Tensor[(b, n, m), f32]) {\n";
    for (const char* op : {"sum", "mean", "reduce_max", "reduce_min"})
      text += fmt::format("  let %{0} = {0}(%x) {{axes = [{1}], keepdims = {2}}};\n", op, axes,
                          op[0] == 's' || op[0] == 'r');
    text += "  let %e = exp(%reduce_max);\n  let %r = (%sum, %mean, %e, %reduce_min);\n  %r\n}";
    Program p{fmt::format("reduce_axes_{}", set), text};
    p.smallest = 1;  // a mean or maximum of nothing is not defined
    out.push_back(std::move(p));
  }
  Program empty{"sum_of_nothing",
                "fn @main(%x: Tensor[(n, m), f32]) { let %s = sum(%x) {axes = [1], keepdims = "
                "true}; let %y = add(%s, 1.0f32); %y }"};
  empty.sizes = {{{"n", 3}, {"m", 0}}, {{"n", 0}, {"m", 3}}, {{"n", 0}, {"m", 0}}};
  out.push_back(empty);
  out.push_back({"norm_by_hand",
                 R"(fn @main(%x: Tensor[(n, m), f32], %g: Tensor[(m), f32]) {
  let %mean = mean(%x) {axes = [1], keepdims = true};
  let %d = sub(%x, %mean);
  let %sq = mul(%d, %d);
  let %var = mean(%sq) {axes = [1], keepdims = true};
  let %ve = add(%var, 0.001f32);
  let %s = sqrt(%ve);
  let %q = div(%d, %s);
  let %y = mul(%q, %g);
  %y
})",
                 {-2, 2},
                 {},
                 1});
  out.push_back({"pool_by_mask",
                 R"(fn @main(%x: Tensor[(b, n, 16), f32], %mask: Tensor[(b, n), i64]) {
  let %u = unsqueeze(%mask) {axes = [2]};
  let %f = cast(%u) {dtype = f32};
  let %m = mul(%x, %f);
  let %s = sum(%m) {axes = [1], keepdims = false};
  let %c = sum(%f) {axes = [1], keepdims = false};
  let %k = clip(%c) {min = 1e-9};
  let %d = div(%s, %k);
  let %y = l2_normalize(%d) {axis = 1, epsilon = 1e-12};
  %y
})",
                 {-2, 2},
                 {{"mask", {0, 1}}},
                 1});
  out.push_back({"reduce_then_broadcast",
                 R"(fn @main(%x: Tensor[(n, m), f32]) {
  let %e = exp(%x);
  let %s = sum(%e) {axes = [0], keepdims = false};
  let %y = div(%e, %s);
  let %t = sum(%y) {axes = [0, 1], keepdims = false};
  let %r = (%y, %t);
  %r
})"});
  return out;
}

}  // namespace nimble::driver::testing
