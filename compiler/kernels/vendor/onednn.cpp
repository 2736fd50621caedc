// oneDNN's products of rows with a matrix, and convolutions with constant weights: of images with
// channels last, or channels first and packed weights.
#include "compiler/ir/image_layout.h"
#include "compiler/ir/layout.h"
#include "compiler/kernels/vendor/reader.h"

namespace nimble::kernels::vendor {
namespace {

using exec::VendorCall;
using ir::Expr;

VendorCall::Panel panel(const Expr& e) {
  const auto layout = ir::parse_layout(ir::attr<std::string>(e.attrs, "layout"));
  if (!layout || layout->kind != ir::Layout::Kind::kPanel)
    throw Refused{"the weights are not in panels"};
  return {layout->width, layout->group};
}

}  // namespace

void read_onednn_matmul(Reader& reader, const Expr& e) {
  VendorCall& call = reader.call();
  call.x = reader.tensor(e.args[0]);
  call.w = reader.tensor(e.args[1]);
  if (e.op == "packed_matmul") {
    call.k = ir::attr<int64_t>(e.attrs, "k");
    call.n = ir::attr<int64_t>(e.attrs, "n");
    call.panel = panel(e);
    return;
  }
  if (ir::attr_or(e.attrs, "transpose_a", false) || ir::attr_or(e.attrs, "transpose_b", false))
    throw Refused{"the vendor's routine takes no transposed operands"};
  const ir::Type w = ir::type_of(e.args[1]);
  if (w->dims.size() != 2 || ir::type_of(e.args[0])->dims.size() < 2)
    throw Refused{"the vendor's routine takes one matrix on the right"};
  call.k = std::max<int64_t>(0, w->dims[0].as_constant().value_or(0));
  call.n = std::max<int64_t>(0, w->dims[1].as_constant().value_or(0));
}

void read_onednn_conv2d(Reader& reader, const Expr& e) {
  VendorCall& call = reader.call();
  call.x = reader.tensor(e.args[0]);
  call.w = reader.tensor(e.args[1]);
  VendorCall::Image image;
  read_windows(e, &image);
  if (e.op == "packed_conv2d") {
    read_ints(e, "kernel", image.kernel);
    image.channels_first = ir::attr_or<std::string>(e.attrs, "image_layout", "nhwc") == "nchw";
    if (image.channels_first &&
        ir::parse_layout(ir::attr<std::string>(e.attrs, "layout"))->group > 1)
      throw Refused{"the vendor's routine takes no groups of an image's planes"};
    const int64_t channels =
        constant_extent(ir::type_of(e.args[0])->dims[image.channels_first ? 1 : 3]);
    call.k = image.kernel[0] * image.kernel[1] * (channels / image.groups);
    call.n = ir::attr<int64_t>(e.attrs, "filters");
    call.panel = panel(e);
  } else {
    const auto& weights = ir::type_of(e.args[1])->dims;
    if (!ir::image_layout_of(e.attrs).channels_last())
      throw Refused{"the vendor's routine takes images with channels last"};
    if (!reader.is_constant(e.args[1])) throw Refused{"a convolution's weights must be constant"};
    image.kernel = {constant_extent(weights[0]), constant_extent(weights[1])};
    call.k = image.kernel[0] * image.kernel[1] * constant_extent(weights[2]);
    call.n = constant_extent(weights[3]);
  }
  call.image = image;
  if (e.args.size() == 3) reader.add_bias(e.args[2]);
}

std::string fault_of_onednn_matmul(const VendorCall& call, const Workload& w) {
  const std::vector<DType> types = tensor_types(w);
  return exec::fault_of_types(call, types[call.x], types[call.w], types[call.y]);
}

std::string fault_of_onednn_conv2d(const VendorCall& call, const Workload& w) {
  const std::string fault = fault_of_onednn_matmul(call, w);
  return fault.empty() ? exec::fault_of_groups(call, w.contract) : fault;
}

}  // namespace nimble::kernels::vendor
