// The templates of channels-last images against the reference interpreter.
#include <limits>

#include "compiler/ir/layout.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/test/image_cases.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

TEST(Conv2dNhwc, WindowsStridesPaddingDilation) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24},
                          {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 24, 40},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 8, 58},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 16, 33},
                          {7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 16},
                          {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 2, 3},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 20, 17},
                          {2, 5, 3, 3, 0, 4, 1, 0, 1, 1, 1, 5, 8},
                          {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 1, 4, 1}}) {
    SCOPED_TRACE(f.str());
    check(convolution(f, "conv2d_nhwc"));
    if (HasFatalFailure()) return;
  }
}

TEST(Conv2dNhwc, OneDimension) {
  const Filter f{1, 9, 1, 2, 0, 4, 0, 4, 1, 1, 1, 24, 35};
  Case c = convolution(f, "conv2d_nhwc");
  c.sizes = {{1, 1, 1}, {2, 1, 5}, {1, 1, 27}, {1, 1, 64}, {1, 1, 130}, {1, 1, 701}};
  check(c);
}

TEST(Conv2dNhwc, Groups) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 24, 34},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 12, 20},
                          {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 2, 4, 6},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 5, 10}}) {
    SCOPED_TRACE(f.str());
    check(convolution(f, "conv2d_nhwc"));
    if (HasFatalFailure()) return;
  }
}

TEST(DepthwiseNhwc, WindowsStridesPaddingDilation) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 24, 24, 24},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 58, 58, 58},
                          {5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 40, 40},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3},
                          {2, 3, 1, 1, 0, 0, 0, 0, 1, 1, 16, 16, 16},
                          {3, 3, 1, 2, 0, 2, 1, 0, 1, 1, 1, 1, 1}}) {
    SCOPED_TRACE(f.str());
    check(convolution(f, "depthwise_nhwc"));
    if (HasFatalFailure()) return;
  }
}

TEST(Conv2dNhwc, PackedWeights) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 58},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 36, 24},
                          {7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 70},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 3},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 2, 40, 80},
                          {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 3, 12, 15},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 20, 20},
                          {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 4, 8}}) {
    SCOPED_TRACE(f.str());
    check(packed_convolution(f, DType::kF32, DType::kF32));
    if (HasFatalFailure()) return;
  }
}

// By a fragment: a pixel's channels are whole pairs.
TEST(Conv2dNhwc, PackedPairs) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 58},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 70, 24},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 12, 15},
                          {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 8, 8}}) {
    SCOPED_TRACE(f.str());
    Case c = packed_convolution(f, DType::kBF16);
    // A machine's own target may take more than a few filters in matrix registers.
    if (mode().targets.front().has("amx-bf16") && f.out / f.groups > 8)
      c.served_by = "conv2d_tiles";
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Runs what follows for the target with matrix registers.
class TilesNhwc : public ::testing::Test {
 protected:
  explicit TilesNhwc(const char* level = "x86-64-v4-amx") : level_(level) {}
  void SetUp() override {
    if (!harness_mode().runs(level_)) GTEST_SKIP() << "this machine lacks " << level_;
    mode().targets = {target_by_name(level_)};
  }
  void TearDown() override { mode().targets = targets_; }
  static void check_tiles(const Filter& f, const Sizes& sizes = {}, DType type = DType::kBF16) {
    SCOPED_TRACE(f.str());
    Case c = packed_convolution(f, type);
    c.served_by = "conv2d_tiles";
    c.configurations = 4;
    if (!sizes.empty()) c.sizes = sizes;
    check(c);
  }

 private:
  const std::string level_;
  const std::vector<TargetInfo> targets_ = mode().targets;
};

// Of f16, which not every machine with matrix registers multiplies there.
class TilesOfHalvesNhwc : public TilesNhwc {
 protected:
  TilesOfHalvesNhwc() : TilesNhwc("x86-64-v4-amx-fp16") {}
};

TEST_F(TilesNhwc, WindowsStridesPaddingDilation) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 32, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 32, 33},
                          {3, 3, 2, 2, 0, 0, 1, 1, 1, 1, 1, 64, 16},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 32, 17},
                          {3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 32, 24},
                          {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 32, 20},
                          {2, 5, 3, 3, 0, 4, 1, 0, 1, 1, 1, 32, 9},
                          {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 1, 32, 64},
                          {1, 9, 1, 2, 0, 4, 0, 4, 1, 1, 1, 32, 35}}) {
    check_tiles(f);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TilesNhwc, Groups) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 64, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 3, 96, 99},
                          {2, 2, 1, 1, 0, 0, 0, 0, 1, 1, 2, 64, 64},
                          {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 3, 102, 51}}) {
    check_tiles(f);
    if (HasFatalFailure()) return;
  }
}

