// Vendors' routines as candidates in tests: relu(x w + b) of x f32 (m, kDepth), w in any layout and
// b f32 (kColumns).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tuner/measure/bench.h"
#include "vm/executable/vendor_call.h"

namespace nimble::tuner {

inline constexpr int64_t kDepth = 24, kColumns = 40;

// Three kernels, each an assembler's text by its number: of a call that says all of it, of one
// without the ReLU, and of one of other weights, for which nothing can be made ready.
std::vector<uint8_t> product_executable(exec::VendorCall call,
                                        const std::function<std::string(size_t kernel)>& text);

// A case of m rows whose entries are those kernels. The inputs of `c`, whose seed is set, fill x, w
// of `weights` elements and b; `place` finds an element of w.
void expect_product(Case& c, int64_t m, int64_t weights,
                    const std::function<int64_t(int64_t k, int64_t column)>& place);

// The first of the kernels is right, the second wrong, the third unavailable.
void expect_outcomes(Bench& bench, Case& c);

}  // namespace nimble::tuner
