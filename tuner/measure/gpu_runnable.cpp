// Kernels of a GPU are started as a session of the VM starts them, which makes CUDA graphs of rows
// of launches that come again: a kernel of a few microseconds is over before the host has started
// the next, and what would be timed is the host.
//
// So a sample is a row of launches between two events, and samples of short kernels are all of one
// row: whole cycles through the copies of the arguments. A cycle is as far as the policy rotates,
// so each run finds its operands where the policy says, wherever the row begins. The row runs once
// ahead of the first event: the device is at it while the host starts the one that is timed, and
// the time begins when that does. Runs that are long beside a start need neither.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tuner/measure/runnable.h"
#include "vm/interpreter/gpu_launches.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::tuner {
namespace {

// Starting one by one takes the host a few microseconds each.
constexpr double kShortNs = 20'000, kLongNs = 500'000;
// A cycle of short kernels may take so many times what a sample should.
constexpr double kLongestCycle = 32;
constexpr int64_t kMostRuns = 4096;

class GpuRunnable final : public Runnable {
 public:
  GpuRunnable(std::shared_ptr<const rt::Model> model, uint32_t kernel, const Arguments& arguments,
              Rotation& rotation)
      : model_(std::move(model)),
        kernel_(kernel),
        arguments_(arguments),
        rotation_(rotation),
        device_(*model_->gpu()),
        storage_(device_),
        scratch_(storage_),
        frames_(arguments.variants()),
        begin_(device_),
        end_(device_),
        launches_(model_->kernels()) {
    for (size_t v = 0; v < frames_.size(); ++v) {
      frames_[v].reserve(model_->kernels());
      rt::bind_arguments(model_->kernels()[kernel], arguments.values(v), &frames_[v]);
      rt::make_ready(model_->kernels()[kernel], arguments.values(v), 1, &frames_[v]);
    }
  }

  void run() override {
    start(1);
    wait();
  }

  int64_t runs_for(double sample_ns, double once_ns) override {
    const auto copies = static_cast<int64_t>(rotation_.copies());
    const auto runs =
        std::clamp<int64_t>(static_cast<int64_t>(std::ceil(sample_ns / once_ns)), 1, kMostRuns);
    once_ns_ = once_ns;
    whole_cycles_ = once_ns < kShortNs && copies <= kMostRuns &&
                    static_cast<double>(copies) * once_ns <= kLongestCycle * sample_ns;
    return whole_cycles_ ? (runs + copies - 1) / copies * copies : runs;
  }

  double sample(int64_t runs) override {
    device_.enter();
    if (whole_cycles_)
      start(runs);
    else if (once_ns_ < kLongNs)
      start(1);
    device_.record(begin_.get());
    start(runs);
    device_.record(end_.get());
    wait();
    return static_cast<double>(std::max<int64_t>(1, end_.since(begin_))) /
           static_cast<double>(runs);
  }

 private:
  // Asks the device for so many runs.
  void start(int64_t runs) {
    if (whole_cycles_) rotation_.rewind();
    launches_.begin_slice();
    for (int64_t i = 0; i < runs; ++i) {
      const size_t v = rotation_.next();
      launches_.launch(kernel_, arguments_.values(v), scratch_, &frames_[v], nullptr);
    }
    launches_.end_slice();
  }

  // Error(kFatal) where a check in the kernel failed, and what the driver says.
  void wait() {
    device_.synchronize();
    launches_.settle(nullptr);
  }

  std::shared_ptr<const rt::Model> model_;
  const uint32_t kernel_;
  const Arguments& arguments_;
  Rotation& rotation_;
  rt::CudaDevice& device_;
  rt::StoragePool storage_;
  rt::Scratch scratch_;
  std::vector<rt::KernelFrame> frames_;  // of each copy
  rt::CudaEvent begin_, end_;
  double once_ns_ = 0;
  bool whole_cycles_ = false;
  rt::GpuLaunches launches_;  // goes first, and waits for what it has started
};

}  // namespace

std::unique_ptr<Runnable> make_gpu_runnable(std::shared_ptr<const rt::Model> model, uint32_t kernel,
                                            const Arguments& arguments, Rotation& rotation) {
  return std::make_unique<GpuRunnable>(std::move(model), kernel, arguments, rotation);
}

}  // namespace nimble::tuner
