// Version 2 of oneDNN's C interface (Debian 12's 2.6): descriptors are structures of the caller's.
#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "vm/base/error.h"
#include "vm/library/onednn_functions.h"

namespace nimble::rt::onednn {
namespace {

struct alignas(16) MemoryDesc {
  unsigned char bytes[kMemoryDescBytes];
};
struct alignas(16) OperationDesc {
  unsigned char bytes[kOperationDescBytes];
};

class Version2 final : public Functions {
 public:
  int major() const override { return 2; }
  int least_minor() const override { return 6; }
  const char* package() const override { return "Debian package libdnnl2"; }

  int algorithm(exec::VendorOp op) const override {
    using Op = exec::VendorOp;
    switch (op) {
      case Op::kRelu:
      case Op::kLeakyRelu:
        return 0x1f;
      case Op::kTanh:
        return 0x2f;
      case Op::kGelu:
        return 0x30;
      case Op::kLinear:
        return 0x7f;
      case Op::kSigmoid:
        return 0xaf;
      case Op::kGeluTanh:
        return 0xcf;
      case Op::kSwish:
        return 0xdf;
      case Op::kClip:
        return 0xff;
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
        break;
    }
    NIMBLE_UNREACHABLE("{}", exec::name_of(op));
  }
  int post_op_argument() const override { return 16384; }
  int vnni() const override { return 0x440; }

  c::Status make_desc(void** out, const Desc& desc, bool any) const override {
    c::Dims dims = {}, strides = {};
    std::copy(desc.dims.begin(), desc.dims.end(), dims);
    std::copy(desc.strides.begin(), desc.strides.end(), strides);
    auto made = std::make_unique<MemoryDesc>();
    const int rank = static_cast<int>(desc.dims.size()), type = c::data_type(desc.dtype);
    const c::Status status = any ? init_by_tag_(made.get(), rank, dims, type, c::kAny)
                                 : init_by_strides_(made.get(), rank, dims, type, strides);
    *out = made.release();
    return status;
  }
  void drop_desc(void* desc) const override { delete static_cast<MemoryDesc*>(desc); }

  c::Status append_elementwise(c::PostOps* to, int algorithm, float alpha,
                               float beta) const override {
    return append_eltwise_(to, 1.0F, algorithm, alpha, beta);
  }

  c::Status make_product(c::PrimitiveDesc** out, c::Engine* engine, const void* x, const void* w,
                         const void* bias, const void* y,
                         const c::Attributes* attributes) const override {
    const auto desc = std::make_unique<OperationDesc>();
    const c::Status status = init_matmul_(desc.get(), x, w, bias, y);
    if (status != c::kSuccess) return status;
    return create_(out, desc.get(), attributes, engine, nullptr);
  }

  c::Status make_convolution(c::PrimitiveDesc** out, c::Engine* engine,
                             const Problem::Windows& windows, const void* x, const void* w,
                             const void* bias, const void* y,
                             const c::Attributes* attributes) const override {
    const auto desc = std::make_unique<OperationDesc>();
    const c::Status status =
        init_convolution_(desc.get(), c::kForwardInference, c::kAutoConvolution, x, w, bias, y,
                          windows.strides.data(), windows.dilations.data(), windows.before.data(),
                          windows.after.data());
    if (status != c::kSuccess) return status;
    return create_(out, desc.get(), attributes, engine, nullptr);
  }

 protected:
  std::string look_up_own(void* handle) override {
    const auto find = [&](auto* to, const char* name) -> std::string {
      *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(::dlsym(handle, name));
      return *to ? "" : name;
    };
    for (const std::string& missing :
         {find(&init_by_tag_, "dnnl_memory_desc_init_by_tag"),
          find(&init_by_strides_, "dnnl_memory_desc_init_by_strides"),
          find(&append_eltwise_, "dnnl_post_ops_append_eltwise"),
          find(&init_matmul_, "dnnl_matmul_desc_init"),
          find(&init_convolution_, "dnnl_dilated_convolution_forward_desc_init"),
          find(&create_, "dnnl_primitive_desc_create")})
      if (!missing.empty()) return missing;
    return {};
  }

 private:
  c::Status (*init_by_tag_)(MemoryDesc*, int, const int64_t*, int, int) = nullptr;
  c::Status (*init_by_strides_)(MemoryDesc*, int, const int64_t*, int, const int64_t*) = nullptr;
  c::Status (*append_eltwise_)(c::PostOps*, float, int, float, float) = nullptr;
  c::Status (*init_matmul_)(OperationDesc*, const void*, const void*, const void*,
                            const void*) = nullptr;
  c::Status (*init_convolution_)(OperationDesc*, int, int, const void*, const void*, const void*,
                                 const void*, const int64_t*, const int64_t*, const int64_t*,
                                 const int64_t*) = nullptr;
  c::Status (*create_)(c::PrimitiveDesc**, const OperationDesc*, const c::Attributes*, c::Engine*,
                       const c::PrimitiveDesc*) = nullptr;
};

}  // namespace

std::unique_ptr<Functions> functions_of_version2() {
  return std::make_unique<Version2>();
}

}  // namespace nimble::rt::onednn
