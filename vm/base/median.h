// The median: of an even number of values the mean of the two in the middle.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "vm/base/error.h"

namespace nimble {

// `values` must not be empty.
inline double median_of(std::vector<double> values) {
  NIMBLE_CHECK(!values.empty(), "median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace nimble
