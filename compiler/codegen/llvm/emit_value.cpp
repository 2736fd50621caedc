// Values to LLVM IR. bool is i1; f16 and bf16 are held as 16-bit integers, since all arithmetic
// is in f32 and LLVM would call a library for some conversions (emit_cast.cpp).
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>

#include "compiler/codegen/llvm/architecture.h"
#include "compiler/codegen/llvm/emitter.h"
#include "compiler/kernels/math.h"
#include "vm/base/error.h"
#include "vm/base/half.h"

namespace nimble::codegen {

using kir::BinaryOp;
using kir::UnaryOp;
using kir::ValueKind;

llvm::Type* Emitter::type(DType t, int lanes) const {
  llvm::Type* scalar = nullptr;
  auto& c = const_cast<llvm::LLVMContext&>(context_);
  switch (t) {
    case DType::kBool:
      scalar = llvm::Type::getInt1Ty(c);
      break;
    case DType::kF32:
      scalar = llvm::Type::getFloatTy(c);
      break;
    case DType::kF64:
      scalar = llvm::Type::getDoubleTy(c);
      break;
    default:
      scalar = llvm::Type::getIntNTy(c, static_cast<unsigned>(8 * size_of(t)));
  }
  return lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, lanes);
}

llvm::Type* Emitter::memory_type(DType t, int lanes) const {
  return type(t == DType::kBool ? DType::kU8 : t, lanes);
}

llvm::Value* Emitter::from_memory(llvm::Value* v, DType t) {
  if (t != DType::kBool) return v;
  return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
}

llvm::Value* Emitter::to_memory(llvm::Value* v, DType t) {
  if (t != DType::kBool) return v;
  return b_.CreateZExt(v, v->getType()->getWithNewBitWidth(8));
}

llvm::Value* Emitter::number(DType t, double v, int lanes) {
  switch (t) {
    case DType::kF32:  // through float, so that the interpreter's constant is the same
      return llvm::ConstantFP::get(type(t, lanes), static_cast<double>(static_cast<float>(v)));
    case DType::kF64:
      return llvm::ConstantFP::get(type(t, lanes), v);
    case DType::kF16:
      return integer(DType::kU16, f16_from_f32(static_cast<float>(v)), lanes);
    case DType::kBF16:
      return integer(DType::kU16, bf16_from_f32(static_cast<float>(v)), lanes);
    default:
      NIMBLE_UNREACHABLE();
  }
}

llvm::Value* Emitter::integer(DType t, int64_t v, int lanes) {
  llvm::Type* ty = type(t, lanes);
  return llvm::ConstantInt::get(
      ty, llvm::APInt(64, static_cast<uint64_t>(v)).zextOrTrunc(ty->getScalarSizeInBits()));
}

llvm::Value* Emitter::root(const kir::ValueRef& v) {
  memo_.clear();
  made_.clear();
  return value(v);
}

llvm::Value* Emitter::value(const kir::ValueRef& v) {
  if (auto it = memo_.find(v.get()); it != memo_.end()) return it->second;
  llvm::Value* result = expression(*v);
  memo_.emplace(v.get(), result);
  return result;
}

