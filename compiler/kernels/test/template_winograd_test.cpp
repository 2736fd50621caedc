// The template "winograd" against the reference interpreter.
#include <array>

#include "compiler/ir/layout.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

struct Tiles {
  int64_t tile, in, out, top, left, bottom, right;
};

Case by_tiles(const Tiles& f) {
  const std::string layout = dense_layout(mode().targets.front(), DType::kF32, f.out);
  const int64_t width = ir::parse_layout(layout)->width;
  Case c;
  c.text = fmt::format(
      "fn @f(%x: Tensor[(b, h, w, {}), f32], %w: Tensor[({}, {}, {}, {}), f32], "
      "%c: Tensor[({}), f32], %z: Tensor[({}), f32]) {{ let %y = packed_winograd(%x, %w, %c) "
      "{{tile = {}, filters = {}, pads = [{}, {}, {}, {}], layout = \"{}\"}}; "
      "let %s = add(%y, %z); let %r = relu(%s); %r }}",
      f.in, (f.out + width - 1) / width, (f.tile + 2) * (f.tile + 2), f.in, width, f.out, f.out,
      f.tile, f.out, f.top, f.left, f.bottom, f.right, layout);
  c.served_by = "winograd";
  c.oracle = by_reference(c.text);
  for (const auto& s : Sizes{{1, 1, 1},
                             {1, 2, 2},
                             {1, 3, 3},
                             {2, 5, 7},
                             {1, 8, 8},
                             {1, 13, 11},
                             {3, 4, 17},
                             {0, 8, 8},
                             {1, 1, 29},
                             {1, 23, 2}})
    if (s[1] + f.top + f.bottom >= 3 && s[2] + f.left + f.right >= 3) c.sizes.push_back(s);
  // Transforms make terms of 4 x 4 pixels some hundreds of times as large.
  c.low = f.tile == 2 ? -1 : -0.25, c.high = -c.low;
  c.tolerance = f.tile == 2 ? 1e-4 : 2e-3;
  c.configurations = 6;
  return c;
}

TEST(Winograd, AwkwardSizesAndChannels) {
  for (const int64_t tile : {2, 4})
    for (const auto& [in, out] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 24}, {24, 40}, {40, 3}, {16, 48}, {17, 97}}) {
      SCOPED_TRACE(fmt::format("{} x {}: {} -> {}", tile, tile, in, out));
      check(by_tiles({tile, in, out, 1, 1, 1, 1}));
      if (HasFatalFailure()) return;
    }
}

TEST(Winograd, Padding) {
  for (const int64_t tile : {2, 4})
    for (const auto& [top, left, bottom, right] :
         {std::array<int64_t, 4>{0, 0, 0, 0}, {2, 0, 1, 3}, {0, 5, 0, 0}}) {
      SCOPED_TRACE(fmt::format("{}: {} {} {} {}", tile, top, left, bottom, right));
      check(by_tiles({tile, 20, 24, top, left, bottom, right}));
      if (HasFatalFailure()) return;
    }
}

// Nothing is read of an image without pixels.
TEST(Winograd, NothingButPadding) {
  for (const int64_t tile : {2, 4}) {
    Case c = by_tiles({tile, 16, 16, 2, 2, 2, 2});
    c.sizes = {{1, 0, 7}, {1, 7, 0}, {2, 0, 0}};
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST(Winograd, KnownExtents) {
  for (const int64_t tile : {2, 4})
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{7, 7}, {14, 14}, {1, 1}, {5, 16}}) {
      SCOPED_TRACE(fmt::format("{}: {} x {}", tile, h, w));
      Case c = by_tiles({tile, 24, 40, 1, 1, 1, 1});
      const std::string any = "(b, h, w, ";
      c.text.replace(c.text.find(any), any.size(), fmt::format("(2, {}, {}, ", h, w));
      c.oracle = by_reference(c.text);
      c.sizes = Sizes{{}};
      check(c);
      if (HasFatalFailure()) return;
    }
}

// Panels made for wider vectors are cut.
TEST(Winograd, PanelsOfAnotherMachine) {
  for (const int64_t tile : {2, 4}) {
    Case c = by_tiles({tile, 8, 70, 1, 1, 1, 1});
    const size_t at = c.text.find("%w: Tensor[(");
    c.text.replace(at, c.text.find(')', at) - at,
                   fmt::format("%w: Tensor[(2, {}, 8, 64", (tile + 2) * (tile + 2)));
    const size_t layout = c.text.find("panel");
    c.text.replace(layout, c.text.find('"', layout) - layout, "panel64");
    c.oracle = by_reference(c.text);
    check(c);
    if (HasFatalFailure()) return;
  }
}

// Who transforms the image waits for the others, which does not go with a check of an index.
TEST(Winograd, AnIndexInTheEpilogueIsNotTaken) {
  std::string text = by_tiles({4, 24, 40, 1, 1, 1, 1}).text;
  text.replace(text.find("fn @f("), 6, "fn @f(%t: Tensor[(7, 40), f32], %i: Tensor[(1), i64], ");
  const std::string scaled = "let %s = add(%y, %z);";
  text.replace(text.find(scaled), scaled.size(),
               "let %g = gather(%t, %i) {axis = 0}; let %s = add(%y, %g);");
  EXPECT_EQ(template_for(workload_of(text), mode().targets.front()), nullptr);
}

}  // namespace
}  // namespace nimble::kernels::testing
