// Runs the cases of template_harness.h on GPU targets: in the emulator, which is slow, so fewer
// sizes and configurations.
#pragma once

#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {

// `most` of the sizes, spread over all.
inline void thin_out(Sizes& sizes, size_t most) {
  if (sizes.size() <= most) return;
  Sizes kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(sizes[i * sizes.size() / most]);
  sizes = std::move(kept);
}

inline void check_on_gpu(Case c, const std::string& target = "sm_90a") {
  const Mode kept = mode();
  mode() = Mode{interpret, {target_by_name(target)}, false};
  check(std::move(c));
  mode() = kept;
}

}  // namespace nimble::kernels::testing
