// Our declarations of cuDNN's interface against the header that is installed.
#include <gtest/gtest.h>

#include "vm/library/cudnn_binding.h"

#if __has_include(<cudnn_graph.h>)
// Version 9 has the propagation of NaN and calls it deprecated.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cudnn_graph.h>

#include "vm/library/test/same_function.h"

namespace nimble::rt::cudnn {
namespace {

#define NIMBLE_CUDNN_COMPARE(result, name, parameters)                    \
  static_assert(same_function(static_cast<result(*) parameters>(nullptr), \
                              static_cast<decltype(&::name)>(nullptr)),   \
                #name);
NIMBLE_CUDNN_FUNCTIONS(NIMBLE_CUDNN_COMPARE)
#undef NIMBLE_CUDNN_COMPARE

TEST(CudnnDeclarations, AgreeWithTheHeader) {
  static_assert(CUDNN_MAJOR == 9);
  EXPECT_EQ(c::kSuccess, CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(c::kNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(c::kHostAllocation, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
  EXPECT_EQ(c::kDeviceAllocation, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  const std::pair<int, int> pairs[] = {
    {c::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
    {c::kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
    {c::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR},
    {c::kConfiguration, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR},
    {c::kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR},
    {c::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR},
    {c::kConvolutionForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR},
    {c::kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR},
    {c::kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
    {c::kPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR},
    {c::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR},
    {c::kHandleType, CUDNN_TYPE_HANDLE},
    {c::kDataType, CUDNN_TYPE_DATA_TYPE},
    {c::kBoolean, CUDNN_TYPE_BOOLEAN},
    {c::kInt64, CUDNN_TYPE_INT64},
    {c::kFloat, CUDNN_TYPE_FLOAT},
    {c::kPointer, CUDNN_TYPE_VOID_PTR},
    {c::kConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE},
    {c::kHeuristicMode, CUDNN_TYPE_HEUR_MODE},
    {c::kNanPropagation, CUDNN_TYPE_NAN_PROPOGATION},
    {c::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE},
    {c::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE},
    {c::kDescriptorType, CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {c::kPointwiseModeOf, CUDNN_ATTR_POINTWISE_MODE},
    {c::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC},
    {c::kPointwiseNans, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION},
    {c::kConvolutionPrecision, CUDNN_ATTR_CONVOLUTION_COMP_TYPE},
    {c::kConvolutionModeOf, CUDNN_ATTR_CONVOLUTION_CONV_MODE},
    {c::kDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS},
    {c::kStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES},
    {c::kPaddingAfter, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS},
    {c::kPaddingBefore, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS},
    {c::kSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS},
    {c::kHeuristicModeOf, CUDNN_ATTR_ENGINEHEUR_MODE},
    {c::kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH},
    {c::kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS},
    {c::kConfigurationEngine, CUDNN_ATTR_ENGINECFG_ENGINE},
    {c::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE},
    {c::kPlanConfiguration, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG},
    {c::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE},
    {c::kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA},
    {c::kForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {c::kForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
    {c::kForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
    {c::kForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X},
    {c::kForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {c::kPointwiseDescriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR},
    {c::kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
    {c::kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
    {c::kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
    {c::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE},
    {c::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS},
    {c::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT},
    {c::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE},
    {c::kTensorDims, CUDNN_ATTR_TENSOR_DIMENSIONS},
    {c::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES},
    {c::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID},
    {c::kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL},
    {c::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS},
    {c::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS},
    {c::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE},
    {c::kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE},
    {c::kTensorByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE},
    {c::kF16, CUDNN_DATA_HALF},
    {c::kBF16, CUDNN_DATA_BFLOAT16},
#if CUDNN_MINOR >= 13
    {c::kAttentionForward, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR},
    {c::kAttentionQ, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC},
    {c::kAttentionK, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC},
    {c::kAttentionV, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC},
    {c::kAttentionY, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC},
    {c::kAttentionScale, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC},
#endif
    {c::kF32, CUDNN_DATA_FLOAT},
    {c::kCrossCorrelation, CUDNN_CROSS_CORRELATION},
    {c::kAdd, CUDNN_POINTWISE_ADD},
    {c::kRelu, CUDNN_POINTWISE_RELU_FWD},
    {c::kPropagate, CUDNN_PROPAGATE_NAN},
    {c::kByRules, CUDNN_HEUR_MODE_A},
    {c::kFallback, CUDNN_HEUR_MODE_FALLBACK},
    {c::kTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
    {c::kDownConverts, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
    {c::kReducedSums, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
    {c::kFourier, CUDNN_NUMERICAL_NOTE_FFT},
    {c::kNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
    {c::kWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD}
  };
  for (size_t i = 0; i < std::size(pairs); ++i) EXPECT_EQ(pairs[i].first, pairs[i].second) << i;
}

}  // namespace
}  // namespace nimble::rt::cudnn
#else
// Of the same name, so that what has not been compared shows.
TEST(CudnnDeclarations, AgreeWithTheHeader) {
  GTEST_SKIP() << "no cudnn_graph.h is installed: see NIMBLE_CUDA_INCLUDE";
}
#endif
