// ONNX's tensors as tensors of the IR.
#pragma once

#include "compiler/frontend/onnx/external_data.h"
#include "compiler/frontend/onnx/model.h"
#include "compiler/ir/tensor.h"

namespace nimble::frontend::onnx {

// ONNX's element type; nimble::Error(kUnsupported) for strings, complex and sub-byte types.
DType dtype_of(int64_t type, const std::string& place);

// Views the model's file, or an external one, where the bytes there are aligned for the element
// type; copies otherwise. nimble::Error: kCorrupt, kUnsupported, and those of ExternalData.
ir::TensorRef to_tensor(const TensorData& t, const std::shared_ptr<const void>& owner,
                        ExternalData& external, const std::string& place);

}  // namespace nimble::frontend::onnx
