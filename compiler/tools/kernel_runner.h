// Kernels compiled and called without a model, for the benchmarks of kernels.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/builder.h"
#include "compiler/ir/layout.h"
#include "compiler/kernels/template.h"
#include "compiler/kernels/templates/dense.h"
#include "compiler/kernels/templates/operand_types.h"
#include "vm/base/error.h"
#include "vm/runtime/native_image.h"
#include "vm/runtime/thread_pool.h"

namespace nimble::bench {

using ir::Dim;

inline double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Zeroed memory on huge pages where the system grants them, as the VM keeps packed weights.
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t floats) : bytes_((floats * 4 + 2 * kPage) / kPage * kPage) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NIMBLE_CHECK(memory_ != MAP_FAILED, "mmap of {} bytes", bytes_);
    madvise(memory_, bytes_, MADV_HUGEPAGE);
    const auto address = reinterpret_cast<uintptr_t>(memory_);
    data_ = reinterpret_cast<float*>((address + kPage - 1) / kPage * kPage);
    for (size_t i = 0; i < floats; ++i) data_[i] = static_cast<float>(i % 17) * 0.01f - 0.08f;
  }
  ~HugeBuffer() { munmap(memory_, bytes_); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  float* data() const { return data_; }

 private:
  static constexpr size_t kPage = size_t{2} << 20;
  size_t bytes_;
  void* memory_ = nullptr;
  float* data_ = nullptr;
};

// One compiled function, loaded and callable on the pool.
class Kernel {
 public:
  explicit Kernel(const kir::Function& f) : function_(f) {
    const codegen::CompiledObject object =
        codegen::compile(std::span(&function_, 1), kernels::detect_host());
    image_ = rt::NativeImage::load(codegen::link(std::span(&object, 1)), function_.name);
    entry_ = reinterpret_cast<nimble_kernel_fn>(const_cast<void*>(image_->find(function_.name)));
    NIMBLE_CHECK(entry_ != nullptr, "no symbol {}", function_.name);
  }

  void run(rt::ThreadPool& pool, int threads, std::vector<void*> buffers,
           const std::vector<int64_t>& symbols) {
    const auto value = [&](const std::string& name) -> std::optional<int64_t> {
      if (name == "threads") return threads;
      for (size_t i = 0; i < symbols.size(); ++i)
        if (function_.contract.symbols[i] == name) return symbols[i];
      return {};
    };
    const auto bytes = static_cast<size_t>(kir::scratch_bytes(function_).evaluate(value));
    if (scratch_.size() < bytes + 64) scratch_.resize(bytes + 64);
    auto address = reinterpret_cast<uintptr_t>(scratch_.data());
    Call call{entry_, {}};
    call.args = {NIMBLE_KERNEL_ABI_VERSION, static_cast<uint32_t>(buffers.size()), buffers.data(),
                 symbols.data(), reinterpret_cast<void*>((address + 63) / 64 * 64)};
    pool.run(
        [](void* context, int32_t thread, int32_t count, nimble_barrier* barrier) {
          const Call& c = *static_cast<Call*>(context);
          const int32_t status = c.entry(&c.args, thread, count, barrier);
          NIMBLE_CHECK(status == 0, "kernel status {}", status);
        },
        &call, threads);
  }

 private:
  struct Call {
    nimble_kernel_fn entry;
    nimble_kernel_args args;
  };
  kir::Function function_;
  std::shared_ptr<const rt::NativeImage> image_;
  nimble_kernel_fn entry_ = nullptr;
  std::vector<char> scratch_;
};

// One pool for all benchmarks: each thread keeps its core, and its share of the weights.
inline rt::ThreadPool& the_pool() {
  static rt::ThreadPool pool(rt::ThreadPool::default_threads(), true);
  return pool;
}

inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

inline ir::Type f32(std::vector<Dim> dims) {
  return ir::tensor_type(std::move(dims), DType::kF32);
}

