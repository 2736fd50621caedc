// Our declarations of oneDNN's interface against the header that is installed, of either version.
#include <gtest/gtest.h>

#include "vm/library/onednn_functions.h"

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>

namespace nimble::rt::onednn {
namespace {

using exec::VendorOp;

TEST(OneDnnDeclarations, AgreeWithTheHeader) {
  static_assert(c::kMaxDims == DNNL_MAX_NDIMS);
  static_assert(sizeof(c::Argument) == sizeof(dnnl_exec_arg_t));
  static_assert(offsetof(c::Argument, memory) == offsetof(dnnl_exec_arg_t, memory));
  static_assert(sizeof(c::Version) == sizeof(dnnl_version_t));
  static_assert(offsetof(c::Version, cpu_runtime) == offsetof(dnnl_version_t, cpu_runtime));
  EXPECT_EQ(c::kSuccess, dnnl_success);
  EXPECT_EQ(c::kSequential, DNNL_RUNTIME_SEQ);
  EXPECT_EQ(c::kOpenMp, DNNL_RUNTIME_OMP);
  EXPECT_EQ(c::kCpu, dnnl_cpu);
  EXPECT_EQ(c::kStreamDefault, static_cast<unsigned>(dnnl_stream_default_flags));
  EXPECT_EQ(c::kUserScratchpad, dnnl_scratchpad_mode_user);
  EXPECT_EQ(c::kAny, dnnl_format_tag_any);
  EXPECT_EQ(c::kForwardInference, dnnl_forward_inference);
  EXPECT_EQ(c::kAutoConvolution, dnnl_convolution_auto);
  EXPECT_EQ(c::kQueryWeights, dnnl_query_weights_md);
  EXPECT_EQ(c::kQueryScratchpad, dnnl_query_scratchpad_md);
  EXPECT_EQ(c::kArgX, DNNL_ARG_SRC);
  EXPECT_EQ(c::kArgX, DNNL_ARG_FROM);
  EXPECT_EQ(c::kArgY, DNNL_ARG_DST);
  EXPECT_EQ(c::kArgY, DNNL_ARG_TO);
  EXPECT_EQ(c::kArgW, DNNL_ARG_WEIGHTS);
  EXPECT_EQ(c::kArgBias, DNNL_ARG_BIAS);
  EXPECT_EQ(c::kArgScratchpad, DNNL_ARG_SCRATCHPAD);
  EXPECT_EQ(c::kArgOperand, DNNL_ARG_SRC_1);
  EXPECT_EQ(c::kAdd, dnnl_binary_add);
  EXPECT_EQ(c::kSub, dnnl_binary_sub);
  EXPECT_EQ(c::kMul, dnnl_binary_mul);
  EXPECT_EQ(c::data_type(DType::kF16), dnnl_f16);
  EXPECT_EQ(c::data_type(DType::kBF16), dnnl_bf16);
  EXPECT_EQ(c::data_type(DType::kF32), dnnl_f32);
  EXPECT_EQ(c::data_type(DType::kI32), dnnl_s32);
  EXPECT_EQ(c::data_type(DType::kI8), dnnl_s8);
  EXPECT_EQ(c::data_type(DType::kU8), dnnl_u8);
  EXPECT_EQ(c::data_type(DType::kF64), 0);
  const auto ours = DNNL_VERSION_MAJOR == 3 ? functions_of_version3() : functions_of_version2();
  EXPECT_EQ(ours->major(), DNNL_VERSION_MAJOR);
  for (const int with : {dnnl_cpu_isa_avx2_vnni, dnnl_cpu_isa_avx512_core_vnni,
                         dnnl_cpu_isa_avx512_core_bf16, dnnl_cpu_isa_avx512_core_amx})
    EXPECT_NE(ours->vnni() & with, 0) << with;
  for (const int without : {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core})
    EXPECT_EQ(ours->vnni() & without, 0) << without;
  for (const int at : {0, 1, 7})
    EXPECT_EQ((at + 1) * ours->post_op_argument() | c::kArgOperand,
              DNNL_ARG_ATTR_MULTIPLE_POST_OP(at) | DNNL_ARG_SRC_1);
  EXPECT_EQ(ours->algorithm(VendorOp::kRelu), dnnl_eltwise_relu);
  EXPECT_EQ(ours->algorithm(VendorOp::kLeakyRelu), dnnl_eltwise_relu);
  EXPECT_EQ(ours->algorithm(VendorOp::kTanh), dnnl_eltwise_tanh);
  EXPECT_EQ(ours->algorithm(VendorOp::kSigmoid), dnnl_eltwise_logistic);
  EXPECT_EQ(ours->algorithm(VendorOp::kGelu), dnnl_eltwise_gelu_erf);
  EXPECT_EQ(ours->algorithm(VendorOp::kGeluTanh), dnnl_eltwise_gelu_tanh);
  EXPECT_EQ(ours->algorithm(VendorOp::kSwish), dnnl_eltwise_swish);
  EXPECT_EQ(ours->algorithm(VendorOp::kClip), dnnl_eltwise_clip);
  EXPECT_EQ(ours->algorithm(VendorOp::kLinear), dnnl_eltwise_linear);
}

#if DNNL_VERSION_MAJOR == 2
// Structures that the library fills in where we have room for them.
static_assert(sizeof(dnnl_memory_desc_t) <= kMemoryDescBytes);
static_assert(sizeof(dnnl_matmul_desc_t) <= kOperationDescBytes);
static_assert(sizeof(dnnl_convolution_desc_t) <= kOperationDescBytes);
#endif

}  // namespace
}  // namespace nimble::rt::onednn
#endif
