#include "compiler/codegen/test/cuda_samples.h"

namespace nimble::codegen::testing {
namespace {

// The self-attention of an encoder; `mask` is its dims.
std::string encoder(const std::string& type, const std::string& mask,
                    const std::string& more = "") {
  return "fn @f(%q: Tensor[(b, n, 768), " + type + "], %k: Tensor[(b, n, 768), " + type +
         "], %v: Tensor[(b, n, 768), " + type + "], %m: Tensor[(" + mask + "), " + type +
         "]) { let %y = attention(%q, %k, %v, %m) {heads = 12, scale = 0.125" + more + "}; %y }";
}

std::string lstm(const std::string& weights) {
  return "fn @f(%x: Tensor[(b, 2048), f32], %h: Tensor[(b, 512), f32], %c: Tensor[(b, 512), f32], "
         "%w: Tensor[(512, 2048), " +
         weights + "]) { let %y = lstm_cell(%x, %h, %c, %w); %y }";
}

std::string gru(const std::string& linear_before_reset) {
  return "fn @f(%x: Tensor[(b, 1536), f32], %h: Tensor[(b, 512), f32], "
         "%w: Tensor[(512, 1536), f32], %c: Tensor[(1536), f32]) { "
         "let %y = gru_cell(%x, %h, %w, %c) {linear_before_reset = " +
         linear_before_reset + "}; %y }";
}

std::string lstm_steps(const std::string& weights) {
  return "fn @f(%x: Tensor[(n, b, 2048), f32], %h: Tensor[(b, 512), f32], "
         "%c: Tensor[(b, 512), f32], %w: Tensor[(512, 2048), " +
         weights + "]) { let %y = lstm_steps(%x, %h, %c, %w) {reverse = false}; %y }";
}

std::string gru_steps() {
  return "fn @f(%x: Tensor[(n, 1, 300), f32], %h: Tensor[(1, 100), f32], "
         "%w: Tensor[(100, 300), f32], %c: Tensor[(300), f32]) { "
         "let %y = gru_steps(%x, %h, %w, %c) {linear_before_reset = true, reverse = true}; %y }";
}

std::string convolution(const std::string& channels, const std::string& groups,
                        const std::string& type = "f32", const std::string& more = "") {
  return "fn @f(%x: Tensor[(b, 64, h, w), " + type + "], %w: Tensor[(64, " + channels +
         ", 3, 3), " + type +
         "], %c: Tensor[(64), f32]) { let %y = conv2d(%x, %w, %c) {strides = [2, 2], "
         "pads = [1, 1, 1, 1], dilations = [1, 1], groups = " +
         groups + more + "}; let %r = relu(%y); %r }";
}

// One tap on images of known extents, with a residual.
std::string pixels(const std::string& type, const std::string& more) {
  return "fn @f(%x: Tensor[(b, 256, 28, 28), " + type + "], %w: Tensor[(64, 256, 1, 1), " + type +
         "], %s: Tensor[(b, 64, 28, 28), f32]) { let %y = conv2d(%x, %w) {strides = [1, 1], "
         "pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1" +
         more + "}; let %r = add(%y, %s); %r }";
}

// Element by element, of an encoder's rows.
std::string rows(const std::string& type, const std::string& calls) {
  return "fn @f(%x: Tensor[(b, n, 768), " + type + "], %y: Tensor[(b, n, 768), " + type +
         "], %g: Tensor[(768), " + type + "]) { " + calls + " }";
}

std::string embedding(const std::string& calls) {
  return "fn @f(%w: Tensor[(30522, 768), f32], %i: Tensor[(b, n), i64], %g: Tensor[(768), f32]) { "
         "let %e = gather(%w, %i) {axis = 0}; " +
         calls + " }";
}

// A product with bias, activation and residual.
std::string product(const std::string& type, const std::string& k, const std::string& n,
                    const std::string& attributes) {
  return "fn @f(%a: Tensor[(m, " + k + "), " + type + "], %b: Tensor[(" + k + ", " + n + "), " +
         type + "], %c: Tensor[(" + n + "), f32], %r: Tensor[(m, " + n +
         "), f32]) { let %y = matmul(%a, %b)" +
         (attributes.empty() ? "" : " {" + attributes + "}") +
         "; let %s = add(%y, %c); let %g = gelu(%s); let %t = add(%g, %r); %t }";
}

// A product alone, in sums of another type.
std::string plain_product(const std::string& a, const std::string& b, const std::string& out) {
  return "fn @f(%a: Tensor[(m, 768), " + a + "], %b: Tensor[(768, 768), " + b +
         "]) { let %y = matmul(%a, %b)" + (a == out ? "" : " {out = " + out + "}") + "; %y }";
}

}  // namespace

std::vector<CudaSample> cuda_samples() {
  return {
      {"gpu_matmul", product("f32", "768", "3072", "")},
      {"gpu_matmul", product("f32", "768", "3072", "tf32 = true")},
      {"gpu_matmul", product("f32", "768", "768", "tf32 = true, transpose_b = true")},
      {"gpu_matmul", product("bf16", "768", "3072", "out = f32")},
      {"gpu_matmul", product("f16", "3072", "768", "out = f32")},
      {"gpu_matmul", product("f32", "33", "50", "")},
      {"gpu_matmul", plain_product("u8", "i8", "i32")},
      {"gpu_attention", encoder("f32", "b, 1, 1, n")},
      {"gpu_attention", encoder("f32", "1, 12, n, n")},
      {"gpu_attention", encoder("f32", "b, 1, 1, n", ", tf32 = true")},
      {"gpu_attention", encoder("f64", "b, 1, 1, n")},
      {"gpu_attention", encoder("bf16", "b, 1, 1, n")},
      {"gpu_attention", encoder("f16", "1, 1, n, n")},
      {"gpu_recurrent", lstm("f32")},
      {"gpu_recurrent", lstm("bf16")},
      {"gpu_recurrent", gru("true")},
      {"gpu_recurrent", gru("false")},
      {"gpu_recurrent_steps", lstm_steps("f32")},
      {"gpu_recurrent_steps", lstm_steps("bf16")},
      {"gpu_recurrent_steps", gru_steps()},
      {"gpu_conv_product", convolution("64", "1")},
      {"gpu_conv_product", convolution("64", "1", "f32", ", tf32 = true")},
      {"gpu_conv_product", convolution("64", "1", "bf16", ", out = f32")},
      {"gpu_conv_product", convolution("32", "2", "f16", ", out = f32")},
      {"gpu_conv_product", pixels("f32", "")},
      {"gpu_conv_product", pixels("bf16", ", out = f32")},
      {"gpu_conv2d", convolution("1", "64")},
      {"gpu_elementwise", rows("f32", "let %a = add(%x, %g); let %z = gelu(%a); %z")},
      {"gpu_elementwise", rows("bf16", "let %a = mul(%x, %y); let %z = tanh(%a); %z")},
      {"gpu_elementwise", rows("f16", "let %z = concat(%x, %y) {axis = 2}; %z")},
      {"gpu_elementwise", rows("f32",
                               "let %h = reshape(%x) {shape = (b, n, 12, 64)}; "
                               "let %z = transpose(%h) {axes = [0, 2, 3, 1]}; %z")},
      {"gpu_elementwise", embedding("let %z = mul(%e, %g); %z")},
      {"gpu_reduce", embedding("let %z = layer_norm(%e, %g, %g) {epsilon = 1e-12, axis = -1}; %z")},
      {"gpu_reduce", rows("f32",
                          "let %a = add(%x, %y); "
                          "let %z = layer_norm(%a, %g, %g) {epsilon = 1e-12, axis = -1}; %z")},
      {"gpu_reduce", rows("bf16",
                          "let %a = add(%x, %y); "
                          "let %z = layer_norm(%a, %g, %g) {epsilon = 1e-12, axis = -1}; %z")},
      {"gpu_reduce", rows("f32", "let %z = softmax(%x) {axis = 1}; %z")},
      {"gpu_reduce", rows("f32", "let %z = mean(%x) {axes = [1], keepdims = false}; %z")},
      {"gpu_reduce", rows("f32", "let %z = argmax(%x) {axis = 2, keepdims = false}; %z")},
      {"gpu_reduce", "fn @f(%x: Tensor[(b, n), f32]) { let %z = softmax(%x) {axis = 1}; %z }"},
      {"gpu_reduce",
       "fn @f(%x: Tensor[(b, 16), f32]) { "
       "let %z = reduce_max(%x) {axes = [1], keepdims = false}; %z }"},
      {"gpu_scan", "fn @f(%x: Tensor[(b, n), f32]) { let %z = cumsum(%x) {axis = 0}; %z }"},
      {"gpu_pool2d",
       "fn @f(%x: Tensor[(b, 64, h, w), f32]) { let %z = max_pool2d(%x) {kernel = [3, 3], "
       "strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], ceil_mode = false}; %z }"},
  };
}

}  // namespace nimble::codegen::testing
