// The template gpu_conv_product against the reference interpreter, in the emulator.
#include <fmt/format.h>

#include "compiler/kernels/test/exhaustive.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels {
namespace {

// `image` are the dims, channels second.
struct Conv {
  std::string image;
  int64_t filters, channels, kh, kw;  // channels of a group
  std::string windows = "strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]";
  int64_t groups = 1;
};
constexpr const char* kPadded = "strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]";

struct ConvTypes {
  const char *image = "f32", *weights = "f32", *sum = "f32";
  const char* more = "";  // attributes
};
constexpr ConvTypes kBF16 = {"bf16", "bf16", "f32", ", out = f32"},
                    kF16 = {"f16", "f16", "f32", ", out = f32"},
                    kHalfWeights = {"f32", "f16", "f32", ", out = f32"},
                    kTf32 = {"f32", "f32", "f32", ", tf32 = true"};

// `after` uses %y and gives the result; `parameters` are more of them.
std::string text_of(const Conv& c, const ConvTypes& t = {}, const std::string& after = "%y",
                    const std::string& parameters = "", bool bias = false) {
  return fmt::format(
      "fn @f(%x: Tensor[({}), {}], %w: Tensor[({}, {}, {}, {}), {}]{}{}) {{ "
      "let %y = conv2d(%x, %w{}) {{{}, groups = {}{}}}; {} }}",
      c.image, t.image, c.filters, c.channels, c.kh, c.kw, t.weights,
      bias ? fmt::format(", %c: Tensor[({}), {}]", c.filters, t.sum) : "", parameters,
      bias ? ", %c" : "", c.windows, c.groups, t.more, after);
}

using Sizes = std::vector<std::vector<int64_t>>;

class GpuConvProduct : public ::testing::Test {
 protected:
  // The default and some drawn configurations. Factors of tf32 have a bound of their own.
  void check(const std::string& text, const Sizes& sizes, int configurations = 4,
             double tolerance = 2e-5) {
    const Workload w = testing::workload_of(text);
    SCOPED_TRACE(w.key);
    ReferenceHarness harness(w, target_);
    ASSERT_NE(harness.chosen(), nullptr);
    ASSERT_EQ(harness.chosen()->name(), "gpu_conv_product");
    std::mt19937 random(7);
    if (exhaustive()) configurations *= 10;
    for (int c = 0; c < configurations && !HasFailure(); ++c)
      check(harness,
            c == 0 ? template_.default_config(harness.workload(), target_)
                   : random_config(template_, harness.workload(), target_, random),
            sizes, tolerance);
  }
  void check(ReferenceHarness& harness, const Config& config, const Sizes& sizes,
             double tolerance = 2e-5) {
    SCOPED_TRACE(to_json(config));
    harness.lower(config);
    unsigned seed = 0;
    for (const std::vector<int64_t>& s : sizes) {
      if (HasFailure()) return;
      harness.run(s, 1, seed++, tolerance);
    }
  }

  kir::Function lowered(const std::string& text) const {
    const Workload w = testing::workload_of(text);
    return template_.lower(w, template_.default_config(w, target_), target_, "f").functions.at(0);
  }
  bool accepts(const std::string& text) const {
    return template_.accepts(testing::workload_of(text), target_);
  }