// Element types of a product's operands and sums.
struct Types {
  DType lhs = DType::kF32, rhs = DType::kF32, sum = DType::kF32;
  int64_t group = 0;  // rows of packed weights that stand side by side; 0: as a target wants them
  int64_t most = kir::kAnyWeight;  // the size that no weight exceeds
  // What products promise of their weights there; 0: nothing.
  int64_t promise(const kernels::TargetInfo& target) const {
    return kernels::weight_bound(target, lhs, rhs, most);
  }

  std::string layout(const std::string& wanted) const {
    ir::Layout l = *ir::parse_layout(wanted);
    if (group > 0) l.group = group;
    return l.str();
  }
};
inline constexpr Types kBF16Types = {DType::kBF16, DType::kBF16, DType::kF32};
inline constexpr Types kInt8Types = {DType::kU8, DType::kI8, DType::kI32};
// The same as bytes also where 16-bit integers are multiplied.
inline constexpr Types kByteTypes = {DType::kU8, DType::kI8, DType::kI32, 4};
// With weights of seven bits, which some machines multiply as bytes (kU8S7Quads).
inline constexpr Types kSmallWeightTypes = {DType::kU8, DType::kI8, DType::kI32, 0, 64};

// act(x[m, k] * w[k, n] + b[n]) with packed w; the sums are cast to f32 before b is added.
inline kernels::Workload dense_workload(const Dim& m, int64_t k, int64_t n,
                                        const std::string& activation, const Types& types = {}) {
  const kernels::TargetInfo target = kernels::detect_host();
  const std::string layout =
      types.layout(kernels::dense_layout(target, types.lhs, types.rhs, n, types.most));
  const ir::VarRef x = ir::make_var("x", ir::tensor_type({m, k}, types.lhs));
  const ir::VarRef w =
      ir::make_var("w", ir::tensor_type(ir::parse_layout(layout)->packed_dims(k, n), types.rhs));
  const ir::VarRef b = ir::make_var("b", f32({n}));
  ir::BlockBuilder body;
  ir::Attrs attrs = {{"n", n}, {"k", k}, {"layout", layout}};
  if (types.rhs != types.sum) attrs["out"] = types.sum;
  if (const int64_t promise = types.promise(target); promise > 0) attrs["max_weight"] = promise;
  ir::VarRef y = body.call("packed_matmul", {x, w}, std::move(attrs));
  y->type = ir::tensor_type({m, n}, types.sum);
  const auto then = [&](const std::string& op, std::vector<ir::Atom> args, ir::Attrs a = {}) {
    y = body.call(op, std::move(args), std::move(a));
    y->type = f32({m, n});
  };
  if (types.sum != DType::kF32) then("cast", {y}, {{"dtype", DType::kF32}});
  then("add", {y, b});
  if (!activation.empty()) then(activation, {y});
  return kernels::make_workload(*ir::make_function_of({x, w, b}, body.finish(y), f32({m, n})),
                                {false, true, true});
}

// A workload's kernels: by residue where the configuration says so.
class Compiled {
 public:
  // `overrides`: knobs that differ from the default configuration.
  Compiled(const kernels::Workload& w, const kernels::Config& overrides) {
    const kernels::TargetInfo target = kernels::detect_host();
    const kernels::Template* t = kernels::template_for(w, target);
    NIMBLE_CHECK(t != nullptr, "no template for {}", w.key);
    config_ = t->default_config(w, target);
    for (const auto& [name, value] : overrides) config_[name] = value;
    if (!t->valid(w, config_, target))
      throw Error(Status::kInvalidArgument, "--config", "no valid configuration of this shape",
                  "see `nimble inspect --kernels` for configurations in use");
    const kernels::Lowered lowered = t->lower(w, config_, target, "bench");
    tails_ = lowered.tails;
    for (const kir::Function& f : lowered.functions)
      kernels_.push_back(std::make_unique<Kernel>(f));
  }
  void run(rt::ThreadPool& pool, int threads, std::vector<void*> buffers,
           const std::vector<int64_t>& symbols) {
    kernels_[tails_.choose(symbols, threads)]->run(pool, threads, std::move(buffers), symbols);
  }
  const kernels::Config& config() const { return config_; }
  size_t kernels() const { return kernels_.size(); }

 private:
  kernels::Config config_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  exec::DispatchTree tails_;
};

}  // namespace nimble::bench
