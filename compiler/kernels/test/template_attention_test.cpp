#include <limits>

#include "compiler/kernels/test/attention_cases.h"
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

struct Window {
  int64_t kh, kw, sh, sw, top, left, bottom, right, dh, dw, groups, in, out;
};

TEST(Conv2d, WindowsStridesPaddingDilationGroups) {
  const Window windows[] = {
      {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 5}, {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4, 26},
      {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 7}, {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 2, 3},
      {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4}, {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 2, 4, 6}};
  for (const Window& w : windows) {
    SCOPED_TRACE(fmt::format("{}x{}/{} {}->{}", w.kh, w.kw, w.sh, w.in, w.out));
    Case c{
        fmt::format("fn @f(%x: Tensor[(b, {}, h, w), f32], %w: Tensor[({}, {}, {}, {}), f32], "
                    "%c: Tensor[({}), f32]) {{ let %y = conv2d(%x, %w, %c) {{strides = [{}, {}], "
                    "pads = [{}, {}, {}, {}], dilations = [{}, {}], groups = {}}}; "
                    "let %r = relu(%y); %r }}",
                    w.in, w.out, w.in / w.groups, w.kh, w.kw, w.out, w.sh, w.sw, w.top, w.left,
                    w.bottom, w.right, w.dh, w.dw, w.groups),
        "conv2d",
        [&](const Arrays& in, Arrays& out) {
          Array& y = out[0];
          const int64_t cg = w.in / w.groups, og = w.out / w.groups;
          for (int64_t b = 0; b < y.dim(0); ++b)
            for (int64_t o = 0; o < y.dim(1); ++o)
              for (int64_t i = 0; i < y.dim(2); ++i)
                for (int64_t j = 0; j < y.dim(3); ++j) {
                  double s = in[2][o];
                  for (int64_t c = 0; c < cg; ++c)
                    for (int64_t p = 0; p < w.kh; ++p)
                      for (int64_t q = 0; q < w.kw; ++q) {
                        const int64_t r = i * w.sh + p * w.dh - w.top;
                        const int64_t t = j * w.sw + q * w.dw - w.left;
                        if (r < 0 || t < 0 || r >= in[0].dim(2) || t >= in[0].dim(3)) continue;
                        s += in[0].at(b, o / og * cg + c, r, t) * in[1].at(o, c, p, q);
                      }
                  y.at(b, o, i, j) = std::max(s, 0.0);
                }
        },
        {{1, 7, 7}, {2, 9, 40}, {1, 12, 18}, {0, 8, 8}, {1, 6, 70}},
        1e-4};
    check(c);
  }
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
