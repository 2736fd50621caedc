// Products and convolutions of bytes that promise small weights (max_weight), against the reference
// interpreter: what multiplies them on each level, and that sums are exact whichever it is.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernels/templates/conv2d_nhwc.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/operand_types.h"
#include "compiler/kernels/test/at_level.h"
#include "compiler/kernels/test/image_cases.h"

namespace nimble::kernels::testing {
namespace {

// The bound of the fragment for small weights, its rows, and those of pairs of i16.
constexpr int64_t kBound = 64, kByteRows = 4, kI16Rows = 2;

// Levels where nothing but that fragment takes bytes, and some of the others.
constexpr const char* kWithBound[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
constexpr const char* kWithout[] = {"x86-64-v4-vnni", "x86-64-v4-amx",   "aarch64",
                                    "aarch64-i8mm",   "aarch64-dotprod", "portable"};

// `rows` rows of k bytes times a matrix (k, n). `most`: what is promised of it; 0: nothing.
Workload product(const std::string& rows, int64_t k, int64_t n, const std::string& layout,
                 int64_t most) {
  std::string extents;
  for (const ir::Dim& d : ir::parse_layout(layout)->packed_dims(k, n))
    extents += (extents.empty() ? "" : ", ") + d.str();
  return workload_of(fmt::format(
      "fn @f(%x: Tensor[({}, {}), u8], %w: Tensor[({}), i8]) {{ let %y = packed_matmul(%x, %w) "
      "{{k = {}, n = {}, layout = \"{}\", out = i32{}}}; %y }}",
      rows, k, extents, k, n, layout, most == 0 ? "" : fmt::format(", max_weight = {}", most)));
}

// The default kernel of a workload as text.
std::string kernel_text(const Workload& w, const TargetInfo& target) {
  const Template* t = template_for(w, target);
  if (!t) return "no template";
  return print(t->lower(w, t->default_config(w, target), target, "k").functions.at(0));
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

class SmallWeights : public AtLevel {
 protected:
  // What serves so many columns.
  std::string served_by(const char* plain, const char* tiles, int64_t columns) const {
    return target_.has("amx-int8") && columns > 8 ? tiles : plain;
  }
};
INSTANTIATE_TEST_SUITE_P(Levels, SmallWeights, levels_of_bytes(), name_of_level);

// In one block of k and in several, with rows whose last group has one to four elements.
TEST_P(SmallWeights, Products) {
  for (const int64_t k : {1, 2, 3, 4, 22, 333})
    for (const char* layout : {"panel16x4", "panel48x4"}) {
      SCOPED_TRACE(fmt::format("{} of {}", layout, k));
      ReferenceHarness harness(product("m", k, 40, layout, kBound), target_);
      ASSERT_NE(harness.chosen(), nullptr);
      EXPECT_EQ(harness.chosen()->name(), served_by("dense", "dense_tiles", 40));
      std::mt19937 random(7);
      for (int c = 0; c < std::min(4, harness_mode().most_configurations); ++c) {
        const Config config =
            c == 0 ? harness.chosen()->default_config(harness.workload(), target_)
                   : random_config(*harness.chosen(), harness.workload(), target_, random);
        SCOPED_TRACE(to_json(config));
        harness.lower(config);
        for (const int64_t m : {0, 1, 6, 17, 53})
          harness.run({m}, 1 + (c + static_cast<int>(m)) % 3, static_cast<unsigned>(k + m));
        if (HasFailure()) return;
      }
    }
}

// The largest sums that the promise allows, of either sign. What is planted behind a row's last
// element breaks it, and no kernel but those of matrix registers, which rely on zeros, may care.
TEST_P(SmallWeights, ProductsAtTheirEnds) {
  constexpr int64_t kRows = 3, kColumns = 5;
  const ir::Layout panels = *ir::parse_layout("panel16x4");
  const auto weight = [](int64_t column) -> int8_t { return column % 2 == 0 ? kBound : -kBound; };
  for (const int64_t k : {1, 3, 37, 1001}) {
    SCOPED_TRACE(k);
    const Workload w = product(std::to_string(kRows), k, kColumns, panels.str(), kBound);
    const Template& t = *template_for(w, target_);
    const Lowered lowered = t.lower(w, t.default_config(w, target_), target_, "f");
    std::vector<uint8_t> x(static_cast<size_t>(kRows * k), 255);
    const int8_t behind = t.name() == "dense_tiles" ? 0 : 127;
    std::vector<int8_t> packed(static_cast<size_t>(panels.panel_elements(k)), behind);
    for (int64_t row = 0; row < k; ++row)
      for (int64_t column = 0; column < kColumns; ++column)
        packed[static_cast<size_t>(panels.index_of(row, column, k))] = weight(column);
    std::vector<int32_t> y(static_cast<size_t>(kRows * kColumns));
    const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
    const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(packed), bytes(y)};
    ASSERT_EQ(mode().run(lowered.functions.at(0), buffers, {}, 2), 0);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y[i], k * 255 * weight(static_cast<int64_t>(i) % kColumns)) << i;
  }
}

// Borders, strides, dilation, groups, few filters.
TEST_P(SmallWeights, Convolutions) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 4, 58},
                          {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 68, 24},
                          {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 40, 3},
                          {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                          {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 12, 15},
                          {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 16, 8}}) {
    SCOPED_TRACE(f.str());
    Case c = packed_convolution(f, DType::kI8, {}, kByteRows, kBound);
    c.served_by = served_by("conv2d_nhwc", "conv2d_tiles", f.out / f.groups);
    c.configurations = 3;
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Every pixel is white, and every weight as large as the promise allows. What padding leaves out is
// no pixel: sums are of the taps inside.
TEST_P(SmallWeights, ConvolutionsAtTheirEnds) {
  for (const Filter& f : {Filter{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 40, 24},
                          {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 2, 16, 12},
                          {1, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4, 3}})
    for (const int8_t weight : {int8_t{kBound}, int8_t{-kBound}}) {
      SCOPED_TRACE(fmt::format("{}, weights of {}", f.str(), weight));
      std::string text = packed_convolution(f, DType::kI8, {}, kByteRows, kBound).text;
      const std::string relu = "let %r = relu(%y); %r";
      ASSERT_NE(text.find(relu), std::string::npos) << text;
      text.replace(text.find(relu), relu.size(), "%y");
      const Workload w = workload_of(text);
      const Template* t = template_for(w, target_);
      ASSERT_NE(t, nullptr);
      const Lowered lowered = t->lower(w, t->default_config(w, target_), target_, "k");
      constexpr int64_t kHeight = 7, kWidth = 19;
      const std::vector<int64_t> sizes = {2, kHeight, kWidth};
      constexpr int kThreads = 2;
      const auto extent = [](int64_t in, int64_t pads, int64_t taps, int64_t step) {
        return (in + pads - taps) / step + 1;
      };
      const int64_t height = extent(kHeight, f.top + f.bottom, f.kh, f.sh),
                    width = extent(kWidth, f.left + f.right, f.kw, f.sw);
      const int64_t channels = f.in / f.groups, k = f.kh * f.kw * channels;
      const ir::Layout panels = panels_of(f, DType::kI8, kByteRows);
      const int64_t count = (f.out / f.groups + panels.width - 1) / panels.width * f.groups;
      std::vector<uint8_t> x(static_cast<size_t>(2 * kHeight * kWidth * f.in), 255);
      std::vector<int8_t> weights(static_cast<size_t>(panels.panel_elements(k) * count), weight);
      std::vector<int32_t> bias(static_cast<size_t>(f.out)),
          y(static_cast<size_t>(2 * height * width * f.out));
      const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
      const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(weights), bytes(bias),
                                                         bytes(y)};
      const kir::Function& kernel = lowered.functions.at(lowered.tails.choose(sizes, kThreads));
      ASSERT_EQ(mode().run(kernel, buffers, sizes, kThreads), 0);
      const auto inside = [](int64_t at, int64_t step, int64_t pad, int64_t taps, int64_t in) {
        const int64_t first = at * step - pad;
        return std::min(first + taps, in) - std::max<int64_t>(first, 0);
      };
      for (size_t i = 0; i < y.size(); ++i) {
        const int64_t pixel = static_cast<int64_t>(i) / f.out;
        const int64_t taps = inside(pixel / width % height, f.sh, f.top, f.kh, kHeight) *
                             inside(pixel % width, f.sw, f.left, f.kw, kWidth);
        ASSERT_EQ(y[i], taps * channels * 255 * weight) << i;
      }
    }
}

