// Kernels of templates as the assembler takes them.
#include <gtest/gtest.h>

#include <set>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/test/cuda_kernels.h"
#include "compiler/codegen/test/cuda_samples.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/test/gpu_levels.h"
#include "compiler/kernels/test/template_harness.h"
#include "compiler/kernels/unroll.h"

namespace nimble::codegen::testing {
namespace {

TEST(CudaTemplates, HaveSamples) {
  std::set<std::string> served;
  for (const CudaSample& s : cuda_samples()) {
    const kernels::Template* t =
        kernels::template_for(kernels::testing::workload_of(s.text), gpu_target());
    ASSERT_NE(t, nullptr) << s.text;
    EXPECT_EQ(t->name(), s.served_by) << s.text;
    served.insert(s.served_by);
  }
  for (const kernels::Template* t : kernels::all_templates())
    if (t->for_gpu()) {
      EXPECT_TRUE(served.contains(std::string(t->name()))) << t->name();
    }
}

// Other configurations: scripts/test-gpu-offline.
TEST(CudaTemplates, DefaultSchedulesSpillNothing) {
  NIMBLE_NEEDS_NVRTC();
  const kernels::TargetInfo target = gpu_target();
  for (const CudaSample& s : cuda_samples()) {
    SCOPED_TRACE(s.text);
    const kernels::Workload w = kernels::testing::workload_of(s.text);
    const kernels::Template* t = kernels::template_for(w, target);
    ASSERT_NE(t, nullptr);
    const kernels::Config c = t->default_config(w, target);
    const kir::Function f = kir::unroll(t->lower(w, c, target, "kernel").functions.at(0));
    const CudaObject object = compile_cuda({&f, 1}, target)[0];
    EXPECT_FALSE(object.bytes.empty());
    EXPECT_EQ(object.resources.spill_bytes, 0) << kernels::to_json(c);
  }
}

// What takes most of a lane's registers, on every architecture.
TEST(CudaTemplates, AttentionOf16BitsWithAMaskByRowSpillsNothing) {
  NIMBLE_NEEDS_NVRTC();
  for (const std::string& level : kernels::testing::gpu_machine_levels())
    for (const char* type : {"f16", "bf16"}) {
      SCOPED_TRACE(level + " " + type);
      const kernels::TargetInfo target = gpu_target(level);
      const kernels::Workload w = kernels::testing::workload_of(
          fmt::format("fn @f(%q: Tensor[(b, n, 768), {0}], %k: Tensor[(b, n, 768), {0}], "
                      "%v: Tensor[(b, n, 768), {0}], %m: Tensor[(1, 1, n, n), {0}]) {{ "
                      "let %y = attention(%q, %k, %v, %m) {{heads = 12, scale = 0.125}}; %y }}",
                      type));
      const kernels::Template* t = kernels::template_for(w, target);
      ASSERT_NE(t, nullptr);
      const kernels::Config c = t->default_config(w, target);
      const kir::Function f = kir::unroll(t->lower(w, c, target, "kernel").functions.at(0));
      EXPECT_EQ(compile_cuda({&f, 1}, target)[0].resources.spill_bytes, 0) << kernels::to_json(c);
    }
}

}  // namespace
}  // namespace nimble::codegen::testing
