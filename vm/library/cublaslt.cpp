// cuBLASLt's products as started by a GPU's kernels.
//
// The library's matrices are column-major: a row-major matrix is its own transpose there, so that
// y = x w is told as y' = w' x', A being w and B being x; what the library calls a row of D is a
// column of y, and its bias is ours.
//
// f32 is multiplied and summed in f32 (no TF32, unless the call says that factors may be rounded
// so), bf16 summed in f32: where k is shared out, parts are added in the type of the sums. Of all
// extents, and of the multiples at which the tensors lie, the library chooses an algorithm by its
// own rules; that is kept with the descriptors.
#include <algorithm>
#include <array>
#include <mutex>
#include <tuple>
#include <utility>

#include "vm/base/checked.h"
#include "vm/library/cublaslt_binding.h"
#include "vm/library/gpu_routine.h"
#include "vm/library/vendor_kernels.h"

namespace nimble::rt {
namespace {

using cublaslt::Context;
using exec::VendorCall;
using exec::VendorEpilogue;
namespace c = cublaslt::c;

// As NVIDIA recommends for GPUs of 9.0 (cuBLAS's documentation, on its own workspaces): parts of
// sums lie there where k is shared out.
constexpr size_t kMostWorkspace = size_t{32} << 20;
// The library tells the difference of no larger one.
constexpr uint32_t kMostAlignment = 256;
constexpr uint32_t kBiasAlignment = 16;

// One call's work, as far as the library is told of it.
struct Product {
  DType operands = DType::kF32, result = DType::kF32;
  float alpha = 1;
  VendorEpilogue::Activation activation{};
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_x = false, transpose_w = false;
  bool shares_x = false, shares_w = false;  // one matrix for all of the batch
  int32_t bias = -1, added = -1;            // tensors of the call, -1: none
  uint32_t align_x = 0, align_w = 0, align_y = 0, align_added = 0;
  friend bool operator==(const Product&, const Product&) = default;
};

struct HashOfProduct {
  size_t operator()(const Product& p) const {
    size_t h = 0;
    for (const int64_t extent : {p.m, p.n, p.k, p.batch}) add_to_hash(extent, &h);
    for (const uint32_t a : {p.align_x, p.align_w, p.align_y, p.align_added}) add_to_hash(a, &h);
    return h;
  }
};

uint32_t alignment_of(const void* data) {
  return rt::alignment_of(reinterpret_cast<uintptr_t>(data), kMostAlignment);
}

// ---- what a call is, compared with what the configuration says

class Sizer {
 public:
  Sizer(const GpuCall& told, std::span<const LibraryTensor> tensors)
      : call_(told.call),
        tensors_(tensors),
        x_(tensors[call_.x].shape),
        w_(tensors[call_.w].shape),
        y_(tensors[call_.y].shape) {
    const VendorCall& call = told.call;
    if (x_.size() < 2 || w_.size() < 2 || y_.size() != std::max(x_.size(), w_.size()))
      throw Refused{"it is no product of matrices"};
    out_.operands = tensors[call.x].dtype;
    out_.result = tensors[call.y].dtype;
    out_.transpose_x = call.transpose_x;
    out_.transpose_w = call.transpose_w;
    const auto [m, k] = matrix(x_, call.transpose_x);
    const auto [rows, n] = matrix(w_, call.transpose_w);
    if (rows != k || y_[y_.size() - 2] != m || y_.back() != n || (call.k > 0 && call.k != k) ||
        (call.n > 0 && call.n != n))
      throw Refused{"the extents are not those of a product"};
    out_.m = m;
    out_.k = k;
    out_.n = n;
    take_batch();
    for (const uint32_t tensor : told.epilogue.sums) take_sum(tensor);
    out_.alpha = told.epilogue.alpha;
    out_.activation = told.epilogue.activation;
    out_.align_x = alignment_of(tensors[call.x].data);
    out_.align_w = alignment_of(tensors[call.w].data);
    out_.align_y = alignment_of(tensors[call.y].data);
    if (out_.added >= 0) out_.align_added = alignment_of(tensors[out_.added].data);
  }

  bool empty() const { return out_.m == 0 || out_.n == 0 || out_.batch == 0; }
  const Product& work() const {
    if (out_.k == 0) throw Refused{"there is nothing to sum"};
    for (const int64_t extent : {out_.m, out_.n, out_.k, out_.batch})
      if (extent > INT32_MAX) throw Refused{"an extent is larger than the library counts"};
    return out_;
  }

 private:
  using Shape = std::span<const int64_t>;

  static std::pair<int64_t, int64_t> matrix(Shape shape, bool transposed) {
    const int64_t a = shape[shape.size() - 2], b = shape.back();
    return transposed ? std::pair(b, a) : std::pair(a, b);
  }

  // Of the axes ahead of a matrix, `axis` of those of y; 1 where it has none.
  int64_t extent_of(Shape shape, size_t axis) const {
    const size_t missing = y_.size() - shape.size();
    return axis < missing ? 1 : shape[axis - missing];
  }

