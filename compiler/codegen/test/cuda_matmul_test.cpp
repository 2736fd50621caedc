// Kernels of the template gpu_matmul as the assembler takes them.
#include <gtest/gtest.h>

#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/unroll.h"
#include "vm/base/error.h"

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

// Products of groups of warps: the assembler lets them go on side by side (compile_cuda refuses
// what it serializes), and spills nothing.
TEST(CudaMatmul, ProductsOfGroupsAreNotSerialized) {
  if (const std::string why = why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  const kernels::TargetInfo target = kernels::target_by_name("sm_90a");
  const kernels::Template& t = *kernels::find_template("gpu_matmul");
  struct Schedule {
    int64_t rows, columns, tile_columns, k_step, k_split, stages;
  };
  for (const char* type : {"bf16", "f16"})
    for (const Schedule& s : {Schedule{64, 64, 64, 64, 1, 4},
                              {128, 128, 128, 64, 1, 4},
                              {64, 128, 128, 128, 1, 3},
                              {64, 64, 32, 64, 2, 3},
                              {64, 16, 16, 64, 4, 4}}) {
      const kernels::Config c = {{"unit", "wgmma"},
                                 {"block_rows", s.rows},
                                 {"block_columns", s.columns},
                                 {"tile_rows", int64_t{64}},
                                 {"tile_columns", s.tile_columns},
                                 {"k_step", s.k_step},
                                 {"k_split", s.k_split},
                                 {"stages", s.stages}};
      const kernels::Workload w = product(type, "768", "3072");
      SCOPED_TRACE(std::string(type) + " " + kernels::to_json(c));
      ASSERT_TRUE(t.valid(w, c, target));
      const kir::Function f = kir::unroll(t.lower(w, c, target, "kernel").functions.at(0));
      EXPECT_NE(cuda_source(f, target).find("wgmma.mma_async.sync.aligned.m64n"),
                std::string::npos);
      const CudaObject object = compile_cuda({&f, 1}, target)[0];
      EXPECT_EQ(object.resources.spill_bytes, 0);
      EXPECT_THROW(cuda_source(f, kernels::target_by_name("sm_100")), Error);
    }
}

// A log of ptxas 13.0.
TEST(CudaMatmul, SerializedProductsAreSeen) {
  const std::string line =
      "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to non wgmma instructions defining accumulator registers of a wgmma between "
      "start and end of the pipeline stage in the function 'k'";
  const std::string others =
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Used 58 registers, used 1 barriers\n";
  EXPECT_EQ(serialized_products(line + "\n" + others), line);
  EXPECT_EQ(serialized_products(others + line), line);
  EXPECT_EQ(serialized_products(others), "");
}

}  // namespace
}  // namespace nimble::codegen
