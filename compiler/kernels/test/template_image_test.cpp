// The templates of channels-last images against the reference interpreter.
#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

struct Filter {
  int64_t kh, kw, sh, sw, top, left, bottom, right, dh, dw, groups, in, out;

  std::string attributes() const {
    return fmt::format("strides = [{}, {}], pads = [{}, {}, {}, {}], dilations = [{}, {}]", sh, sw,
                       top, left, bottom, right, dh, dw);
  }
  bool fits(int64_t h, int64_t w) const {
    return h + top + bottom > (kh - 1) * dh && w + left + right > (kw - 1) * dw;
  }
  std::string str() const {
    return fmt::format("{}x{}/{} {}->{} in {} groups", kh, kw, sh, in, out, groups);
  }
};

// Values of b, h, w: single pixels and rows, widths around the tiles, no image at all.
Sizes sizes_of(const Filter& f) {
  Sizes all;
  for (const auto& s : Sizes{{1, 7, 7},
                             {2, 9, 31},
                             {1, 12, 18},
                             {0, 8, 8},
                             {1, 3, 43},
                             {1, 1, 29},
                             {1, 5, 1},
                             {1, 4, 2},
                             {3, 2, 15},
                             {1, 6, 14}})
    if (f.fits(s[1], s[2])) all.push_back(s);
  return all;
}

Case convolution(const Filter& f, const std::string& served_by) {
  Case c;
  c.text = fmt::format(
      "fn @f(%x: Tensor[(b, h, w, {}), f32], %w: Tensor[({}, {}, {}, {}), f32], "
      "%c: Tensor[({}), f32]) {{ let %y = conv2d(%x, %w, %c) {{{}, groups = {}, "
      "layout = \"nhwc\"}}; let %r = relu(%y); %r }}",
      f.in, f.kh, f.kw, f.in / f.groups, f.out, f.out, f.attributes(), f.groups);
  c.served_by = served_by;
  c.oracle = by_reference(c.text);
  c.sizes = sizes_of(f);
  c.tolerance = 1e-4;
  c.configurations = 10;
  return c;
}

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

// Weights in panels, which may be made for a machine of wider vectors.
TEST(Conv2dNhwc, PackedWeights) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 58},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 36, 24},
                          {7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 70}}) {
    SCOPED_TRACE(f.str());
    const std::string layout = conv2d_nhwc_layout(mode().targets.front(), DType::kF32, f.out);
    const int64_t width = ir::parse_layout(layout)->width;
    Case c = convolution(f, "conv2d_nhwc");
    c.text = fmt::format(
        "fn @f(%x: Tensor[(b, h, w, {}), f32], %w: Tensor[({}, {}, {}), f32], "
        "%c: Tensor[({}), f32]) {{ let %y = packed_conv2d(%x, %w, %c) {{kernel = [{}, {}], "
        "filters = {}, {}, layout = \"{}\"}}; let %r = relu(%y); %r }}",
        f.in, (f.out + width - 1) / width, f.kh * f.kw * f.in, width, f.out, f.kh, f.kw, f.out,
        f.attributes(), layout);
    c.oracle = by_reference(c.text);
    check(c);
    if (HasFatalFailure()) return;
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

}  // namespace
}  // namespace nimble::kernels::testing