  void take_batch() {
    bool of_x = true, of_w = true;  // whether it has a matrix for each of y
    bool one_x = true, one_w = true;
    int64_t batch = 1;
    for (size_t axis = 0; axis + 2 < y_.size(); ++axis) {
      const int64_t x = extent_of(x_, axis), w = extent_of(w_, axis);
      if ((x != w && x != 1 && w != 1) || y_[axis] != (x == 1 ? w : x))
        throw Refused{"the batches do not match"};
      of_x &= x == y_[axis];
      of_w &= w == y_[axis];
      one_x &= x == 1;
      one_w &= w == 1;
      const std::optional<int64_t> all = try_mul(batch, y_[axis]);
      if (!all) throw Refused{"it has too many matrices"};
      batch = *all;
    }
    if ((!of_x && !one_x) || (!of_w && !one_w))
      throw Refused{"the library repeats one matrix, not some of several"};
    // Rows of several matrices times one are rows.
    if (one_w && of_x && !call_.transpose_x) {
      const std::optional<int64_t> rows = try_mul(batch, out_.m);
      if (!rows) throw Refused{"it has too many rows"};
      out_.m = *rows;
      batch = 1;
    }
    out_.batch = batch;
    out_.shares_x = batch != 1 && !of_x;
    out_.shares_w = batch != 1 && !of_w;
  }

  void take_sum(uint32_t tensor) {
    const LibraryTensor& t = tensors_[tensor];
    if (t.shape.size() > y_.size()) throw Refused{"what is added has more axes"};
    bool row = true, whole = true;
    for (size_t axis = 0; axis < y_.size(); ++axis) {
      const int64_t extent = extent_of(t.shape, axis);
      whole &= extent == y_[axis];
      row &= extent == (axis + 1 == y_.size() ? y_[axis] : 1);
    }
    if (row && out_.bias < 0) {
      if (alignment_of(t.data) < kBiasAlignment) throw Refused{"the bias lies at odd bytes"};
      out_.bias = static_cast<int32_t>(tensor);
    } else if (whole && out_.added < 0) {
      out_.added = static_cast<int32_t>(tensor);
    } else {
      throw Refused{"the library adds one row to all, and one tensor as large as the result"};
    }
  }

  const VendorCall& call_;
  std::span<const LibraryTensor> tensors_;
  Shape x_, w_, y_;
  Product out_;
};

// ---- what is ready

// Of the library's, destroyed by one of its functions; left where the device cannot be used any
// more, in a forked child too: then nothing of the library is called.
template <class Handle>
class Owned {
 public:
  using Destroy = c::Status (*)(Handle);
  Owned(const CudaDevice& device, Handle handle, Destroy destroy)
      : device_(device), handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept
      : device_(other.device_),
        handle_(std::exchange(other.handle_, nullptr)),
        destroy_(other.destroy_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_ && device_.usable()) destroy_(handle_);
  }
  Handle get() const { return handle_; }

 private:
  const CudaDevice& device_;
  Handle handle_;
  Destroy destroy_;
};

// A call's descriptors and algorithm. Descriptors are the host's alone: destroying them takes no
// lock and no context.
class Planned final : public DeviceCall {
 public:
  Planned(std::shared_ptr<const Context> context, const VendorCall& call, const Product& p)
      : context_(std::move(context)),
        call_(call),
        p_(p),
        product_(make_product()),
        w_(matrix(p.operands, p.transpose_w ? p.k : p.n, p.transpose_w ? p.n : p.k,
                  p.shares_w ? 0 : p.k * p.n)),
        x_(matrix(p.operands, p.transpose_x ? p.m : p.k, p.transpose_x ? p.k : p.m,
                  p.shares_x ? 0 : p.m * p.k)),
        y_(matrix(p.result, p.n, p.m, p.m * p.n)) {
    choose();
  }

  uint64_t workspace_bytes() const override { return found_.workspace_bytes; }

  void start(std::span<void* const> data, void* workspace, cuda::Stream stream) const override {
    const cublaslt::Library& l = context_->library();
    const auto of = [&](int32_t tensor) { return data[static_cast<size_t>(tensor)]; };
    void* const y = data[call_.y];
    const void* const added = p_.added >= 0 ? of(p_.added) : y;
    const float beta = p_.added >= 0 ? 1 : 0;
    // The bias is told by way of the descriptor, which another session may want, too.
    const std::lock_guard guard(lock_);
    if (p_.bias >= 0) {
      const void* const bias = of(p_.bias);
      set(product_, c::kBiasPointer, bias);
    }
    l.check(l.cublasLtMatmul(context_->handle(), product_.get(), &p_.alpha, data[call_.w], w_.get(),
                             data[call_.x], x_.get(), &beta, added, y_.get(), y, y_.get(),
                             &found_.algorithm, workspace, found_.workspace_bytes, stream),
            "cublasLtMatmul");
  }

 private:
  using ProductHandle = Owned<c::Product>;
  using Layout = Owned<c::Layout>;

  template <class T>
  void set(const ProductHandle& to, int attribute, const T& value) const {
    const cublaslt::Library& l = context_->library();
    l.check(l.cublasLtMatmulDescSetAttribute(to.get(), attribute, &value, sizeof value),
            "cublasLtMatmulDescSetAttribute");
  }