llvm::Value* Emitter::expression(const kir::Value& v) {
  const auto operand = [&](size_t i) { return value(v.operands.at(i)); };
  switch (v.kind) {
    case ValueKind::kConst:
      return is_float(v.dtype) ? number(v.dtype, v.constant, v.lanes)
                               : integer(v.dtype, v.integer, v.lanes);
    case ValueKind::kIndex:
      return dim(v.index);
    case ValueKind::kIota: {
      if (v.lanes == 1) return b_.getInt32(0);
      llvm::SmallVector<llvm::Constant*, 64> numbers;
      for (int i = 0; i < v.lanes; ++i) numbers.push_back(b_.getInt32(i));
      return llvm::ConstantVector::get(numbers);
    }
    case ValueKind::kLoad:
      return load(v);
    case ValueKind::kRegister: {
      llvm::AllocaInst* slot = places_.at(v.buffer.get()).registers.at(constant(v.index));
      return b_.CreateLoad(slot->getAllocatedType(), slot);
    }
    case ValueKind::kLocal:
      return locals_.at(v.name);
    case ValueKind::kUnary:
      return unary(v, operand(0));
    case ValueKind::kBinary: {
      if (v.binary == kir::BinaryOp::kScale) return scale(v);
      llvm::Value* a = operand(0);
      return binary(v.binary, v.dtype, a, operand(1));
    }
    case ValueKind::kFma: {
      llvm::Value* a = operand(0);
      llvm::Value* c = operand(1);
      return fma(a, c, operand(2));
    }
    case ValueKind::kCompare: {
      llvm::Value* a = operand(0);
      return compare(v, a, operand(1));
    }
    case ValueKind::kSelect: {
      if (v.rare) return select_rare(v);
      llvm::Value* c = operand(0);
      llvm::Value* a = operand(1);
      return b_.CreateSelect(c, a, operand(2));
    }
    case ValueKind::kCast:
      return cast(operand(0), v.operands[0]->dtype, v.dtype, v.lanes);
    case ValueKind::kBitcast:
      // f16 and bf16 are integers already. Lanes are in the order of memory, so they may be others.
      return b_.CreateBitCast(operand(0), type(v.dtype, v.lanes));
    case ValueKind::kBroadcast:
      return broadcast(operand(0), v.operands[0]->lanes, v.lanes);
    case ValueKind::kReduce:
      return reduce(v, operand(0));
    case ValueKind::kExtract: {
      llvm::Value* a = operand(0);
      return v.operands[0]->lanes == 1 ? a : b_.CreateExtractElement(a, v.integer);
    }
    case ValueKind::kDot:
      return dot(v);
    case ValueKind::kShuffle:
      NIMBLE_UNREACHABLE("a GPU's value in {}", f_->name);
  }
  NIMBLE_UNREACHABLE();
}

llvm::Value* Emitter::load(const kir::Value& v) {
  const kir::Buffer& buffer = *v.buffer;
  llvm::Type* scalar = memory_type(v.dtype, 1);
  const llvm::Align element(size_of(v.dtype));
  const bool dense = v.lanes == 1 || v.stride.is_constant(1);
  const bool same = v.lanes > 1 && v.stride.is_constant(0);
  llvm::Value* at = address(buffer, v.index);
  if (!v.valid) {
    if (dense) {
      auto* load =
          b_.CreateAlignedLoad(memory_type(v.dtype, v.lanes), at, alignment(buffer, v.index));
      annotate(load, buffer, true);
      return from_memory(load, v.dtype);
    }
    if (same) {
      auto* load = b_.CreateAlignedLoad(scalar, at, element);
      annotate(load, buffer, true);
      return b_.CreateVectorSplat(v.lanes, from_memory(load, v.dtype));
    }
    // Loads and inserts: on the machines of the last years no slower than a gather, and portable.
    llvm::Value* vector = llvm::PoisonValue::get(memory_type(v.dtype, v.lanes));
    for (int i = 0; i < v.lanes; ++i) {
      auto* load = b_.CreateAlignedLoad(scalar, address(buffer, v.index + v.stride * i), element);
      annotate(load, buffer, true);
      vector = b_.CreateInsertElement(vector, load, i);
    }
    return from_memory(vector, v.dtype);
  }
  auto* vector_type = llvm::FixedVectorType::get(scalar, v.lanes);
  llvm::Value* other = llvm::Constant::getNullValue(vector_type);
  if (v.passthrough) {
    other = to_memory(value(v.passthrough), v.dtype);
    if (v.lanes == 1)
      other = b_.CreateInsertElement(llvm::PoisonValue::get(vector_type), other, uint64_t{0});
  }
  llvm::Value* mask = lane_mask(*v.valid, v.lanes);
  llvm::CallInst* load =
      dense ? b_.CreateMaskedLoad(vector_type, at, alignment(buffer, v.index), mask, other)
            : b_.CreateMaskedGather(vector_type,
                                    b_.CreateGEP(scalar, at, lane_offsets(v.stride, v.lanes)),
                                    element, mask, other);
  annotate(load, buffer, true);
  llvm::Value* result = load;
  if (v.lanes == 1) result = b_.CreateExtractElement(result, uint64_t{0});
  return from_memory(result, v.dtype);
}

