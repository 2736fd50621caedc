// Values of data types outside of a session: what a user builds to call a model with, and what a
// model's result is read from. Immutable trees of tags and tensors, counted atomically, so that
// they outlive sessions and may be shared by threads. Freeing one walks a list of the dead: a list
// of a million cells dies without a million stack frames.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/runtime/object.h"

namespace nimble::rt {

class HostValue;

// One reference.
class HostValueRef {
 public:
  HostValueRef() = default;
  explicit HostValueRef(const HostValue* adopted) : value_(adopted) {}
  HostValueRef(const HostValueRef& other);
  HostValueRef(HostValueRef&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  HostValueRef& operator=(HostValueRef other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~HostValueRef();
  const HostValue* get() const { return value_; }
  const HostValue* operator->() const { return value_; }
  explicit operator bool() const { return value_ != nullptr; }
  const HostValue* release() { return std::exchange(value_, nullptr); }

 private:
  const HostValue* value_ = nullptr;
};

class HostValue {
 public:
  // A dense tensor; `data` is copied. Error(kInvalidArgument) for a shape that cannot be.
  static HostValueRef tensor(DType dtype, std::span<const int64_t> shape, const void* data);
  // A data-type value, or a tuple with tag 0. No field may be empty.
  static HostValueRef data(int64_t tag, std::vector<HostValueRef> fields);

  bool is_tensor() const { return tag_ < 0; }
  int64_t tag() const { return tag_; }  // -1 of a tensor
  std::span<const HostValueRef> fields() const { return fields_; }
  DType dtype() const { return dtype_; }
  std::span<const int64_t> shape() const { return shape_; }
  const uint8_t* bytes() const { return bytes_.data(); }

  void retain() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() const;
  bool shared() const { return refs_.load(std::memory_order_relaxed) > 1; }

 private:
  HostValue() = default;
  mutable std::atomic<uint64_t> refs_{1};
  int64_t tag_ = -1;
  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
  std::vector<uint8_t> bytes_;
  std::vector<HostValueRef> fields_;
};

// Named extents that are known so far; one name is one extent throughout a call.
using NamedExtents = std::unordered_map<std::string, int64_t>;

// The value as objects of a session, checked against its type all the way down, without recursion
// and each shared part once. Tensors are borrowed: `value` must outlive the run. `extents` takes
// part in the check and learns. Error(kInvalidArgument) at `place`.
Value to_heap(const HostValue& value, const exec::Executable& executable, uint32_t type,
              NamedExtents* extents, Heap& heap, const std::string& place);

// The reverse, on a copy. Error(kFatal) at `place` if the program broke its signature.
HostValueRef from_heap(const Value& value, const exec::Executable& executable, uint32_t type,
                       const std::string& place);

}  // namespace nimble::rt
