// Version 3 of oneDNN's C interface: descriptors are handles, an operation's is made in one call.
#include <dlfcn.h>

#include <algorithm>

#include "vm/base/error.h"
#include "vm/library/onednn_functions.h"

namespace nimble::rt::onednn {
namespace {

class Version3 final : public Functions {
 public:
  int major() const override { return 3; }
  int least_minor() const override { return 0; }
  const char* package() const override { return "a build of oneDNN 3 with OpenMP"; }

  int algorithm(exec::VendorOp op) const override {
    using Op = exec::VendorOp;
    switch (op) {
      case Op::kRelu:
      case Op::kLeakyRelu:
        return 0x20;
      case Op::kTanh:
        return 0x21;
      case Op::kLinear:
        return 0x26;
      case Op::kSigmoid:
        return 0x29;
      case Op::kGeluTanh:
        return 0x2b;
      case Op::kSwish:
        return 0x2c;
      case Op::kClip:
        return 0x2e;
      case Op::kGelu:
        return 0x31;
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
        break;
    }
    NIMBLE_UNREACHABLE("{}", exec::name_of(op));
  }
  int post_op_argument() const override { return 32768; }
  int vnni() const override { return 0x48; }

  c::Status make_desc(void** out, const Desc& desc, bool any) const override {
    c::Dims dims = {}, strides = {};
    std::copy(desc.dims.begin(), desc.dims.end(), dims);
    std::copy(desc.strides.begin(), desc.strides.end(), strides);
    const int rank = static_cast<int>(desc.dims.size()), type = c::data_type(desc.dtype);
    return any ? create_with_tag_(out, rank, dims, type, c::kAny)
               : create_with_strides_(out, rank, dims, type, strides);
  }
  void drop_desc(void* desc) const override { destroy_(desc); }

  c::Status append_elementwise(c::PostOps* to, int algorithm, float alpha,
                               float beta) const override {
    return append_eltwise_(to, algorithm, alpha, beta);
  }

  c::Status make_product(c::PrimitiveDesc** out, c::Engine* engine, const void* x, const void* w,
                         const void* bias, const void* y,
                         const c::Attributes* attributes) const override {
    return create_matmul_(out, engine, x, w, bias, y, attributes);
  }

  c::Status make_convolution(c::PrimitiveDesc** out, c::Engine* engine,
                             const Problem::Windows& windows, const void* x, const void* w,
                             const void* bias, const void* y,
                             const c::Attributes* attributes) const override {
    return create_convolution_(out, engine, c::kForwardInference, c::kAutoConvolution, x, w, bias,
                               y, windows.strides.data(), windows.dilations.data(),
                               windows.before.data(), windows.after.data(), attributes);
  }

 protected:
  std::string look_up_own(void* handle) override {
    const auto find = [&](auto* to, const char* name) -> std::string {
      *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(::dlsym(handle, name));
      return *to ? "" : name;
    };
    for (const std::string& missing :
         {find(&create_with_tag_, "dnnl_memory_desc_create_with_tag"),
          find(&create_with_strides_, "dnnl_memory_desc_create_with_strides"),
          find(&destroy_, "dnnl_memory_desc_destroy"),
          find(&append_eltwise_, "dnnl_post_ops_append_eltwise"),
          find(&create_matmul_, "dnnl_matmul_primitive_desc_create"),
          find(&create_convolution_, "dnnl_convolution_forward_primitive_desc_create")})
      if (!missing.empty()) return missing;
    return {};
  }

 private:
  c::Status (*create_with_tag_)(void**, int, const int64_t*, int, int) = nullptr;
  c::Status (*create_with_strides_)(void**, int, const int64_t*, int, const int64_t*) = nullptr;
  c::Status (*destroy_)(void*) = nullptr;
  c::Status (*append_eltwise_)(c::PostOps*, int, float, float) = nullptr;
  c::Status (*create_matmul_)(c::PrimitiveDesc**, c::Engine*, const void*, const void*, const void*,
                              const void*, const c::Attributes*) = nullptr;
  c::Status (*create_convolution_)(c::PrimitiveDesc**, c::Engine*, int, int, const void*,
                                   const void*, const void*, const void*, const int64_t*,
                                   const int64_t*, const int64_t*, const int64_t*,
                                   const c::Attributes*) = nullptr;
};

}  // namespace

std::unique_ptr<Functions> functions_of_version3() {
  return std::make_unique<Version3>();
}

}  // namespace nimble::rt::onednn
