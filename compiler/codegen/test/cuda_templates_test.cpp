// Kernels of templates as the assembler takes them.
#include <gtest/gtest.h>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/test/cuda_kernels.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/template_harness.h"
#include "compiler/kernels/unroll.h"

namespace nimble::codegen::testing {
namespace {

struct Sample {
  const char* served_by;
  std::string text;
};

// The self-attention of an encoder; `mask` is its dims.
std::string encoder(const std::string& type, const std::string& mask) {
  return "fn @f(%q: Tensor[(b, n, 768), " + type + "], %k: Tensor[(b, n, 768), " + type +
         "], %v: Tensor[(b, n, 768), " + type + "], %m: Tensor[(" + mask + "), " + type +
         "]) { let %y = attention(%q, %k, %v, %m) {heads = 12, scale = 0.125}; %y }";
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

std::string convolution(const std::string& channels, const std::string& groups) {
  return "fn @f(%x: Tensor[(b, 64, h, w), f32], %w: Tensor[(64, " + channels +
         ", 3, 3), f32], %c: Tensor[(64), f32]) { let %y = conv2d(%x, %w, %c) {strides = [2, 2], "
         "pads = [1, 1, 1, 1], dilations = [1, 1], groups = " +
         groups + "}; let %r = relu(%y); %r }";
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

TEST(CudaTemplates, DefaultSchedulesSpillNothing) {
  NIMBLE_NEEDS_NVRTC();
  const kernels::TargetInfo target = gpu_target();
  const Sample samples[] = {
      {"gpu_attention", encoder("f32", "b, 1, 1, n")},
      {"gpu_attention", encoder("f32", "1, 12, n, n")},
      {"gpu_attention", encoder("f64", "b, 1, 1, n")},
      {"gpu_attention", encoder("bf16", "b, 1, 1, n")},
      {"gpu_attention", encoder("f16", "1, 1, n, n")},
      {"gpu_recurrent", lstm("f32")},
      {"gpu_recurrent", lstm("bf16")},
      {"gpu_recurrent", gru("true")},
      {"gpu_recurrent", gru("false")},
      {"gpu_conv2d", convolution("64", "1")},
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
  for (const Sample& s : samples) {
    SCOPED_TRACE(s.text);
    const kernels::Workload w = kernels::testing::workload_of(s.text);
    const kernels::Template* t = kernels::template_for(w, target);
    ASSERT_NE(t, nullptr);
    ASSERT_EQ(t->name(), s.served_by);
    const kernels::Config c = t->default_config(w, target);
    const kir::Function f = kir::unroll(t->lower(w, c, target, "kernel").functions.at(0));
    const CudaObject object = compile_cuda({&f, 1}, target)[0];
    EXPECT_FALSE(object.bytes.empty());
    EXPECT_EQ(object.resources.spill_bytes, 0) << kernels::to_json(c);
  }
}

}  // namespace
}  // namespace nimble::codegen::testing