// --- What is chosen, and what must not be --------------------------------------------------------

// Weights of 65 are packed in pairs, for i16, as those of which nobody knows anything.
TEST(SmallWeightsChoice, OfTheLayout) {
  const auto group = [](const std::string& layout) { return ir::parse_layout(layout)->group; };
  const auto dense = [](const TargetInfo& t, int64_t most) {
    return dense_layout(t, DType::kU8, DType::kI8, 96, most);
  };
  const auto image = [](const TargetInfo& t, int64_t most) {
    return conv2d_nhwc_layout(t, DType::kU8, DType::kI8, 96, most);
  };
  for (const char* level : kWithBound) {
    SCOPED_TRACE(level);
    const TargetInfo t = target_by_name(level);
    EXPECT_EQ(weight_bound(t, DType::kU8, DType::kI8, 0), kBound);
    EXPECT_EQ(weight_bound(t, DType::kU8, DType::kI8, kBound), kBound);
    EXPECT_EQ(weight_bound(t, DType::kU8, DType::kI8, kBound + 1), 0);
    EXPECT_EQ(weight_bound(t, DType::kI8, DType::kI8, 0), 0) << "no fragment takes signed rows";
    EXPECT_EQ(weight_bound(t, DType::kBF16, DType::kBF16, 0), 0);
    EXPECT_EQ(group(dense(t, kBound)), kByteRows);
    EXPECT_EQ(group(image(t, kBound)), kByteRows);
    EXPECT_EQ(group(dense(t, kBound + 1)), kI16Rows);
    EXPECT_EQ(group(image(t, kBound + 1)), kI16Rows);
    EXPECT_EQ(group(groupwise_layout(t, 96)), kI16Rows) << "its weights may fill their bytes";
    EXPECT_EQ(group(groupwise_layout(t, 96, kBound)), kByteRows);
    EXPECT_EQ(group(groupwise_layout(t, 96, kBound + 1)), kI16Rows);
  }
  for (const char* level : kWithout) {
    SCOPED_TRACE(level);
    const TargetInfo t = target_by_name(level);
    EXPECT_EQ(weight_bound(t, DType::kU8, DType::kI8, 0), 0);
    EXPECT_EQ(dense(t, 0), dense(t, kir::kAnyWeight));
    EXPECT_EQ(image(t, 0), image(t, kir::kAnyWeight));
  }
}

