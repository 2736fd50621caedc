// How the driver's tests compile for GPUs.
#pragma once

#include <initializer_list>

#include "compiler/driver/compile.h"
#include "compiler/kernels/target.h"
#include "vm/base/device_number.h"

namespace nimble::driver::testing {

// Kernels run on GPUs of these architectures, and the IR is verified after each pass.
inline CompileOptions cuda_options(std::initializer_list<const char*> gpus) {
  CompileOptions options;
  options.target = kernels::target_by_name("native");
  for (const char* level : gpus) options.gpus.push_back(kernels::target_by_name(level));
  options.device = kCudaDevice;
  options.pipeline.verify = true;
  options.compile_threads = 1;
  return options;
}

}  // namespace nimble::driver::testing
