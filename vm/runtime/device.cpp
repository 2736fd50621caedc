#include "vm/runtime/device.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "vm/base/error.h"
#include "vm/runtime/cuda_device.h"
#include "vm/runtime/round_up.h"
#include "vm/runtime/stand_in_device.h"

namespace nimble::rt {
namespace {

constexpr size_t kPage = Device::kGranule;
// From here on memory comes from the system and goes back to it at once; what malloc is given back
// it may keep, and the process would hold more than its pools do.
constexpr size_t kMapped = size_t{64} << 10;

class CpuDevice final : public Device {
 public:
  int32_t number() const override { return kCpuDevice; }
  bool host_accessible() const override { return true; }

  void* allocate(size_t bytes) override {
    if (bytes >= kMapped) return map_huge(bytes);
    return std::aligned_alloc(64, round_up(bytes, 64));
  }
  bool allocates_zeros(size_t bytes) const override { return bytes >= kMapped; }
  void clear(void* memory, size_t bytes) override { std::memset(memory, 0, bytes); }
  void free(void* memory, size_t bytes) override {
    if (bytes >= kMapped)
      unmap_huge(memory, bytes);
    else
      std::free(memory);
  }
  bool frees_parts(size_t bytes) const override { return bytes >= kMapped; }
  void free_part(void* memory, size_t bytes) override { unmap_huge(memory, bytes); }
  void copy_in(void* memory, const void* host, size_t bytes) override {
    std::memcpy(memory, host, bytes);
  }
  void copy_out(void* host, const void* memory, size_t bytes) override {
    std::memcpy(host, memory, bytes);
  }
  void copy_within(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void begin_kernel() override {}
  void end_kernel() override {}
};

std::atomic<bool> checks{true};

}  // namespace

Device& device(int32_t number) {
  static CpuDevice cpu;
  // Never destroyed: outputs and models that die with the process still give memory back.
  static StandInDevice& stand_in = *new StandInDevice;
  if (number == kCpuDevice) return cpu;
  if (number == kStandInDevice) return stand_in;
  if (number == kCudaDevice) return cuda_device();
  throw Error(Status::kUnsupported, "", fmt::format("the program uses device {}", number),
              fmt::format("this runtime has devices 0 to {}: compile the model for one of them",
                          kDeviceCount - 1));
}

void copy(Device& to_device, void* to, Device& from_device, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (&to_device == &from_device) return to_device.copy_within(to, from, bytes);
  if (from_device.host_accessible()) return to_device.copy_in(to, from, bytes);
  if (to_device.host_accessible()) return from_device.copy_out(to, from, bytes);
  std::vector<uint8_t> host(bytes);
  from_device.copy_out(host.data(), from, bytes);
  to_device.copy_in(to, host.data(), bytes);
}

bool device_checks() {
  return checks.load(std::memory_order_relaxed);
}
void set_device_checks(bool on) {
  checks.store(on, std::memory_order_relaxed);
}

void* map_huge(size_t bytes) {
  // The kernel gives huge pages only to whole, aligned 2 MiB stretches: map one more than needed
  // and cut the ends off. What does not fill such a stretch stays on small pages.
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t size = round_up(bytes, kPage);
  if (size < kHugePage) {
    void* small = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return small == MAP_FAILED ? nullptr : small;
  }
  const size_t padded = size + kHugePage;
  void* raw = ::mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t start = round_up(begin, kHugePage);
  if (start > begin) ::munmap(raw, start - begin);
  if (const size_t tail = begin + padded - (start + size); tail > 0)
    ::munmap(reinterpret_cast<void*>(start + size), tail);
  void* memory = reinterpret_cast<void*>(start);
  ::madvise(memory, size, MADV_HUGEPAGE);  // advice: without it all works, only slower
  return memory;
}

void unmap_huge(void* memory, size_t bytes) {
  ::munmap(memory, round_up(bytes, kPage));
}

}  // namespace nimble::rt
