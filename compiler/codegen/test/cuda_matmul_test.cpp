// Kernels of the template gpu_matmul as the assembler takes them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "compiler/codegen/cuda/assembler_log.h"
#include "compiler/codegen/cuda/cuda.h"
#include "compiler/codegen/test/cuda_kernels.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/unroll.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

using ::testing::HasSubstr;

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

// Products of groups of warps: the assembler lets them go on side by side, and spills nothing.
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
      EXPECT_EQ(object.serialized, "");
      EXPECT_EQ(object.resources.spill_bytes, 0);
      EXPECT_THROW(cuda_source(f, kernels::target_by_name("sm_100")), Error);
    }
}

// Nor are they where their tiles come as boxes.
TEST(CudaMatmul, ProductsOfBoxesAreNotSerialized) {
  NIMBLE_NEEDS_NVRTC();
  const kernels::TargetInfo target = kernels::target_by_name("sm_90a");
  const kernels::Template& t = *kernels::find_template("gpu_matmul");
  struct Schedule {
    int64_t rows, columns, tile_columns, k_step, k_split, stages;
  };
  // Of 770 columns the rhs is copied otherwise.
  for (const auto& [n, maps] : {std::pair("3072", 2), std::pair("770", 1)})
    for (const Schedule& s :
         {Schedule{64, 64, 64, 64, 1, 4}, {128, 128, 128, 64, 1, 4}, {64, 64, 32, 64, 2, 3}}) {
      const kernels::Config c = {{"unit", "wgmma-tma"},
                                 {"block_rows", s.rows},
                                 {"block_columns", s.columns},
                                 {"tile_rows", int64_t{64}},
                                 {"tile_columns", s.tile_columns},
                                 {"k_step", s.k_step},
                                 {"k_split", s.k_split},
                                 {"stages", s.stages}};
      const kernels::Workload w = product("bf16", "768", n);
      SCOPED_TRACE(w.key + " " + kernels::to_json(c));
      ASSERT_TRUE(t.valid(w, c, target));
      const kir::Function f = kir::unroll(t.lower(w, c, target, "kernel").functions.at(0));
      EXPECT_EQ(f.maps.size(), static_cast<size_t>(maps));
      const std::string source = cuda_source(f, target);
      for (const char* part :
           {"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
            "mbarrier.init.shared::cta.b64", "mbarrier.arrive.expect_tx.shared::cta.b64",
            "mbarrier.try_wait.parity.shared::cta.b64", "const __grid_constant__ tensor_map"})
        EXPECT_THAT(source, HasSubstr(part));
      const CudaObject object = compile_cuda({&f, 1}, target)[0];
      EXPECT_EQ(object.serialized, "");
      EXPECT_EQ(object.resources.spill_bytes, 0);
      EXPECT_EQ(object.argument_alignment, 16u);
    }
}

// A thread has 255 registers, and the sums of two products of 256 columns are 256: they cannot go
// on side by side, whatever the assembler.
TEST(CudaMatmul, ProductsWithoutRegistersAreSerialized) {
  NIMBLE_NEEDS_NVRTC();
  using namespace kir::build;  // NOLINT
  using kir::Dim;
  constexpr int kDepth = 16, kColumns = 256, kLanes = 8, kSums = 2 * kColumns / 2;
  constexpr int kThreads = kir::kGroupThreads;
  const Dim thread = Dim::symbol("thread"), z = Dim::symbol("z");
  kir::testing::KernelBuilder k("kernel");
  k.launch(kThreads);
  const int lhs = kir::kGroupRows * kDepth, rhs = 2 * kColumns * kDepth;
  const kir::BufferRef a = testing::tensor(k, "a", DType::kBF16, lhs, false),
                       b = testing::tensor(k, "b", DType::kBF16, rhs, false),
                       y = testing::tensor(k, "y", DType::kF32, kThreads * kSums, true);
  const kir::BufferRef as = k.shared("as", DType::kBF16, lhs, 256),
                       bs = k.shared("bs", DType::kBF16, rhs, 256);
  const kir::BufferRef sums = k.registers("sums", DType::kF32, kSums);
  std::vector<kir::StmtRef> body;
  const auto copy_all = [&](const kir::BufferRef& to, const kir::BufferRef& from, int elements) {
    for (int at = 0; at < elements; at += kThreads * kLanes)
      body.push_back(async_copy(to, thread * kLanes + at, from, thread * kLanes + at, kLanes));
  };
  copy_all(as, a, lhs);
  copy_all(bs, b, rhs);
  body.push_back(async_commit());
  body.push_back(async_wait(0));
  body.push_back(proxy_fence());
  body.push_back(barrier(kir::Together::kBlock));
  body.push_back(
      loop(kir::LoopKind::kUnroll, "z", 0, kSums, set_reg(sums, z, number(DType::kF32, 0))));
  body.push_back(group_fence());
  for (int i = 0; i < 2; ++i)
    body.push_back(group_dot(kir::GroupFragment::kBf16Group, kColumns, sums, i * kSums / 2,
                             {as, 0, true, kDepth, 0},
                             {bs, i * kColumns * kDepth, true, kDepth, 0}));
  body.push_back(group_commit());
  body.push_back(group_wait(0));
  body.push_back(
      loop(kir::LoopKind::kUnroll, "z", 0, kSums, store(y, z * kThreads + thread, reg(sums, z))));
  const kir::Function f = kir::unroll(k.body(std::move(body)));
  const CudaObject object = compile_cuda({&f, 1}, testing::gpu_target())[0];
  EXPECT_THAT(object.serialized, HasSubstr("wgmma"));
  EXPECT_FALSE(object.bytes.empty()) << "it is right";
}

