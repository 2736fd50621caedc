// The template gpu_conv2d in the emulator.
#include "compiler/kernels/test/conv2d_cases.h"
#include "compiler/kernels/test/gpu_harness.h"

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
  const TargetInfo gpu = target_by_name("sm_90a");
  const Workload w = workload_of(convolutions_of_windows()[0].text);
  const Template& t = *find_template("gpu_conv2d");
  const Config c = t.default_config(w, gpu);
  ASSERT_TRUE(t.valid(w, c, gpu));
  EXPECT_NE(template_for(w, test_target(512, 32)), &t);
  const std::pair<const char*, int64_t> bad[] = {
      {"filters", 0}, {"filters", 100}, {"positions", 0}, {"threads", 31}, {"threads", 2048}};
  for (const auto& knob : bad) {
    Config other = c;
    other[knob.first] = knob.second;
    EXPECT_FALSE(t.valid(w, other, gpu)) << to_json(other);
  }
}

}  // namespace
}  // namespace nimble::kernels::testing
