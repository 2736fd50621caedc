// The kernels that a session has started on the GPU. It waits for none of them: a check that failed
// and a fault of the hardware are found where the run waits for the device anyway, when it copies
// something out and at its end.
//
// A kernel with steps of its whole grid is started once for all of them where its blocks are all on
// the device at once, outside of stretches, and else once for each.
//
// A kernel whose check fails leaves its status in a cell that host and device share, one per kernel
// of the model. What runs behind it computes with what it left undone; the host sees nothing of it,
// for the run ends where it would be copied out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/interpreter/gpu_stretches.h"
#include "vm/interpreter/kernel.h"
#include "vm/interpreter/profiler.h"
#include "vm/runtime/cuda_device.h"

namespace nimble::rt {

class GpuLaunches {
 public:
  // Takes memory at the first launch only.
  explicit GpuLaunches(std::span<const PreparedKernel> kernels) : kernels_(kernels) {}
  ~GpuLaunches();
  GpuLaunches(const GpuLaunches&) = delete;
  GpuLaunches& operator=(const GpuLaunches&) = delete;

  // Starts the model's kernel `index`, whose arguments are bound: its code, or a vendor's routine,
  // for which the kernel's code stands in where the library has nothing for the call or cannot do
  // it (kUnsupported, kExhausted). Error(kUnsupported) for a grid that no GPU takes. Steps of a
  // grid behind the first are a step each of the frame's meter. With a profiler it is told, when
  // the launch has been waited for, how long the kernel took.
  KernelCallResult launch(uint32_t index, std::span<const Value> arguments, Scratch& scratch,
                          KernelFrame* frame, Profiler* profiler);
  // Before a slice of a run, whose launches are made on one thread.
  void begin_slice() { entered_ = false; }
  // At its end, nothing may be put off (gpu_stretches.h): it is started, or dropped if the run has
  // failed.
  void end_slice() {
    if (stretches_) stretches_->ask();
  }
  void drop_slice() noexcept {
    if (stretches_) stretches_->drop();
  }
  // Gives back what is kept for later runs.
  void trim() noexcept {
    if (stretches_) stretches_->clear();
  }
  // Whether a launch has not been waited for.
  bool pending() const { return !launched_.empty(); }
  // After the device was waited for: Error(kFatal) of the first kernel whose check failed.
  void settle(Profiler* profiler);
  // Waits for the device and settles, if anything is pending.
  void wait(Profiler* profiler);
  // Waits for what an ended run left behind; it is nobody's business any more.
  void forget() noexcept;
  // Where the device was lost, which kernels may have done it; else "".
  std::string suspects() const;

 private:
  // Of one kernel since the device was last waited for.
  struct Since {
    uint32_t launches = 0;
    std::vector<int64_t> symbols;  // of the last one
  };
  // A launch that is timed, and its events' place.
  struct Timed {
    uint32_t kernel = 0, implementation = 0;
    int32_t threads = 0;  // of a block; 1 of a routine
    size_t events = 0;
    std::vector<int64_t> symbols;
  };
  void prepare(CudaDevice& device);
  // Has a vendor's routine started; nothing where it has none for the call, or cannot start it, and
  // the kernel's code is to serve.
  std::optional<KernelCallResult> start_routine(uint32_t index, const KernelTarget& target,
                                                std::span<const Value> arguments, Scratch& scratch,
                                                KernelFrame* frame, Profiler* profiler);
  // Told before it happens: what the hardware then finds names the kernel.
  void note(uint32_t index, std::span<const int64_t> symbols);
  // What was noted last did not happen.
  void take_back(uint32_t index);
  // The device's context is the thread's for this slice, and stretches go on.
  void enter();
  // Between two events.
  void start_timed(uint32_t index, const KernelCallResult& done, std::span<const int64_t> symbols,
                   const std::function<void()>& start);
  // The two events of the next timed launch.
  size_t next_events();
  void tell(Profiler* profiler);
  void clear() noexcept;

  std::span<const PreparedKernel> kernels_;
  CudaDevice* device_ = nullptr;
  bool entered_ = false;  // in this slice
  std::unique_ptr<LaunchWords> words_;
  std::unique_ptr<TensorMaps> maps_;
  std::unique_ptr<GpuStretches> stretches_;
  std::unique_ptr<PinnedMemory> cells_;  // int32_t by kernel
  // Where the blocks of a grid meet between its steps, on the device; nullptr if no kernel has any,
  // or there is no memory: then each step is a launch.
  void* meeting_ = nullptr;
  std::vector<Since> since_;        // by kernel
  std::vector<uint32_t> launched_;  // kernels, in the order of their first launches
  std::vector<Timed> timed_;
  std::vector<std::unique_ptr<CudaEvent>> events_;
  size_t events_used_ = 0;
  int64_t began_ = 0;  // the host's time at the first event in use
};

}  // namespace nimble::rt
