// Which kernels' work may be cut into more shares than there are threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/driver/compile.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/target.h"

namespace nimble::driver {
namespace {

bool divisible(const std::string& text) {
  CompileOptions options;
  options.target = kernels::target_by_name("x86-64-v3");
  options.compile_threads = 1;
  const exec::Executable e = compile(ir::parse_module(text), options);
  EXPECT_EQ(e.kernels.size(), 1u);
  const auto& all = e.kernels.at(0).implementations;
  const bool first = all.at(0).divisible;
  EXPECT_TRUE(std::all_of(all.begin(), all.end(),
                          [&](const exec::Implementation& i) { return i.divisible == first; }));
  return first;
}

TEST(Divisible, KernelsWithoutBarriersAre) {
  EXPECT_TRUE(
      divisible("fn @main(%x: Tensor[(n, 24), f32], %w: Tensor[(24, 40), f32]) {"
                " let %y = matmul(%x, %w); %y }"));
  EXPECT_TRUE(
      divisible("fn @main(%x: Tensor[(n, 24), f32]) {"
                " let %y = sum(%x) {axes = [1], keepdims = false}; %y }"));
}

// Each share of few panels would widen all rows. The weights are tiled twice, by 4 the second time:
// fold-constants makes no constant that is larger than a page and more than 4 times its operands.
TEST(Divisible, ProductsThatWidenRowsForFewColumnsAreNot) {
  const auto product = [](int columns, int weight = 65) {
    return divisible("fn @main(%x: Tensor[(n, 24), u8]) { let %part = tile(i8[1, 1]{" +
                     std::to_string(weight) + "}) {repeats = (24, " + std::to_string(columns / 4) +
                     ")}; let %w = tile(%part) {repeats = (1, 4)};"
                     " let %y = matmul(%x, %w) {out = i32}; %y }");
  };
  EXPECT_TRUE(product(16)) << "split by rows";
  EXPECT_FALSE(product(96));
  EXPECT_TRUE(product(640)) << "of many panels a share has enough to do beside";
  EXPECT_TRUE(product(96, 64)) << "rows of bytes beside small weights stay bytes";
}

// Few columns of many rows: threads add up parts of them, meet, and add up the parts.
TEST(Divisible, KernelsWhoseThreadsMeetAreNot) {
  EXPECT_FALSE(
      divisible("fn @main(%x: Tensor[(n, 8), f32]) {"
                " let %y = sum(%x) {axes = [0], keepdims = false}; %y }"));
}

}  // namespace
}  // namespace nimble::driver
