#include "vm/interpreter/test/failing_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace nimble::rt {
namespace {

thread_local uint64_t calls = 0;
thread_local uint64_t fail_at = 0;  // the call that fails; 0: none
thread_local bool fail_later = false, has_failed = false;

void* allocate(size_t bytes, size_t alignment) noexcept {
  ++calls;
  if (fail_at != 0 && (calls == fail_at || (calls > fail_at && fail_later))) {
    has_failed = true;
    return nullptr;
  }
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* memory = allocate(bytes, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

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

}  // namespace nimble::rt

// The library's array and nothrow forms are defined to end in these.
void* operator new(size_t bytes) {
  return nimble::rt::allocate_or_throw(bytes, 1);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return nimble::rt::allocate(bytes, 1);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return nimble::rt::allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes) {
  return nimble::rt::allocate_or_throw(bytes, 1);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}
