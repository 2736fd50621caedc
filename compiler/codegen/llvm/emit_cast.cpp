// Numeric conversions. Two rules shape this file. No conversion may become a library call: LLVM
// calls one for bf16 everywhere and for f16 where F16C is missing, so those are done with
// integers here. And no conversion has an undefined result: float to integer saturates.
//
// What a quantisation ends in, saturate(round(x) + zero), needs little of that: it is clipped to
// the type's range already, and instructions round as they convert:
//
//   u8(min(255, max(0, round(x) + z)))  =  u8(i32(min(255 - z, max(0 - z, x))) + z)
//
// bit by bit, since bounds are whole numbers. LLVM would round, then convert, then compare anew.
#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <limits>
#include <optional>

#include "compiler/codegen/llvm/architecture.h"
#include "compiler/codegen/llvm/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

// The number in every lane, if it is one that is known.
std::optional<double> number_of(llvm::Value* v) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  if (!number || !number->getType()->isFloatTy()) return std::nullopt;
  return number->getValueAPF().convertToFloat();
}

struct Bounded {
  llvm::Value* x;
  double bound;
};
// Of min(bound, x) (kOLT) or max(bound, x) (kOGT), as Emitter::binary makes them.
std::optional<Bounded> bounded(llvm::Value* v, llvm::CmpInst::Predicate by) {
  auto* chosen = llvm::dyn_cast<llvm::SelectInst>(v);
  auto* less = chosen ? llvm::dyn_cast<llvm::FCmpInst>(chosen->getCondition()) : nullptr;
  if (!less || less->getPredicate() != by || less->getOperand(0) != chosen->getTrueValue() ||
      less->getOperand(1) != chosen->getFalseValue())
    return std::nullopt;
  const auto bound = number_of(chosen->getTrueValue());
  if (!bound) return std::nullopt;
  return Bounded{chosen->getFalseValue(), *bound};
}

// Parts of min(high, max(low, round(x) + zero)); not rounded: of min(high, max(low, x)).
struct Clipped {
  llvm::Value* x;
  double low, high, zero = 0;
  bool rounded = false;
};
std::optional<Clipped> clipped(llvm::Value* v) {
  const auto high = bounded(v, llvm::CmpInst::FCMP_OLT);
  const auto low = high ? bounded(high->x, llvm::CmpInst::FCMP_OGT) : std::nullopt;
  if (!low) return std::nullopt;
  Clipped out{low->x, low->bound, high->bound};
  llvm::Value* x = out.x;
  double zero = 0;
  if (auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(x);
      sum && sum->getOpcode() == llvm::Instruction::FAdd) {
    const auto known = number_of(sum->getOperand(1));
    if (!known || *known != std::floor(*known) || std::fabs(*known) > 65535) return out;
    zero = *known;
    x = sum->getOperand(0);
  }
  auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(x);
  if (!call || call->getIntrinsicID() != llvm::Intrinsic::roundeven) return out;
  return Clipped{call->getArgOperand(0), out.low, out.high, zero, true};
}

}  // namespace

llvm::Value* Emitter::cast(llvm::Value* v, DType from, DType to, int lanes) {
  if (from == to) return v;
  if (is_narrow_float(from)) return cast(narrow_to_f32(v, from, lanes), DType::kF32, to, lanes);
  if (is_narrow_float(to)) return f32_to_narrow(cast(v, from, DType::kF32, lanes), to, lanes);
  llvm::Type* target = type(to, lanes);
  if (to == DType::kBool) {
    llvm::Value* zero = llvm::Constant::getNullValue(v->getType());
    return is_float(from) ? b_.CreateFCmpUNE(v, zero) : b_.CreateICmpNE(v, zero);
  }
  if (is_float(from) && is_float(to)) return b_.CreateFPCast(v, target);
  if (is_float(to))
    return is_signed_int(from) ? b_.CreateSIToFP(v, target) : b_.CreateUIToFP(v, target);
  if (from == DType::kF32 && size_of(to) <= 2)
    if (llvm::Value* made = clipped_to_integer(v, to, lanes)) return made;
  if (is_float(from))
    return b_.CreateIntrinsic(
        is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
        {target, v->getType()}, {v});
  return is_signed_int(from) ? b_.CreateSExtOrTrunc(v, target) : b_.CreateZExtOrTrunc(v, target);
}