llvm::Value* Emitter::unary(const kir::Value& v, llvm::Value* a) {
  const bool floating = is_float(v.dtype);
  switch (v.unary) {
    case UnaryOp::kNeg:
      return floating ? b_.CreateFNeg(a) : b_.CreateNeg(a);
    case UnaryOp::kAbs:
      if (floating) return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
      if (!is_signed_int(v.dtype)) return a;
      return b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, b_.getFalse());
    case UnaryOp::kSqrt:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
    case UnaryOp::kRsqrt:
      return b_.CreateFDiv(llvm::ConstantFP::get(a->getType(), 1),
                           b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
    case UnaryOp::kFloor:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, a);
    case UnaryOp::kCeil:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, a);
    case UnaryOp::kRound:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, a);
    case UnaryOp::kTrunc:
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
    case UnaryOp::kNot:
      return b_.CreateNot(a);
  }
  NIMBLE_UNREACHABLE();
}

llvm::Value* Emitter::binary(BinaryOp op, DType t, llvm::Value* a, llvm::Value* c) {
  const bool floating = is_float(t), is_signed = is_signed_int(t);
  const auto bits = [&] { return llvm::ConstantInt::get(a->getType(), 8 * size_of(t) - 1); };
  switch (op) {
    case BinaryOp::kAdd:
      return floating ? b_.CreateFAdd(a, c) : b_.CreateAdd(a, c);
    case BinaryOp::kSub:
      return floating ? b_.CreateFSub(a, c) : b_.CreateSub(a, c);
    case BinaryOp::kMul:
      return floating ? b_.CreateFMul(a, c) : b_.CreateMul(a, c);
    case BinaryOp::kDiv:
      return floating ? b_.CreateFDiv(a, c) : divide(t, false, a, c);
    case BinaryOp::kMod:
      return divide(t, true, a, c);
    case BinaryOp::kMin:
      // The selects are minps and maxps exactly, NaNs and zeros included.
      if (floating) return b_.CreateSelect(b_.CreateFCmpOLT(a, c), a, c);
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, a,
                                      c);
    case BinaryOp::kMax:
      if (floating) return b_.CreateSelect(b_.CreateFCmpOGT(a, c), a, c);
      return b_.CreateBinaryIntrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a,
                                      c);
    case BinaryOp::kAnd:
      return b_.CreateAnd(a, c);
    case BinaryOp::kOr:
      return b_.CreateOr(a, c);
    case BinaryOp::kXor:
      return b_.CreateXor(a, c);
    case BinaryOp::kShl:
      return b_.CreateShl(a, b_.CreateAnd(c, bits()));
    case BinaryOp::kShr:
      return is_signed ? b_.CreateAShr(a, b_.CreateAnd(c, bits()))
                       : b_.CreateLShr(a, b_.CreateAnd(c, bits()));
    case BinaryOp::kScale:
      break;  // scale()
  }
  NIMBLE_UNREACHABLE();
}

llvm::Value* Emitter::scale(const kir::Value& v) {
  const int bits = static_cast<int>(8 * size_of(v.dtype)) * v.lanes;
  // With AVX-512VL it is there for vectors of 128 and 256 bits, too.
  if (!target_.has("avx512vl") || bits < 128 || bits % 128 != 0) {
    const kir::ValueRef in_others = kir::math::scale(v.operands[0], v.operands[1]);
    made_.push_back(in_others);
    return value(in_others);
  }
  llvm::Value* x = value(v.operands[0]);
  return scale_of(x, value(v.operands[1]), v.dtype, v.lanes);
}

llvm::Value* Emitter::scale_of(llvm::Value* x, llvm::Value* n, DType dtype, int lanes) {
  const int bits = static_cast<int>(8 * size_of(dtype)) * lanes;
  if (bits > 512)
    return by_halves({x, n}, [&](llvm::ArrayRef<llvm::Value*> half) {
      return scale_of(half[0], half[1], dtype, lanes / 2);
    });
  const bool f32 = dtype == DType::kF32;
  using llvm::Intrinsic::ID;
  const ID id = bits == 512   ? f32 ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512
                                    : llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
                : bits == 256 ? f32 ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_256
                                    : llvm::Intrinsic::x86_avx512_mask_scalef_pd_256
                : f32         ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_128
                              : llvm::Intrinsic::x86_avx512_mask_scalef_pd_128;
  std::vector<llvm::Value*> args = {
      x, n, x,
      llvm::ConstantInt::get(b_.getIntNTy(static_cast<unsigned>(std::max(8, lanes))), -1, true)};
  if (bits == 512) args.push_back(b_.getInt32(4));  // round as the control register says
  return b_.CreateIntrinsic(id, {}, args);
}