// Of one tap the channels may be any pairs: all rows are one, or every second pixel is copied.
TEST_F(TilesNhwc, OneTap) {
  for (const int64_t channels : {2, 30, 32, 34, 64, 98})
    for (const int64_t stride : {1, 2})
      for (const int64_t pad : {0, 1}) {
        check_tiles({1, 1, stride, stride, pad, pad, 0, pad, 1, 1, 1, channels, 40});
        if (HasFatalFailure()) return;
      }
}

TEST_F(TilesNhwc, NothingButPadding) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 1, 32, 9},
                          {3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 32, 24}}) {
    check_tiles(f, {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}, {1, 0, 43}, {2, 31, 0}, {1, 1, 1}});
    if (HasFatalFailure()) return;
  }
}

// Channels that do not fill a tile's depth have zeros behind them in the copy of the image.
TEST_F(TilesNhwc, FewChannelsAndOddOnes) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 40},
                          {3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 16, 33},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 40, 24},
                          {2, 3, 1, 2, 0, 1, 1, 1, 2, 1, 2, 68, 40},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72}}) {
    check_tiles(f);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TilesOfHalvesNhwc, WindowsGroupsAndFewChannels) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 32, 40},
                          {3, 3, 2, 2, 0, 0, 1, 1, 1, 1, 1, 64, 16},
                          {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 32, 20},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 3, 96, 99},
                          {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 34, 40},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 40},
                          {2, 3, 1, 2, 0, 1, 1, 1, 2, 1, 2, 68, 40}}) {
    check_tiles(f, {}, DType::kF16);
    if (HasFatalFailure()) return;
  }
}

// Few filters stay with vectors.
TEST_F(TilesNhwc, WhatFillsNoTileIsLeftToVectors) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 32, 8},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 128, 32}}) {
    const Case c = packed_convolution(f, DType::kBF16);
    const Template* t = template_for(workload_of(c.text), mode().targets.front());
    ASSERT_NE(t, nullptr) << f.str();
    EXPECT_EQ(t->name(), "conv2d_nhwc") << f.str();
  }
}

