#include <limits>

#include "compiler/kernels/test/attention_cases.h"
#include "compiler/kernels/test/conv2d_cases.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

TEST(Attention, SlicesOfOneMatrixWithAMaskPerKey) {
  check(slices_of_one_matrix_with_a_mask_per_key(mode().only_default));
}

TEST(Attention, CrossAttentionWithoutMaskAndOddHeads) {
  check(cross_attention_without_mask_and_odd_heads());
}

TEST(Attention, MaskComputedInPlaceFromIntegers) {
  check(mask_computed_in_place_from_integers());
}

TEST(Attention, FewRowsOverCachesWherePositionsComeFirst) {
  for (const Case& c : few_rows_over_caches_where_positions_come_first()) check(c);
}

TEST(Attention, WindowsWithABiasByHead) {
  for (const Case& c : windows_with_a_bias_by_head()) check(c);
}

TEST(Conv2d, WindowsStridesPaddingDilationGroups) {
  for (const Case& c : convolutions_of_windows()) check(c);
}

// A layer that was pruned to nothing.
TEST(Conv2d, OfNoFilters) {
  for (const int pad : {0, 1})
    for (const char* groups : {"1", "3"})
      check({fmt::format("fn @f(%x: Tensor[(b, 3, h, w), f32], %w: Tensor[(0, {}, 3, 3), f32]) {{ "
                         "let %y = conv2d(%x, %w) {{strides = [1, 1], pads = [{}, {}, {}, {}], "
                         "dilations = [1, 1], groups = {}}}; "
                         "let %r = relu(%y); %r }}",
                         groups[0] == '1' ? 3 : 1, pad, pad, pad, pad, groups),
             "conv2d",
             [](const Arrays&, Arrays& out) { EXPECT_EQ(out[0].size(), 0); },
             {{1, 7, 7}, {2, 9, 40}, {0, 8, 8}},
             1e-4,
             -2,
             2,
             1});
}

TEST(Pool2d, MaximaAndAverages) {
  for (const char* op : {"max_pool2d", "avg_pool2d"})
    for (const char* ceil : {"false", "true"})
      for (const char* padded : {"false", "true"}) {
        const bool average = op[0] == 'a', include = padded[0] == 't';
        if (!average && include) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", op, ceil, padded));
        Case c{fmt::format("fn @f(%x: Tensor[(b, 2, h, w), f32]) {{ let %y = {}(%x) "
                           "{{kernel = [3, 2], strides = [2, 2], pads = [1, 0, 1, 1], "
                           "dilations = [1, 1], ceil_mode = {}{}}}; %y }}",
                           op, ceil, average ? std::string(", count_include_pad = ") + padded : ""),
               "pool2d",
               [&](const Arrays& in, Arrays& out) {
                 Array& y = out[0];
                 const int64_t height = in[0].dim(2), width = in[0].dim(3);
                 for (int64_t b = 0; b < y.dim(0); ++b)
                   for (int64_t ch = 0; ch < 2; ++ch)
                     for (int64_t i = 0; i < y.dim(2); ++i)
                       for (int64_t j = 0; j < y.dim(3); ++j) {
                         double sum = 0, top = -std::numeric_limits<double>::infinity();
                         int64_t count = 0;
                         for (int64_t p = 0; p < 3; ++p)
                           for (int64_t q = 0; q < 2; ++q) {
                             const int64_t r = i * 2 + p - 1, t = j * 2 + q;
                             const bool image = r >= 0 && r < height && t >= 0 && t < width;
                             const bool real = r >= -1 && r < height + 1 && t < width + 1;
                             count += include ? real : image;
                             if (!image) continue;
                             sum += in[0].at(b, ch, r, t);
                             top = std::max(top, in[0].at(b, ch, r, t));
                           }
                         y.at(b, ch, i, j) =
                             average ? sum / double(std::max<int64_t>(count, 1)) : top;
                       }
               },
               {{1, 7, 7}, {2, 9, 80}, {1, 12, 18}, {0, 8, 8}, {1, 3, 4}, {1, 2, 2}}};
        check(c);
      }
}

}  // namespace
}  // namespace nimble::kernels::testing
