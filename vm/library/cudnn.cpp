// cuDNN's convolutions of images NCHW as started by a GPU's kernels: with a bias for each channel,
// another image that is added, and ReLU behind it.
//
// The library is told a graph of operations and proposes engines for it, the fastest first by its
// own rules. f32 means f32: engines that use tensor cores (which multiply f32 in TF32 alone),
// narrow their operands or their sums, transform them (Winograd, Fourier) or vary from run to run
// are passed over. What remains is kept, by extents, as a plan.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "vm/base/checked.h"
#include "vm/library/cudnn_plan.h"
#include "vm/library/gpu_routine.h"
#include "vm/library/vendor_kernels.h"

namespace nimble::rt {
namespace {

using cudnn::Context;
using cudnn::Descriptor;
using cudnn::GraphPlan;
using cudnn::GraphTensor;
using exec::VendorCall;
using exec::VendorEpilogue;
namespace c = cudnn::c;

using Extents = std::array<int64_t, 4>;

// One call's work, with all extents: what the library is asked for.
struct Convolution {
  Extents x{}, w{}, y{};
  std::array<int64_t, 2> strides{}, dilations{}, before{}, after{};
  int32_t bias = -1, added = -1;  // tensors of the call, -1: none
  bool relu = false;
  uint32_t alignment = 0;  // of all tensors
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

struct HashOfConvolution {
  size_t operator()(const Convolution& p) const {
    size_t h = p.alignment;
    for (const Extents* extents : {&p.x, &p.w, &p.y})
      for (const int64_t extent : *extents) add_to_hash(extent, &h);
    return h;
  }
};

// ---- what a call is, compared with what the configuration says

class Sizer {
 public:
  Sizer(const GpuCall& told, std::span<const LibraryTensor> tensors) : tensors_(tensors) {
    const VendorCall& call = told.call;
    const VendorCall::Image& image = *call.image;
    out_.x = extents(call.x);
    out_.w = extents(call.w);
    out_.y = extents(call.y);
    out_.strides = image.strides;
    out_.dilations = image.dilations;
    out_.before = {image.pads[0], image.pads[1]};
    out_.after = {image.pads[2], image.pads[3]};
    const auto [filters, depth, rows, columns] = out_.w;
    const std::optional<int64_t> channels = try_mul(depth, image.groups);
    if (rows != image.kernel[0] || columns != image.kernel[1] || call.n != filters ||
        call.k != rows * columns * depth || filters % image.groups != 0 || channels != out_.x[1] ||
        out_.y[0] != out_.x[0] || out_.y[1] != filters || out_.y[2] != windows(image, 0) ||
        out_.y[3] != windows(image, 1))
      throw Refused{"the extents are not those of a convolution"};
    for (const uint32_t tensor : told.epilogue.sums) take_sum(tensor);
    out_.relu = told.epilogue.activation == VendorEpilogue::Activation::kRelu;
    uintptr_t addresses = 0;
    for (const LibraryTensor& t : tensors) addresses |= reinterpret_cast<uintptr_t>(t.data);
    out_.alignment = alignment_of(addresses, cudnn::kMostAlignment);
  }

  bool empty() const { return std::ranges::find(out_.y, 0) != out_.y.end(); }
  const Convolution& work() const {
    for (const Extents* e : {&out_.x, &out_.w, &out_.y}) {
      const std::optional<int64_t> count = try_element_count(*e);
      if (!count || *count > INT32_MAX) throw Refused{"a tensor is larger than the library counts"};
      if (*count == 0) throw Refused{"there is nothing to sum"};
    }
    return out_;
  }

 private:
  Extents extents(uint32_t tensor) const {
    const std::span<const int64_t> shape = tensors_[tensor].shape;
    if (shape.size() != 4) throw Refused{"images have four axes"};
    return {shape[0], shape[1], shape[2], shape[3]};
  }

