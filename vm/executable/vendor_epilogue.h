// What may follow a product or a convolution in the same call of a GPU's library: cuBLASLt computes
//   y = activation(alpha x w + added + bias)
// with a row for all rows of y (the bias; of images a number for each channel) and a tensor as
// large as y (added), either of y's type; cuDNN the same without a factor. Compiler and runtime
// read a vendor's call the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vm/executable/contract.h"
#include "vm/executable/vendor_call.h"

namespace nimble::exec {

struct VendorEpilogue {
  enum class Activation : uint8_t { kNone, kRelu, kGeluTanh };
  float alpha = 1;
  // Tensors that are added, in order: two at most, whose extents tell what each is.
  std::vector<uint32_t> sums;
  Activation activation = Activation::kNone;
};

// Of the steps behind a product. Nothing, and in `why` the reason, where it has no such form.
std::optional<VendorEpilogue> epilogue_of(const VendorCall& call, std::string* why);

// Why the calls of a GPU's library do not fit these tensors of a contract; "" if they do.
std::string fault_of_gpu_arguments(const VendorCall& call, const VendorEpilogue& epilogue,
                                   const std::vector<const KernelArgument*>& tensors);

// Why a GPU's library does not multiply these element types; "" if it does. Sums are in f32.
std::string fault_of_gpu_types(DType x, DType w, DType y);
// The same of attention, whose queries and keys are of these types.
std::string fault_of_gpu_attention(DType x, DType w, DType y);
// The same of a convolution, and of what follows it.
std::string fault_of_gpu_convolution(const VendorEpilogue& epilogue, DType x, DType w, DType y);

}  // namespace nimble::exec
