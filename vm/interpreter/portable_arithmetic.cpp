// Arithmetic of portable kernels, lane by lane over vector registers: one function for each
// operation, type and common number of lanes, so that the compiler unrolls and vectorises them.
//
// A register overlaps another only if it is the same one, and every function reads all lanes of
// its operands before it writes a lane, or reads and writes lane by lane.
#include <cstring>

#include "vm/base/error.h"
#include "vm/base/half.h"
#include "vm/interpreter/portable_lanes.h"
#include "vm/interpreter/portable_operations.h"

namespace nimble::rt {
namespace {

using Operation = PortableOperation;
using State = PortableState;
using exec::PortableOp;
using exec::PortableTypes;
using exec::PortableValue;

template <class T>
T* lanes_of(State& s, const Operation* op, size_t operand) {
  return reinterpret_cast<T*>(s.frame + op->operand[operand]);
}

// Runs `lane` for each lane; with N > 0 lanes through registers of the machine.
template <class R, int N, class F>
const Operation* each(State& s, const Operation* op, F lane) {
  R* out = lanes_of<R>(s, op, 0);
  if constexpr (N > 0) {
    R results[N];
    for (int i = 0; i < N; ++i) results[i] = static_cast<R>(lane(i));
    std::memcpy(out, results, sizeof results);
  } else {
    for (uint32_t i = 0; i < op->lanes; ++i) out[i] = static_cast<R>(lane(i));
  }
  return op + 1;
}

template <class F, class R, class T, int N>
const Operation* unary(State& s, const Operation* op) {
  const T* a = lanes_of<T>(s, op, 1);
  return each<R, N>(s, op, [&](int i) { return F()(a[i]); });
}
template <class F, class R, class T, int N>
const Operation* binary(State& s, const Operation* op) {
  const T *a = lanes_of<T>(s, op, 1), *b = lanes_of<T>(s, op, 2);
  return each<R, N>(s, op, [&](int i) { return F()(a[i], b[i]); });
}
template <class F, class R, class T, int N>
const Operation* ternary(State& s, const Operation* op) {
  const T *a = lanes_of<T>(s, op, 1), *b = lanes_of<T>(s, op, 2), *c = lanes_of<T>(s, op, 3);
  return each<R, N>(s, op, [&](int i) { return F()(a[i], b[i], c[i]); });
}
template <class T, int N>
const Operation* select(State& s, const Operation* op) {
  const uint8_t* c = lanes_of<uint8_t>(s, op, 1);
  const T *a = lanes_of<T>(s, op, 2), *b = lanes_of<T>(s, op, 3);
  return each<T, N>(s, op, [&](int i) { return c[i] ? a[i] : b[i]; });
}
template <class T, int N>
const Operation* broadcast(State& s, const Operation* op) {
  const T a = *lanes_of<T>(s, op, 1);
  return each<T, N>(s, op, [&](int) { return a; });
}

// By halves: lane i with lane i + n/2, as kernel_ir.h and the machine's shuffles do.
template <class F, class T>
const Operation* reduce(State& s, const Operation* op) {
  T lanes[exec::kMaxPortableLanes];
  std::memcpy(lanes, lanes_of<T>(s, op, 1), op->lanes * sizeof(T));
  for (uint32_t half = op->lanes / 2; half > 0; half /= 2)
    for (uint32_t i = 0; i < half; ++i) lanes[i] = F()(lanes[i], lanes[half + i]);
  *lanes_of<T>(s, op, 0) = lanes[0];
  return op + 1;
}

// f16 and bf16 are their bits in registers; they take part in conversions only.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};
template <class T>
auto plain(T v) {
  if constexpr (std::is_same_v<T, F16>)
    return f32_from_f16(v.bits);
  else if constexpr (std::is_same_v<T, BF16>)
    return f32_from_bf16(v.bits);
  else if constexpr (std::is_same_v<T, Bool>)
    return v.bits;
  else
    return v;
}
template <class To, class From>
To convert(From from) {
  const auto v = plain(from);
  if constexpr (std::is_same_v<To, F16>)
    return {f16_from_f32(static_cast<float>(v))};
  else if constexpr (std::is_same_v<To, BF16>)
    return {bf16_from_f32(static_cast<float>(v))};
  else if constexpr (std::is_same_v<To, Bool>)
    return {static_cast<uint8_t>(v != 0)};
  else
    return lanes::convert<To>(v);
}
template <class To, class From>
const Operation* cast(State& s, const Operation* op) {
  // Lanes of another size: from a register of its own, never in place.
  const From* a = lanes_of<From>(s, op, 1);
  To* out = lanes_of<To>(s, op, 0);
  for (uint32_t i = 0; i < op->lanes; ++i) out[i] = convert<To>(a[i]);
  return op + 1;
}

// Calls f.template operator()<T>() with the C++ type of a dtype.
template <class F>
Operation::Run with_int(DType t, F f) {
  switch (t) {
    case DType::kI8:
      return f.template operator()<int8_t>();
    case DType::kI16:
      return f.template operator()<int16_t>();
    case DType::kI32:
      return f.template operator()<int32_t>();
    case DType::kI64:
      return f.template operator()<int64_t>();
    case DType::kU8:
      return f.template operator()<uint8_t>();
    case DType::kU16:
      return f.template operator()<uint16_t>();
    case DType::kU32:
      return f.template operator()<uint32_t>();
    case DType::kU64:
      return f.template operator()<uint64_t>();
    default:
      NIMBLE_UNREACHABLE("{}", name_of(t));
  }
}
template <class F>
Operation::Run with_float(DType t, F f) {
  if (t == DType::kF32) return f.template operator()<float>();
  NIMBLE_CHECK(t == DType::kF64);
  return f.template operator()<double>();
}
template <class F>
Operation::Run with_number(DType t, F f) {
  return is_float(t) ? with_float(t, f) : with_int(t, f);
}
// Bool operates like the integer of its size.
template <class F>
Operation::Run with_logic(DType t, F f) {
  return t == DType::kBool ? f.template operator()<uint8_t>() : with_int(t, f);
}
// Any type, where lanes are only moved.
template <class F>
Operation::Run with_moved(DType t, F f) {
  if (t == DType::kBool) return f.template operator()<uint8_t>();
  if (is_narrow_float(t)) return f.template operator()<uint16_t>();
  return with_number(t, f);
}

// The function for a number of lanes: most work is f32 in whole vectors, or scalar.
#define NIMBLE_BY_LANES(T, function, ...)                                  \
  do {                                                                     \
    if (lanes == 1) return &function<__VA_ARGS__ __VA_OPT__(, ) T, 1>;     \
    if constexpr (sizeof(T) == 4) {                                        \
      if (lanes == 4) return &function<__VA_ARGS__ __VA_OPT__(, ) T, 4>;   \
      if (lanes == 8) return &function<__VA_ARGS__ __VA_OPT__(, ) T, 8>;   \
      if (lanes == 16) return &function<__VA_ARGS__ __VA_OPT__(, ) T, 16>; \
    }                                                                      \
    return &function<__VA_ARGS__ __VA_OPT__(, ) T, 0>;                     \
  } while (false)

template <class F, class T>
Operation::Run unary_of(int lanes) {
  NIMBLE_BY_LANES(T, unary, F, T);
}
template <class F, class T>
Operation::Run binary_of(int lanes) {
  NIMBLE_BY_LANES(T, binary, F, T);
}
template <class F, class T>
Operation::Run ternary_of(int lanes) {
  NIMBLE_BY_LANES(T, ternary, F, T);
}
template <class F, class T>
Operation::Run compare_of(int lanes) {
  NIMBLE_BY_LANES(T, binary, F, uint8_t);
}
template <class T>
Operation::Run select_of(int lanes) {
  NIMBLE_BY_LANES(T, select);
}
template <class T>
Operation::Run broadcast_of(int lanes) {
  NIMBLE_BY_LANES(T, broadcast);
}
#undef NIMBLE_BY_LANES

template <class F>
Operation::Run unary_number(PortableValue v) {
  return with_number(v.dtype, [&]<class T>() { return unary_of<F, T>(v.lanes); });
}
template <class F>
Operation::Run unary_float(PortableValue v) {
  return with_float(v.dtype, [&]<class T>() { return unary_of<F, T>(v.lanes); });
}
template <class F>
Operation::Run binary_number(PortableValue v) {
  return with_number(v.dtype, [&]<class T>() { return binary_of<F, T>(v.lanes); });
}
template <class F>
Operation::Run binary_int(PortableValue v) {
  return with_int(v.dtype, [&]<class T>() { return binary_of<F, T>(v.lanes); });
}
template <class F>
Operation::Run binary_logic(PortableValue v) {
  return with_logic(v.dtype, [&]<class T>() { return binary_of<F, T>(v.lanes); });
}
template <class F>
Operation::Run compare(PortableValue v) {
  if (v.dtype == DType::kBool) return compare_of<F, uint8_t>(v.lanes);
  return with_number(v.dtype, [&]<class T>() { return compare_of<F, T>(v.lanes); });
}
template <class F>
Operation::Run reduce_number(PortableValue v) {
  return with_number(v.dtype, []<class T>() -> Operation::Run { return &reduce<F, T>; });
}
template <class F>
Operation::Run reduce_logic(PortableValue v) {
  return with_logic(v.dtype, []<class T>() -> Operation::Run { return &reduce<F, T>; });
}

// F of every dtype, f16, bf16 and bool by their tags.
template <class F>
Operation::Run with_any(DType t, F f) {
  switch (t) {
    case DType::kBool:
      return f.template operator()<Bool>();
    case DType::kF16:
      return f.template operator()<F16>();
    case DType::kBF16:
      return f.template operator()<BF16>();
    default:
      return with_number(t, f);
  }
}

}  // namespace

Operation::Run portable_cast(PortableValue from, DType to) {
  return with_any(from.dtype, [&]<class From>() {
    return with_any(to, []<class To>() -> Operation::Run { return &cast<To, From>; });
  });
}

Operation::Run portable_arithmetic(PortableOp op, PortableValue v, PortableValue source) {
  switch (op) {
    case PortableOp::kNeg:
      return unary_number<lanes::Neg>(v);
    case PortableOp::kAbs:
      return unary_number<lanes::Abs>(v);
    case PortableOp::kSqrt:
      return unary_float<lanes::Sqrt>(v);
    case PortableOp::kRsqrt:
      return unary_float<lanes::Rsqrt>(v);
    case PortableOp::kFloor:
      return unary_float<lanes::Floor>(v);
    case PortableOp::kCeil:
      return unary_float<lanes::Ceil>(v);
    case PortableOp::kRound:
      return unary_float<lanes::Round>(v);
    case PortableOp::kTrunc:
      return unary_float<lanes::Trunc>(v);
    case PortableOp::kNot:
      if (v.dtype == DType::kBool) return unary_of<lanes::NotBool, uint8_t>(v.lanes);
      return with_int(v.dtype, [&]<class T>() { return unary_of<lanes::Not, T>(v.lanes); });
    case PortableOp::kAdd:
      return binary_number<lanes::Add>(v);
    case PortableOp::kSub:
      return binary_number<lanes::Sub>(v);
    case PortableOp::kMul:
      return binary_number<lanes::Mul>(v);
    case PortableOp::kDiv:
      return binary_number<lanes::Div>(v);
    case PortableOp::kMin:
      return binary_number<lanes::Min>(v);
    case PortableOp::kMax:
      return binary_number<lanes::Max>(v);
    case PortableOp::kMod:
      return binary_int<lanes::Mod>(v);
    case PortableOp::kShl:
      return binary_int<lanes::Shl>(v);
    case PortableOp::kShr:
      return binary_int<lanes::Shr>(v);
    case PortableOp::kAnd:
      return binary_logic<lanes::And>(v);
    case PortableOp::kOr:
      return binary_logic<lanes::Or>(v);
    case PortableOp::kXor:
      return binary_logic<lanes::Xor>(v);
    case PortableOp::kFma:
      return with_float(v.dtype, [&]<class T>() { return ternary_of<lanes::Fma, T>(v.lanes); });
    case PortableOp::kEq:
      return compare<lanes::Eq>(source);
    case PortableOp::kNe:
      return compare<lanes::Ne>(source);
    case PortableOp::kLt:
      return compare<lanes::Lt>(source);
    case PortableOp::kLe:
      return compare<lanes::Le>(source);
    case PortableOp::kGt:
      return compare<lanes::Gt>(source);
    case PortableOp::kGe:
      return compare<lanes::Ge>(source);
    case PortableOp::kSelect:
      return with_moved(v.dtype, [&]<class T>() { return select_of<T>(v.lanes); });
    case PortableOp::kBroadcast:
      return with_moved(v.dtype, [&]<class T>() { return broadcast_of<T>(v.lanes); });
    case PortableOp::kReduceAdd:
      return reduce_number<lanes::Add>(v);
    case PortableOp::kReduceMul:
      return reduce_number<lanes::Mul>(v);
    case PortableOp::kReduceMin:
      return reduce_number<lanes::Min>(v);
    case PortableOp::kReduceMax:
      return reduce_number<lanes::Max>(v);
    case PortableOp::kReduceAnd:
      return reduce_logic<lanes::And>(v);
    case PortableOp::kReduceOr:
      return reduce_logic<lanes::Or>(v);
    case PortableOp::kReduceXor:
      return reduce_logic<lanes::Xor>(v);
    default:
      NIMBLE_UNREACHABLE("{}", exec::info_of(op).name);
  }
}

}  // namespace nimble::rt