// Each level multiplies the same packed weights its way. A larger promise, or none, is no reason
// to.
TEST(SmallWeightsChoice, OfAProductsFragment) {
  const auto text = [](const char* level, int64_t most, const char* layout) {
    return kernel_text(product("m", 24, 40, layout, most), target_by_name(level));
  };
  for (const char* level : kWithBound) {
    SCOPED_TRACE(level);
    const std::string small = text(level, kBound, "panel16x4");
    EXPECT_TRUE(has(small, "dot.u8s7_quads")) << small;
    EXPECT_FALSE(has(small, "widened")) << "rows stay bytes: " << small;
    for (const int64_t most : {int64_t{0}, kBound + 1, int64_t{127}}) {
      const std::string large = text(level, most, "panel16x4");
      EXPECT_FALSE(has(large, "dot.u8s7_quads")) << most << large;
      EXPECT_TRUE(has(large, "dot.u8s8_quads")) << most << large;
    }
    EXPECT_TRUE(has(text(level, kBound, "panel16x2"), "dot.s16_pairs"));
  }
  for (const char* level : {"x86-64-v4-vnni", "aarch64", "aarch64-dotprod", "portable"}) {
    const std::string own = text(level, kBound, "panel16x4");
    EXPECT_TRUE(has(own, "dot.u8s8_quads")) << level << own;
    EXPECT_FALSE(has(own, "dot.u8s7_quads")) << level << own;
  }
}

TEST(SmallWeightsChoice, OfAConvolutionsFragment) {
  const auto text = [](const char* level, int64_t group, int64_t most) {
    const TargetInfo target = target_by_name(level);
    Mode m = mode();
    m.targets = {target};  // whose panels are taken
    const ModeOfScope scope(std::move(m));
    const Filter f = {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 40};
    return kernel_text(workload_of(packed_convolution(f, DType::kI8, {}, group, most).text),
                       target);
  };
  for (const char* level : kWithBound) {
    SCOPED_TRACE(level);
    const std::string small = text(level, kByteRows, kBound);
    EXPECT_TRUE(has(small, "dot.u8s7_quads")) << small;
    EXPECT_FALSE(has(small, "widened")) << "images stay bytes: " << small;
    for (const int64_t most : {int64_t{0}, kBound + 1})
      EXPECT_FALSE(has(text(level, kByteRows, most), "dot.u8s7_quads")) << most;
    EXPECT_TRUE(has(text(level, kI16Rows, kBound), "dot.s16_pairs"));
  }
  for (const char* level : {"x86-64-v4-vnni", "portable"})
    EXPECT_TRUE(has(text(level, kByteRows, kBound), "dot.u8s8_quads")) << level;
}

// A register has the pairs, another one ones: with 16 a tile of 6 rows by 2 vectors would move
// sums.
TEST(SmallWeightsChoice, OfTheDefaultRows) {
  const auto rows = [](const char* level, int64_t most) {
    const TargetInfo target = target_by_name(level);
    const Workload w = product("m", 24, 40, "panel16x4", most);
    return std::get<int64_t>(template_for(w, target)->default_config(w, target).at("rows"));
  };
  EXPECT_EQ(rows("x86-64-v3", 0), 6);
  EXPECT_EQ(rows("x86-64-v3", kBound), 5);
  EXPECT_EQ(rows("x86-64-v4-vnni", kBound), rows("x86-64-v4-vnni", 0));
}

// What was measured with any weights is not found for small ones, and keeps the key that it had.
TEST(SmallWeightsChoice, IsAPartOfTheKey) {
  const Workload any = product("m", 24, 40, "panel16x4", 0),
                 small = product("m", 24, 40, "panel16x4", kBound);
  EXPECT_NE(any.key, small.key);
  EXPECT_NE(any.anchor_key, small.anchor_key);
  EXPECT_FALSE(has(any.key, "max_weight")) << any.key;
  EXPECT_TRUE(has(small.key, "max_weight")) << small.key;
}

}  // namespace
}  // namespace nimble::kernels::testing