  ProductHandle make_product() const {
    using Activation = VendorEpilogue::Activation;
    const cublaslt::Library& l = context_->library();
    c::Product made = nullptr;
    const int compute = call_.tf32 ? c::kComputeTf32 : c::kComputeF32;
    l.check(l.cublasLtMatmulDescCreate(&made, compute, c::data_type(DType::kF32)),
            "cublasLtMatmulDescCreate");
    ProductHandle product(context_->device(), made, l.cublasLtMatmulDescDestroy);
    set(product, c::kTransposeA, p_.transpose_w ? c::kTransposed : c::kPlain);
    set(product, c::kTransposeB, p_.transpose_x ? c::kTransposed : c::kPlain);
    uint32_t what = p_.activation == Activation::kRelu       ? c::kRelu
                    : p_.activation == Activation::kGeluTanh ? c::kGelu
                                                             : 0;
    if (p_.bias >= 0) what |= c::kBias;
    set(product, c::kEpilogue, what != 0 ? what : c::kNothing);
    return product;
  }

  // Column-major, as large as it is dense.
  Layout matrix(DType type, int64_t rows, int64_t columns, int64_t batch_stride) const {
    const cublaslt::Library& l = context_->library();
    c::Layout made = nullptr;
    l.check(l.cublasLtMatrixLayoutCreate(&made, c::data_type(type), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), rows),
            "cublasLtMatrixLayoutCreate");
    Layout layout(context_->device(), made, l.cublasLtMatrixLayoutDestroy);
    if (p_.batch != 1) {
      const auto count = static_cast<int32_t>(p_.batch);
      for (const auto& [attribute, value, bytes] :
           {std::tuple<int, const void*, size_t>(c::kBatchCount, &count, sizeof count),
            std::tuple<int, const void*, size_t>(c::kBatchStride, &batch_stride,
                                                 sizeof batch_stride)})
        l.check(l.cublasLtMatrixLayoutSetAttribute(made, attribute, value, bytes),
                "cublasLtMatrixLayoutSetAttribute");
    }
    return layout;
  }

  void choose() {
    const cublaslt::Library& l = context_->library();
    c::Preference made = nullptr;
    l.check(l.cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Owned<c::Preference> preference(context_->device(), made,
                                          l.cublasLtMatmulPreferenceDestroy);
    const auto prefer = [&](int attribute, const auto& value) {
      l.check(l.cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(c::kMostWorkspace, kMostWorkspace);
    prefer(c::kReductions, c::kReduceInComputeType);
    prefer(c::kAlignmentA, p_.align_w);
    prefer(c::kAlignmentB, p_.align_x);
    prefer(c::kAlignmentC, p_.added >= 0 ? p_.align_added : p_.align_y);
    prefer(c::kAlignmentD, p_.align_y);
    // Some may be none on this GPU.
    std::array<c::Found, 4> found{};
    int count = 0;
    l.check(l.cublasLtMatmulAlgoGetHeuristic(context_->handle(), product_.get(), w_.get(), x_.get(),
                                             y_.get(), y_.get(), made,
                                             static_cast<int>(found.size()), found.data(), &count),
            "cublasLtMatmulAlgoGetHeuristic");
    const auto given =
        std::span(found).first(std::min(found.size(), static_cast<size_t>(std::max(0, count))));
    const auto good = std::ranges::find_if(given, [](const c::Found& f) {
      return f.state == c::kSuccess && f.workspace_bytes <= kMostWorkspace;
    });
    if (good == given.end()) throw Refused{"the library has no algorithm for it"};
    found_ = *good;
  }

  const std::shared_ptr<const Context> context_;
  const VendorCall call_;
  const Product p_;
  const ProductHandle product_;
  const Layout w_, x_, y_;
  c::Found found_{};
  mutable std::mutex lock_;  // a forked child has no use of the device, and never takes it
};

// What of a call the library does not compute.
std::string fault_of(const GpuCall& told, DType x, DType w, DType y) {
  if (told.call.panel || told.call.image || told.call.attention) return "it takes plain matrices";
  if (told.call.tf32 && x != DType::kF32) return "only factors of f32 are rounded to tf32";
  return exec::fault_of_gpu_types(x, w, y);
}

using CublasLtRoutine = KeptRoutine<Context, Sizer, Planned, HashOfProduct>;

std::shared_ptr<DeviceRoutine> prepare(const std::string& configuration,
                                       const exec::KernelContract& contract, CudaDevice& device) {
  const cublaslt::Library& library = cublaslt::library();
  GpuCall told = gpu_call_of(library, cublaslt::kPlace, configuration, contract, fault_of);
  return std::make_shared<CublasLtRoutine>(cublaslt::context_of(library, device), std::move(told));
}

}  // namespace

void bind_cublaslt_matmul(LibraryKernel* kernel) {
  bind_library<cublaslt::library>(kernel);
  kernel->prepare_on_gpu = prepare;
}

}  // namespace nimble::rt
