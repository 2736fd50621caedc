// Shapes at random: what a dispatch table is tried at, after it was made from others.
#pragma once

#include "tuner/service/points.h"

namespace nimble::tuner {

struct SizeRange {
  int64_t least = 1, most = 1;
};
inline constexpr SizeRange kDrawnLengths = {1, 512}, kDrawnBatches = {1, 16};

struct DrawOptions {
  std::map<std::string, SizeRange> ranges;  // of symbols; others: the two above
  size_t count = 300;
  uint64_t seed = 1;
};

// Each symbol is drawn by itself and evenly by ratio. No two points are alike, so there are fewer
// where the ranges hold fewer. All weigh the same, and the first is called representative.
// Error(kInvalidArgument): a symbol that the model has not, a range that is empty or begins below
// one, or a model whose shapes are all constant.
std::vector<WeightedPoint> drawn_points(const ir::Module& m, const DrawOptions& options);

}  // namespace nimble::tuner