// The kernel without what stands before it, of a product in groups' tiles of 64 x 64.
std::string group_source(const std::string& type, bool transpose_a, bool transpose_b) {
  const kernels::TargetInfo target = testing::gpu_target();
  const std::string text = fmt::format(
      "fn @f(%a: Tensor[({}), {}], %b: Tensor[({}), {}]) {{ let %y = matmul(%a, %b) {{out = {}, "
      "transpose_a = {}, transpose_b = {}}}; %y }}",
      transpose_a ? "768, m" : "m, 768", type, transpose_b ? "3072, 768" : "768, 3072", type,
      type == "i8" ? "i32" : "f32", transpose_a, transpose_b);
  const kernels::Workload w =
      kernels::make_workload(*ir::infer_types(ir::parse_module(text)).functions.at(0).second);
  const kernels::Config c = {
      {"unit", "wgmma"},          {"block_rows", int64_t{64}},   {"block_columns", int64_t{64}},
      {"tile_rows", int64_t{64}}, {"tile_columns", int64_t{64}}, {"k_step", int64_t{64}},
      {"k_split", int64_t{1}},    {"stages", int64_t{4}}};
  const kernels::Template& t = *kernels::find_template("gpu_matmul");
  EXPECT_TRUE(t.valid(w, c, target)) << w.key;
  return cuda_source(kir::unroll(t.lower(w, c, target, "kernel").functions.at(0)), target);
}

// What the emulator believes as the printer does, as the PTX ISA has it: whether each factor lies
// across k, behind two signs, behind whether the sum is added to (always); the descriptor's address
// in units of 16 bytes, the distance of slabs (1 along k, 64 lines of 128 bytes across it), that of
// eight lines, and the code of the swizzle, whose pattern shared memory is aligned to.
TEST(CudaMatmul, ProductsOfGroupsAsTheInstructionSetHasThem) {
  const std::string along = "0x4000004000010000ull | (u64)((shared_address(",
                    across = "0x4000004002000000ull | (u64)((shared_address(";
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      // Rows of the lhs lie along k, and those of the rhs if it is transposed.
      const bool lhs_across = transpose_a, rhs_across = !transpose_b;
      const std::string text = group_source("bf16", transpose_a, transpose_b);
      EXPECT_THAT(text, HasSubstr("extern __shared__ __align__(1024) unsigned char"));
      EXPECT_THAT(text, HasSubstr("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1,"));
      EXPECT_THAT(text, HasSubstr(fmt::format("%30, %31}}, %32, %33, 1, 1, 1, {}, {};\"\n",
                                              lhs_across ? 1 : 0, rhs_across ? 1 : 0)));
      EXPECT_EQ(text.find(along) != text.npos, !lhs_across || !rhs_across) << text;
      EXPECT_EQ(text.find(across) != text.npos, lhs_across || rhs_across) << text;
      EXPECT_THAT(text, HasSubstr(") & 0x3ffffu) >> 4)"));
    }
  EXPECT_THAT(group_source("f16", false, false), HasSubstr("m64n64k16.f32.f16.f16 {"));
  // Bytes lie along k, have no signs to say, and lines of 64 of them.
  const std::string bytes = group_source("i8", false, true);
  EXPECT_THAT(bytes, HasSubstr("m64n64k32.s32.s8.s8 {"));
  EXPECT_THAT(bytes, HasSubstr("%30, %31}, %32, %33, 1;\"\n"));
  EXPECT_THAT(bytes, HasSubstr("0x8000002000010000ull | (u64)((shared_address("));
  EXPECT_THAT(bytes, HasSubstr("extern __shared__ __align__(512) unsigned char"));
}

// A step's copies have come, and are shown to the unit that multiplies; the batch before the latest
// is done; then all meet, and the next stage is filled and this one multiplied.
TEST(CudaMatmul, ProductsOfGroupsHaveTheirOrder) {
  const std::string text = group_source("bf16", false, false);
  size_t at = text.find("extern \"C\"");
  ASSERT_NE(at, text.npos);
  const std::string kernel = text.substr(at);
  at = 0;
  for (const char* next :
       {"wgmma.fence.sync.aligned;\" : \"+f\"(", "for (", "wait_async<1>();",
        "\"fence.proxy.async.shared::cta;\" : : : \"memory\"",
        "\"wgmma.wait_group.sync.aligned 1;\" :  : : \"memory\"", "__syncthreads();",
        "copy_async<16>(", "commit_async();", "wgmma.fence.sync.aligned;\" : \"+f\"(",
        "wgmma.mma_async", "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;\" : \"+f\"(", "__syncthreads();"}) {
    at = kernel.find(next, at);
    ASSERT_NE(at, kernel.npos) << next << " is not where it should be\n" << kernel;
    ++at;
  }
  for (const char* once : {"wait_async<", "fence.proxy.async", "wgmma.wait_group.sync.aligned 1",
                           "wgmma.wait_group.sync.aligned 0", "wgmma.commit_group"})
    EXPECT_EQ(kernel.find(once), kernel.rfind(once)) << once << " twice\n" << kernel;
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
  const std::string wait =
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 88 by compiler to allow "
      "use of registers defined by GMMA in function 'k'";
  EXPECT_EQ(serialized_products(wait + "\n" + others), wait);
}

}  // namespace
}  // namespace nimble::codegen
