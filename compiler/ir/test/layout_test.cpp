// Packed matrices against an independent statement of where each element lies.
#include "compiler/ir/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vm/base/error.h"

namespace nimble::ir {
namespace {

using Shape = std::vector<int64_t>;

// 1, 2, 3, … row by row; small enough that each is a bf16 of its own by its bits.
TensorRef numbered(int64_t rows, int64_t columns) {
  std::vector<uint16_t> v;
  for (int64_t i = 0; i < rows * columns; ++i) v.push_back(static_cast<uint16_t>(i + 1));
  return Tensor::of<uint16_t>(DType::kBF16, {rows, columns}, v);
}

std::vector<uint16_t> elements(const TensorRef& t) {
  const auto all = t->as<uint16_t>();
  return {all.begin(), all.end()};
}

TEST(Layout, TextsComeBack) {
  for (const char* text : {"panel1", "panel48", "panel48x2", "panel4096x4", "gate16"}) {
    const auto layout = parse_layout(text);
    ASSERT_TRUE(layout) << text;
    EXPECT_EQ(layout->str(), text);
  }
  EXPECT_EQ(parse_layout("panel48")->group, 1);
  EXPECT_EQ(parse_layout("panel48x2")->group, 2);
  EXPECT_EQ(parse_layout("panel48x2")->width, 48);
  for (const char* text :
       {"", "panel", "panelx2", "panel48x", "panel48x0", "panel48x1", "panel48x-2", "panel48x2x2",
        "panel48 x2", "panel48x5000", "panel5000x2", "gate16x2", "row48x2", "48x2"})
    EXPECT_FALSE(parse_layout(text)) << text;
}

TEST(Layout, GroupsOfRowsStandSideBySideByColumn) {
  const Layout layout = *parse_layout("panel2x2");
  const TensorRef p = pack_matrix(*numbered(3, 3), layout, false);
  EXPECT_EQ(p->shape, (Shape{2, 2, 2, 2}));
  // Of 1 2 3 / 4 5 6 / 7 8 9: what no row or column fills is zero.
  EXPECT_THAT(elements(p), testing::ElementsAre(1, 4, 2, 5, 7, 0, 8, 0,  //
                                                3, 6, 0, 0, 9, 0, 0, 0));
}

TEST(Layout, EachElementLiesWhereItsIndexSays) {
  for (const int64_t rows : {1, 2, 3, 5, 8, 13})
    for (const int64_t columns : {1, 3, 4, 7, 8, 9, 17})
      for (const int64_t width : {1, 4, 8})
        for (const int64_t group : {1, 2, 3, 4})
          for (const bool transpose : {false, true}) {
            SCOPED_TRACE(fmt::format("{} x {}, width {}, group {}, transpose {}", rows, columns,
                                     width, group, transpose));
            const Layout layout{Layout::Kind::kPanel, width, group};
            const TensorRef w = transpose ? numbered(columns, rows) : numbered(rows, columns);
            const TensorRef p = pack_matrix(*w, layout, transpose);
            // Panel by panel, group by group, column by column, row by row.
            std::vector<uint16_t> want;
            for (int64_t first = 0; first < columns; first += width)
              for (int64_t above = 0; above < rows; above += group)
                for (int64_t c = first; c < first + width; ++c)
                  for (int64_t r = above; r < above + group; ++r) {
                    const bool there = r < rows && c < columns;
                    if (there) {
                      EXPECT_EQ(layout.index_of(r, c, rows), static_cast<int64_t>(want.size()));
                    }
                    const int64_t at = transpose ? c * rows + r : r * columns + c;
                    want.push_back(there ? static_cast<uint16_t>(at + 1) : 0);
                  }
            EXPECT_EQ(p->elements(), static_cast<int64_t>(want.size()));
            EXPECT_THAT(elements(p), testing::ElementsAreArray(want));
            Shape dims;
            for (const Dim& d : layout.packed_dims(rows, columns)) dims.push_back(*d.as_constant());
            EXPECT_EQ(p->shape, dims);
            EXPECT_EQ(p->elements(), p->shape[0] * layout.panel_elements(rows));
          }
}

TEST(Layout, MatricesWithoutElementsArePackedToNone) {
  EXPECT_EQ(pack_matrix(*numbered(0, 5), *parse_layout("panel4x2"), false)->elements(), 0);
  EXPECT_EQ(pack_matrix(*numbered(5, 0), *parse_layout("panel4x2"), false)->elements(), 0);
}

TEST(Layout, GatesAreSideBySideInEachRow) {
  // Two units, two gates: (h, gates * h) = (2, 4).
  const TensorRef p = pack_matrix(*numbered(2, 4), *parse_layout("gate1"), false);
  EXPECT_EQ(p->shape, (Shape{2, 2, 2, 1}));
  EXPECT_THAT(elements(p), testing::ElementsAre(1, 3, 5, 7, 2, 4, 6, 8));
  EXPECT_THROW(pack_matrix(*numbered(2, 3), *parse_layout("gate1"), false), Error);
}

}  // namespace
}  // namespace nimble::ir
