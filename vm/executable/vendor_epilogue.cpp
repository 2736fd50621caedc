#include "vm/executable/vendor_epilogue.h"

#include <fmt/format.h>

#include <cmath>

namespace nimble::exec {

std::optional<VendorEpilogue> epilogue_of(const VendorCall& call, std::string* why) {
  using Activation = VendorEpilogue::Activation;
  const auto refuse = [&](std::string reason) {
    *why = std::move(reason);
    return std::nullopt;
  };
  VendorEpilogue out;
  for (const VendorStep& s : call.then) {
    if (out.activation != Activation::kNone)
      return refuse(
          fmt::format("the vendor's routine has no {} behind an activation", name_of(s.op)));
    switch (s.op) {
      case VendorOp::kLinear:
        // By a factor of 0 the library would not look at what is multiplied.
        if (s.beta != 0 || s.alpha == 0 || !out.sums.empty())
          return refuse(
              "the vendor's routine has factors ahead of sums alone, and no sum with a "
              "number");
        out.alpha *= s.alpha;
        // Nor where several together are 0, and what is too large for f32 is not what they give one
        // after the other.
        if (!std::isfinite(out.alpha) || out.alpha == 0)
          return refuse("the vendor's routine has one factor, and these together are beyond f32");
        break;
      case VendorOp::kAdd:
        if (out.sums.size() == 2) return refuse("the vendor's routine adds two tensors at most");
        out.sums.push_back(s.tensor);
        break;
      case VendorOp::kRelu:
        out.activation = Activation::kRelu;
        break;
      case VendorOp::kGeluTanh:
        out.activation = Activation::kGeluTanh;
        break;
      case VendorOp::kGelu:
        return refuse("the vendor's gelu is the one by tanh, this is the one by erf");
      default:
        return refuse(fmt::format("the vendor's routine has no {} behind it", name_of(s.op)));
    }
  }
  return out;
}

std::string fault_of_gpu_arguments(const VendorCall& call, const VendorEpilogue& epilogue,
                                   const std::vector<const KernelArgument*>& tensors) {
  std::vector<uint32_t> read = {call.x, call.w};
  read.insert(read.end(), epilogue.sums.begin(), epilogue.sums.end());
  if (call.attention) read.push_back(call.attention->v);
  for (const uint32_t i : read)
    if (i >= tensors.size() || tensors[i]->access != Access::kIn)
      return "it reads what is no input";
  if (call.y >= tensors.size() || tensors[call.y]->access != Access::kOut)
    return "it writes what is no output";
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i]->access != Access::kIn && i != call.y) return "it leaves a result unwritten";
  if (call.attention && tensors[call.attention->v]->dtype != tensors[call.x]->dtype)
    return "queries and values are of different types";
  for (const uint32_t i : epilogue.sums)
    if (tensors[i]->dtype != tensors[call.y]->dtype)
      return fmt::format("what is added is {}, the result {}", name_of(tensors[i]->dtype),
                         name_of(tensors[call.y]->dtype));
  return {};
}

std::string fault_of_gpu_types(DType x, DType w, DType y) {
  const bool f32 = x == DType::kF32 && w == DType::kF32 && y == DType::kF32;
  const bool bf16 =
      x == DType::kBF16 && w == DType::kBF16 && (y == DType::kF32 || y == DType::kBF16);
  if (f32 || bf16) return {};
  return fmt::format("it multiplies no {} and {} to {}", name_of(x), name_of(w), name_of(y));
}

std::string fault_of_gpu_attention(DType x, DType w, DType y) {
  if (x == w && x == y && (x == DType::kF16 || x == DType::kBF16)) return {};
  return fmt::format("it attends in f16 and bf16, not from {} to {} and {}", name_of(x), name_of(w),
                     name_of(y));
}

std::string fault_of_gpu_convolution(const VendorEpilogue& epilogue, DType x, DType w, DType y) {
  if (x != DType::kF32 || w != DType::kF32 || y != DType::kF32)
    return fmt::format("it convolves no {} with {} to {}", name_of(x), name_of(w), name_of(y));
  if (epilogue.alpha != 1) return "it has no factor behind a convolution";
  if (epilogue.activation == VendorEpilogue::Activation::kGeluTanh)
    return "it has no gelu behind a convolution";
  return {};
}

}  // namespace nimble::exec