// An index in the epilogue is checked, which does not go with threads that wait for each other.
TEST_F(TilesNhwc, IndicesBehindACopiedImageAreLeftToVectors) {
  for (const bool copied : {false, true}) {
    const int64_t pad = copied ? 1 : 0;
    Case c = packed_convolution({3, 3, 1, 1, pad, pad, pad, pad, 1, 1, 1, 32, 40}, DType::kBF16);
    const auto replace = [&](const std::string& from, const std::string& to) {
      ASSERT_NE(c.text.find(from), std::string::npos) << c.text;
      c.text.replace(c.text.find(from), from.size(), to);
    };
    replace("fn @f(", "fn @f(%t: Tensor[(7, 40), f32], %i: Tensor[(1), i64], ");
    replace("let %r = relu(%y);", "let %g = gather(%t, %i) {axis = 0}; let %r = add(%y, %g);");
    c.oracle = by_reference(c.text);
    c.served_by = copied ? "conv2d_nhwc" : "conv2d_tiles";
    c.configurations = 2;
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Parts of images that would fill tiles are put together first; others are read where they lie.
TEST_F(TilesNhwc, ImagesInPartsAreNotTaken) {
  const auto taken = [](const Filter& f) {
    Case c = packed_convolution(f, DType::kBF16);
    const std::string image = fmt::format("%x: Tensor[(b, h, w, {}), bf16]", f.in);
    c.text.replace(c.text.find(image), image.size(),
                   fmt::format("%x: Tensor[(b, h, w, {0}), bf16], %z: Tensor[(b, h, w, {0}), bf16]",
                               f.in / 2));
    const std::string call = "let %y = packed_conv2d(%x,";
    c.text.replace(c.text.find(call), call.size(),
                   "let %i = concat(%x, %z) {axis = 3}; let %y = packed_conv2d(%i,");
    return template_for(workload_of(c.text), mode().targets.front());
  };
  EXPECT_EQ(taken({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 64, 40}), nullptr);
  EXPECT_EQ(taken({1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 20, 40}), nullptr);
  const Template* vectors = taken({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 8});
  ASSERT_NE(vectors, nullptr);
  EXPECT_EQ(vectors->name(), "conv2d_nhwc");
}

TEST_F(TilesNhwc, KnownExtents) {
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{7, 7}, {14, 14}, {1, 1}, {5, 16}})
    for (const int64_t stride : {1, 2}) {
      const Filter f{3, 3, stride, stride, 1, 1, 1, 1, 1, 1, 1, 32, 40};
      Case c = packed_convolution(f, DType::kBF16);
      const std::string any = "(b, h, w, ";
      c.text.replace(c.text.find(any), any.size(), fmt::format("(2, {}, {}, ", h, w));
      c.oracle = by_reference(c.text);
      c.served_by = "conv2d_tiles";
      c.sizes = Sizes{{}};
      c.configurations = 4;
      SCOPED_TRACE(c.text);
      check(c);
      if (HasFatalFailure()) return;
    }
}

// Converted as they are loaded, of any number of channels.
TEST(Conv2dNhwc, PackedHalves) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 58},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 70, 24},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                          {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 4, 8}})
    for (const DType image : {DType::kF32, DType::kF16}) {
      SCOPED_TRACE(f.str());
      check(packed_convolution(f, DType::kF16, image, 1));
      if (HasFatalFailure()) return;
    }
}

// Packed in pairs, for whichever target: the others have the row's expansion.
TEST(Conv2dNhwc, PackedPairsOfHalves) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 58},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 70, 24},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                          {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 8, 8}}) {
    SCOPED_TRACE(f.str());
    Case c = packed_convolution(f, DType::kF16, DType::kF16, 2);
    // A machine's own target may take more than a few filters in matrix registers.
    if (mode().targets.front().has("amx-fp16") && f.out / f.groups > 8)
      c.served_by = "conv2d_tiles";
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Images of few channels as the program has them, channels first.
TEST(Conv2dNhwc, ImagesWithChannelsFirst) {
  for (const Filter& f : {Filter{3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 32},
                          {7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 70},
                          {3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 5},
                          {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 2, 3},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 4, 17}}) {
    SCOPED_TRACE(f.str());
    const std::string layout = conv2d_nhwc_layout(mode().targets.front(), DType::kF32, f.out);
    const int64_t width = ir::parse_layout(layout)->width;
    Case c = convolution(f, "conv2d_nhwc");
    for (const char* type : {"f32", "f16"}) {  // of the weights
      c.text = fmt::format(
          "fn @f(%x: Tensor[(b, {}, h, w), f32], %w: Tensor[({}, {}, {}), {}], "
          "%c: Tensor[({}), f32]) {{ let %y = packed_conv2d(%x, %w, %c) {{kernel = [{}, {}], "
          "filters = {}, {}, layout = \"{}\", image_layout = \"nchw\"{}}}; "
          "let %r = relu(%y); %r }}",
          f.in, (f.out + width - 1) / width, f.kh * f.kw * f.in, width, type, f.out, f.kh, f.kw,
          f.out, f.attributes(), layout, type == std::string_view("f16") ? ", out = f32" : "");
      c.oracle = by_reference(c.text);
      check(c);
      if (HasFatalFailure()) return;
    }
  }
}

// Packed one by one they are no pairs: each is converted as it is loaded.
TEST(Conv2dNhwc, PackedBf16OneByOne) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 40},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 12, 15}}) {
    SCOPED_TRACE(f.str());
    Case c = packed_convolution(f, DType::kBF16, {}, 1);
    c.configurations = 5;
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST(Conv2dNhwc, PairsOfOddChannelsAreNotTaken) {
  const Case c =
      packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 16}, DType::kBF16, DType::kBF16);
  EXPECT_EQ(template_for(workload_of(c.text), mode().targets.front()), nullptr);
}

