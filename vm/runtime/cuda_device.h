// An NVIDIA GPU: memory, copies and launches, all in the order of one stream, so that memory that
// is handed on from one kernel to the next needs no waiting, whichever session they belong to.
//
// Launches and copies into the device return before they are done; what the host gave may change at
// once (it was copied to pinned memory). A copy out returns when it is done, and so is all before
// it. An error of a kernel is found by a later call. One that the driver calls sticky loses the
// device with all memory and code in it: every call from then on says so, and giving memory back
// does nothing. Who asks for the device afterwards (cuda_device()) gets a new one.
//
// A fork()ed child has no use of its parent's device; one that was not used before the fork is the
// child's own.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "vm/base/gpu_facts.h"
#include "vm/runtime/chunk_arena.h"
#include "vm/runtime/cuda_driver.h"
#include "vm/runtime/device.h"
#include "vm/runtime/fork.h"

namespace nimble::rt {

// What a GPU is, and its number among those that the driver sees.
struct CudaDeviceInfo : GpuFacts {
  int ordinal = 0;
};
// Of the GPU that NIMBLE_CUDA_DEVICE names by its number, else the first. Error(kUnsupported).
CudaDeviceInfo cuda_device_info(const CudaDriver& driver);

// What a thread may mean to ask of a device a little later, together with what is still to come. It
// must not show: whoever wants anything else of the device on that thread lets it ask first.
class PutOff {
 public:
  virtual void ask() = 0;
  // The same for what gives something back; an error is told later.
  virtual void ask_quietly() noexcept = 0;

 protected:
  ~PutOff() = default;
};

class CudaDevice final : public Device {
 public:
  // Takes the primary context of that GPU.
  explicit CudaDevice(const CudaDriver& driver) : CudaDevice(driver, /*anew=*/false) {}
  // Anew: what was in the context before is gone, whoever had it.
  CudaDevice(const CudaDriver& driver, bool anew);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  int32_t number() const override { return kCudaDevice; }
  bool host_accessible() const override { return false; }
  void* allocate(size_t bytes) override;
  bool allocates_zeros(size_t) const override { return false; }
  void free(void* memory, size_t bytes) override;
  bool frees_parts(size_t bytes) const override { return bytes >= kParts; }
  void free_part(void* memory, size_t bytes) override;
  void clear(void* memory, size_t bytes) override;
  void copy_in(void* device, const void* host, size_t bytes) override;
  void copy_out(void* host, const void* device, size_t bytes) override;
  void copy_within(void* to, const void* from, size_t bytes) override;
  void begin_kernel() override {}
  void end_kernel() override {}

  const CudaDriver& driver() const { return driver_; }
  const CudaDeviceInfo& info() const { return info_; }
  // Starts a kernel. `parameters`: where each lies, as many as it has. The grid is not empty. The
  // context is the thread's, and nothing is put off.
  void launch(cuda::Function function, const std::array<uint32_t, 3>& grid, uint32_t threads,
              uint32_t shared_bytes, void** parameters);
  // How many blocks of so many threads and bytes of shared memory are there at once, whatever else
  // runs; 0 if the GPU or its driver starts no grid whose blocks wait for each other.
  int64_t blocks_at_once(cuda::Function function, uint32_t threads, uint32_t shared_bytes);
  // Starts a kernel whose blocks wait for each other, under the same conditions as launch(). False,
  // and nothing has happened, if they are not there at once after all: others may have a part of
  // the GPU for themselves.
  bool launch_together(cuda::Function function, const std::array<uint32_t, 3>& grid,
                       uint32_t threads, uint32_t shared_bytes, void** parameters);
  // Starts all that a graph has, under the same conditions.
  void launch_graph(cuda::GraphExec graph);
  // What is to be told when the calling thread wants anything but launches and memory; nullptr:
  // nothing any more.
  static void put_off(PutOff* what) noexcept { put_off_ = what; }
  // Returns when all is done that was asked for before.
  void synchronize();
  void record(cuda::Event event);
  // For a library that starts kernels of its own in the device's order.
  cuda::Stream stream() const { return stream_; }
  // A stream in which nothing is ever done: what is captured into graphs is asked for there, so
  // that what others ask of the device meanwhile does not get into them. One thread's at a time,
  // which holds the lock. The context is the thread's. As old as the device at its end: libraries
  // may know it for as long.
  cuda::Stream capture_stream();
  std::mutex& capture_lock() { return capture_lock_; }
  // Whether an error has made it useless to this process.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  // Makes the context the calling thread's, and asks for what this put off; throws if it cannot be
  // used.
  void enter();
  // The same for what gives something back: false if there is nothing to give it to.
  bool reenter() noexcept;
  // Makes the context the calling thread's for what nothing that is put off can disturb.
  void enter_quietly();
  bool usable() const { return !lost() && !forked_.load(std::memory_order_relaxed); }
  // Throws what CudaDriver::check throws, and notes a loss.
  void check(int result, std::string_view call, std::string_view more = {});

