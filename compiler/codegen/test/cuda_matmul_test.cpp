// Kernels of the template gpu_matmul as the assembler takes them.
#include <gtest/gtest.h>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/unroll.h"

namespace nimble::codegen {
namespace {

// A product in elements of `type` with bias, activation and residual.
kernels::Workload product(const std::string& type, const std::string& k, const std::string& n) {
  const std::string text = "fn @f(%a: Tensor[(m, " + k + "), " + type + "], %b: Tensor[(" + k +
                           ", " + n + "), " + type + "], %c: Tensor[(" + n +
                           "), f32], %r: Tensor[(m, " + n + "), f32]) { let %y = matmul(%a, %b)" +
                           (type == "f32" ? "" : " {out = f32}") +
                           "; let %s = add(%y, %c); let %g = gelu(%s); let %t = add(%g, %r); %t }";
  return kernels::make_workload(*ir::infer_types(ir::parse_module(text)).functions.at(0).second);
}

TEST(CudaMatmul, DefaultSchedulesSpillNothing) {
  if (const std::string why = why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  const kernels::TargetInfo target = kernels::target_by_name("sm_90a");
  const kernels::Template& t = *kernels::find_template("gpu_matmul");
  for (const char* type : {"f32", "bf16", "f16"})
    for (const auto& [k, n] :
         {std::pair("768", "3072"), std::pair("3072", "768"), std::pair("33", "50")}) {
      const kernels::Workload w = product(type, k, n);
      const kernels::Config c = t.default_config(w, target);
      SCOPED_TRACE(std::string(type) + " " + kernels::to_json(c));
      const kir::Function f = kir::unroll(t.lower(w, c, target, "kernel").functions.at(0));
      const CudaObject object = compile_cuda({&f, 1}, target)[0];
      EXPECT_FALSE(object.bytes.empty());
      EXPECT_EQ(object.resources.spill_bytes, 0);
      EXPECT_LE(object.resources.registers, 255);
    }
}

}  // namespace
}  // namespace nimble::codegen