TEST(Conv2d, OperandsNarrowerThanTheResultAreNotTaken) {
  for (const char* type : {"bf16", "f16"})
    for (const char* layout : {"nchw", "nhwc"}) {
      const bool last = layout == std::string_view("nhwc");
      const Workload w = workload_of(fmt::format(
          "fn @f(%x: Tensor[{}, {}], %w: Tensor[{}, {}]) {{ let %y = conv2d(%x, %w) {{strides = "
          "[1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], groups = 1, out = f32, layout = "
          "\"{}\"}}; %y }}",
          last ? "(b, h, w, 4)" : "(b, 4, h, w)", type, last ? "(3, 3, 4, 8)" : "(8, 4, 3, 3)",
          type, layout));
      EXPECT_EQ(template_for(w, mode().targets.front()), nullptr) << type << " " << layout;
    }
}

// Windows that meet no pixel at all: what they give is the bias, and nothing is read of the image.
TEST(ImagesNhwc, NothingButPadding) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 1, 5, 9},
                          {3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 3, 24},
                          {1, 5, 1, 1, 1, 4, 0, 4, 1, 1, 2, 4, 6},
                          {3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 24, 24, 24}}) {
    SCOPED_TRACE(f.str());
    Case c = convolution(f, f.groups == f.in ? "depthwise_nhwc" : "conv2d_nhwc");
    c.sizes = {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}, {1, 0, 43}, {2, 31, 0}, {1, 1, 1}};
    check(c);
    if (HasFatalFailure()) return;
  }
  Case mean;
  mean.text =
      "fn @f(%x: Tensor[(b, h, w, 9), f32]) { let %y = avg_pool2d(%x) {kernel = [2, 2], "
      "strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], ceil_mode = false, "
      "layout = \"nhwc\", count_include_pad = true}; %y }";
  mean.served_by = "pool2d_nhwc";
  mean.oracle = by_reference(mean.text);
  mean.sizes = {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}, {1, 1, 1}};
  check(mean);
}

// At extents that are known, only the borders that there are have code; with a residual image.
TEST(Conv2dNhwc, KnownExtents) {
  for (const auto& [h, w] :
       {std::pair<int64_t, int64_t>{14, 28}, {7, 7}, {5, 16}, {3, 57}, {2, 2}, {4, 1}})
    for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                            {5, 7, 2, 2, 2, 3, 2, 3, 1, 1, 1, 3, 24},
                            {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 24, 24, 24},
                            {3, 15, 1, 1, 1, 7, 1, 7, 1, 1, 1, 4, 8}}) {
      SCOPED_TRACE(fmt::format("{} at {} x {}", f.str(), h, w));
      const int64_t oh = (h + f.top + f.bottom - f.kh) / f.sh + 1;
      const int64_t ow = (w + f.left + f.right - f.kw) / f.sw + 1;
      Case c = convolution(f, f.groups == f.in ? "depthwise_nhwc" : "conv2d_nhwc");
      c.text = fmt::format(
          "fn @f(%x: Tensor[(2, {}, {}, {}), f32], %w: Tensor[({}, {}, {}, {}), f32], "
          "%z: Tensor[(2, {}, {}, {}), f32]) {{ let %y = conv2d(%x, %w) {{{}, groups = {}, "
          "layout = \"nhwc\"}}; let %s = add(%y, %z); let %r = relu(%s); %r }}",
          h, w, f.in, f.kh, f.kw, f.in / f.groups, f.out, oh, ow, f.out, f.attributes(), f.groups);
      c.oracle = by_reference(c.text);
      c.sizes = Sizes{{}};
      c.configurations = 4;
      check(c);
      if (HasFatalFailure()) return;
    }
}

