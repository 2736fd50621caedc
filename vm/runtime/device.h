// Where tensors live. A device hands out raw memory and copies between itself and the host; the
// storage pool above it reuses that memory. Device numbers are those of the bytecode (AllocStorage,
// DeviceCopy): 0 is the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nimble::rt {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  // Memory aligned to at least 64 bytes, or nullptr if there is none left. `bytes` > 0.
  virtual void* allocate(size_t bytes) = 0;
  // `bytes` as given to allocate.
  virtual void free(void* memory, size_t bytes) = 0;
  // Copies between memory of this device and of the host; returns when done.
  virtual void copy_to_host(void* host, const void* device, size_t bytes) = 0;
  virtual void copy_from_host(void* device, const void* host, size_t bytes) = 0;
  // Whether the host may read and write the memory directly.
  virtual bool host_accessible() const = 0;
};

// The device of a number; Error(kUnsupported) if this process has none of it.
Device& device(int32_t number);

// Anonymous memory in whole 2 MiB pages if the system grants them (madvise); zeroed, nullptr on
// failure. For what is large and read often: the TLB reaches 512 times as far.
void* map_huge(size_t bytes);
void unmap_huge(void* memory, size_t bytes);

}  // namespace nimble::rt
