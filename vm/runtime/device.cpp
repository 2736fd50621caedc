#include "vm/runtime/device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "vm/base/error.h"

namespace nimble::rt {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

class CpuDevice final : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  bool host_accessible() const override { return true; }

  void* allocate(size_t bytes) override {
    if (bytes >= kHugePage) return map_huge(bytes);
    return std::aligned_alloc(64, round_up(bytes, 64));
  }
  void free(void* memory, size_t bytes) override {
    if (bytes >= kHugePage)
      unmap_huge(memory, bytes);
    else
      std::free(memory);
  }
  void copy_to_host(void* host, const void* memory, size_t bytes) override {
    std::memcpy(host, memory, bytes);
  }
  void copy_from_host(void* memory, const void* host, size_t bytes) override {
    std::memcpy(memory, host, bytes);
  }
};

}  // namespace

Device& device(int32_t number) {
  static CpuDevice cpu;
  if (number == 0) return cpu;
  throw Error(Status::kUnsupported, "", fmt::format("the program uses device {}", number),
              "this runtime has only device 0 (the CPU): compile the model for the CPU");
}

void* map_huge(size_t bytes) {
  // The kernel gives huge pages only to whole, aligned 2 MiB stretches: map one more than needed
  // and cut the ends off.
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t size = round_up(bytes, kHugePage), padded = size + kHugePage;
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
  ::munmap(memory, round_up(bytes, kHugePage));
}

}  // namespace nimble::rt