// Of numbers that are clipped to the range of `to`; null if they are not, or the machine is
// another.
llvm::Value* Emitter::clipped_to_integer(llvm::Value* v, DType to, int lanes) {
  if (!target_.has("ssse3") || lanes < 4) return nullptr;
  const auto c = clipped(v);
  const int bits = static_cast<int>(8 * size_of(to));
  const double least = is_signed_int(to) ? -std::ldexp(1, bits - 1) : 0;
  const double most = std::ldexp(1, is_signed_int(to) ? bits - 1 : bits) - 1;
  if (!c || c->low != std::floor(c->low) || c->high != std::floor(c->high) || c->low < least ||
      c->high > most || c->low > c->high)
    return nullptr;
  // A NaN that passes the bounds converts to the smallest integer, whose last bits are the 0 that
  // it has to become.
  if (!c->rounded) return b_.CreateTrunc(f32_to_i32(v, lanes, false), type(to, lanes));
  const auto f32 = [&](double x) { return number(DType::kF32, x, lanes); };
  llvm::Value* x = c->x;
  llvm::Value* low = f32(c->low - c->zero);
  llvm::Value* high = f32(c->high - c->zero);
  if (c->low == 0) {  // what a NaN becomes
    x = b_.CreateSelect(b_.CreateFCmpOGT(x, low), x, low);
  } else {
    if (c->zero != 0) {
      if (c->low > 0 || c->high < 0) return nullptr;
      x = b_.CreateSelect(b_.CreateFCmpORD(x, x), x, f32(-c->zero));
    }
    x = b_.CreateSelect(b_.CreateFCmpOGT(low, x), low, x);
  }
  x = b_.CreateSelect(b_.CreateFCmpOLT(high, x), high, x);
  llvm::Value* whole = f32_to_i32(x, lanes, true);
  if (c->zero != 0)
    whole = b_.CreateAdd(whole, integer(DType::kI32, static_cast<int64_t>(c->zero), lanes));
  return b_.CreateTrunc(whole, type(to, lanes));
}

// By the instruction, in which NaN and what lies beyond become the smallest integer.
llvm::Value* Emitter::f32_to_i32(llvm::Value* v, int lanes, bool rounds) {
  if (lanes > target_.vector_bits / 32)
    return by_halves({v}, [&](llvm::ArrayRef<llvm::Value*> half) {
      return f32_to_i32(half[0], lanes / 2, rounds);
    });
  if (lanes == 16)
    return b_.CreateIntrinsic(rounds ? llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512
                                     : llvm::Intrinsic::x86_avx512_mask_cvttps2dq_512,
                              {},
                              {v, llvm::Constant::getNullValue(type(DType::kI32, lanes)),
                               b_.getInt16(0xffff), b_.getInt32(4)});
  if (lanes == 8)
    return b_.CreateIntrinsic(
        rounds ? llvm::Intrinsic::x86_avx_cvt_ps2dq_256 : llvm::Intrinsic::x86_avx_cvtt_ps2dq_256,
        {}, {v});
  return b_.CreateIntrinsic(
      rounds ? llvm::Intrinsic::x86_sse2_cvtps2dq : llvm::Intrinsic::x86_sse2_cvttps2dq, {}, {v});
}

llvm::Value* Emitter::narrow_to_f32(llvm::Value* v, DType from, int lanes) {
  llvm::Type* f32 = type(DType::kF32, lanes);
  if (from == DType::kBF16) {
    llvm::Value* wide = b_.CreateZExt(v, type(DType::kU32, lanes));
    return b_.CreateBitCast(b_.CreateShl(wide, integer(DType::kU32, 16, lanes)), f32);
  }
  if (!converts_f16(target_)) return f16_to_f32_by_integers(v, lanes);
  return b_.CreateFPExt(b_.CreateBitCast(v, v->getType()->getWithNewType(b_.getHalfTy())), f32);
}

