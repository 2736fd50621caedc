// A device that every machine has, to keep the compiler's placement of values honest.
//
// It computes on the CPU, with the CPU's kernels, but its memory is closed to everybody else: one
// arena of anonymous memory without any access rights (PROT_NONE), opened only while one of its
// own kernels or a copy runs. So a program that forgets a copy from it does not quietly work, as
// it would on a second name for the same memory, but faults, just as it would on a GPU. (The VM
// checks the devices of operands first and reports a clean error; the fault is what is left if
// that check has a hole.)
//
// Rights belong to the process, not to a thread: while a kernel of one session has the arena open,
// a forgotten copy in another session goes unnoticed. And a kernel of the stand-in can touch the
// host's memory: that direction only the VM's check sees.
//
// The arena is address space reserved once; a first-fit list of free ranges, joined when they
// meet, hands it out. A storage pool above reuses blocks, so the list stays short.
#pragma once

#include <map>

#include "vm/runtime/device.h"
#include "vm/runtime/fork.h"

namespace nimble::rt {

class StandInDevice final : public Device {
 public:
  // Address space costs nothing, but a limit of the process (ulimit -v) may refuse so much: then
  // the arena is smaller, though never below kSmallestArena.
  static constexpr size_t kLargestArena = size_t{1} << 36;
  static constexpr size_t kSmallestArena = size_t{1} << 20;

  explicit StandInDevice(size_t arena = kLargestArena) : arena_(arena) {}
  ~StandInDevice() override;
  StandInDevice(const StandInDevice&) = delete;
  StandInDevice& operator=(const StandInDevice&) = delete;

  int32_t number() const override { return kStandInDevice; }
  bool host_accessible() const override { return false; }

  void* allocate(size_t bytes) override;
  bool allocates_zeros(size_t) const override { return false; }
  void free(void* memory, size_t bytes) override;
  bool frees_parts(size_t) const override { return false; }
  void free_part(void*, size_t) override {}
  void clear(void* memory, size_t bytes) override;
  void copy_in(void* device, const void* host, size_t bytes) override;
  void copy_out(void* host, const void* device, size_t bytes) override;
  void copy_within(void* to, const void* from, size_t bytes) override;
  void begin_kernel() override;
  void end_kernel() override;

  // Bytes handed out and not given back.
  size_t in_use() const;

 private:
  // The arena, unless there is one; there is none afterwards if the system refuses.
  void reserve();
  // Sets the rights of the arena's used part.
  void protect(size_t begin, size_t end, int rights);

  const size_t arena_;  // the most that is reserved
  mutable ForkSafeLock lock_;
  uint8_t* base_ = nullptr;
  size_t size_ = 0;  // of the reserved address space
  size_t top_ = 0;   // beyond here nothing was ever handed out
  size_t in_use_ = 0;
  std::map<size_t, size_t> free_;  // below top_: offset -> bytes
  int open_ = 0;                   // kernels and copies that run
};

}  // namespace nimble::rt
