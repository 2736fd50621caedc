// Products: matrices in every arrangement, packed weights, convolutions, attention, cells.
#include "compiler/driver/test/harness.h"

namespace nimble::driver::testing {
namespace {

struct Row {
  const char *name, *parameters, *call;
  int64_t smallest = 0;
};

const Row kRows[] = {
    {"matmul", "%a: Tensor[(n, k), f32], %b: Tensor[(k, m), f32]", "matmul(%a, %b)"},
    {"matmul_ta", "%a: Tensor[(k, n), f32], %b: Tensor[(k, m), f32]",
     "matmul(%a, %b) {transpose_a = true}"},
    {"matmul_tb", "%a: Tensor[(n, k), f32], %b: Tensor[(m, k), f32]",
     "matmul(%a, %b) {transpose_b = true}"},
    {"matmul_tab", "%a: Tensor[(k, n), f32], %b: Tensor[(m, k), f32]",
     "matmul(%a, %b) {transpose_a = true, transpose_b = true}"},
    {"matmul_batch", "%a: Tensor[(b, n, 9), f32], %b: Tensor[(b, 9, m), f32]", "matmul(%a, %b)"},
    {"matmul_batch_by_matrix", "%a: Tensor[(b, n, 20), f32], %b: Tensor[(20, 37), f32]",
     "matmul(%a, %b)"},
    {"matmul_matrix_by_batch", "%a: Tensor[(n, 20), f32], %b: Tensor[(b, 20, 7), f32]",
     "matmul(%a, %b)"},
    {"matmul_broadcast_batch", "%a: Tensor[(b, 1, n, 6), f32], %b: Tensor[(3, 6, m), f32]",
     "matmul(%a, %b)"},
    {"matmul_maybe_one", "%a: Tensor[(b, n, 6), f32], %b: Tensor[(c, 6, 5), f32]",
     "matmul(%a, %b)"},
    {"matmul_vector_right", "%a: Tensor[(b, n, k), f32], %b: Tensor[(k), f32]", "matmul(%a, %b)"},
    {"matmul_vector_left", "%a: Tensor[(k), f32], %b: Tensor[(b, k, m), f32]", "matmul(%a, %b)"},
    {"matmul_dot", "%a: Tensor[(k), f32], %b: Tensor[(k), f32]", "matmul(%a, %b)"},
    {"conv", "%x: Tensor[(b, 3, h, w), f32], %w: Tensor[(5, 3, 3, 3), f32], %c: Tensor[(5), f32]",
     "conv2d(%x, %w, %c) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 1}",
     1},
    {"conv_strided", "%x: Tensor[(b, 4, h, w), f32], %w: Tensor[(6, 4, 3, 2), f32]",
     "conv2d(%x, %w) {strides = [2, 3], pads = [0, 1, 1, 0], dilations = [1, 1], groups = 1}", 3},
    {"conv_dilated", "%x: Tensor[(b, 2, h, w), f32], %w: Tensor[(3, 2, 3, 2), f32]",
     "conv2d(%x, %w) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [2, 3], groups = 1}", 5},
    {"conv_grouped", "%x: Tensor[(b, 6, h, w), f32], %w: Tensor[(9, 2, 1, 3), f32]",
     "conv2d(%x, %w) {strides = [1, 1], pads = [0, 1, 0, 1], dilations = [1, 1], groups = 3}", 1},
    {"conv_depthwise", "%x: Tensor[(b, 8, h, w), f32], %w: Tensor[(8, 1, 3, 3), f32]",
     "conv2d(%x, %w) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 8}", 1},
    {"conv_pointwise", "%x: Tensor[(b, 7, h, w), f32], %w: Tensor[(17, 7, 1, 1), f32]",
     "conv2d(%x, %w) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1}"},
    {"attention",
     "%q: Tensor[(b, n, 12), f32], %k: Tensor[(b, m, 12), f32], %v: Tensor[(b, m, 12), f32]",
     "attention(%q, %k, %v) {heads = 3, scale = 0.5}"},
    {"attention_mask",
     "%q: Tensor[(b, n, 16), f32], %k: Tensor[(b, n, 16), f32], %v: Tensor[(b, n, 16), f32], "
     "%c: Tensor[(b, 1, 1, n), f32]",
     "attention(%q, %k, %v, %c) {heads = 2, scale = 0.35}"},
    {"attention_full_mask",
     "%q: Tensor[(b, n, 8), f32], %k: Tensor[(b, m, 8), f32], %v: Tensor[(b, m, 8), f32], "
     "%c: Tensor[(b, 2, n, m), f32]",
     "attention(%q, %k, %v, %c) {heads = 2, scale = 1.0}"},
    {"attention_bool_mask",
     "%q: Tensor[(b, n, 6), f32], %k: Tensor[(b, m, 6), f32], %v: Tensor[(b, m, 10), f32], "
     "%c: Tensor[(b, 1, n, m), bool]",
     "attention(%q, %k, %v, %c) {heads = 2, scale = 0.6}"},
    {"attention_of_any_width",
     "%q: Tensor[(b, n, w), f32], %k: Tensor[(b, m, w), f32], %v: Tensor[(b, m, 4), f32], "
     "%c: Tensor[(n, m), f32]",
     "attention(%q, %k, %v, %c) {heads = 1, scale = 0.5}"},
    {"attention_of_any_width_bool_mask",
     "%q: Tensor[(b, n, w), f64], %k: Tensor[(b, m, w), f64], %v: Tensor[(b, m, 3*w), f64], "
     "%c: Tensor[(b, 1, 1, m), bool]",
     "attention(%q, %k, %v, %c) {heads = 1, scale = -0.5}"},
    {"lstm_cell",
     "%g: Tensor[(b, 32), f32], %h: Tensor[(b, 8), f32], %c: Tensor[(b, 8), f32], "
     "%w: Tensor[(8, 32), f32]",
     "lstm_cell(%g, %h, %c, %w)"},
    {"gru_cell",
     "%g: Tensor[(b, 24), f32], %h: Tensor[(b, 8), f32], %w: Tensor[(8, 24), f32], "
     "%c: Tensor[(24), f32]",
     "gru_cell(%g, %h, %w, %c) {linear_before_reset = true}"},
    {"gru_cell_reset_first",
     "%g: Tensor[(b, 15), f32], %h: Tensor[(b, 5), f32], %w: Tensor[(5, 15), f32], "
     "%c: Tensor[(15), f32]",
     "gru_cell(%g, %h, %w, %c) {linear_before_reset = false}"},
};

// A constant matrix made at compile time from its position; large enough to be packed.
std::string weights(const std::string& name, int64_t rows, int64_t columns) {
  return fmt::format(
      "  let %{0}i = range() {{count = {1}, start = 0, step = 1, dtype = f32}};\n"
      "  let %{0}s = mul(%{0}i, 0.37f32);\n"
      "  let %{0}t = sin(%{0}s);\n"
      "  let %{0} = reshape(%{0}t) {{shape = ({2}, {3})}};\n",
      name, rows * columns, rows, columns);
}

}  // namespace

std::vector<Program> product_programs() {
  std::vector<Program> out;
  for (const Row& r : kRows) {
    Program p{r.name, fmt::format("fn @main({}) {{ let %r = {}; %r }}", r.parameters, r.call)};
    p.smallest = r.smallest;
    p.tolerance = 1e-4;
    if (p.name.starts_with("conv"))
      for (auto [b, h, w] :
           {std::array<int64_t, 3>{1, 7, 9}, {2, 8, 5}, {3, 13, 17}, {1, 31, 6}, {0, 7, 7}})
        p.sizes.push_back({{"b", b}, {"h", h}, {"w", w}});
    out.push_back(std::move(p));
  }
  for (auto [k, n] :
       {std::pair<int64_t, int64_t>{48, 32}, {33, 37}, {64, 130}, {7, 5}, {300, 65}}) {
    for (bool transposed : {false, true}) {
      Program p{fmt::format("dense_{}x{}{}", k, n, transposed ? "_transposed" : ""), ""};
      p.text =
          fmt::format("fn @main(%x: Tensor[(b, n, {}), f32], %c: Tensor[({}), f32]) {{\n", k, n) +
          (transposed ? weights("w", n, k) : weights("w", k, n)) +
          fmt::format("  let %y = matmul(%x, %w){};\n", transposed ? " {transpose_b = true}" : "") +
          "  let %z = add(%y, %c);\n  let %g = gelu(%z);\n  %g\n}";
      p.tolerance = 1e-4;
      out.push_back(std::move(p));
    }
  }
  Program mlp{"mlp", "fn @main(%x: Tensor[(n, 24), f32]) {\n" + weights("u", 24, 40) +
                         weights("w", 40, 24) +
                         R"(  let %a = matmul(%x, %u);
  let %b = relu(%a);
  let %c = matmul(%b, %w);
  let %d = add(%c, %x);
  let %e = softmax(%d) {axis = 1};
  %e
})"};
  mlp.tolerance = 1e-4;
  out.push_back(mlp);
  // q, k and v from one input: merged into one product, then attention by hand.
  Program block{"self_attention",
                "fn @main(%x: Tensor[(b, n, 16), f32], %mask: Tensor[(b, n), i64]) {\n" +
                    weights("wq", 16, 16) + weights("wk", 16, 16) + weights("wv", 16, 16) +
                    R"(  let %q = matmul(%x, %wq);
  let %k = matmul(%x, %wk);
  let %v = matmul(%x, %wv);
  let %q4 = reshape(%q) {shape = (b, n, 2, 8)};
  let %k4 = reshape(%k) {shape = (b, n, 2, 8)};
  let %v4 = reshape(%v) {shape = (b, n, 2, 8)};
  let %qt = transpose(%q4) {axes = [0, 2, 1, 3]};
  let %kt = transpose(%k4) {axes = [0, 2, 3, 1]};
  let %vt = transpose(%v4) {axes = [0, 2, 1, 3]};
  let %s = matmul(%qt, %kt);
  let %ss = mul(%s, 0.35355339f32);
  let %m4 = unsqueeze(%mask) {axes = [1, 2]};
  let %mf = cast(%m4) {dtype = f32};
  let %inv = sub(1.0f32, %mf);
  let %bias = mul(%inv, -1e4f32);
  let %sm = add(%ss, %bias);
  let %p = softmax(%sm) {axis = -1};
  let %o = matmul(%p, %vt);
  let %ot = transpose(%o) {axes = [0, 2, 1, 3]};
  let %y = reshape(%ot) {shape = (b, n, 16)};
  let %z = add(%y, %x);
  %z
})",
                {-1, 1},
                {{"mask", {1, 1}}},
                1};
  block.tolerance = 1e-4;
  out.push_back(block);
  Program batched{"attention_scores",  // softmax over a product of two variables
                  R"(fn @main(%a: Tensor[(b, n, 8), f32], %c: Tensor[(b, m, 8), f32]) {
  let %s = matmul(%a, %c) {transpose_b = true};
  let %p = softmax(%s) {axis = 2};
  let %y = matmul(%p, %c);
  %y
})",
                  {-1, 1},
                  {},
                  1};
  batched.tolerance = 1e-4;
  out.push_back(batched);
  return out;
}

}  // namespace nimble::driver::testing
