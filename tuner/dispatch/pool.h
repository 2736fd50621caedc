// The pool: the few configurations that a dispatch table may use, out of all that were evaluated.
//
// If every shape could have the best of the pool, the loss would be the sum over shapes of the
// least weighted regret in it: a k-median problem (facility location without opening costs), which
// is NP-hard. Greedy addition is within 1 - 1/e of the best saving (Nemhauser, Wolsey and Fisher,
// 1978); exchanging one member for one outsider while that helps removes what greed regrets later.
#pragma once

#include <cstddef>
#include <vector>

namespace nimble::tuner {

// [configuration][shape]: weighted regret, infinite where a configuration must not be used.
using CostMatrix = std::vector<std::vector<double>>;

// What is lost if every shape has the best of these; a shape that none of them can serve counts
// kUnserved.
inline constexpr double kUnserved = 1e6;
double pool_cost(const CostMatrix& cost, const std::vector<size_t>& pool);

// `size` configurations, or fewer where more save nothing, in increasing order. Ties go to the
// earlier configuration. `cost` has one row at least.
std::vector<size_t> choose_pool(const CostMatrix& cost, size_t size);

}  // namespace nimble::tuner
