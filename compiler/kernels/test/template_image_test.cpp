// Convolutions of channels-last images by vectors against the reference interpreter.
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/row_tiles.h"
#include "compiler/kernels/test/image_cases.h"

namespace nimble::kernels::testing {
namespace {

TEST(Conv2dNhwc, WindowsStridesPaddingDilation) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24},
              {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 24, 40},
              {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 8, 58},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 16, 33},
              {7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 16},
              {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 2, 3},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 20, 17},
              {2, 5, 3, 3, 0, 4, 1, 0, 1, 1, 1, 5, 8},
              {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 1, 4, 1}},
             [](const Filter& f) { return convolution(f, "conv2d_nhwc"); });
}

TEST(Conv2dNhwc, OneDimension) {
  const Filter f{1, 9, 1, 2, 0, 4, 0, 4, 1, 1, 1, 24, 35};
  Case c = convolution(f, "conv2d_nhwc");
  c.sizes = {{1, 1, 1}, {2, 1, 5}, {1, 1, 27}, {1, 1, 64}, {1, 1, 130}, {1, 1, 701}};
  check(c);
}

// Tiles across the ends of lines, of lines that are several items.
TEST(Conv2dNhwc, BlocksOfLongLines) {
  Case c = packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 40, 20}, DType::kF32);
  c.sizes = {{1, 3, 150}, {2, 2, 131}, {1, 5, 3}};
  c.configurations = 5;
  for (const char* tails : {kTailsEven, kTailsChecked})
    c.also.push_back({{"rows", int64_t{4}},
                      {"c_block", int64_t{32}},
                      {"unroll", int64_t{1}},
                      {"block_rows", int64_t{2}},
                      {"order", std::string("weights")},
                      {"tails", std::string(tails)}});
  check(c);
}

TEST(Conv2dNhwc, Groups) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 2, 24, 34},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 4, 12, 20},
              {2, 2, 1, 1, 0, 0, 0, 0, 2, 1, 2, 4, 6},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 5, 10}},
             [](const Filter& f) { return convolution(f, "conv2d_nhwc"); });
}

TEST(DepthwiseNhwc, WindowsStridesPaddingDilation) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 24, 24, 24},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 58, 58, 58},
              {5, 5, 2, 2, 2, 2, 2, 2, 1, 1, 40, 40, 40},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3},
              {2, 3, 1, 1, 0, 0, 0, 0, 1, 1, 16, 16, 16},
              {3, 3, 1, 2, 0, 2, 1, 0, 1, 1, 1, 1, 1}},
             [](const Filter& f) { return convolution(f, "depthwise_nhwc"); });
}

TEST(Conv2dNhwc, PackedWeights) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 58},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 36, 24},
              {7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 70},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 3},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 2, 40, 80},
              {1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 3, 12, 15},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 5, 20, 20},
              {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 4, 8}},
             [](const Filter& f) { return packed_convolution(f, DType::kF32, DType::kF32); });
}

// By a fragment: a pixel's channels are whole pairs.
TEST(Conv2dNhwc, PackedPairs) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 58},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 70, 24},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
              {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 12, 15},
              {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 8, 8}},
             [](const Filter& f) {
               Case c = packed_convolution(f, DType::kBF16);
               // A machine's own target may take more than a few filters in matrix registers.
               if (mode().targets.front().has("amx-bf16") && f.out / f.groups > 8)
                 c.served_by = "conv2d_tiles";
               return c;
             });
}

// Converted as they are loaded, of any number of channels.
TEST(Conv2dNhwc, PackedHalves) {
  for (const DType image : {DType::kF32, DType::kF16}) {
    SCOPED_TRACE(name_of(image));
    check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 3, 58},
                {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 70, 24},
                {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 4, 8}},
               [&](const Filter& f) { return packed_convolution(f, DType::kF16, image, 1); });
    if (HasFatalFailure()) return;
  }
}

// Packed in pairs, for whichever target: the others have the row's expansion.
TEST(Conv2dNhwc, PackedPairsOfHalves) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
              {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 58},
              {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 70, 24},
              {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
              {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 8, 8}},
             [](const Filter& f) {
               Case c = packed_convolution(f, DType::kF16, DType::kF16, 2);
               // A machine's own target may take more than a few filters in matrix registers.
               if (mode().targets.front().has("amx-fp16") && f.out / f.groups > 8)
                 c.served_by = "conv2d_tiles";
               return c;
             });
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

