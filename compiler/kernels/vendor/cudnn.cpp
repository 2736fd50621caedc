// cuDNN's convolutions of images with channels first.
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

}  // namespace nimble::kernels::vendor
