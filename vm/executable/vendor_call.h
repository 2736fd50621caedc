// What a vendor's routine is to compute for a kernel, as data: the configuration of an
// implementation of kind kVendor, which the compiler writes and the runtime reads.
//
//   {"routine": "onednn.matmul",          the implementation's name
//    "library": "oneDNN 2.6.3 …",         that it was measured with: another one is not called
//    "x": 0, "w": 1, "y": 3,              tensors of the contract, counted from 0
//    "k": 768, "n": 3072,                 the weights as a matrix
//    "transpose_x": true,                 x is (…, k, m), w (…, n, k); none: (…, m, k), (…, k, n)
//    "transpose_w": true,
//    "tf32": true,                        factors of f32 may be rounded to TF32 (a GPU's product)
//    "panel": [48, 1],                    constant weights in panels of so many columns, rows in
//                                         such groups (compiler/ir/layout.h); none: row-major
//    "image": {"kernel": [3, 3], …},      a convolution's windows; none: a product
//    "attention": {"v": 2, "heads": 12, "scale": 0.125},   x the queries, w the keys, v the values
//    "then": [{"op": "add", "tensor": 2}, {"op": "gelu"}]}   what follows, on f32 values
//
// Nothing here is believed: sizes are compared with the tensors' before a primitive is made, and a
// call's tensors with those.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vm/base/dtype.h"

namespace nimble::exec {

struct KernelContract;

// An operator on the value so far.
enum class VendorOp : uint8_t {
#define NIMBLE_VENDOR_OP(name, ...) k##name,
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
};
inline constexpr int kVendorOps = 0
#define NIMBLE_VENDOR_OP(name, ...) +1
#include "vm/executable/VendorOps.def"
#undef NIMBLE_VENDOR_OP
    ;
// As the configuration spells it.
const char* name_of(VendorOp op);
// Whether it has a tensor as its second operand.
bool has_operand(VendorOp op);

struct VendorStep {
  VendorOp op{};
  uint32_t tensor = 0;        // the second operand, which broadcasts to the result
  float alpha = 0, beta = 0;  // numbers of the operator (VendorOps.def)
  friend bool operator==(const VendorStep&, const VendorStep&) = default;
};

struct VendorCall {
  struct Image {
    std::array<int64_t, 2> kernel{}, strides{}, dilations{};
    std::array<int64_t, 4> pads{};  // top, left, bottom, right
    int64_t groups = 1;
    // Images NCHW, and the weights' rows are channels and taps, not taps and channels. oneDNN's
    // result is NHWC all the same, and it has one group then. cuDNN's is NCHW, too, its weights are
    // filters, channels of a group, and taps; what is added and has one axis is of the channels.
    bool channels_first = false;
    friend bool operator==(const Image&, const Image&) = default;
  };
  struct Panel {
    int64_t width = 0, group = 1;
    friend bool operator==(const Panel&, const Panel&) = default;
  };
  // softmax(x w^T scale) v by head: x (b, n, heads d), w (b, m, heads d), v (b, m, heads dv).
  struct Attention {
    uint32_t v = 0;  // the values' tensor
    int64_t heads = 1;
    float scale = 1;
    friend bool operator==(const Attention&, const Attention&) = default;
  };
  std::string routine, library;
  uint32_t x = 0, w = 0, y = 0;
  // Of a convolution: k counts the taps of one group's channels, n all filters. Of a product with
  // weights row-major either may be 0: then it is what their tensor says.
  int64_t k = 0, n = 0;
  bool transpose_x = false, transpose_w = false;  // of a product
  bool tf32 = false;                              // of a product of plain f32 matrices
  std::optional<Panel> panel;
  std::optional<Image> image;
  std::optional<Attention> attention;
  std::vector<VendorStep> then;

  // Elements of the weights as the contract's tensor holds them; nothing if there are too many, or
  // if k or n is 0.
  std::optional<int64_t> weight_elements() const;
  friend bool operator==(const VendorCall&, const VendorCall&) = default;
};

// Why a routine does not compute `call` on tensors of these element types; "" if it does. Sums are
// in f32, or in i32 to the end.
std::string fault_of_types(const VendorCall& call, DType x, DType w, DType y);
// The same of oneDNN's convolutions in groups: without AVX-512 version 2.7 looks for a tensor
// behind them at wrong places, but for those that are depthwise. What has one number for each
// channel is right.
std::string fault_of_groups(const VendorCall& call, const KernelContract& contract);

std::string to_json(const VendorCall& call);
// Error(kCorrupt) for text that is no such object or has numbers out of range.
VendorCall vendor_call_of(const std::string& json);

// The weights of `call` as a dense row-major matrix (k, n) of elements of `type`, from panels.
std::vector<uint8_t> unpack_panels(const VendorCall& call, DType type, const uint8_t* packed);

}  // namespace nimble::exec