// The same of narrow ones, whose planes the kernel puts together in groups: rows that the weights
// have for channels that are missing in the last group count for nothing.
TEST(Conv2dNhwc, ImagesWithChannelsFirstInGroups) {
  struct Groups {
    DType image, weights, sums;
    int64_t group;
  };
  for (const Groups& g : {Groups{DType::kBF16, DType::kBF16, DType::kF32, 2},
                          Groups{DType::kF16, DType::kF16, DType::kF32, 2},
                          Groups{DType::kU8, DType::kI8, DType::kI32, 4},
                          Groups{DType::kU8, DType::kI8, DType::kI32, 2}})
    for (const Filter& f : {Filter{7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 3, 70},
                            Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 32},
                            Filter{3, 3, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 5},
                            Filter{5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 5, 3},
                            Filter{1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 4, 17}}) {
      SCOPED_TRACE(f.str() + ", " + std::string(name_of(g.image)) + " by " +
                   std::to_string(g.group));
      const ir::Layout panels = panels_of(f, g.weights, g.group);
      std::string extents;
      for (const ir::Dim& d : panels.packed_dims(panels.rows_of_planes(f.in, f.kh * f.kw), f.out))
        extents += (extents.empty() ? "" : ", ") + d.str();
      Case c = convolution(f, "conv2d_nhwc");
      c.text = fmt::format(
          "fn @f(%x: Tensor[(b, {}, h, w), {}], %w: Tensor[({}), {}], %c: Tensor[({}), {}]) {{ "
          "let %y = packed_conv2d(%x, %w, %c) {{kernel = [{}, {}], filters = {}, {}, "
          "layout = \"{}\", image_layout = \"nchw\", out = {}}}; let %r = relu(%y); %r }}",
          f.in, name_of(g.image), extents, name_of(g.weights), f.out, name_of(g.sums), f.kh, f.kw,
          f.out, f.attributes(), panels.str(), name_of(g.sums));
      c.oracle = by_reference(c.text);
      c.low = -1, c.high = 1;
      if (g.sums == DType::kI32) c.low = -127, c.high = 127, c.tolerance = 0;
      c.configurations = 5;
      check(c);
      if (HasFatalFailure()) return;
    }
}

// Packed one by one they are no pairs: each is converted as it is loaded.
TEST(Conv2dNhwc, PackedBf16OneByOne) {
  check_each({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 40}, {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 12, 15}},
             [](const Filter& f) {
               Case c = packed_convolution(f, DType::kBF16, {}, 1);
               c.configurations = 5;
               return c;
             });
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
  check_each({{3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 1, 5, 9},
              {3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 3, 24},
              {1, 5, 1, 1, 1, 4, 0, 4, 1, 1, 2, 4, 6},
              {3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 24, 24, 24}},
             [](const Filter& f) {
               Case c = convolution(f, f.groups == f.in ? "depthwise_nhwc" : "conv2d_nhwc");
               c.sizes = {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}, {1, 0, 43}, {2, 31, 0}, {1, 1, 1}};
               return c;
             });
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
        replace_once(c.text, whole,
                     fmt::format("%x: Tensor[(b, h, w, {0}), {2}], "
                                 "%z: Tensor[(b, h, w, {1}), {2}]",
                                 first, rest + 3, name_of(type)));
        replace_once(c.text, "{ let %y",
                     fmt::format("{{ let %s = slice(%z) {{axes = [3], starts = (3), "
                                 "ends = ({}), steps = (1)}}; "
                                 "let %i = concat(%x, %s) {{axis = 3}}; let %y",
                                 rest + 3));
        replace_once(c.text, "conv2d(%x,", "conv2d(%i,");
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
    replace_once(c.text, fmt::format("%x: Tensor[(b, h, w, {}), f32]", channels),
                 fmt::format("%x: Tensor[(b, h, w, {0}), f32], %z: Tensor[(b, h, w, {0}), f32]",
                             channels / 2));
    replace_once(c.text, "{ let %y", "{ let %i = concat(%x, %z) {axis = 3}; let %y");
    replace_once(c.text, "conv2d(%x,", "conv2d(%i,");
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

}  // namespace
}  // namespace nimble::kernels::testing
