// Numeric conversions. Two rules shape this file. No conversion may become a library call: LLVM
// calls one for bf16 everywhere and for f16 where F16C is missing, so those are done with
// integers here. And no conversion has an undefined result: float to integer saturates.
#include "compiler/codegen/llvm/architecture.h"
#include "compiler/codegen/llvm/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {

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
  if (is_float(from))
    return b_.CreateIntrinsic(
        is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
        {target, v->getType()}, {v});
  return is_signed_int(from) ? b_.CreateSExtOrTrunc(v, target) : b_.CreateZExtOrTrunc(v, target);
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