  // As many windows as fit along an axis of space. The file's numbers are below 2^31 each, an
  // image's extents below 2^62.
  int64_t windows(const VendorCall::Image& image, size_t axis) const {
    const int64_t reach = (image.kernel[axis] - 1) * image.dilations[axis] + 1;
    const int64_t room = out_.x[2 + axis] + image.pads[axis] + image.pads[axis + 2] - reach;
    return room < 0 ? 0 : room / image.strides[axis] + 1;
  }

  void take_sum(uint32_t tensor) {
    const std::span<const int64_t> shape = tensors_[tensor].shape;
    // One axis is that of channels (vendor_call.h); others stand as those of the result do.
    Extents at = {1, 1, 1, 1};
    if (shape.size() > at.size()) throw Refused{"what is added has more axes"};
    if (shape.size() == 1)
      at[1] = shape[0];
    else
      std::ranges::copy(shape, at.end() - static_cast<std::ptrdiff_t>(shape.size()));
    if (at == Extents{1, out_.y[1], 1, 1} && out_.bias < 0)
      out_.bias = static_cast<int32_t>(tensor);
    else if (at == out_.y && out_.added < 0)
      out_.added = static_cast<int32_t>(tensor);
    else
      throw Refused{"the library adds a number to each channel, and one image as large"};
  }

  std::span<const LibraryTensor> tensors_;
  Convolution out_;
};

// ---- what is ready

// Of tensors of the graph. Those of no memory follow.
enum Id : int64_t { kX = 1, kW, kY, kBias, kAdded, kFirstVirtual };

// f32 is neither narrowed nor transformed, and its sums do not vary.
constexpr int kPassedOver[] = {c::kTensorCore, c::kDownConverts,     c::kReducedSums,
                               c::kFourier,    c::kNondeterministic, c::kWinograd};

// The graph of a convolution and the plan that runs it.
class Planned final : public DeviceCall {
 public:
  Planned(std::shared_ptr<const Context> context, const VendorCall& call, const Convolution& p)
      : x_(call.x),
        w_(call.w),
        y_(call.y),
        p_(p),
        plan_(
            std::move(context), [this](GraphPlan& graph) { return make_graph(graph); }, kPassedOver,
            "the library has no engine for it that computes in f32") {}

  uint64_t workspace_bytes() const override { return plan_.workspace_bytes(); }

  void start(std::span<void* const> data, void* workspace, cuda::Stream stream) const override {
    std::vector<int64_t> ids = {kX, kW, kY};
    std::vector<void*> pointers = {data[x_], data[w_], data[y_]};
    const auto add = [&](int32_t tensor, Id id) {
      if (tensor < 0) return;
      ids.push_back(id);
      pointers.push_back(data[static_cast<size_t>(tensor)]);
    };
    add(p_.bias, kBias);
    add(p_.added, kAdded);
    plan_.start(ids, pointers, workspace, stream);
  }

