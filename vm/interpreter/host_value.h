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
#include "vm/runtime/work_meter.h"

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

// One allocation each: shape and elements, or the fields, stand behind the object, so that a walk
// over a tree touches few cache lines.
class HostValue {
 public:
  // A dense tensor; `data` is copied. Error(kInvalidArgument) for a shape that cannot be.
  static HostValueRef tensor(DType dtype, std::span<const int64_t> shape, const void* data);
  // A data-type value, or a tuple with tag 0. No field may be empty.
  static HostValueRef data(int64_t tag, std::vector<HostValueRef> fields);

  bool is_tensor() const { return tag_ < 0; }
  int64_t tag() const { return tag_; }  // -1 of a tensor
  std::span<const HostValueRef> fields() const {
    return {reinterpret_cast<const HostValueRef*>(this + 1), is_tensor() ? 0 : count_};
  }
  DType dtype() const { return dtype_; }
  std::span<const int64_t> shape() const {
    return {reinterpret_cast<const int64_t*>(this + 1), is_tensor() ? count_ : 0};
  }
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(this) + elements_; }
  HostValue(const HostValue&) = delete;
  HostValue& operator=(const HostValue&) = delete;

  void retain() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() const;
  bool shared() const { return refs_.load(std::memory_order_relaxed) > 1; }

 private:
  HostValue(int64_t tag, DType dtype, uint32_t count, size_t elements)
      : tag_(tag), count_(count), elements_(elements), dtype_(dtype) {}
  // One with so many extents or fields, and `elements` bytes of elements.
  static HostValue* make(int64_t tag, DType dtype, size_t count, size_t elements);
  static void destroy(const HostValue* v);

  mutable std::atomic<uint64_t> refs_{1};
  int64_t tag_;
  uint32_t count_;   // extents or fields
  size_t elements_;  // offset
  DType dtype_;
};

// Named extents that are known so far; one name is one extent throughout a call.
using NamedExtents = std::unordered_map<std::string, int64_t>;

// The value as objects of a session, checked against its type all the way down, without recursion
// and each shared part once. Tensors are borrowed: `value` must outlive the run. `extents` takes
// part in the check and learns. Error(kInvalidArgument) at `place`.
Value to_heap(const HostValue& value, const exec::Executable& executable, uint32_t type,
              NamedExtents* extents, Heap& heap, const std::string& place);

// The reverse, on a copy. Error(kFatal) at `place` if the program broke its signature. The work is
// taken from `meter`; the copy, which outlives the session, may have as many bytes as the limit of
// the meter's pool, else Error(kExhausted): a program can put one tensor into many fields.
HostValueRef from_heap(const Value& value, const exec::Executable& executable, uint32_t type,
                       WorkMeter* meter, const std::string& place);

}  // namespace nimble::rt
