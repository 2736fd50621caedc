// Memory of kernels' arguments in tests.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace nimble::kernels {

// Memory of an argument, aligned as that of tensors is.
template <typename T>
struct ArgumentAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};
  ArgumentAllocator() = default;
  template <typename U>
  ArgumentAllocator(const ArgumentAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kAlignment); }
  friend bool operator==(const ArgumentAllocator&, const ArgumentAllocator&) { return true; }
};
using ArgumentMemory = std::vector<std::byte, ArgumentAllocator<std::byte>>;

}  // namespace nimble::kernels