 private:
  const Descriptor& tensor(GraphPlan& graph, const Extents& dims, int64_t id,
                           bool is_virtual = false) const {
    GraphTensor t;
    t.dims = dims;
    t.strides = {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
    t.id = id;
    t.alignment = p_.alignment;
    t.is_virtual = is_virtual;
    return graph.tensor(t);
  }

  const Descriptor& convolution(GraphPlan& graph, const Descriptor& y) const {
    Descriptor& windows = graph.make(c::kConvolution);
    const auto numbers = [&](int attribute, const std::array<int64_t, 2>& values) {
      windows.set(attribute, c::kInt64, values.size(), values.data());
    };
    windows.set_int64(c::kSpatialDims, 2);
    windows.set_int(c::kConvolutionPrecision, c::kDataType, c::kF32);
    windows.set_int(c::kConvolutionModeOf, c::kConvolutionMode, c::kCrossCorrelation);
    numbers(c::kPaddingBefore, p_.before);
    numbers(c::kPaddingAfter, p_.after);
    numbers(c::kDilations, p_.dilations);
    numbers(c::kStrides, p_.strides);
    windows.close();
    Descriptor& operation = graph.make(c::kConvolutionForward);
    operation.set_one(c::kForwardX, tensor(graph, p_.x, kX));
    operation.set_one(c::kForwardW, tensor(graph, p_.w, kW));
    operation.set_one(c::kForwardY, y);
    operation.set_one(c::kForwardConvolution, windows);
    operation.set_float(c::kForwardAlpha, 1);
    operation.set_float(c::kForwardBeta, 0);
    operation.close();
    return operation;
  }

  // `b`: nullptr of an operation that has no second operand.
  static const Descriptor& pointwise(GraphPlan& graph, int mode, const Descriptor& x,
                                     const Descriptor* b, const Descriptor& y) {
    Descriptor& what = graph.make(c::kPointwise);
    what.set_int(c::kPointwiseModeOf, c::kPointwiseMode, mode);
    what.set_int(c::kPointwisePrecision, c::kDataType, c::kF32);
    // As our kernels do: the maximum of 0 and NaN would be 0.
    if (mode == c::kRelu) what.set_int(c::kPointwiseNans, c::kNanPropagation, c::kPropagate);
    what.close();
    Descriptor& operation = graph.make(c::kPointwiseOperation);
    operation.set_one(c::kPointwiseDescriptor, what);
    operation.set_one(c::kPointwiseX, x);
    if (b) operation.set_one(c::kPointwiseB, *b);
    operation.set_one(c::kPointwiseY, y);
    operation.close();
    return operation;
  }

  // Operations in the order in which the library's own kernels have them: another image, the bias,
  // the activation.
  GraphPlan::Operations make_graph(GraphPlan& graph) const {
    int left = 1 + (p_.added >= 0) + (p_.bias >= 0) + p_.relu;
    int64_t temporary = kFirstVirtual;
    // The value behind one more operation: the result behind the last.
    const auto next = [&]() -> const Descriptor& {
      return --left == 0 ? tensor(graph, p_.y, kY) : tensor(graph, p_.y, temporary++, true);
    };
    const Descriptor* value = &next();
    GraphPlan::Operations operations = {&convolution(graph, *value)};
    const auto then = [&](int mode, const Descriptor* b) {
      const Descriptor& result = next();
      operations.push_back(&pointwise(graph, mode, *value, b, result));
      value = &result;
    };
    if (p_.added >= 0) then(c::kAdd, &tensor(graph, p_.y, kAdded));
    if (p_.bias >= 0) then(c::kAdd, &tensor(graph, {1, p_.y[1], 1, 1}, kBias));
    if (p_.relu) then(c::kRelu, nullptr);
    return operations;
  }

  const uint32_t x_, w_, y_;
  const Convolution p_;
  const GraphPlan plan_;  // made of what is above
};

// What of a call the library does not compute.
std::string fault_of(const GpuCall& told, DType x, DType w, DType y) {
  if (!told.call.image || !told.call.image->channels_first || told.call.panel)
    return "it takes images NCHW and weights as the model has them";
  return exec::fault_of_gpu_convolution(told.epilogue, x, w, y);
}

using CudnnRoutine = KeptRoutine<Context, Sizer, Planned, HashOfConvolution>;

std::shared_ptr<DeviceRoutine> prepare(const std::string& configuration,
                                       const exec::KernelContract& contract, CudaDevice& device) {
  const cudnn::Library& library = cudnn::library();
  GpuCall told = gpu_call_of(library, cudnn::kPlace, configuration, contract, fault_of);
  return std::make_shared<CudnnRoutine>(cudnn::context_of(library, device), std::move(told));
}

}  // namespace

void bind_cudnn_conv2d(LibraryKernel* kernel) {
  bind_library<cudnn::library>(kernel);
  kernel->prepare_on_gpu = prepare;
}

}  // namespace nimble::rt
