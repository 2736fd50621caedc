// cuDNN's attention (its operation "SDPA forward", from 9.13 on) as started by a GPU's kernels: f16
// or bf16, without a mask, by tensor cores with sums in f32.
//
// Tensors lie as the operator has them, heads side by side in a row: (b, n, heads d) is told as
// (b, heads, n, d) by its strides. The scale is a number that the host has, which the library reads
// when it is started, or captured. Engines that narrow operands or sums or vary from run to run are
// passed over.
#include <array>
#include <utility>
#include <vector>

#include "vm/base/checked.h"
#include "vm/library/cudnn_plan.h"
#include "vm/library/gpu_routine.h"
#include "vm/library/vendor_kernels.h"

namespace nimble::rt {
namespace {

namespace c = cudnn::c;
using exec::VendorCall;

// One call's work, with all extents: what the library is asked for.
struct Attention {
  DType type = DType::kF16;
  int64_t batch = 0, heads = 0, n = 0, m = 0, d = 0, dv = 0;
  float scale = 1;
  uint32_t alignment = 0;  // of all tensors
  friend bool operator==(const Attention&, const Attention&) = default;
};

struct HashOfAttention {
  size_t operator()(const Attention& p) const {
    size_t h = p.alignment;
    for (const int64_t extent : {p.batch, p.heads, p.n, p.m, p.d, p.dv}) add_to_hash(extent, &h);
    return h;
  }
};

class AttentionSizer {
 public:
  AttentionSizer(const GpuCall& told, std::span<const LibraryTensor> tensors) {
    const VendorCall& call = told.call;
    const auto shape = [&](uint32_t tensor) {
      const std::span<const int64_t> s = tensors[tensor].shape;
      if (s.size() != 3) throw Refused{"attention has three axes"};
      return s;
    };
    const auto q = shape(call.x), k = shape(call.w), v = shape(call.attention->v),
               y = shape(call.y);
    out_.type = tensors[call.x].dtype;
    out_.heads = call.attention->heads;
    out_.scale = call.attention->scale;
    out_.batch = q[0];
    out_.n = q[1];
    out_.m = k[1];
    if (k[0] != out_.batch || v[0] != out_.batch || y[0] != out_.batch || v[1] != out_.m ||
        y[1] != out_.n || k[2] != q[2] || y[2] != v[2] || q[2] % out_.heads != 0 ||
        v[2] % out_.heads != 0)
      throw Refused{"the extents are not those of attention"};
    out_.d = q[2] / out_.heads;
    out_.dv = v[2] / out_.heads;
    for (const auto& s : {q, k, v, y}) {
      const std::optional<int64_t> count = try_element_count(s);
      too_large_ |= !count || *count > INT32_MAX;
    }
    uintptr_t addresses = 0;
    for (const uint32_t tensor : {call.x, call.w, call.attention->v, call.y})
      addresses |= reinterpret_cast<uintptr_t>(tensors[tensor].data);
    out_.alignment = alignment_of(addresses, cudnn::kMostAlignment);
  }

  bool empty() const { return out_.batch == 0 || out_.n == 0 || out_.dv == 0; }
  const Attention& work() const {
    // Ours gives 0 where there is no key.
    if (out_.m == 0 || out_.d == 0) throw Refused{"there is nothing to attend to"};
    if (too_large_) throw Refused{"a tensor is larger than the library counts"};
    return out_;
  }

 private:
  Attention out_;
  bool too_large_ = false;
};

constexpr int kNotRight[] = {c::kDownConverts, c::kReducedSums, c::kNondeterministic};

class PlannedAttention final : public DeviceCall {
 public:
  PlannedAttention(std::shared_ptr<const cudnn::Context> context, const VendorCall& call,
                   const Attention& p)
      : tensors_{call.x, call.w, call.attention->v, call.y},
        p_(p),
        plan_(
            std::move(context), [this](cudnn::GraphPlan& graph) { return make_graph(graph); },
            kNotRight, "the library has no engine for it that sums in f32") {}

  uint64_t workspace_bytes() const override { return plan_.workspace_bytes(); }

  void start(std::span<void* const> data, void* workspace, cuda::Stream stream) const override {
    std::vector<void*> pointers;
    for (const uint32_t tensor : tensors_) pointers.push_back(data[tensor]);
    pointers.push_back(const_cast<float*>(&p_.scale));  // it is read
    plan_.start({kQ, kK, kV, kY, kScale}, pointers, workspace, stream);
  }

 private:
  // Of tensors of the graph.
  enum Id : int64_t { kQ = 1, kK, kV, kY, kScale };

  // Rows of so many numbers for each head.
  const cudnn::Descriptor& rows(cudnn::GraphPlan& graph, int64_t count, int64_t width,
                                Id id) const {
    cudnn::GraphTensor t;
    t.type = p_.type == DType::kF16 ? c::kF16 : c::kBF16;
    t.dims = {p_.batch, p_.heads, count, width};
    t.strides = {count * p_.heads * width, width, p_.heads * width, 1};
    t.id = id;
    t.alignment = p_.alignment;
    return graph.tensor(t);
  }

  cudnn::GraphPlan::Operations make_graph(cudnn::GraphPlan& graph) const {
    cudnn::GraphTensor scale;
    scale.dims = scale.strides = {1, 1, 1, 1};
    scale.id = kScale;
    scale.alignment = sizeof(float);
    scale.by_value = true;
    cudnn::Descriptor& operation = graph.make(c::kAttentionForward);
    operation.set_one(c::kAttentionQ, rows(graph, p_.n, p_.d, kQ));
    operation.set_one(c::kAttentionK, rows(graph, p_.m, p_.d, kK));
    operation.set_one(c::kAttentionV, rows(graph, p_.m, p_.dv, kV));
    operation.set_one(c::kAttentionY, rows(graph, p_.n, p_.dv, kY));
    operation.set_one(c::kAttentionScale, graph.tensor(scale));
    operation.close();
    return {&operation};
  }

  const std::array<uint32_t, 4> tensors_;
  const Attention p_;
  const cudnn::GraphPlan plan_;  // made of what is above
};

// What of a call the library does not compute.
std::string fault_of_attention(const GpuCall& told, DType x, DType w, DType y) {
  if (!told.call.attention) return "it computes attention";
  return exec::fault_of_gpu_attention(x, w, y);
}

using CudnnAttention =
    KeptRoutine<cudnn::Context, AttentionSizer, PlannedAttention, HashOfAttention>;

std::shared_ptr<DeviceRoutine> prepare_attention(const std::string& configuration,
                                                 const exec::KernelContract& contract,
                                                 CudaDevice& device) {
  const cudnn::Library& library = cudnn::library();
  GpuCall told = gpu_call_of(library, cudnn::kPlace, configuration, contract, fault_of_attention);
  return std::make_shared<CudnnAttention>(cudnn::context_of(library, device), std::move(told));
}

}  // namespace

void bind_cudnn_attention(LibraryKernel* kernel) {
  bind_library<cudnn::library>(kernel);
  kernel->prepare_on_gpu = prepare_attention;
}

}  // namespace nimble::rt
