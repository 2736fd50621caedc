// Groups as models have them, for what looks at the machine code of GPUs' templates.
#pragma once

#include <string>
#include <vector>

namespace nimble::codegen::testing {

struct CudaSample {
  std::string served_by;  // the template
  std::string text;       // a function in text IR, of one group
};
// At least one for each template of a GPU.
std::vector<CudaSample> cuda_samples();

}  // namespace nimble::codegen::testing
