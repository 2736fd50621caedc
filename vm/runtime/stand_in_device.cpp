#include "vm/runtime/stand_in_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

#include "vm/base/error.h"
#include "vm/runtime/round_up.h"

namespace nimble::rt {
namespace {

constexpr size_t kUnit = 64;
constexpr size_t kPage = Device::kGranule;
// The used part grows in steps, each a system call if a kernel runs meanwhile.
constexpr size_t kStep = size_t{1} << 20;

}  // namespace

StandInDevice::~StandInDevice() {
  if (base_) ::munmap(base_, size_);
}

void StandInDevice::reserve() {
  for (size_t size = arena_; !base_ && size >= kSmallestArena; size /= 2) {
    void* memory =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    base_ = static_cast<uint8_t*>(memory);
    size_ = size;
  }
}

void StandInDevice::protect(size_t begin, size_t end, int rights) {
  if (::mprotect(base_ + begin, end - begin, rights) != 0)
    throw Error(
        Status::kExhausted, "",
        fmt::format("the system does not open {} bytes of the stand-in's memory", end - begin),
        "free some memory");
}

void* StandInDevice::allocate(size_t bytes) {
  std::lock_guard guard(lock_);
  reserve();
  if (bytes > size_) return nullptr;  // any, where the system gave no arena
  bytes = round_up(bytes, kUnit);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, size] = *it;
    if (size < bytes) continue;
    free_.erase(it);
    if (size > bytes) free_[offset + bytes] = size - bytes;
    in_use_ += bytes;
    return base_ + offset;
  }
  // Nothing fits: the used part grows, from the free range at its end if there is one.
  size_t offset = top_;
  if (!free_.empty()) {
    const auto last = std::prev(free_.end());
    if (last->first + last->second == top_) offset = last->first;
  }
  if (bytes > size_ - offset) return nullptr;
  const size_t top = std::min(size_, round_up(offset + bytes, kStep));
  if (open_ > 0) protect(top_, top, PROT_READ | PROT_WRITE);
  if (offset < top_) free_.erase(offset);
  top_ = top;
  if (top > offset + bytes) free_[offset + bytes] = top - offset - bytes;
  in_use_ += bytes;
  return base_ + offset;
}

void StandInDevice::free(void* memory, size_t bytes) {
  std::lock_guard guard(lock_);
  bytes = round_up(bytes, kUnit);
  in_use_ -= bytes;
  size_t begin = static_cast<size_t>(static_cast<uint8_t*>(memory) - base_), end = begin + bytes;
  // Whole pages go back to the system; what is read of them later is zero.
  const size_t first = round_up(begin, kPage), last = end / kPage * kPage;
  if (first < last) ::madvise(base_ + first, last - first, MADV_DONTNEED);
  auto after = free_.lower_bound(begin);
  if (after != free_.end() && after->first == end) {
    end += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  try {
    free_[begin] = end - begin;
  } catch (const std::bad_alloc&) {  // no room in the list: then this range is not used again
  }
}

void StandInDevice::clear(void* memory, size_t bytes) {
  const KernelScope open(*this);
  std::memset(memory, 0, bytes);
}

void StandInDevice::begin_kernel() {
  std::lock_guard guard(lock_);
  if (open_ == 0) protect(0, top_, PROT_READ | PROT_WRITE);
  ++open_;
}

void StandInDevice::end_kernel() {
  std::lock_guard guard(lock_);
  if (--open_ == 0 && top_ > 0) ::mprotect(base_, top_, PROT_NONE);
}

void StandInDevice::copy_in(void* device, const void* host, size_t bytes) {
  const KernelScope open(*this);
  std::memcpy(device, host, bytes);
}

void StandInDevice::copy_out(void* host, const void* device, size_t bytes) {
  const KernelScope open(*this);
  std::memcpy(host, device, bytes);
}

void StandInDevice::copy_within(void* to, const void* from, size_t bytes) {
  const KernelScope open(*this);
  std::memcpy(to, from, bytes);
}

size_t StandInDevice::in_use() const {
  std::lock_guard guard(lock_);
  return in_use_;
}

}  // namespace nimble::rt
