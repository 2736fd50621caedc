// What instructions ask of the registers that they read: the kinds that the verifier cannot know,
// each with its message. And how they write: field by field, for a compiler that is handed a whole
// Value takes it apart by way of the stack.
#pragma once

#include <cstring>

#include "vm/base/error.h"
#include "vm/runtime/device.h"
#include "vm/runtime/object.h"

namespace nimble::rt {

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_kind(std::string_view expected,
                                                             const Value& v) {
  throw Error(Status::kFatal, "",
              fmt::format("a {} is needed, the register holds a {}", expected,
                          v.is_scalar()   ? "scalar"
                          : v.is_object() ? name_of(v.object->kind)
                                          : "register without a value"),
              "report it: the program passes a wrong kind of value");
}

inline Tensor& tensor_of(const Value& v) {
  if (!v.is(ObjectKind::kTensor)) [[unlikely]]
    fail_kind("tensor", v);
  return *static_cast<Tensor*>(v.object);
}
inline Storage& storage_of(const Value& v) {
  if (!v.is(ObjectKind::kStorage)) [[unlikely]]
    fail_kind("storage", v);
  return *static_cast<Storage*>(v.object);
}
inline Cell& cell_of(const Value& v, ObjectKind kind) {
  if (!v.is(kind)) [[unlikely]]
    fail_kind(name_of(kind), v);
  return *static_cast<Cell*>(v.object);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_element_device(const Tensor& t) {
  throw Error(Status::kFatal, "",
              fmt::format("an element of a {} tensor ({}) is read on device 0 (cpu), it lies on "
                          "device {} ({})",
                          name_of(t.dtype), fmt::join(t.shape(), ", "), t.storage->device,
                          device_name(t.storage->device)),
              "report it: the program lacks a copy between devices");
}

// Element `index` of an integer or bool tensor as a scalar.
inline int64_t element_of(const Tensor& t, int64_t index) {
  if (index >= t.elements() || is_float(t.dtype)) [[unlikely]]
    throw Error(Status::kFatal, "",
                fmt::format("element {} of a tensor of integers is needed, not of {} ({})", index,
                            name_of(t.dtype), fmt::join(t.shape(), ", ")),
                "give integers or bools");
  const uint8_t* data = t.data();
  if (!data) [[unlikely]]
    throw Error(Status::kFatal, "", "a tensor is read whose storage was freed",
                "report it: the memory plan is wrong");
  if (t.storage->device != kCpuDevice && device_checks() &&
      !device(t.storage->device).host_accessible()) [[unlikely]]
    fail_element_device(t);
  data += static_cast<size_t>(index) * size_of(t.dtype);
  auto load = [&]<typename T>(T value) {
    std::memcpy(&value, data, sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (t.dtype) {
    case DType::kI8:
      return load(int8_t{});
    case DType::kI16:
      return load(int16_t{});
    case DType::kI32:
      return load(int32_t{});
    case DType::kI64:
      return load(int64_t{});
    case DType::kU16:
      return load(uint16_t{});
    case DType::kU32:
      return load(uint32_t{});
    case DType::kU64:
      return load(uint64_t{});
    default:
      return load(uint8_t{});  // bool, u8
  }
}

// The one element of an integer or bool tensor: what If and shape code may be given where data
// decides.
inline int64_t element_of(const Tensor& t) {
  if (t.elements() != 1) [[unlikely]]
    throw Error(Status::kFatal, "",
                fmt::format("a scalar or a tensor of one integer is needed, not {} ({})",
                            name_of(t.dtype), fmt::join(t.shape(), ", ")),
                "give a single integer or bool");
  return element_of(t, 0);
}

inline int64_t scalar_of(const Value& v) {
  if (v.is_scalar()) [[likely]]
    return v.scalar;
  return element_of(tensor_of(v));
}

// What a tensor that grows is moved or extended in: it must start where the tensor does.
inline Storage& storage_at_start_of(const Tensor& t) {
  if (t.offset != 0 || !t.storage->writable()) [[unlikely]]
    throw Error(Status::kFatal, "", "a tensor that has no storage of its own is extended",
                "report it: the memory plan is wrong");
  return *t.storage;
}

// Stores a scalar.
inline void put(Heap& heap, Value& to, int64_t scalar) {
  const bool held = to.is_object();
  Object* const old = to.object;
  to.scalar = scalar;
  to.tag = Value::Tag::kScalar;
  if (held) [[unlikely]]
    heap.release(old);
}
// Stores an object, whose reference moves in.
inline void put(Heap& heap, Value& to, Object* object) {
  const bool held = to.is_object();
  Object* const old = to.object;
  to.object = object;
  to.tag = Value::Tag::kObject;
  if (held) heap.release(old);
}
// Stores what another register or a field holds, with a reference of its own.
inline void put_copy(Heap& heap, Value& to, const Value& from) {
  const Value::Tag tag = from.tag;
  const bool held = to.is_object();
  Object* const old = to.object;
  const int64_t bits = from.scalar;
  if (tag == Value::Tag::kObject) ++from.object->refs;
  to.scalar = bits;
  to.tag = tag;
  if (held) heap.release(old);
}

}  // namespace nimble::rt
