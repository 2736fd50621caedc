// Memory for storages: blocks in size classes, kept for reuse, under a hard cap.
//
// Dynamic shapes ask for a different size at every run, so a pool that reuses exact sizes only
// grows without end. Classes are four to a power of two (at most 25 % is lost to rounding), and
// a free block serves any request of at least half its size, the best fit first. Blocks kept are
// given back when the cap is near and, at the end of a run, beyond twice what recent runs used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "vm/runtime/device.h"

namespace nimble::rt {

struct Block {
  uint8_t* data = nullptr;
  size_t bytes = 0;  // usable, at least what was asked for
};

struct MemoryStats {
  uint64_t in_use = 0, reserved = 0, peak = 0;
  uint64_t allocations = 0, reuses = 0;
};

// Thread safe: a user may give an output back from any thread.
class StoragePool {
 public:
  // `limit`: bytes that may be reserved in all, 0 for no limit.
  explicit StoragePool(Device& device, uint64_t limit = 0) : device_(device), limit_(limit) {}
  ~StoragePool();
  StoragePool(const StoragePool&) = delete;
  StoragePool& operator=(const StoragePool&) = delete;

  // A block of at least `bytes` (0 is fine), aligned to 64 bytes, contents undefined.
  // Error(kExhausted) beyond the limit or when the system has no more.
  Block allocate(uint64_t bytes);
  void release(Block block);

  // Counts memory that is held elsewhere (the interpreter's registers) against the limit.
  void charge(uint64_t bytes);
  void refund(uint64_t bytes);

  // Gives every kept block back.
  void trim();
  // Marks the end of a run: keeps at most twice what the busiest recent run used.
  void end_run();
  MemoryStats stats() const;
  Device& device() const { return device_; }

 private:
  static constexpr int kClasses = 4 * 64;
  bool make_room(uint64_t bytes);  // trims until `bytes` more fit under the limit
  void trim_to(uint64_t keep);

  Device& device_;
  const uint64_t limit_;
  mutable std::mutex mutex_;
  std::array<std::vector<uint8_t*>, kClasses> free_;
  MemoryStats stats_;
  uint64_t charged_ = 0;
  uint64_t run_peak_ = 0, recent_peak_ = 0;
};

}  // namespace nimble::rt
