// Convolutions of channels-last images by matrix registers against the reference interpreter.
#include "compiler/kernels/targets.h"
#include "compiler/kernels/test/image_cases.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels::testing {
namespace {

// Runs what follows for the target with matrix registers.
class TilesNhwc : public ::testing::Test {
 protected:
  explicit TilesNhwc(const char* level = "x86-64-v4-amx") : level_(level) {}
  void SetUp() override {
    if (!harness_mode().runs(level_)) GTEST_SKIP() << "this machine lacks " << level_;
    mode().targets = {target_by_name(level_)};
  }
  void TearDown() override { mode().targets = targets_; }
  static void check_tiles(const std::vector<Filter>& filters, const Sizes& sizes = {},
                          DType type = DType::kBF16) {
    check_each(filters, [&](const Filter& f) {
      Case c = packed_convolution(f, type);
      c.served_by = "conv2d_tiles";
      c.configurations = 4;
      if (!sizes.empty()) c.sizes = sizes;
      return c;
    });
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
  check_tiles({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 32, 40},
               {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 32, 33},
               {3, 3, 2, 2, 0, 0, 1, 1, 1, 1, 1, 64, 16},
               {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 32, 17},
               {3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 32, 24},
               {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 32, 20},
               {2, 5, 3, 3, 0, 4, 1, 0, 1, 1, 1, 32, 9},
               {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 1, 32, 64},
               {1, 9, 1, 2, 0, 4, 0, 4, 1, 1, 1, 32, 35}});
}

TEST_F(TilesNhwc, Groups) {
  check_tiles({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 64, 40},
               {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 3, 96, 99},
               {2, 2, 1, 1, 0, 0, 0, 0, 1, 1, 2, 64, 64},
               {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 3, 102, 51}});
}

// Of one tap the channels may be any pairs: all rows are one, or every second pixel is copied.
TEST_F(TilesNhwc, OneTap) {
  std::vector<Filter> all;
  for (const int64_t channels : {2, 30, 32, 34, 64, 98})
    for (const int64_t stride : {1, 2})
      for (const int64_t pad : {0, 1})
        all.push_back({1, 1, stride, stride, pad, pad, 0, pad, 1, 1, 1, channels, 40});
  check_tiles(all);
}

TEST_F(TilesNhwc, NothingButPadding) {
  check_tiles({{3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 1, 32, 9}, {3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 32, 24}},
              {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}, {1, 0, 43}, {2, 31, 0}, {1, 1, 1}});
}

// Channels that do not fill a tile's depth have zeros behind them in the copy of the image.
TEST_F(TilesNhwc, FewChannelsAndOddOnes) {
  check_tiles({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 40},
               {3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 16, 33},
               {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 40, 24},
               {2, 3, 1, 2, 0, 1, 1, 1, 2, 1, 2, 68, 40},
               {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72}});
}

TEST_F(TilesOfHalvesNhwc, WindowsGroupsAndFewChannels) {
  check_tiles({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 32, 40},
               {3, 3, 2, 2, 0, 0, 1, 1, 1, 1, 1, 64, 16},
               {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 32, 20},
               {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 3, 96, 99},
               {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 34, 40},
               {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 40},
               {2, 3, 1, 2, 0, 1, 1, 1, 2, 1, 2, 68, 40}},
              {}, DType::kF16);
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
    replace_once(c.text, "fn @f(", "fn @f(%t: Tensor[(7, 40), f32], %i: Tensor[(1), i64], ");
    replace_once(c.text, "let %r = relu(%y);",
                 "let %g = gather(%t, %i) {axis = 0}; let %r = add(%y, %g);");
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
    replace_once(c.text, fmt::format("%x: Tensor[(b, h, w, {}), bf16]", f.in),
                 fmt::format("%x: Tensor[(b, h, w, {0}), bf16], %z: Tensor[(b, h, w, {0}), bf16]",
                             f.in / 2));
    replace_once(c.text, "let %y = packed_conv2d(%x,",
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
      replace_once(c.text, "(b, h, w, ", fmt::format("(2, {}, {}, ", h, w));
      c.oracle = by_reference(c.text);
      c.served_by = "conv2d_tiles";
      c.sizes = Sizes{{}};
      c.configurations = 4;
      SCOPED_TRACE(c.text);
      check(c);
      if (HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace nimble::kernels::testing
