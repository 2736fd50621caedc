// Convolutions of channels-last images of bytes, as bytes and as i16, against the reference
// interpreter. Both ways run whatever instructions a target has.
#include <cstdint>
#include <span>
#include <vector>

#include "compiler/kernels/test/image_cases.h"

namespace nimble::kernels::testing {
namespace {

// Rows of a group of weights that are multiplied as bytes, and as i16.
constexpr int64_t kByteRows = 4, kI16Rows = 2;

// The convolution of each filter with weights in groups of so many rows.
void check_filters(const std::vector<Filter>& filters, int64_t rows, int configurations,
                   const Sizes& sizes = {}) {
  check_each(filters, [&](const Filter& f) {
    Case c = packed_convolution(f, DType::kI8, {}, rows);
    // A machine's own target may have matrix registers for bytes, but not for few filters.
    if (rows == kByteRows && mode().targets.front().has("amx-int8") && f.out / f.groups > 8)
      c.served_by = "conv2d_tiles";
    c.configurations = configurations;
    if (!sizes.empty()) c.sizes = sizes;
    return c;
  });
}

// A pixel's channels are whole groups of four, and sums of bytes are exact.
TEST(Conv2dNhwc, PackedQuads) {
  check_filters({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 40},
                 {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 4, 58},
                 {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 68, 24},
                 {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 24, 72},
                 {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 12, 15},
                 {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 16, 8}},
                kByteRows, 10);
}

// The same as i16, in whole pairs, whatever the target has; the image is widened ahead.
TEST(Conv2dNhwc, PackedPairsOfI16) {
  check_filters({{3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 40},
                 {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 2, 58},
                 {3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1, 58, 24},
                 {5, 3, 1, 2, 2, 0, 1, 3, 1, 2, 1, 40, 3},
                 {3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 40, 1},
                 {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3, 18, 72},
                 {1, 1, 2, 2, 0, 0, 0, 0, 1, 1, 1, 10, 15},
                 {3, 1, 2, 1, 1, 0, 0, 0, 1, 1, 4, 24, 8}},
                kI16Rows, 5);
}

TEST(Conv2dNhwc, I16OfOneDimension) {
  Case c = packed_convolution({1, 9, 1, 2, 0, 4, 0, 4, 1, 1, 1, 6, 35}, DType::kI8, {}, kI16Rows);
  c.sizes = {{1, 1, 1}, {2, 1, 5}, {1, 1, 27}, {1, 1, 64}, {1, 1, 301}};
  c.configurations = 4;
  check(c);
}

// The bytes of an image of 24 channels as the value %i of `parts`, which are of other parameters.
Case of_parts(const std::string& parameters, const std::string& parts) {
  Case c = packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 40}, DType::kI8, {}, kI16Rows);
  replace_once(c.text, "%x: Tensor[(b, h, w, 24), u8]", parameters);
  replace_once(c.text, "{ let %y", "{ " + parts + "let %y");
  replace_once(c.text, "conv2d(%x,", "conv2d(%i,");
  c.oracle = by_reference(c.text);
  c.configurations = 4;
  return c;
}

std::string slice_of(const std::string& name, int from, int to) {
  return fmt::format(
      "let %{} = slice(%z) {{axes = [3], starts = ({}), ends = ({}), steps = (1)}}; ", name, from,
      to);
}

// Parts of two images, and of one: what is read of it overlaps, is a part of it, and lies in two
// places.
TEST(Conv2dNhwc, I16OfImagesSideBySide) {
  const std::string join = "let %i = concat(%x, %s) {axis = 3}; ";
  check(of_parts("%x: Tensor[(b, h, w, 12), u8], %z: Tensor[(b, h, w, 15), u8]",
                 slice_of("s", 3, 15) + join));
  check(of_parts("%z: Tensor[(b, h, w, 15), u8]",
                 slice_of("s", 3, 15) + slice_of("x", 0, 12) + join));
  check(of_parts("%z: Tensor[(b, h, w, 41), u8]",
                 slice_of("s", 5, 19) + slice_of("x", 27, 37) + join));
}

// Of a wide image what is read of each pixel becomes i16, and nothing else.
TEST(Conv2dNhwc, I16OfASliceOfChannels) {
  for (const int first : {7, 177}) {
    const Case c = of_parts("%z: Tensor[(b, h, w, 201), u8]", slice_of("i", first, first + 24));
    check(c);
    if (HasFatalFailure()) return;
    const Workload w = workload_of(c.text);
    for (const TargetInfo& target : mode().targets) {
      const Template* t = template_for(w, target);
      ASSERT_NE(t, nullptr);
      const Lowered lowered = t->lower(w, t->default_config(w, target), target, "k");
      std::vector<ir::Dim> copies;
      for (const kir::BufferRef& b : lowered.functions.at(0).scratch)
        if (b->scope == kir::Scope::kScratch) copies.push_back(b->extent);
      ASSERT_EQ(copies.size(), 1u);
      const auto pixels = [](const std::string&) { return std::optional<int64_t>(2); };
      EXPECT_EQ(copies[0].evaluate(pixels), 2 * 2 * 2 * 24) << copies[0].str();
    }
  }
}

