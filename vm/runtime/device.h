// Where tensors live and kernels run. A device hands out raw memory and copies between it and the
// host's; a storage pool above it reuses that memory. What a device of another kind must bring is
// all in this interface: memory that the host may or may not address, copies, and a bracket around
// each kernel that the host computes in it. (A GPU's own kernels: cuda_device.h.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "vm/base/device_number.h"

namespace nimble::rt {

class Device {
 public:
  virtual ~Device() = default;
  // vm/base/device_number.h.
  virtual int32_t number() const = 0;
  std::string_view name() const { return device_name(number()); }

  // Memory aligned to at least 64 bytes, or nullptr if there is none left. `bytes` > 0.
  virtual void* allocate(size_t bytes) = 0;
  // Whether what allocate() gives at this size is all zeros.
  virtual bool allocates_zeros(size_t bytes) const = 0;
  // `bytes` as given to allocate.
  virtual void free(void* memory, size_t bytes) = 0;
  virtual void clear(void* memory, size_t bytes) = 0;
  // Whether memory of that many bytes may be given back in parts, of whole granules each: what
  // allocate() gives then has round_up(bytes, kGranule) bytes.
#if defined(__aarch64__)
  static constexpr size_t kGranule = 65536;  // a multiple of every size that pages have there
#else
  static constexpr size_t kGranule = 4096;
#endif
  virtual bool frees_parts(size_t bytes) const = 0;
  virtual void free_part(void* memory, size_t bytes) = 0;

  // Copies into, out of and within the device's memory. As clear(), they seem done when they
  // return: the device does what it is asked in order, and the host has what is copied out.
  virtual void copy_in(void* device, const void* host, size_t bytes) = 0;
  virtual void copy_out(void* host, const void* device, size_t bytes) = 0;
  virtual void copy_within(void* to, const void* from, size_t bytes) = 0;

  // Around each kernel that runs on the device, from any thread; nesting and overlap are fine.
  virtual void begin_kernel() = 0;
  virtual void end_kernel() = 0;

  // Whether the host may read and write the memory directly.
  virtual bool host_accessible() const = 0;
};

// The device of a number; Error(kUnsupported) if this process has none of it.
Device& device(int32_t number);

// Copies between two places, each on its device; by way of the host where neither is the host's.
void copy(Device& to_device, void* to, Device& from_device, const void* from, size_t bytes);

// Holds a device between begin_kernel and end_kernel.
class KernelScope {
 public:
  explicit KernelScope(Device& device) : device_(device) { device_.begin_kernel(); }
  ~KernelScope() { device_.end_kernel(); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  Device& device_;
};

// The VM checks the device of every operand before it touches it. A test of what the hardware
// then finds (a stand-in's closed memory) turns the checks off for the process.
bool device_checks();
void set_device_checks(bool on);

inline constexpr size_t kHugePage = size_t{2} << 20;
// Anonymous memory, whole stretches of 2 MiB on huge pages if the system grants them (madvise);
// zeroed, nullptr on failure. For what is large and read often: the TLB reaches 512 times as far.
void* map_huge(size_t bytes);
void unmap_huge(void* memory, size_t bytes);

}  // namespace nimble::rt
