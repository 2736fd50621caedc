// Loads and stores of portable kernels. Every element is checked against its buffer's extent
// before it is touched; index arithmetic wraps, so that a wild index is merely outside.
#include <algorithm>
#include <cstring>

#include "vm/base/error.h"
#include "vm/interpreter/portable_operations.h"

namespace nimble::rt {
namespace {

using Operation = PortableOperation;
using State = PortableState;
using Buffer = PortableMemory;
using exec::PortableOp;

[[noreturn, gnu::cold, gnu::noinline]] void outside(const State& s, const Operation* op,
                                                    size_t buffer, int64_t at, int64_t extent) {
  throw Error(Status::kFatal, "",
              fmt::format("{}: its portable code accesses element {} of buffer {}, which has {}",
                          s.name, at, op->operand[buffer], extent),
              "report it: the kernel is wrong");
}

// Where the access of operands buffer, index, index, displacement begins.
int64_t place(const State& s, const Operation* op, size_t buffer) {
  return static_cast<int64_t>(static_cast<uint64_t>(s.index[op->operand[buffer + 1]]) +
                              static_cast<uint64_t>(s.index[op->operand[buffer + 2]]) +
                              static_cast<uint64_t>(op->immediate));
}

// The address of `count` consecutive elements; `count` is positive.
uint8_t* dense(const State& s, const Operation* op, size_t buffer, int64_t count, size_t size) {
  const Buffer& b = s.buffers[op->operand[buffer]];
  const int64_t at = place(s, op, buffer);
  if (at < 0 || count > b.extent - at) [[unlikely]]
    outside(s, op, buffer, at, b.extent);
  return b.data + static_cast<size_t>(at) * size;
}

// The address of one element of a strided access.
uint8_t* element(const State& s, const Operation* op, size_t buffer, int64_t first, int64_t stride,
                 uint32_t lane, size_t size) {
  const Buffer& b = s.buffers[op->operand[buffer]];
  const auto at =
      static_cast<int64_t>(static_cast<uint64_t>(first) + lane * static_cast<uint64_t>(stride));
  if (at < 0 || at >= b.extent) [[unlikely]]
    outside(s, op, buffer, at, b.extent);
  return b.data + static_cast<size_t>(at) * size;
}

uint32_t valid_lanes(const State& s, const Operation* op, size_t operand) {
  return static_cast<uint32_t>(std::clamp<int64_t>(s.index[op->operand[operand]], 0, op->lanes));
}

// A bool in memory may be any byte: a register's is 0 or 1.
template <bool IsBool>
void normalise(uint8_t* value, uint32_t lanes) {
  if constexpr (IsBool)
    for (uint32_t i = 0; i < lanes; ++i) value[i] = value[i] != 0;
}

// Bytes = 0: as many as the operation says.
template <uint32_t Size, uint32_t Bytes, bool IsBool>
const Operation* load(State& s, const Operation* op) {
  uint8_t* to = s.frame + op->operand[0];
  std::memcpy(to, dense(s, op, 1, op->lanes, Size), Bytes ? Bytes : op->bytes);
  normalise<IsBool>(to, op->lanes);
  return op + 1;
}

template <uint32_t Size, uint32_t Bytes, bool IsBool>
const Operation* store(State& s, const Operation* op) {
  std::memcpy(dense(s, op, 0, op->lanes, Size), s.frame + op->operand[4],
              Bytes ? Bytes : op->bytes);
  return op + 1;
}

template <uint32_t Size, bool IsBool>
const Operation* load_splat(State& s, const Operation* op) {
  uint8_t* to = s.frame + op->operand[0];
  uint8_t one[Size];
  std::memcpy(one, dense(s, op, 1, 1, Size), Size);
  for (uint32_t i = 0; i < op->lanes; ++i) std::memcpy(to + i * Size, one, Size);
  normalise<IsBool>(to, op->lanes);
  return op + 1;
}

template <uint32_t Size, bool IsBool>
const Operation* load_strided(State& s, const Operation* op) {
  uint8_t* to = s.frame + op->operand[0];
  const int64_t first = place(s, op, 1), stride = s.index[op->operand[5]];
  for (uint32_t i = 0; i < op->lanes; ++i)
    std::memcpy(to + i * Size, element(s, op, 1, first, stride, i, Size), Size);
  normalise<IsBool>(to, op->lanes);
  return op + 1;
}

// The lanes beyond the valid ones; a register overlaps another only if it is the same.
void pass_through(State& s, const Operation* op) {
  if (op->operand[6] != op->operand[0])
    std::memcpy(s.frame + op->operand[0], s.frame + op->operand[6], op->bytes);
}

template <uint32_t Size, bool IsBool>
const Operation* load_masked(State& s, const Operation* op) {
  pass_through(s, op);
  uint8_t* to = s.frame + op->operand[0];
  const uint32_t valid = valid_lanes(s, op, 5);
  if (valid > 0) std::memcpy(to, dense(s, op, 1, valid, Size), valid * Size);
  normalise<IsBool>(to, valid);
  return op + 1;
}

template <uint32_t Size, bool IsBool>
const Operation* load_masked_strided(State& s, const Operation* op) {
  pass_through(s, op);
  uint8_t* to = s.frame + op->operand[0];
  const uint32_t valid = valid_lanes(s, op, 5);
  const int64_t first = place(s, op, 1), stride = s.index[op->operand[7]];
  for (uint32_t i = 0; i < valid; ++i)
    std::memcpy(to + i * Size, element(s, op, 1, first, stride, i, Size), Size);
  normalise<IsBool>(to, valid);
  return op + 1;
}

template <uint32_t Size>
const Operation* store_strided(State& s, const Operation* op) {
  const uint8_t* from = s.frame + op->operand[4];
  const int64_t first = place(s, op, 0), stride = s.index[op->operand[5]];
  for (uint32_t i = 0; i < op->lanes; ++i)
    std::memcpy(element(s, op, 0, first, stride, i, Size), from + i * Size, Size);
  return op + 1;
}

template <uint32_t Size>
const Operation* store_masked(State& s, const Operation* op) {
  const uint32_t valid = valid_lanes(s, op, 5);
  if (valid > 0) std::memcpy(dense(s, op, 0, valid, Size), s.frame + op->operand[4], valid * Size);
  return op + 1;
}

template <uint32_t Size>
const Operation* store_masked_strided(State& s, const Operation* op) {
  const uint8_t* from = s.frame + op->operand[4];
  const uint32_t valid = valid_lanes(s, op, 5);
  const int64_t first = place(s, op, 0), stride = s.index[op->operand[6]];
  for (uint32_t i = 0; i < valid; ++i)
    std::memcpy(element(s, op, 0, first, stride, i, Size), from + i * Size, Size);
  return op + 1;
}

template <uint32_t Size, bool IsBool>
Operation::Run of_size(PortableOp op, uint32_t lanes) {
  // The common vectors of f32 and the scalar move by one instruction or four.
  const uint32_t bytes = lanes * Size;
  switch (op) {
    case PortableOp::kLoad:
      if (bytes == Size) return load<Size, Size, IsBool>;
      if (bytes == 16) return load<Size, 16, IsBool>;
      if (bytes == 32) return load<Size, 32, IsBool>;
      if (bytes == 64) return load<Size, 64, IsBool>;
      return load<Size, 0, IsBool>;
    case PortableOp::kStore:
      if (bytes == Size) return store<Size, Size, IsBool>;
      if (bytes == 16) return store<Size, 16, IsBool>;
      if (bytes == 32) return store<Size, 32, IsBool>;
      if (bytes == 64) return store<Size, 64, IsBool>;
      return store<Size, 0, IsBool>;
    case PortableOp::kLoadSplat:
      return load_splat<Size, IsBool>;
    case PortableOp::kLoadStrided:
      return load_strided<Size, IsBool>;
    case PortableOp::kLoadMasked:
      return load_masked<Size, IsBool>;
    case PortableOp::kLoadMaskedStrided:
      return load_masked_strided<Size, IsBool>;
    case PortableOp::kStoreStrided:
      return store_strided<Size>;
    case PortableOp::kStoreMasked:
      return store_masked<Size>;
    case PortableOp::kStoreMaskedStrided:
      return store_masked_strided<Size>;
    default:
      NIMBLE_UNREACHABLE();
  }
}

}  // namespace

Operation::Run portable_memory(PortableOp op, exec::PortableValue value) {
  if (value.dtype == DType::kBool) return of_size<1, true>(op, value.lanes);
  switch (size_of(value.dtype)) {
    case 1:
      return of_size<1, false>(op, value.lanes);
    case 2:
      return of_size<2, false>(op, value.lanes);
    case 4:
      return of_size<4, false>(op, value.lanes);
    default:
      return of_size<8, false>(op, value.lanes);
  }
}

}  // namespace nimble::rt
