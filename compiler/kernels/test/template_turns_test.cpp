// Functions that kernels compute on several vectors in turns, as one of as many lanes: which
// kernels do so, and what they give, against the reference interpreter.
#include <fmt/format.h>

#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/image_cases.h"
#include "compiler/kernels/test/operator_rows.h"

namespace nimble::kernels::testing {
namespace {

// Whether the kernel of a function, by the default schedule for vectors of 8 lanes, has `part`.
bool has(const std::string& function, const std::string& part) {
  const Workload w = workload_of(function);
  const TargetInfo& target = target_by_name("x86-64-v3");
  const Template* t = template_for(w, target);
  if (t == nullptr) return false;
  const Lowered lowered = t->lower(w, t->default_config(w, target), target, "f");
  return kir::print(lowered.functions.at(0)).find(part) != std::string::npos;
}

// A depthwise convolution with statements behind it that make %r of %y and further parameters.
Case depthwise(const Filter& f, const std::string& epilogue, const std::string& parameters = {}) {
  Case c = convolution(f, "depthwise_nhwc");
  replace_once(c.text, "let %r = relu(%y);", epilogue);
  replace_once(c.text, ") { let %y", parameters + ") { let %y");
  c.oracle = by_reference(c.text);
  return c;
}
Filter three_by_three(int64_t channels) {
  return {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, channels, channels, channels};
}

constexpr const char* kSilu = "let %s = sigmoid(%y); let %r = mul(%y, %s);";

TEST(DepthwiseNhwc, FunctionsInTurns) {
  check_each({three_by_three(64),
              three_by_three(48),
              three_by_three(24),
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 58, 58, 58},
              {5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 40, 40},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3},
              {2, 3, 1, 1, 0, 0, 0, 0, 1, 1, 16, 16, 16},
              {3, 3, 1, 2, 0, 2, 1, 0, 1, 1, 1, 1, 1}},
             [](const Filter& f) { return depthwise(f, kSilu); });
}

TEST(DepthwiseNhwc, FunctionsOfSumsWithAResidualImageInTurns) {
  for (const int64_t channels : {64, 40}) {
    const std::string residual = fmt::format(", %z: Tensor[(b, h, w, {}), f32]", channels);
    check(
        depthwise(three_by_three(channels), "let %s = add(%y, %z); let %r = gelu(%s);", residual));
    if (HasFatalFailure()) return;
  }
}

TEST(DepthwiseNhwc, WhatWaitsForFunctions) {
  const auto sums = [](int64_t channels, const std::string& epilogue, int lanes) {
    return has(depthwise(three_by_three(channels), epilogue).text,
               fmt::format("load.f32x{} sums[", lanes));
  };
  EXPECT_TRUE(sums(64, kSilu, 32));
  EXPECT_TRUE(sums(24, kSilu, 16)) << "two vectors of three";
  EXPECT_TRUE(sums(24, kSilu, 8)) << "the last one";
  for (const char* plain :
       {"let %r = relu(%y);", "let %r = clip(%y) {min = 0.0, max = 6.0};", "let %r = sqrt(%y);"})
    for (const int lanes : {8, 16, 32}) EXPECT_FALSE(sums(64, plain, lanes)) << plain;
}

TEST(DepthwiseNhwc, WholeVectorsOfTheLastPanelHaveNoMask) {
  const auto masked = [](int64_t channels) {
    return has(convolution(three_by_three(channels), "depthwise_nhwc").text, "] first ");
  };
  EXPECT_FALSE(masked(24));
  EXPECT_TRUE(masked(20));
}

TEST(Elementwise, FunctionsInTurns) {
  for (const char* text : {
           "(%x: Tensor[(n), f32]) { let %y = gelu(%x); %y }",
           "(%x: Tensor[(n), f16]) { let %s = sigmoid(%x); let %y = mul(%x, %s); %y }",
           "(%x: Tensor[(n), f64]) { let %y = tanh(%x); %y }",
           "(%x: Tensor[(n, 37), f32], %z: Tensor[(37), f32]) "
           "{ let %s = add(%x, %z); let %y = erf(%s); %y }",
           "(%x: Tensor[(n, 69), f32], %z: Tensor[(n, 130), f32]) "
           "{ let %c = concat(%x, %z) {axis = 1}; let %y = sigmoid(%c); %y }",
           "(%x: Tensor[(n, m), f32]) "
           "{ let %t = transpose(%x) {axes = [1, 0]}; let %y = softplus(%t); %y }",
           // Channels that change places have lanes of all turns side by side, and stay as they
           // are.
           "(%x: Tensor[(n, 64), f32]) { let %r = reshape(%x) {shape = (n, 2, 32)}; "
           "let %t = transpose(%r) {axes = [0, 2, 1]}; let %y = sigmoid(%t); %y }",
       }) {
    SCOPED_TRACE(text);
    Case c;
    c.text = std::string("fn @f") + text;
    c.served_by = "elementwise";
    c.oracle = by_reference(c.text);
    c.sizes = random_sizes(workload_of(c.text).contract.symbols.size(), 140, 10);
    c.configurations = 8;
    // The reference rounds each operator's result.
    if (c.text.find("f16") != std::string::npos) c.tolerance = 2e-3;
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST(Elementwise, WhatIsNoFunctionIsNotInTurns) {
  const auto in_turns = [](const std::string& op, const std::string& attributes = {}) {
    return has(
        fmt::format("fn @f(%x: Tensor[(n), f32]) {{ let %y = {}(%x){}; %y }}", op, attributes),
        "load.f32x16 p0[");
  };
  for (const char* op :
       {"exp", "log", "tanh", "sigmoid", "erf", "gelu", "gelu_tanh", "softplus", "atan"})
    EXPECT_TRUE(in_turns(op)) << op;
  // A sine's vectors are two of f64 each as they are.
  for (const char* op : {"neg", "relu", "sqrt", "rsqrt", "reciprocal", "round", "sin", "cos"})
    EXPECT_FALSE(in_turns(op)) << op;
  EXPECT_FALSE(in_turns("clip", " {min = 0.0, max = 6.0}"));
}

TEST(Attention, ExponentialsOfLongRowsInTurns) {
  const auto in_turns = [](const std::string& keys) {
    return has(fmt::format("fn @f(%q: Tensor[(b, n, 32), f32], %k: Tensor[(b, {0}, 32), f32], "
                           "%v: Tensor[(b, {0}, 32), f32]) "
                           "{{ let %y = attention(%q, %k, %v) {{heads = 2, scale = 0.25}}; %y }}",
                           keys),
               "load.f32x32 scores[");
  };
  EXPECT_TRUE(in_turns("m"));
  EXPECT_TRUE(in_turns("197"));
  EXPECT_FALSE(in_turns("49")) << "in registers";
}

}  // namespace
}  // namespace nimble::kernels::testing
