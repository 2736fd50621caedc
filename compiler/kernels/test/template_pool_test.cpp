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

// Floats of 16 bits are widened where they are loaded and rounded where they are stored: a maximum
// is exact, an average rounded once. No template of a GPU takes them.
TEST(Pool2dNhwc, NarrowFloats) {
  for (const char* type : {"bf16", "f16"})
    for (const int64_t channels : {1, 3, 24, 37, 64})
      for (const char* rest : {"", ", count_include_pad = false", ", count_include_pad = true"})
        for (const char* window :
             {"kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1]",
              "kernel = [2, 3], strides = [1, 2], pads = [0, 3, 0, 4], dilations = [2, 3]"}) {
          const bool average = *rest != 0;
          SCOPED_TRACE(fmt::format("{} {} {}{}", type, channels, window, rest));
          Case c;
          c.text = fmt::format(
              "fn @f(%x: Tensor[(b, h, w, {}), {}]) {{ let %y = {}(%x) {{{}, ceil_mode = false, "
              "layout = \"nhwc\"{}}}; %y }}",
              channels, type, average ? "avg_pool2d" : "max_pool2d", window, rest);
          c.served_by = "pool2d_nhwc";
          c.oracle = by_reference(c.text);
          // Sums in another order may be rounded to the neighbour.
          c.tolerance = average ? 1.0 / 128 : 0;
          c.sizes = {{1, 7, 7}, {2, 9, 20}, {1, 12, 41}, {0, 8, 8}, {1, 3, 4}};
          check_in_mode(c);
          if (HasFatalFailure()) return;
        }
}

// The larger of two is the second where either is no number, and that is what a window had found
// before: it passes over NaN, and of nothing else it gives what maxima begin with. So it is in
// either type.
TEST(Pool2dNhwc, MaximaPassOverNaN) {
  for (const char* type : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(type);
    const std::string text = fmt::format(
        "fn @f(%x: Tensor[(1, 3, 5, 37), {}]) {{ let %y = max_pool2d(%x) {{kernel = [3, 3], "
        "strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1], ceil_mode = false, "
        "layout = \"nhwc\"}}; %y }}",
        type);
    const Workload w = workload_of(text);
    const DType t = w.group->result_type->dtype;
    const TargetInfo target = test_target(512, 32);
    const Template* pool = template_for(w, target);
    ASSERT_NE(pool, nullptr);
    ASSERT_EQ(pool->name(), "pool2d_nhwc");
    Array x{{1, 3, 5, 37}, {}}, y{{1, 2, 3, 37}, {}};
    x.v.resize(static_cast<size_t>(x.size()));
    y.v.resize(static_cast<size_t>(y.size()));
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t channel = i % 37;
      x[i] = channel == 0 || i % 3 == 0 ? kNaN : static_cast<double>(i * 7 % 31) - 15;
    }
    const Lowered lowered = pool->lower(w, pool->default_config(w, target), target, "k");
    std::vector<ArgumentMemory> memory;
    for (const Array* a : {&x, &y}) {
      std::vector<std::byte> bytes;
      to_bytes(*a, t, bytes);
      memory.emplace_back(bytes.begin(), bytes.end());
    }
    const std::vector<std::span<std::byte>> buffers(memory.begin(), memory.end());
    ASSERT_EQ(interpret(lowered.functions.at(0), buffers, {}, 1), 0);
    from_bytes(memory[1], t, y);
    Arrays want = {y};
    by_reference(text)({x}, want);
    for (int64_t i = 0; i < y.size(); ++i) {
      ASSERT_FALSE(std::isnan(want[0][i]));
      ASSERT_EQ(y[i], want[0][i]) << i;
    }
    EXPECT_EQ(y[0], -std::numeric_limits<double>::infinity());
  }
}

// Others than the channels-last one of a CPU take what is computed in itself.
TEST(Pool2d, NarrowFloatsAreForChannelsLastAlone) {
  const auto served_by = [](const char* type, const char* layout, const TargetInfo& target) {
    const Workload w = workload_of(fmt::format(
        "fn @f(%x: Tensor[(b, 8, 8, 8), {}]) {{ let %y = max_pool2d(%x) {{kernel = [2, 2], "
        "strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1], ceil_mode = false, "
        "layout = \"{}\"}}; %y }}",
        type, layout));
    const Template* t = template_for(w, target);
    return std::string(t ? t->name() : "");
  };
  const TargetInfo cpu = test_target(256, 16), gpu = target_by_name("sm_90a");
  EXPECT_EQ(served_by("bf16", "nhwc", cpu), "pool2d_nhwc");
  EXPECT_EQ(served_by("f16", "nhwc", cpu), "pool2d_nhwc");
  EXPECT_EQ(served_by("bf16", "nchw", cpu), "");
  EXPECT_EQ(served_by("bf16", "nhwc", gpu), "");
  EXPECT_EQ(served_by("f16", "nchw", gpu), "");
  EXPECT_EQ(served_by("f32", "nchw", cpu), "pool2d");
  EXPECT_EQ(served_by("f32", "nhwc", gpu), "gpu_pool2d");
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
