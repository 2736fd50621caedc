// cuDNN's convolutions of images with channels first, and its attention.
#include <cmath>

#include "compiler/ir/image_layout.h"
#include "compiler/kernels/vendor/reader.h"

namespace nimble::kernels::vendor {

void read_cudnn_conv2d(Reader& reader, const ir::Expr& e) {
  exec::VendorCall& call = reader.call();
  call.x = reader.tensor(e.args[0]);
  call.w = reader.tensor(e.args[1]);
  if (ir::image_layout_of(e.attrs).channels_last())
    throw Refused{"the vendor's routine takes images with channels first"};
  exec::VendorCall::Image image;
  image.channels_first = true;
  read_windows(e, &image);
  const auto& weights = ir::type_of(e.args[1])->dims;
  image.kernel = {constant_extent(weights[2]), constant_extent(weights[3])};
  call.k = image.kernel[0] * image.kernel[1] * constant_extent(weights[1]);
  call.n = constant_extent(weights[0]);
  call.image = image;
  if (e.args.size() >= 3) reader.add_bias(e.args[2]);
}

std::string fault_of_cudnn_conv2d(const exec::VendorCall& call, const Workload& w) {
  return fault_on_gpu(call, w, exec::fault_of_gpu_convolution);
}

// What a mask takes away is told to the library by kinds of its own (causal, a length), which the
// operator has not; and of a row all of whose keys are taken away its result is not documented.
void read_cudnn_attention(Reader& reader, const ir::Expr& e) {
  if (e.args.size() != 3) throw Refused{"the vendor's routine takes no mask"};
  exec::VendorCall& call = reader.call();
  call.x = reader.tensor(e.args[0]);
  call.w = reader.tensor(e.args[1]);
  exec::VendorCall::Attention attention;
  attention.v = reader.tensor(e.args[2]);
  attention.heads = ir::attr<int64_t>(e.attrs, "heads");
  const double scale = ir::attr<double>(e.attrs, "scale");
  attention.scale = static_cast<float>(scale);
  if (!std::isfinite(attention.scale)) throw Refused{"its scale is beyond f32"};
  call.attention = attention;
}

std::string fault_of_cudnn_attention(const exec::VendorCall& call, const Workload& w) {
  if (!call.then.empty()) return "the vendor's routine has nothing behind attention";
  const std::vector<DType> types = tensor_types(w);
  if (types[call.attention->v] != types[call.x]) return "queries and values are of different types";
  return exec::fault_of_gpu_attention(types[call.x], types[call.w], types[call.y]);
}

}  // namespace nimble::kernels::vendor