// A group of terms lies in one image: each has whole pairs, or none is taken.
TEST(Conv2dNhwc, I16OfImagesOfOddChannelsAreNotTaken) {
  for (const int first : {3, 12}) {
    const Case c = of_parts(fmt::format("%x: Tensor[(b, h, w, {}), u8], "
                                        "%z: Tensor[(b, h, w, {}), u8]",
                                        first, 24 - first),
                            "let %i = concat(%x, %z) {axis = 3}; ");
    EXPECT_EQ(template_for(workload_of(c.text), mode().targets.front()) == nullptr, first == 3);
  }
}

// No pixel is there, and every window meets padding alone.
TEST(Conv2dNhwc, I16OfNothingButPadding) {
  check_filters({{3, 3, 1, 1, 2, 2, 2, 2, 1, 1, 1, 6, 9},
                 {3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 2, 24},
                 {1, 5, 1, 1, 1, 4, 0, 4, 1, 1, 2, 4, 6}},
                kI16Rows, 4, {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}, {1, 0, 43}, {2, 31, 0}, {1, 1, 1}});
}

// The largest products in size: nothing saturates or wraps on the way.
TEST(Conv2dNhwc, BytesAtTheirEnds) {
  for (const int64_t group : {kByteRows, kI16Rows})
    for (const Filter& f :
         {Filter{3, 3, 1, 1, 0, 0, 0, 0, 1, 1, 1, 40, 24}, {1, 5, 1, 1, 0, 0, 0, 0, 1, 1, 1, 4, 3}})
      for (const TargetInfo& target : mode().targets) {
        SCOPED_TRACE(fmt::format("{} in groups of {}", f.str(), group));
        std::string text = packed_convolution(f, DType::kI8, {}, group).text;
        const std::string relu = "let %r = relu(%y); %r";
        ASSERT_NE(text.find(relu), std::string::npos) << text;
        text.replace(text.find(relu), relu.size(), "%y");
        const Workload w = workload_of(text);
        const Template* t = template_for(w, target);
        ASSERT_NE(t, nullptr);
        const Lowered lowered = t->lower(w, t->default_config(w, target), target, "k");
        const std::vector<int64_t> sizes = {2, 7, 19};
        constexpr int kThreads = 2;
        const int64_t k = f.kh * f.kw * f.in;
        const int64_t results = 2 * (7 - f.kh + 1) * (19 - f.kw + 1) * f.out;
        const ir::Layout panels = panels_of(f, DType::kI8, group);
        const int64_t count = (f.out + panels.width - 1) / panels.width;
        std::vector<uint8_t> x(static_cast<size_t>(2 * 7 * 19 * f.in), 255);
        std::vector<int8_t> weights(static_cast<size_t>(panels.panel_elements(k) * count), -128);
        std::vector<int32_t> bias(static_cast<size_t>(f.out)), y(static_cast<size_t>(results));
        const auto bytes = [](auto& v) { return std::as_writable_bytes(std::span(v)); };
        const std::vector<std::span<std::byte>> buffers = {bytes(x), bytes(weights), bytes(bias),
                                                           bytes(y)};
        const kir::Function& kernel = lowered.functions.at(lowered.tails.choose(sizes, kThreads));
        ASSERT_EQ(mode().run(kernel, buffers, sizes, kThreads), 0);
        for (const int32_t sum : y) ASSERT_EQ(sum, k * 255 * -128);
      }
}

TEST(Conv2dNhwc, QuadsOfOtherChannelsAreNotTaken) {
  const Case c =
      packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 16}, DType::kI8, {}, kByteRows);
  EXPECT_EQ(template_for(workload_of(c.text), mode().targets.front()), nullptr);
}

TEST(Conv2dNhwc, I16OfOddChannelsAreNotTaken) {
  for (const int64_t channels : {1, 3, 25}) {
    const Case c = packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, channels, 16}, DType::kI8,
                                      {}, kI16Rows);
    EXPECT_EQ(template_for(workload_of(c.text), mode().targets.front()), nullptr) << channels;
  }
}

// Nor are groups that nothing multiplies.
TEST(Conv2dNhwc, OtherGroupsOfBytesAreNotTaken) {
  for (const int64_t group : {1, 3, 8}) {
    const Case c =
        packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 16}, DType::kI8, {}, group);
    EXPECT_EQ(template_for(workload_of(c.text), mode().targets.front()), nullptr) << group;
  }
}

// An index in the epilogue is checked, which does not go with threads that wait for each other: who
// widens an image does, who multiplies bytes does not.
TEST(Conv2dNhwc, IndicesBehindI16AreNotTaken) {
  for (const int64_t group : {kByteRows, kI16Rows}) {
    Case c = packed_convolution({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 24, 8}, DType::kI8, {}, group);
    replace_once(c.text, "fn @f(", "fn @f(%t: Tensor[(7, 8), i32], %i: Tensor[(1), i64], ");
    replace_once(c.text, "let %r = relu(%y);",
                 "let %g = gather(%t, %i) {axis = 0}; let %r = add(%y, %g);");
    const Template* t = template_for(workload_of(c.text), mode().targets.front());
    EXPECT_EQ(t == nullptr, group == kI16Rows);
  }
}

}  // namespace
}  // namespace nimble::kernels::testing
