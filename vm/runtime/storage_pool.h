// Memory for storages: blocks of their own from the system, kept for reuse, under a hard cap.
//
// Dynamic shapes ask for a different size at every run, so a pool that reuses exact sizes only
// grows without end, and one that rounds sizes up holds what nobody asked for. Here blocks have
// the size that was asked for, large ones a page more (below). A large free one, whose memory the
// system takes back in parts, is cut to what is asked for and becomes one with its free neighbours
// again (free_ranges.h): a run of another shape finds the memory of the run before. A smaller one
// serves any request that fills eight ninths of it. What the pool holds, live and free, stays
// within 17/16 of the peak of what was live in a recent run: before it asks the system for more,
// and at the end of a run, it gives back of the largest free blocks until that is so. Both together
// keep it within 1.2 times the largest need of a run, by construction, and a run of a shape seen in
// the last one finds every block on the lists. A program that needs little would spend more time on
// giving back than on its kernels: up to kAlwaysKept stay whatever is needed.
//
// Large blocks of the host's memory come in whole pages, but do not begin with one: each begins so
// many lines into its first page, another number than those before it. Tensors of a size would lie
// the same way otherwise, and a kernel that reads one and writes another at the same place of both
// waits: x86-64 compares a load with the stores before it by the last twelve bits of their
// addresses first, and may hold it until one that only looks the same is done. Rows a page apart
// share one set of the cache, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "vm/runtime/device.h"
#include "vm/runtime/fork.h"
#include "vm/runtime/free_ranges.h"

namespace nimble::rt {

struct Block {
  uint8_t* data = nullptr;
  size_t bytes = 0;  // usable, at least what was asked for
};

struct MemoryStats {
  uint64_t in_use = 0;                   // bytes live
  uint64_t reserved = 0;                 // bytes held from the system, live or free
  uint64_t peak = 0;                     // the most that was ever live
  uint64_t allocations = 0, reuses = 0;  // requests, and those that a free block served
};

// Thread safe: a user may give an output back from any thread.
class StoragePool {
 public:
  static constexpr uint64_t kAlwaysKept = uint64_t{1} << 20;

  // `limit`: bytes that may be held in all, free blocks and charges included; 0 for no limit.
  // `clears`: whether blocks are handed out as zeros, new ones and reused ones, so that a program
  // that nobody trusts finds nothing of what others left in the process's memory.
  explicit StoragePool(Device& device, uint64_t limit = 0, bool clears = false)
      : device_(device), limit_(limit), clears_(clears) {}
  ~StoragePool();
  StoragePool(const StoragePool&) = delete;
  StoragePool& operator=(const StoragePool&) = delete;

  // A block of at least `bytes` (0 is fine), aligned to 64 bytes, contents undefined unless the
  // pool clears. Error(kExhausted) beyond the limit, after every free block in the way went back,
  // or when the system has no more.
  Block allocate(uint64_t bytes);
  void release(Block block);

  // Counts memory that is held elsewhere (the interpreter's registers) against the limit.
  void charge(uint64_t bytes);
  void refund(uint64_t bytes);

  // Makes the n-th allocation or charge from now fail as at the limit; 0: none. So that tests can
  // try what follows at every place.
  void fail_request(uint64_t n);
  uint64_t failed_requests() const;  // by that

  // Gives every kept block back.
  void trim();
  // Marks the end of a run: what it needed, or an earlier run needed, bounds what is kept. Of the
  // latter an eighth is forgotten with each run, but no more than a small one may take time for:
  // giving back what a hundred times as large a run left would take longer than the run itself.
  void end_run();
  MemoryStats stats() const;
  Device& device() const { return device_; }
  uint64_t limit() const { return limit_; }
  bool clears() const { return clears_; }

 private:
  static constexpr int kClasses = 16 * 64;
  // Blocks of a class that are looked at for one that serves. Thousands of a size that never does
  // would make each request as long.
  static constexpr size_t kMostLooks = 64;
  // What a run's end may forget: so many times what the run needed, and kForgets at least.
  static constexpr uint64_t kForgetsTimes = 4, kForgets = uint64_t{64} << 10;
  // What a block of `size` takes of the system.
  uint64_t held(uint64_t size) const;
  Block obtain(uint64_t size, bool* zeros);
  Block take_kept(uint64_t size);
  Block hand_out(Block block);
  void keep(Block block);
  Block drop(int size_class, size_t index);
  bool make_room(uint64_t bytes);  // trims until `bytes` more may be held; false at the limit
  [[noreturn]] void fail_at_limit(uint64_t bytes) const;
  void trim_to(uint64_t keep);
  void fail_on_request();
  // Whether a block of so many bytes begins within a page.
  bool is_moved(uint64_t bytes) const;

  Device& device_;
  const uint64_t limit_;
  const bool clears_;
  mutable ForkSafeLock lock_;  // threads hardly ever meet in a pool
  FreeRanges ranges_;          // of the blocks that can be cut
  std::array<std::vector<Block>, kClasses> free_;
  // Bit i % 64 of word i / 64: class i has a free block.
  std::array<uint64_t, kClasses / 64> occupied_{};
  MemoryStats stats_;
  uint64_t charged_ = 0;
  uint64_t moved_ = 0;    // large blocks of the run so far
  uint64_t fail_in_ = 0;  // requests until one is made to fail
  uint64_t made_to_fail_ = 0;
  uint64_t run_peak_ = 0, recent_peak_ = 0;
};

// Memory outside of a pool's blocks that counts against its limit while this lives.
class Charge {
 public:
  Charge() = default;
  ~Charge() { drop(); }
  Charge(Charge&& other) noexcept { swap(other); }
  Charge& operator=(Charge&& other) noexcept {
    drop();
    swap(other);
    return *this;
  }
  // Raises the charge to `bytes` in all; Error(kExhausted) beyond the limit. The first call decides
  // the pool, which may be nullptr: nothing is counted then.
  void at_least(StoragePool* pool, uint64_t bytes) {
    if (bytes <= bytes_) return;
    if (!pool_) pool_ = pool;
    if (pool_) pool_->charge(bytes - bytes_);
    bytes_ = bytes;
  }
  void drop() noexcept {
    if (pool_) pool_->refund(bytes_);
    pool_ = nullptr;
    bytes_ = 0;
  }

 private:
  void swap(Charge& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bytes_, other.bytes_);
  }
  StoragePool* pool_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace nimble::rt