llvm::Value* Emitter::f32_to_narrow(llvm::Value* v, DType to, int lanes) {
  llvm::Type* narrow = type(to, lanes);
  const auto u32 = [&](int64_t c) { return integer(DType::kU32, c, lanes); };
  if (to == DType::kF16) {
    if (!converts_f16(target_)) return f32_to_f16_by_integers(v, lanes);
    llvm::Value* half = b_.CreateFPTrunc(v, v->getType()->getWithNewType(b_.getHalfTy()));
    return b_.CreateBitCast(half, narrow);
  }
  // As in vm/base/half.h: half of the lost unit, less one if the kept part is even.
  llvm::Value* bits = b_.CreateBitCast(v, type(DType::kU32, lanes));
  llvm::Value* top = b_.CreateLShr(bits, u32(16));
  llvm::Value* odd = b_.CreateAnd(top, u32(1));
  llvm::Value* rounded = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(bits, u32(0x7fff)), odd), u32(16));
  llvm::Value* is_nan = b_.CreateFCmpUNO(v, v);
  return b_.CreateTrunc(b_.CreateSelect(is_nan, b_.CreateOr(top, u32(0x40)), rounded), narrow);
}

llvm::Value* Emitter::f16_to_f32_by_integers(llvm::Value* v, int lanes) {
  const auto u32 = [&](int64_t c) { return integer(DType::kU32, c, lanes); };
  llvm::Type* f32 = type(DType::kF32, lanes);
  llvm::Value* bits = b_.CreateZExt(v, type(DType::kU32, lanes));
  llvm::Value* sign = b_.CreateShl(b_.CreateAnd(bits, u32(0x8000)), u32(16));
  llvm::Value* mantissa = b_.CreateAnd(bits, u32(0x3ff));
  llvm::Value* exponent = b_.CreateAnd(bits, u32(0x7c00));
  llvm::Value* magnitude = b_.CreateShl(b_.CreateAnd(bits, u32(0x7fff)), u32(13));
  llvm::Value* normal = b_.CreateAdd(magnitude, u32(112 << 23));
  llvm::Value* special = b_.CreateOr(u32(0x7f800000), b_.CreateShl(mantissa, u32(13)));
  llvm::Value* subnormal = b_.CreateBitCast(
      b_.CreateFMul(b_.CreateUIToFP(mantissa, f32), number(DType::kF32, 0x1p-24, lanes)),
      type(DType::kU32, lanes));
  llvm::Value* result =
      b_.CreateSelect(b_.CreateICmpEQ(exponent, u32(0x7c00)), special,
                      b_.CreateSelect(b_.CreateICmpEQ(exponent, u32(0)), subnormal, normal));
  return b_.CreateBitCast(b_.CreateOr(result, sign), f32);
}

llvm::Value* Emitter::f32_to_f16_by_integers(llvm::Value* v, int lanes) {
  const auto u32 = [&](int64_t c) { return integer(DType::kU32, c, lanes); };
  llvm::Type* u32_type = type(DType::kU32, lanes);
  llvm::Value* bits = b_.CreateBitCast(v, u32_type);
  llvm::Value* sign = b_.CreateAnd(b_.CreateLShr(bits, u32(16)), u32(0x8000));
  llvm::Value* magnitude = b_.CreateAnd(bits, u32(0x7fffffff));
  llvm::Value* nan =
      b_.CreateOr(u32(0x7e00), b_.CreateAnd(b_.CreateLShr(magnitude, u32(13)), u32(0x3ff)));
  // Adding 0.5 aligns the sum's last mantissa bit with f16's subnormal unit (vm/base/half.h).
  llvm::Value* aligned = b_.CreateFAdd(b_.CreateBitCast(magnitude, type(DType::kF32, lanes)),
                                       number(DType::kF32, 0.5, lanes));
  llvm::Value* subnormal = b_.CreateSub(b_.CreateBitCast(aligned, u32_type), u32(0x3f000000));
  llvm::Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, u32(13)), u32(1));
  llvm::Value* rounded = b_.CreateAdd(b_.CreateAdd(magnitude, u32(0xfff)), odd);
  llvm::Value* normal = b_.CreateLShr(b_.CreateSub(rounded, u32(0x38000000)), u32(13));
  llvm::Value* result =
      b_.CreateSelect(b_.CreateICmpULT(magnitude, u32(0x38800000)), subnormal, normal);
  result = b_.CreateSelect(b_.CreateICmpUGE(magnitude, u32(0x477ff000)), u32(0x7c00), result);
  result = b_.CreateSelect(b_.CreateICmpUGT(magnitude, u32(0x7f800000)), nan, result);
  return b_.CreateTrunc(b_.CreateOr(result, sign), type(DType::kU16, lanes));
}

}  // namespace nimble::codegen