TEST(Pool2dNhwc, MaximaAndAverages) {
  for (const int64_t channels : {1, 3, 24, 58, 64})
    for (const char* ceil : {"false", "true"})
      for (const char* rest : {"", ", count_include_pad = false", ", count_include_pad = true"}) {
        const char* op = *rest ? "avg_pool2d" : "max_pool2d";
        SCOPED_TRACE(fmt::format("{} of {} channels, ceil {}{}", op, channels, ceil, rest));
        Case c;
        c.text = fmt::format(
            "fn @f(%x: Tensor[(b, h, w, {}), f32]) {{ let %y = {}(%x) {{kernel = [3, 2], "
            "strides = [2, 2], pads = [1, 0, 1, 1], dilations = [1, 1], ceil_mode = {}, "
            "layout = \"nhwc\"{}}}; %y }}",
            channels, op, ceil, rest);
        c.served_by = "pool2d_nhwc";
        c.oracle = by_reference(c.text);
        c.sizes = {{1, 7, 7}, {2, 9, 20}, {1, 12, 18}, {0, 8, 8}, {1, 3, 4}, {1, 2, 2}};
        check(c);
        if (HasFatalFailure()) return;
      }
}

// Convolutions of some channels of a wider image read them where they lie.
TEST(ImagesNhwc, SlicesOfChannels) {
  for (const Filter& f : {Filter{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 58, 58},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 24, 40},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 24},
                          {3, 5, 2, 2, 0, 2, 1, 2, 1, 1, 1, 3, 16},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 24, 34},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 58, 58, 58},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 24, 24, 24}})
    for (const char* part : {"starts = (0), ends = (CUT)", "starts = (-CUT), ends = (1000)"}) {
      SCOPED_TRACE(f.str() + " of " + part);
      Case c = convolution(f, f.groups == f.in ? "depthwise_nhwc" : "conv2d_nhwc");
      std::string cut = part;
      cut.replace(cut.find("CUT"), 3, std::to_string(f.in));
      c.text = fmt::format(
          "fn @f(%x: Tensor[(b, h, w, {}), f32], %w: Tensor[({}, {}, {}, {}), f32], "
          "%c: Tensor[({}), f32]) {{ let %s = slice(%x) {{axes = [3], {}, steps = (1)}}; "
          "let %y = conv2d(%s, %w, %c) {{{}, groups = {}, layout = \"nhwc\"}}; "
          "let %r = relu(%y); %r }}",
          2 * f.in + 1, f.kh, f.kw, f.in / f.groups, f.out, f.out, cut, f.attributes(), f.groups);
      c.oracle = by_reference(c.text);
      check(c);
      if (HasFatalFailure()) return;
    }
}

// Images side by side along their channels, one of them a slice, are read where they lie.
TEST(Conv2dNhwc, ImagesSideBySide) {
  for (const Filter& f : {Filter{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 58, 24},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 128, 16},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 40},
                          {3, 5, 2, 2, 2, 0, 1, 3, 1, 2, 1, 6, 17}})
    for (const DType type : {DType::kF32, DType::kBF16})
      for (const bool packed : {true, false}) {
        if (!packed && type != DType::kF32) continue;
        // A machine's own target may want matrix registers, which take one image.
        if (type == DType::kBF16 && mode().targets.front().has("amx-bf16")) continue;
        SCOPED_TRACE(fmt::format("{} of {} packed {}", f.str(), name_of(type), packed));
        Case c = packed ? packed_convolution(f, type) : convolution(f, "conv2d_nhwc");
        const int64_t first = f.in / 4 * 2, rest = f.in - first;
        const std::string whole = fmt::format("%x: Tensor[(b, h, w, {}), {}]", f.in, name_of(type));
        const auto replace = [&](const std::string& from, const std::string& to) {
          ASSERT_NE(c.text.find(from), std::string::npos) << c.text;
          c.text.replace(c.text.find(from), from.size(), to);
        };
        replace(whole, fmt::format("%x: Tensor[(b, h, w, {0}), {2}], "
                                   "%z: Tensor[(b, h, w, {1}), {2}]",
                                   first, rest + 3, name_of(type)));
        replace("{ let %y", fmt::format("{{ let %s = slice(%z) {{axes = [3], starts = (3), "
                                        "ends = ({}), steps = (1)}}; "
                                        "let %i = concat(%x, %s) {{axis = 3}}; let %y",
                                        rest + 3));
        replace("conv2d(%x,", "conv2d(%i,");
        c.oracle = by_reference(c.text);
        check(c);
        if (HasFatalFailure()) return;
      }
}