  // Bytes that are handed out, and held from the driver.
  size_t in_use() const;
  size_t reserved() const;
  // Gives back what is kept for reuse.
  void trim();

 private:
  // Memory of the host's that the device reads while the host goes on, in segments that are filled
  // one after the other.
  static constexpr size_t kSegments = 8, kSegment = size_t{1} << 20;
  // Bytes up to which a result comes by way of pinned memory.
  static constexpr size_t kSmallResult = size_t{512} << 10;
  // Blocks from here on are given back in parts.
  static constexpr size_t kParts = size_t{64} << 10;

  static bool hold(void* device) noexcept;
  static void let_go(void* device, bool in_child) noexcept;
  [[noreturn, gnu::cold]] void fail_unusable();
  [[noreturn, gnu::cold]] void fail_result(int result, std::string_view call,
                                           std::string_view more);
  void start_staging();
  // The stage's segment in use has `bytes` free from its returned place on.
  uint8_t* stage_room(size_t* bytes);
  void* obtain(size_t bytes);
  void give_back(void* memory) noexcept;

  static inline thread_local PutOff* put_off_ = nullptr;
  const CudaDriver& driver_;
  CudaDeviceInfo info_;
  int device_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr, capture_stream_ = nullptr;
  std::mutex capture_lock_;  // a forked child has no use of the device, and never takes it
  std::atomic<bool> lost_{false}, forked_{false};
  int lost_by_ = 0;  // set before lost_
  mutable ForkSafeLock memory_lock_;
  ChunkArena arena_;
  ForkSafeLock stage_lock_;
  uint8_t* stage_ = nullptr;
  size_t segment_ = 0, filled_ = 0;
  std::array<cuda::Event, kSegments> stage_events_{};  // recorded behind a segment's last copy
  std::array<bool, kSegments> stage_pending_{};
  ForkSafeLock result_lock_;
  void* result_ = nullptr;  // kSmallResult bytes of pinned memory
  ForkHook hook_;
};

// The device of kCudaDevice, made at the first call, and anew where it was lost.
// Error(kUnsupported) if there is none, or if it is not this process's.
CudaDevice& cuda_device();

// Pinned memory of the host's that the GPU reads and writes. Zeroed.
class PinnedMemory {
 public:
  PinnedMemory(CudaDevice& device, size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* host() const { return host_; }
  // Its address for kernels.
  void* of_device() const { return of_device_; }

 private:
  CudaDevice& device_;
  void *host_ = nullptr, *of_device_ = nullptr;
};

// An event of the device's.
class CudaEvent {
 public:
  explicit CudaEvent(CudaDevice& device);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cuda::Event get() const { return event_; }
  // From another one, both done; in nanoseconds.
  int64_t since(const CudaEvent& begin) const;

 private:
  CudaDevice& device_;
  cuda::Event event_ = nullptr;
};

// Machine code that is loaded: a cubin, or assembly that the driver compiles.
class DeviceModule {
 public:
  // `place` names the file in errors. Error(kCorrupt) for what is not whole (cubin.h).
  DeviceModule(CudaDevice& device, std::span<const uint8_t> image, const std::string& place);
  ~DeviceModule();
  DeviceModule(const DeviceModule&) = delete;
  DeviceModule& operator=(const DeviceModule&) = delete;

  // nullptr if there is none. It may be launched with `shared_bytes` of shared memory:
  // Error(kIncompatible) where no block has as many. Error(kCorrupt) if it has more parameters than
  // so many words and tensor maps behind them, or others, and the driver tells (of CUDA 12.4 and
  // newer).
  cuda::Function find(const std::string& symbol, uint32_t shared_bytes, size_t parameters,
                      size_t maps = 0);
  CudaDevice& device() const { return device_; }

 private:
  void expect_parameters(const std::string& symbol, cuda::Function function, size_t words,
                         size_t maps) const;

  CudaDevice& device_;
  std::string place_;
  cuda::Module module_ = nullptr;
  std::map<cuda::Function, uint32_t> shared_bytes_;  // that each may be launched with
};

}  // namespace nimble::rt
