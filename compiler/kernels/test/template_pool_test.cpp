// Pooling of images against the reference interpreter.
#include <limits>

#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/reference_harness.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

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