// Whether images side by side are taken is asked of one target, and every other form of the file
// must answer alike, whatever its caches.
TEST(Conv2dNhwc, ImagesSideBySideAreTakenWhateverTheCaches) {
  Mode narrow = mode();
  narrow.targets = {test_target(256, 16)};
  const ModeOfScope scope(std::move(narrow));
  bool any = false, all = true;
  for (const int64_t channels : {64, 192, 320, 456, 528, 682, 1024}) {
    SCOPED_TRACE(channels);
    Case c = packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, channels, 16}, DType::kF32);
    const auto replace = [&](const std::string& from, const std::string& to) {
      ASSERT_NE(c.text.find(from), std::string::npos) << c.text;
      c.text.replace(c.text.find(from), from.size(), to);
    };
    replace(fmt::format("%x: Tensor[(b, h, w, {}), f32]", channels),
            fmt::format("%x: Tensor[(b, h, w, {0}), f32], %z: Tensor[(b, h, w, {0}), f32]",
                        channels / 2));
    replace("{ let %y", "{ let %i = concat(%x, %z) {axis = 3}; let %y");
    replace("conv2d(%x,", "conv2d(%i,");
    const Workload w = workload_of(c.text);
    const Template* portable = template_for(w, portable_target());
    for (const int64_t kilobytes : {16, 32, 48, 64}) {
      TargetInfo target = mode().targets.front();
      target.l1_bytes = kilobytes << 10;
      EXPECT_EQ(template_for(w, target), portable) << kilobytes;
    }
    any |= portable != nullptr;
    all &= portable != nullptr;
  }
  EXPECT_TRUE(any && !all) << "some are left to be put together";
}

// Windows that share columns with their neighbours', or none; some pixels wide and many, with and
// without an edge, up to more columns than there are registers.
TEST(Pool2dNhwc, NeighboursTogether) {
  for (const char* window :
       {"kernel = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]",
        "kernel = [3, 3], strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]",
        "kernel = [2, 2], strides = [3, 3], pads = [1, 1, 0, 0], dilations = [1, 1]",
        "kernel = [2, 3], strides = [1, 2], pads = [0, 3, 0, 4], dilations = [2, 3]",
        "kernel = [1, 13], strides = [1, 1], pads = [0, 6, 0, 6], dilations = [1, 1]",
        "kernel = [1, 41], strides = [1, 1], pads = [0, 20, 0, 20], dilations = [1, 1]"})
    for (const bool average : {false, true}) {
      SCOPED_TRACE(fmt::format("{} average {}", window, average));
      Case c;
      c.text = fmt::format(
          "fn @f(%x: Tensor[(b, h, w, 40), f32]) {{ let %y = {}(%x) {{{}, ceil_mode = {}, "
          "layout = \"nhwc\"{}}}; %y }}",
          average ? "avg_pool2d" : "max_pool2d", window, average,
          average ? ", count_include_pad = true" : "");
      c.served_by = "pool2d_nhwc";
      c.oracle = by_reference(c.text);
      c.sizes = {{1, 5, 41}, {2, 4, 17}, {1, 3, 77}, {1, 6, 15}, {0, 8, 8}, {1, 4, 8}, {1, 3, 4}};
      check(c);
      if (HasFatalFailure()) return;
    }
}

