// What an operation makes of a thread's own lanes, without memory, registers or other threads.
#pragma once

#include <algorithm>

#include "compiler/kernels/interpreter_lanes.h"
#include "vm/base/error.h"

namespace nimble::kir {

// Keeps the host compiler from contracting a product and a sum into one rounding.
template <class T>
T rounded(T v) {
  volatile T once = v;
  return once;
}

// All kinds of values but kIndex, kLoad, kRegister and kShuffle.
inline void compute_lanes(const OpCode& op, Lane* frame, bool fused) {
  const Value& v = *op.value;
  const int n = v.lanes;
  Lane* out = frame + op.result;
  const Lane* a = frame + std::max(op.operand[0], 0);
  const Lane* b = frame + op.operand[1];
  const Lane* c = frame + op.operand[2];
  switch (v.kind) {
    case ValueKind::kConst:
      std::fill(out, out + n, constant_lane(v.dtype, v.constant, v.integer));
      return;
    case ValueKind::kIota:
      for (int i = 0; i < n; ++i) out[i].i = i;
      return;
    case ValueKind::kLocal:
      return;  // read in place
    case ValueKind::kUnary:
      if (v.dtype == DType::kF32)
        for (int i = 0; i < n; ++i) out[i].f32 = float_unary(v.unary, a[i].f32);
      else if (v.dtype == DType::kF64)
        for (int i = 0; i < n; ++i) out[i].f64 = float_unary(v.unary, a[i].f64);
      else
        for (int i = 0; i < n; ++i) out[i].i = integer_unary(v.dtype, v.unary, a[i].i);
      return;
    case ValueKind::kBinary:
      if (v.dtype == DType::kF32)
        for (int i = 0; i < n; ++i) out[i].f32 = float_binary(v.binary, a[i].f32, b[i].f32);
      else
        for (int i = 0; i < n; ++i) out[i] = binary_lane(v.dtype, v.binary, a[i], b[i]);
      return;
    case ValueKind::kFma:
      if (v.dtype == DType::kF32)
        for (int i = 0; i < n; ++i)
          out[i].f32 = fused ? std::fma(a[i].f32, b[i].f32, c[i].f32)
                             : rounded(a[i].f32 * b[i].f32) + c[i].f32;
      else
        for (int i = 0; i < n; ++i)
          out[i].f64 = fused ? std::fma(a[i].f64, b[i].f64, c[i].f64)
                             : rounded(a[i].f64 * b[i].f64) + c[i].f64;
      return;
    case ValueKind::kCompare:
      for (int i = 0; i < n; ++i) out[i].i = compare_lane(op.from, v.compare, a[i], b[i]);
      return;
    case ValueKind::kSelect:
      for (int i = 0; i < n; ++i) out[i] = a[i].i ? b[i] : c[i];
      return;
    case ValueKind::kCast:
      for (int i = 0; i < n; ++i) out[i] = cast_lane(op.from, v.dtype, a[i]);
      return;
    case ValueKind::kBitcast: {
      std::byte bytes[64 * sizeof(Lane)];
      for (int i = 0; i < op.from_lanes; ++i)
        store_lane(op.from, a[i], bytes + static_cast<size_t>(i) * size_of(op.from));
      for (int i = 0; i < n; ++i)
        out[i] = load_lane(v.dtype, bytes + static_cast<size_t>(i) * size_of(v.dtype));
      return;
    }
    case ValueKind::kBroadcast:
      for (int i = 0; i < n; ++i) out[i] = a[i % op.from_lanes];
      return;
    case ValueKind::kReduce: {
      Lane lanes[64];
      std::copy_n(a, op.from_lanes, lanes);
      for (int half = op.from_lanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i)
          lanes[i] = binary_lane(v.dtype, v.binary, lanes[i], lanes[half + i]);
      out[0] = lanes[0];
      return;
    }
    case ValueKind::kExtract:
      out[0] = a[v.integer];
      return;
    case ValueKind::kDot: {
      const int group = row_of(v.fragment).group;
      for (int i = 0; i < n; ++i) out[i] = dot_lane(v.fragment, a + i * group, b + i * group, c[i]);
      return;
    }
    case ValueKind::kIndex:
    case ValueKind::kLoad:
    case ValueKind::kRegister:
    case ValueKind::kShuffle:
      break;
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