// A branch around the dear operand, taken if any lane needs it. What that block computes is not
// there after it, so the memo forgets it.
llvm::Value* Emitter::select_rare(const kir::Value& v) {
  llvm::Value* c = value(v.operands[0]);
  llvm::Value* usual = value(v.operands[2]);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* rare = block("rare");
  llvm::BasicBlock* after = block("after.rare");
  b_.CreateCondBr(v.lanes == 1 ? c : b_.CreateOrReduce(c), rare, after,
                  llvm::MDBuilder(context_).createBranchWeights(1, 2000));
  b_.SetInsertPoint(rare);
  llvm::Value* chosen = nullptr;
  const auto memo = memo_;
  forgetting([&] { chosen = b_.CreateSelect(c, value(v.operands[1]), usual); });
  memo_ = memo;
  rare = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  llvm::PHINode* result = b_.CreatePHI(usual->getType(), 2);
  result->addIncoming(usual, before);
  result->addIncoming(chosen, rare);
  return result;
}

llvm::Value* Emitter::divide(DType t, bool mod, llvm::Value* a, llvm::Value* c) {
  // The machine traps on x / 0 and INT_MIN / -1: divide by 1 there and choose the result.
  llvm::Value* zero = llvm::Constant::getNullValue(a->getType());
  llvm::Value* one = llvm::ConstantInt::get(a->getType(), 1);
  llvm::Value* by_zero = b_.CreateICmpEQ(c, zero);
  if (!is_signed_int(t)) {
    llvm::Value* safe = b_.CreateSelect(by_zero, one, c);
    llvm::Value* r = mod ? b_.CreateURem(a, safe) : b_.CreateUDiv(a, safe);
    return b_.CreateSelect(by_zero, zero, r);
  }
  llvm::Value* by_minus_one = b_.CreateICmpEQ(c, llvm::Constant::getAllOnesValue(a->getType()));
  llvm::Value* safe = b_.CreateSelect(b_.CreateOr(by_zero, by_minus_one), one, c);
  if (!mod) {
    llvm::Value* q = b_.CreateSelect(by_minus_one, b_.CreateNeg(a), b_.CreateSDiv(a, safe));
    return b_.CreateSelect(by_zero, zero, q);
  }
  llvm::Value* r = b_.CreateSRem(a, safe);  // 0 where `safe` is 1
  llvm::Value* wrong_side =
      b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, safe), zero));
  return b_.CreateSelect(wrong_side, b_.CreateAdd(r, safe), r);
}

llvm::Value* Emitter::fma(llvm::Value* a, llvm::Value* c, llvm::Value* d) {
  if (has_fma(target_)) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, c, d});
  return b_.CreateFAdd(b_.CreateFMul(a, c), d);
}

llvm::Value* Emitter::compare(const kir::Value& v, llvm::Value* a, llvm::Value* c) {
  using P = llvm::CmpInst::Predicate;
  const DType t = v.operands[0]->dtype;
  static constexpr P kFloat[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT,
                                 P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  static constexpr P kSigned[] = {P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_SLT,
                                  P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  static constexpr P kUnsigned[] = {P::ICMP_EQ,  P::ICMP_NE,  P::ICMP_ULT,
                                    P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  const auto i = static_cast<size_t>(v.compare);
  if (is_float(t)) return b_.CreateFCmp(kFloat[i], a, c);
  return b_.CreateICmp(is_signed_int(t) ? kSigned[i] : kUnsigned[i], a, c);
}

llvm::Value* Emitter::reduce(const kir::Value& v, llvm::Value* a) {
  for (int lanes = v.operands[0]->lanes; lanes > 1; lanes /= 2) {
    llvm::SmallVector<int, 32> low, high;
    for (int i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(lanes / 2 + i);
    }
    llvm::Value* l = b_.CreateShuffleVector(a, low);
    a = binary(v.binary, v.dtype, l, b_.CreateShuffleVector(a, high));
  }
  return v.operands[0]->lanes == 1 ? a : b_.CreateExtractElement(a, uint64_t{0});
}

}  // namespace nimble::codegen
