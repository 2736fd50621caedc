// Cases of convolutions of NCHW images for the templates of all machines (template_harness.h).
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {

struct ConvWindow {
  int64_t kh, kw, sh, sw, top, left, bottom, right, dh, dw, groups, in, out;
};

// Strides, padding, dilation and groups, a depthwise convolution among them.
inline std::vector<Case> convolutions_of_windows() {
  std::vector<Case> all;
  const ConvWindow windows[] = {
      {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 5}, {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4, 26},
      {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 7}, {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 2, 3},
      {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4}, {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 2, 4, 6}};
  for (const ConvWindow& w : windows) {
    Case c{
        fmt::format("fn @f(%x: Tensor[(b, {}, h, w), f32], %w: Tensor[({}, {}, {}, {}), f32], "
                    "%c: Tensor[({}), f32]) {{ let %y = conv2d(%x, %w, %c) {{strides = [{}, {}], "
                    "pads = [{}, {}, {}, {}], dilations = [{}, {}], groups = {}}}; "
                    "let %r = relu(%y); %r }}",
                    w.in, w.out, w.in / w.groups, w.kh, w.kw, w.out, w.sh, w.sw, w.top, w.left,
                    w.bottom, w.right, w.dh, w.dw, w.groups),
        "conv2d",
        [w](const Arrays& in, Arrays& out) {
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
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace nimble::kernels::testing
