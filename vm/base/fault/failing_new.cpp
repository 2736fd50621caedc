#include "vm/base/fault/failing_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace nimble {
namespace {

thread_local uint64_t calls = 0;
thread_local uint64_t fail_at = 0;  // the call that fails; 0: none
thread_local bool fail_later = false, has_failed = false;
std::atomic<int64_t> live{0};

void* allocate(size_t bytes, size_t alignment) noexcept {
  ++calls;
  if (fail_at != 0 && (calls == fail_at || (calls > fail_at && fail_later))) {
    has_failed = true;
    return nullptr;
  }
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes == 0 ? 1 : bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory) live.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void release(void* memory) noexcept {
  if (memory) live.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* memory = allocate(bytes, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t live_news() {
  return live;
}

CountNew::CountNew() : before_(calls) {}
uint64_t CountNew::count() const {
  return calls - before_;
}

FailNew::FailNew(uint64_t n, bool and_all_later) {
  fail_at = calls + n;
  fail_later = and_all_later;
  has_failed = false;
}
FailNew::~FailNew() {
  fail_at = 0;
}
bool FailNew::failed() const {
  return has_failed;
}

}  // namespace nimble

// All forms: the library's array and nothrow forms end in the plain ones, a sanitizer's do not.
#define NIMBLE_NEW(form)                                                                          \
  void* operator form(size_t bytes) {                                                             \
    return nimble::allocate_or_throw(bytes, 1);                                                   \
  }                                                                                               \
  void* operator form(size_t bytes, const std::nothrow_t&) noexcept {                             \
    return nimble::allocate(bytes, 1);                                                            \
  }                                                                                               \
  void* operator form(size_t bytes, std::align_val_t alignment) {                                 \
    return nimble::allocate_or_throw(bytes, static_cast<size_t>(alignment));                      \
  }                                                                                               \
  void* operator form(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept { \
    return nimble::allocate(bytes, static_cast<size_t>(alignment));                               \
  }
#define NIMBLE_DELETE(form)                                                            \
  void operator form(void* memory) noexcept {                                          \
    nimble::release(memory);                                                           \
  }                                                                                    \
  void operator form(void* memory, size_t) noexcept {                                  \
    nimble::release(memory);                                                           \
  }                                                                                    \
  void operator form(void* memory, std::align_val_t) noexcept {                        \
    nimble::release(memory);                                                           \
  }                                                                                    \
  void operator form(void* memory, size_t, std::align_val_t) noexcept {                \
    nimble::release(memory);                                                           \
  }                                                                                    \
  void operator form(void* memory, const std::nothrow_t&) noexcept {                   \
    nimble::release(memory);                                                           \
  }                                                                                    \
  void operator form(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { \
    nimble::release(memory);                                                           \
  }
NIMBLE_NEW(new)
NIMBLE_NEW(new[])
NIMBLE_DELETE(delete)
NIMBLE_DELETE(delete[])
