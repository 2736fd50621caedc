#include "tuner/dispatch/ranges.h"

#include <algorithm>
#include <cmath>

namespace nimble::tuner {

std::vector<Segment> best_segments(const CostMatrix& cost, size_t max_entries, double entry_cost) {
  const size_t n = cost.at(0).size();
  struct Best {
    size_t configuration = 0;
    double cost = HUGE_VAL;
  };
  // single[i][j]: the best configuration for sizes i … j-1.
  std::vector<std::vector<Best>> single(n, std::vector<Best>(n + 1));
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> sums(cost.size(), 0);
    for (size_t j = i; j < n; ++j)
      for (size_t c = 0; c < cost.size(); ++c) {
        sums[c] += cost[c][j];
        if (sums[c] < single[i][j + 1].cost) single[i][j + 1] = {c, sums[c]};
      }
  }
  const size_t most = std::max<size_t>(1, std::min(max_entries, n));
  // least[k][j]: cost of the first j sizes in k segments; from[k][j]: where the last one begins.
  CostMatrix least(most + 1, std::vector<double>(n + 1, HUGE_VAL));
  std::vector<std::vector<size_t>> from(most + 1, std::vector<size_t>(n + 1, 0));
  least[0][0] = 0;
  for (size_t k = 1; k <= most; ++k)
    for (size_t j = 1; j <= n; ++j)
      for (size_t i = 0; i < j; ++i) {
        const double c = least[k - 1][i] + single[i][j].cost + entry_cost;
        if (c < least[k][j]) least[k][j] = c, from[k][j] = i;
      }
  size_t k = 1;
  for (size_t other = 2; other <= most; ++other)
    if (least[other][n] < least[k][n]) k = other;
  std::vector<Segment> out;
  for (size_t j = n; k > 0; --k) {
    const size_t i = from[k][j];
    out.push_back({i, j, single[i][j].configuration});
    j = i;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace nimble::tuner
