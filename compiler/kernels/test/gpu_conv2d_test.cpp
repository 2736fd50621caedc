// The template gpu_conv2d in the emulator.
#include "compiler/kernels/test/conv2d_cases.h"
#include "compiler/kernels/test/gpu_harness.h"
#include "compiler/kernels/test/knob_cases.h"

namespace nimble::kernels::testing {
namespace {

TEST(GpuConv2d, WindowsStridesPaddingDilationGroups) {
  for (Case c : convolutions_of_windows()) {
    c.served_by = "gpu_conv2d";
    c.configurations = 2;
    check_on_gpu(std::move(c));
  }
}

TEST(GpuConv2d, TilesThatAThreadCannotHaveAreNotValid) {
  expect_refuses_on_gpu(
      "gpu_conv2d", workload_of(convolutions_of_windows()[0].text),
      {{"filters", 0}, {"filters", 100}, {"positions", 0}, {"threads", 31}, {"threads", 2048}});
}

}  // namespace
}  // namespace nimble::kernels::testing
