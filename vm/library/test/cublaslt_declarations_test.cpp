// Our declarations of cuBLASLt's interface against the header that is installed.
#include <gtest/gtest.h>

#include "vm/library/cublaslt_binding.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include "vm/library/test/same_function.h"

namespace nimble::rt::cublaslt {
namespace {

static_assert(sizeof(c::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(c::Found) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(c::Found, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(c::Found, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

#define NIMBLE_CUBLASLT_COMPARE(result, name, parameters)                 \
  static_assert(same_function(static_cast<result(*) parameters>(nullptr), \
                              static_cast<decltype(&::name)>(nullptr)),   \
                #name);
NIMBLE_CUBLASLT_FUNCTIONS(NIMBLE_CUBLASLT_COMPARE)
#undef NIMBLE_CUBLASLT_COMPARE

TEST(CublasLtDeclarations, AgreeWithTheHeader) {
  EXPECT_EQ(c::kSuccess, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c::kAllocationFailed, CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(c::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(c::kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
  EXPECT_EQ(c::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(c::kComputeF32, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(c::kComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(c::kPlain, CUBLAS_OP_N);
  EXPECT_EQ(c::kTransposed, CUBLAS_OP_T);
  EXPECT_EQ(c::kBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(c::kBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(c::kTransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(c::kTransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(c::kEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(c::kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(c::kNothing, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(c::kRelu, CUBLASLT_EPILOGUE_RELU);
  EXPECT_EQ(c::kBias, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(c::kGelu, CUBLASLT_EPILOGUE_GELU);
  EXPECT_EQ(c::kRelu | c::kBias, CUBLASLT_EPILOGUE_RELU_BIAS);
  EXPECT_EQ(c::kGelu | c::kBias, CUBLASLT_EPILOGUE_GELU_BIAS);
  EXPECT_EQ(c::kMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(c::kReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(c::kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(c::kAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  EXPECT_EQ(c::kAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  EXPECT_EQ(c::kAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(c::kReduceInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(c::data_type(DType::kF32), CUDA_R_32F);
  EXPECT_EQ(c::data_type(DType::kBF16), CUDA_R_16BF);
  EXPECT_EQ(c::data_type(DType::kF64), -1);
}

}  // namespace
}  // namespace nimble::rt::cublaslt
#else
// Of the same name, so that what has not been compared shows.
TEST(CublasLtDeclarations, AgreeWithTheHeader) {
  GTEST_SKIP() << "no cublasLt.h is installed: see NIMBLE_CUDA_INCLUDE";
}
#endif