// Elements that change places: images whose few channels become last, and shuffles of channels, of
// a concatenation too; of the last but one its seam lies inside of a turn, the last is along rows.
TEST(Elementwise, ChannelsBecomeLastAndChangePlaces) {
  for (const char* text : {
           "(%x: Tensor[(b, 3, h, w), f32]) { let %y = transpose(%x) {axes = [0, 2, 3, 1]}; %y }",
           "(%x: Tensor[(b, 3, h, w), f32], %z: Tensor[(b, h, w, 3), f32]) "
           "{ let %t = transpose(%x) {axes = [0, 2, 3, 1]}; let %s = add(%t, %z); "
           "let %y = relu(%s); %y }",
           "(%x: Tensor[(b, h, 3, w), f32]) { let %y = transpose(%x) {axes = [3, 1, 0, 2]}; %y }",
           "(%x: Tensor[(b, h, w, 58), f32]) { let %r = reshape(%x) {shape = (b, h, w, 2, 29)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 58)}; %y }",
           "(%x: Tensor[(b, h, w, 12), f32]) { let %r = reshape(%x) {shape = (b, h, w, 3, 4)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 12)}; %y }",
           "(%x: Tensor[(b, h, w, 29), f32], %z: Tensor[(b, h, w, 29), f32]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %r = reshape(%c) {shape = (b, h, w, 2, 29)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 58)}; %y }",
           "(%x: Tensor[(b, h, w, 7), f32], %z: Tensor[(b, h, w, 14), f32]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %r = reshape(%c) {shape = (b, h, w, 3, 7)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; let %n = neg(%t); "
           "let %y = reshape(%n) {shape = (b, h, w, 21)}; %y }",
           "(%x: Tensor[(b, h, w, 5), f32], %z: Tensor[(b, h, w, 13), f32]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %r = reshape(%c) {shape = (b, h, w, 2, 9)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 18)}; %y }",
           "(%x: Tensor[(b, h, w, 116), f16]) { let %r = reshape(%x) {shape = (b, h, w, 2, 58)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 116)}; %y }",
           "(%x: Tensor[(b, h, w, 96), i8]) { let %r = reshape(%x) {shape = (b, h, w, 4, 24)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 96)}; %y }",
           "(%x: Tensor[(b, h, w, 80), f64]) { let %r = reshape(%x) {shape = (b, h, w, 2, 40)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, w, 80)}; %y }",
           "(%x: Tensor[(b, 2, n), i32]) { let %y = transpose(%x) {axes = [0, 2, 1]}; %y }",
           "(%x: Tensor[(2, n), f32], %z: Tensor[(n, 1), f32]) "
           "{ let %t = transpose(%x) {axes = [1, 0]}; let %s = add(%t, %z); "
           "let %y = relu(%s); %y }",
           "(%x: Tensor[(b, h, w, 9), f32], %z: Tensor[(b, h, w, 9), f32]) "
           "{ let %c = concat(%x, %z) {axis = 2}; let %r = reshape(%c) {shape = (b, h, 2*w, 3, "
           "3)}; "
           "let %t = transpose(%r) {axes = [0, 1, 2, 4, 3]}; "
           "let %y = reshape(%t) {shape = (b, h, 2*w, 9)}; %y }",
       }) {
    SCOPED_TRACE(text);
    Case c;
    c.text = std::string("fn @f") + text;
    c.served_by = "elementwise";
    c.oracle = by_reference(c.text);
    // Leading axes that nothing tells apart are one.
    const size_t symbols = workload_of(c.text).contract.symbols.size();
    c.sizes = random_sizes(symbols, symbols > 1 ? 40 / static_cast<int64_t>(symbols) : 70, 8);
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Images side by side along their channels, with and without what follows; of the last the rows are
// too long to be made one by one, or of unknown length.
TEST(Elementwise, ImagesSideBySide) {
  for (const char* text : {
           "(%x: Tensor[(b, h, w, 24), f32], %z: Tensor[(b, h, w, 40), f32]) "
           "{ let %y = concat(%x, %z) {axis = 3}; %y }",
           "(%x: Tensor[(b, h, w, 58), f32], %z: Tensor[(b, h, w, 1), f32], "
           "%u: Tensor[(b, h, w, 58), f32]) { let %y = concat(%x, %z, %u) {axis = 3}; %y }",
           "(%x: Tensor[(b, h, w, 32), f32], %z: Tensor[(b, h, w, 32), f32], "
           "%s: Tensor[(64), f32], %t: Tensor[(64), f32]) { let %c = concat(%x, %z) {axis = 3}; "
           "let %m = mul(%c, %s); let %a = add(%m, %t); let %y = relu(%a); %y }",
           "(%x: Tensor[(b, h, w, 24), f32], %z: Tensor[(b, 1, 1, 40), f32]) "
           "{ let %r = relu(%x); let %e = expand(%z) {shape = (b, h, w, 40)}; "
           "let %y = concat(%r, %e, %x) {axis = 3}; %y }",
           "(%x: Tensor[(b, h, w, 7), f16], %z: Tensor[(b, h, w, 9), f16]) "
           "{ let %c = concat(%x, %z) {axis = 3}; let %y = relu(%c); %y }",
           "(%x: Tensor[(n, 4000), f32], %z: Tensor[(n, 200), f32]) "
           "{ let %y = concat(%x, %z) {axis = 1}; %y }",
           "(%x: Tensor[(b, h, c), f32], %z: Tensor[(b, h, 24), f32]) "
           "{ let %y = concat(%x, %z) {axis = 2}; %y }",
       }) {
    SCOPED_TRACE(text);
    Case c;
    c.text = std::string("fn @f") + text;
    c.served_by = "elementwise";
    c.oracle = by_reference(c.text);
    const size_t symbols = workload_of(c.text).contract.symbols.size();
    c.sizes = random_sizes(symbols, 40 / static_cast<int64_t>(symbols), 6);
    c.configurations = 8;
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Windows of 2^20 by 2^20 taps: along each axis the first meets the image's first element, the
// second all others. Kernels whose loops ran over what lies outside would not end.
TEST(Pool2d, WindowsFarLargerThanTheImage) {
  constexpr int64_t kTaps = 1 << 20;
  for (const bool last : {false, true})
    for (const bool average : {false, true}) {
      SCOPED_TRACE(fmt::format("channels last {}, average {}", last, average));
      const int64_t n = last ? 37 : 3;
      Case c;
      c.text = fmt::format(
          "fn @f(%x: Tensor[{}, f32]) {{ let %y = {}(%x) {{kernel = [{}, {}], "
          "strides = [{}, {}], pads = [{}, {}, {}, {}], dilations = [1, 1], ceil_mode = false, "
          "layout = \"{}\"{}}}; %y }}",
          last ? fmt::format("(b, h, w, {})", n) : fmt::format("(b, {}, h, w)", n),
          average ? "avg_pool2d" : "max_pool2d", kTaps, kTaps, kTaps, kTaps, kTaps - 1, kTaps - 1,
          kTaps - 1, kTaps - 1, last ? "nhwc" : "nchw",
          average ? ", count_include_pad = false" : "");
      c.served_by = last ? "pool2d_nhwc" : "pool2d";
      c.oracle = [=](const Arrays& in, Arrays& out) {
        const Array& x = in[0];
        Array& y = out[0];
        const size_t row = last ? 1 : 2;
        const auto at = [&](const Array& a, int64_t b, int64_t ch, int64_t i, int64_t j) {
          return last ? a.at(b, i, j, ch) : a.at(b, ch, i, j);
        };
        const auto taps = [](int64_t window, int64_t extent) {
          return window == 0 ? std::pair<int64_t, int64_t>{0, 1} : std::pair{int64_t{1}, extent};
        };
        for (int64_t b = 0; b < y.dim(0); ++b)
          for (int64_t ch = 0; ch < n; ++ch)
            for (int64_t i = 0; i < y.dim(row); ++i)
              for (int64_t j = 0; j < y.dim(row + 1); ++j) {
                double sum = 0, top = -std::numeric_limits<double>::infinity();
                const auto [i0, i1] = taps(i, x.dim(row));
                const auto [j0, j1] = taps(j, x.dim(row + 1));
                for (int64_t r = i0; r < i1; ++r)
                  for (int64_t q = j0; q < j1; ++q) {
                    sum += at(x, b, ch, r, q);
                    top = std::max(top, at(x, b, ch, r, q));
                  }
                const double value =
                    average ? sum / static_cast<double>((i1 - i0) * (j1 - j0)) : top;
                (last ? y.at(b, i, j, ch) : y.at(b, ch, i, j)) = value;
              }
      };
      c.sizes = {{1, 7, 7}, {2, 9, 20}, {1, 1, 5}, {1, 1, 1}, {0, 8, 8}};
      check(c);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace nimble::kernels::testing
