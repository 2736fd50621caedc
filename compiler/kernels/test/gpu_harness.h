// Runs the cases of template_harness.h on GPU targets: in the emulator, which is slow, so fewer
// sizes and configurations.
#pragma once

#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {

inline void check_on_gpu(Case c, const std::string& target = "sm_90a") {
  const ModeOfScope scope({interpret, {target_by_name(target)}, false, {}, {}});
  check_in_mode(std::move(c));
}

}  // namespace nimble::kernels::testing