  const TargetInfo target_ = target_by_name("sm_90a");
  const Template& template_ = *find_template("gpu_conv_product");
};

// Batch, height and width unknown: images of one pixel, of less than a window, primes, and
// positions around tiles of 16 and 64.
TEST_F(GpuConvProduct, AwkwardSizes) {
  const Sizes sizes = {{1, 1, 1}, {2, 1, 2},  {3, 5, 7},  {1, 13, 11},
                       {2, 4, 2}, {1, 3, 17}, {5, 1, 13}, {0, 4, 4}};
  check(text_of({"b, 3, h, w", 17, 3, 3, 3, kPadded}), sizes);
  check(text_of({"b, 8, h, w", 16, 8, 1, 2,
                 "strides = [1, 1], pads = [0, 0, 0, 1], "
                 "dilations = [1, 1]"}),
        sizes);
}

// Strides, padding on some sides alone and wider than the window, dilation, long windows.
TEST_F(GpuConvProduct, Windows) {
  struct Case {
    int64_t kh, kw;
    const char* windows;
    int64_t channels = 17;
  };
  for (const Case& c : {Case{3, 3, "strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1]"},
                        {5, 3, "strides = [1, 2], pads = [2, 0, 1, 3], dilations = [1, 2]"},
                        {2, 2, "strides = [3, 1], pads = [0, 0, 0, 0], dilations = [2, 1]"},
                        {1, 1, "strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]"},
                        {1, 1, "strides = [1, 1], pads = [1, 2, 0, 1], dilations = [1, 1]"},
                        {1, 7, "strides = [1, 1], pads = [0, 3, 0, 3], dilations = [1, 1]"},
                        {7, 1, "strides = [1, 1], pads = [3, 0, 3, 0], dilations = [1, 1]"},
                        {30, 2, "strides = [1, 1], pads = [29, 1, 29, 1], dilations = [1, 1]", 1}})
    check(text_of({fmt::format("b, {}, h, w", c.channels), 19, c.channels, c.kh, c.kw, c.windows}),
          {{1, 7, 9}, {2, 11, 5}}, 2);
}

// Single taps without padding are matrices, whose neighbours are copied together where channels
// have whole vectors of elements: of 64 elements four, of 6 two, of 35 one.
TEST_F(GpuConvProduct, SingleTaps) {
  for (const char* image : {"b, 32, 8, 8", "b, 32, 2, 3", "b, 32, 7, 5", "b, 32, h, w"})
    for (const ConvTypes& t : {ConvTypes{}, kBF16}) {
      const bool known = std::string_view(image).find('h') == std::string_view::npos;
      check(text_of({image, 24, 32, 1, 1}, t), known ? Sizes{{1}, {3}, {0}} : Sizes{{2, 3, 5}}, 3);
    }
  // The image is the first parameter.
  const auto copies = [&](const char* image, const char* lanes) {
    const std::string text = kir::print(lowered(text_of({image, 24, 32, 1, 1})));
    return text.find(std::string(" = f32") + lanes + " p0[") != std::string::npos;
  };
  EXPECT_TRUE(copies("b, 32, 8, 8", "x4"));
  EXPECT_TRUE(copies("b, 32, 2, 3", "x2"));
  EXPECT_TRUE(copies("b, 32, 7, 5", ""));
}

TEST_F(GpuConvProduct, Groups) {
  check(text_of({"b, 24, h, w", 48, 8, 3, 3, kPadded, 3}), {{2, 5, 6}, {1, 1, 1}});
  check(text_of({"b, 40, 4, 4", 34, 20, 1, 1,
                 "strides = [1, 1], pads = [0, 0, 0, 0], "
                 "dilations = [1, 1]",
                 2},
                kBF16),
        {{1}, {2}});
}

// bf16 and f16 by fragments, weights of f16 beside images of f32, f64, and bytes, whose sums are
// exact.
TEST_F(GpuConvProduct, Types) {
  const Conv c = {"b, 11, h, w", 24, 11, 3, 3, kPadded};
  const Sizes sizes = {{1, 6, 7}, {3, 1, 2}};
  for (const ConvTypes& t : {kBF16, kF16, kHalfWeights}) check(text_of(c, t), sizes);
  check(text_of(c, {"f64", "f64", "f64"}), sizes, 2);
  for (const char* image : {"u8", "i8"})
    check(text_of(c, {image, "i8", "i32", ", out = i32"}), sizes, 2);
  // A factor is off by 2^-11 of itself.
  check(text_of(c, kTf32), sizes, 4, 99 * 0x1p-10);
}

// What is fused behind: a bias, an activation, a residual, whose rows may have whole vectors.
TEST_F(GpuConvProduct, WhatFollows) {
  for (const char* width : {"w", "8"}) {
    const std::string image = std::string("b, 20, h, ") + width;
    const std::string residual = fmt::format(", %r: Tensor[(b, 20, h, {}), f32]", width);
    const Sizes sizes = width[0] == 'w' ? Sizes{{2, 5, 3}, {1, 9, 7}} : Sizes{{2, 5}, {1, 1}};
    check(text_of({image, 20, 20, 3, 3, kPadded}, {}, "let %a = relu(%y); let %s = add(%a, %r); %s",
                  residual, true),
          sizes, 3);
    check(text_of({image, 20, 20, 3, 3, kPadded}, kBF16,
                  "let %a = sigmoid(%y); let %s = mul(%y, %a); let %n = cast(%s) {dtype = bf16}; "
                  "%n",
                  "", true),
          sizes, 2);
  }
}

Config schedule(const char* unit, int64_t rows, int64_t columns, int64_t tile_rows,
                int64_t tile_columns, int64_t k_step, int64_t k_split, int64_t stages) {
  return {{"unit", unit},
          {"block_rows", rows},
          {"block_columns", columns},
          {"tile_rows", tile_rows},
          {"tile_columns", tile_columns},
          {"k_step", k_step},
          {"k_split", k_split},
          {"stages", stages}};
}

// A thread with several positions of a row (fewer threads than columns), with rows of which the
// last round has fewer, and teams of one warp, which copy their own slices of k.
TEST_F(GpuConvProduct, SchedulesOfAllKinds) {
  struct Case {
    const ConvTypes& types;
    Config config;
  };
  const ConvTypes f32 = {};
  for (const Case& c : {Case{f32, schedule("simt", 16, 128, 4, 8, 16, 1, 2)},
                        {f32, schedule("simt", 16, 32, 4, 4, 64, 8, 3)},
                        {f32, schedule("simt", 64, 16, 2, 2, 16, 2, 2)},
                        {kBF16, schedule("mma", 16, 128, 16, 64, 32, 1, 3)},
                        {kBF16, schedule("mma", 16, 32, 16, 32, 128, 4, 4)},
                        {kF16, schedule("mma", 64, 64, 32, 32, 32, 1, 3)}}) {
    const Workload w =
        testing::workload_of(text_of({"b, 13, h, w", 33, 13, 3, 3, kPadded}, c.types));
    SCOPED_TRACE(w.key);
    ASSERT_TRUE(template_.valid(w, c.config, target_)) << to_json(c.config);
    ReferenceHarness harness(w, target_);
    check(harness, c.config, {{1, 9, 15}, {2, 6, 11}});
  }
}

// Factors of f32 are rounded to tf32 where the operator allows it, and nowhere else.
TEST_F(GpuConvProduct, FragmentsAreForWhomAllowsThem) {
  const Conv c = {"b, 64, h, w", 64, 64, 3, 3, kPadded};
  const auto unit = [&](const ConvTypes& t, const char* target) {
    const TargetInfo gpu = target_by_name(target);
    return std::get<std::string>(
        template_.default_config(testing::workload_of(text_of(c, t)), gpu).at("unit"));
  };
  for (const char* target : {"sm_80", "sm_90a", "sm_100"}) {
    EXPECT_EQ(unit({}, target), "simt");
    for (const ConvTypes& t : {kTf32, kBF16, kF16}) EXPECT_EQ(unit(t, target), "mma");
  }
}

// Which elements of a patch lie in the padding is known ahead: within the steps the image's extents
// are no longer asked for. What has no padding asks nothing.
TEST_F(GpuConvProduct, StepsKnowThePadding) {
  const auto steps = [&](const Conv& c) {
    const std::string text = kir::print(lowered(text_of(c)));
    const size_t walk = text.find("serial step from");
    EXPECT_NE(walk, std::string::npos) << text;
    return text.substr(std::min(walk, text.size()), text.find("serial round from") - walk);
  };
  const std::string padded = steps({"b, 16, h, w", 32, 16, 3, 3, kPadded});
  EXPECT_NE(padded.find("b_inside0"), std::string::npos) << padded;
  const std::string plain = steps({"b, 16, h, w", 32, 16, 3, 3});
  EXPECT_EQ(plain.find("b_inside0"), std::string::npos) << plain;
}

// Few filters, few terms, depthwise convolutions, and windows beyond a row of bits.
TEST_F(GpuConvProduct, LeavesSmallOnesToOthers) {
  EXPECT_TRUE(accepts(text_of({"b, 16, h, w", 16, 16, 1, 1})));
  for (const Conv& c : {Conv{"b, 16, h, w", 15, 16, 1, 1},
                        {"b, 15, h, w", 16, 15, 1, 1},
                        {"b, 64, h, w", 64, 1, 3, 3, kPadded, 64},
                        {"b, 16, h, w", 16, 16, 1, 31}}) {
    const std::string text = text_of(c);
    EXPECT_FALSE(accepts(text)) << text;
    const Template* other = template_for(testing::workload_of(text), target_);
    ASSERT_NE(other, nullptr) << text;
    EXPECT_EQ(other->name(), "gpu_conv2d");
  }
  EXPECT_FALSE(template_.accepts(testing::workload_of(text_of({"b, 16, h, w", 16, 16, 1, 1})),
                                 target_by_name("x86-64-v4")));
}

TEST_F(GpuConvProduct, RefusesWhatItDoesNotKnow) {
  const Workload w = testing::workload_of(text_of({"b, 16, h, w", 32, 16, 3, 3, kPadded}, kBF16));
  testing::expect_refuses_other_knobs(template_, w, target_);
  testing::expect_refuses_on_gpu("gpu_conv_product", w,
                                 {{"block_rows", 0}, {"k_step", 7}, {"stages", 1}});
  Config group = template_.default_config(w, target_);
  group["unit"] = "wgmma";
  EXPECT_FALSE(template_.valid(w, group, target_));
}

}  // namespace
}  // namespace nimble::kernels
