#include "tuner/measure/runnable.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tuner/measure/clock.h"
#include "vm/interpreter/kernel.h"
#include "vm/runtime/storage_pool.h"

namespace nimble::tuner {
namespace {

class HostRunnable final : public Runnable {
 public:
  HostRunnable(std::shared_ptr<const rt::Model> model, uint32_t kernel, const Arguments& arguments,
               Rotation& rotation, rt::ThreadPool& pool, int32_t threads)
      : model_(std::move(model)),
        kernel_(model_->kernels()[kernel]),
        arguments_(arguments),
        rotation_(rotation),
        pool_(pool),
        threads_(threads),
        storage_(rt::device(kCpuDevice)),
        scratch_(storage_),
        frames_(arguments.variants()) {
    for (size_t v = 0; v < frames_.size(); ++v) {
      frames_[v].reserve(model_->kernels());
      rt::bind_arguments(kernel_, arguments_.values(v), &frames_[v]);
      // As loading a model does for its constants: no part of a run.
      rt::make_ready(kernel_, arguments_.values(v), threads, &frames_[v]);
    }
  }

  void run() override {
    const size_t copy = rotation_.next();
    rt::run_kernel(kernel_, arguments_.values(copy), threads_, pool_, scratch_, &frames_[copy]);
  }

  int64_t runs_for(double sample_ns, double once_ns) override {
    return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(sample_ns / once_ns)), 1, 1 << 20);
  }

  double sample(int64_t runs) override {
    const int64_t start = now_ns();
    for (int64_t i = 0; i < runs; ++i) run();
    // A clock that does not move would make a time of zero, which is no time.
    return static_cast<double>(std::max<int64_t>(1, now_ns() - start)) / static_cast<double>(runs);
  }

 private:
  std::shared_ptr<const rt::Model> model_;
  const rt::PreparedKernel& kernel_;
  const Arguments& arguments_;
  Rotation& rotation_;
  rt::ThreadPool& pool_;
  int32_t threads_;
  rt::StoragePool storage_;
  rt::Scratch scratch_;
  std::vector<rt::KernelFrame> frames_;  // of each copy
};

}  // namespace

std::unique_ptr<Runnable> make_runnable(std::shared_ptr<const rt::Model> model, uint32_t kernel,
                                        const Arguments& arguments, Rotation& rotation,
                                        rt::ThreadPool& pool, int32_t threads) {
  if (model->kernels()[kernel].launches)
    return make_gpu_runnable(std::move(model), kernel, arguments, rotation);
  return std::make_unique<HostRunnable>(std::move(model), kernel, arguments, rotation, pool,
                                        threads);
}

}  // namespace nimble::tuner
