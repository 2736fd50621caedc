// Dots to LLVM IR: the fragment's instruction where the target has it, for vectors of 128, 256 and
// 512 bits; wider ones are cut in halves, narrower ones are filled up, so that every width gives
// the row's bits. Elsewhere the expansion in other values, but where a machine has instructions
// that come to its bits in fewer: those of AArch64, and for bytes those of x86-64 that add up pairs
// of i16. The even bytes of both factors are i16 there, and the odd ones are, whose products
// and sums are exact in 32 bits. That is as many operations as f32 takes for as many terms. The
// fragment of bytes whose pairs saturate is three instructions, in vectors as wide as those of i16.
//
// A word has 32 bits here, as in kernels/fragments.cpp; Intel's manuals give it 16 (pmaddwd).
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Operator.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/codegen/llvm/emitter.h"
#include "compiler/kernels/fragments.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

using llvm::Intrinsic::ID;

constexpr int kNarrowest = 128;  // bits of an instruction's sums

// Takes the sums, a and b, in this order.
ID intrinsic_of(kir::Fragment f, int bits) {
  const auto of = [bits](ID narrow, ID middle, ID wide) {
    return bits == 128 ? narrow : bits == 256 ? middle : wide;
  };
  switch (f) {
    case kir::Fragment::kBf16Pairs:
      return of(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128,
                llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256,
                llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512);
    case kir::Fragment::kU8S8Quads:
      return of(llvm::Intrinsic::x86_avx512_vpdpbusd_128, llvm::Intrinsic::x86_avx512_vpdpbusd_256,
                llvm::Intrinsic::x86_avx512_vpdpbusd_512);
    case kir::Fragment::kS16Pairs:
      return of(llvm::Intrinsic::x86_avx512_vpdpwssd_128, llvm::Intrinsic::x86_avx512_vpdpwssd_256,
                llvm::Intrinsic::x86_avx512_vpdpwssd_512);
    case kir::Fragment::kU8S7Quads:
    case kir::Fragment::kF16Pairs:
      break;
  }
  NIMBLE_UNREACHABLE();
}

// Takes two vectors of i16; gives the sums of neighbouring products.
ID pairs_of_i16(int bits) {
  return bits == 128   ? llvm::Intrinsic::x86_sse2_pmadd_wd
         : bits == 256 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                       : llvm::Intrinsic::x86_avx512_pmaddw_d_512;
}

// Takes bytes, unsigned and signed; gives the sums of neighbouring products, saturated to i16.
ID pairs_of_bytes(int bits) {
  return bits == 128   ? llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128
         : bits == 256 ? llvm::Intrinsic::x86_avx2_pmadd_ub_sw
                       : llvm::Intrinsic::x86_avx512_pmaddubs_w_512;
}

// The widest vectors of i16, in bits, whose products a target adds up in pairs; 0 if it does not.
int widest_i16(const kernels::TargetInfo& target) {
  return target.has("avx512bw") ? 512 : target.has("avx2") ? 256 : target.has("ssse3") ? 128 : 0;
}

// Whether one instruction is the row, in all widths.
bool is_instruction(const kir::FragmentRow& row, const kernels::TargetInfo& target) {
  return row.held == 0 && kir::has_instruction(row, target);
}

// The widest sums that there is a way for; 0: only the expansion.
int widest_sums(const kir::FragmentRow& row, const kernels::TargetInfo& target) {
  if (is_instruction(row, target)) return 512;
  if (const int pairs = widest_i16(target); pairs > 0 && is_int(row.sum)) return pairs;
  return kir::has_otherwise(row, target) ? kNarrowest : 0;
}

// Whether a vector of narrow elements repeats a group of 32 bits, as Emitter::broadcast makes it.
bool repeats_a_word(const llvm::Value* v) {
  if (const auto* cast = llvm::dyn_cast<llvm::BitCastOperator>(v)) v = cast->getOperand(0);
  return v->getType()->isVectorTy() && v->getType()->getScalarSizeInBits() == 32 &&
         llvm::isSplatValue(v);
}

}  // namespace

llvm::Value* Emitter::broadcast(llvm::Value* v, int from, int to) {
  if (from == to) return v;
  if (from == 1) return b_.CreateVectorSplat(to, v);
  const unsigned element = v->getType()->getScalarSizeInBits();
  const unsigned bits = element * static_cast<unsigned>(from);
  if (element >= 8 && bits <= 64) {  // one integer, which an instruction may read as its operand
    llvm::Value* group = b_.CreateBitCast(v, b_.getIntNTy(bits));
    return b_.CreateBitCast(b_.CreateVectorSplat(to / from, group),
                            llvm::FixedVectorType::get(v->getType()->getScalarType(), to));
  }
  return lanes_of(v, 0, from, to);
}

// `to` lanes of a vector of `from`, from `first` on, over and over.
llvm::Value* Emitter::lanes_of(llvm::Value* v, int first, int from, int to) {
  llvm::SmallVector<int, 64> lanes;
  for (int i = 0; i < to; ++i) lanes.push_back((first + i) % from);
  return b_.CreateShuffleVector(v, lanes);
}

llvm::Value* Emitter::by_halves(llvm::ArrayRef<llvm::Value*> vectors, OfHalves of) {
  const auto half = [&](int number) {
    llvm::SmallVector<llvm::Value*, 4> parts;
    for (llvm::Value* v : vectors) {
      const auto lanes =
          static_cast<int>(llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements());
      parts.push_back(lanes_of(v, number * lanes / 2, lanes, lanes / 2));
    }
    return of(parts);
  };
  llvm::Value* low = half(0);
  llvm::Value* high = half(1);
  const auto lanes = llvm::cast<llvm::FixedVectorType>(low->getType())->getNumElements();
  llvm::SmallVector<int, 64> all(2 * lanes);
  std::iota(all.begin(), all.end(), 0);
  return b_.CreateShuffleVector(low, high, all);
}

llvm::Value* Emitter::dot(const kir::Value& v) {
  const kir::FragmentRow& row = kir::row_of(v.fragment);
  if (widest_sums(row, target_) == 0) {
    const kir::ValueRef in_others = kir::expand_dot(v);
    made_.push_back(in_others);
    return value(in_others);
  }
  llvm::Value* a = value(v.operands[0]);
  llvm::Value* c = value(v.operands[1]);
  return dot_of(row, a, c, value(v.operands[2]), v.lanes);
}

llvm::Value* Emitter::dot_of(const kir::FragmentRow& row, llvm::Value* a, llvm::Value* c,
                             llvm::Value* sum, int lanes) {
  const int element = static_cast<int>(8 * size_of(row.sum)), bits = element * lanes;
  const int factors = row.group * lanes;
  if (bits > widest_sums(row, target_))
    return by_halves({a, c, sum}, [&](llvm::ArrayRef<llvm::Value*> half) {
      return dot_of(row, half[0], half[1], half[2], lanes / 2);
    });
  if (bits < kNarrowest) {
    const int wide = kNarrowest / element;
    llvm::Value* all =
        dot_of(row, broadcast(a, factors, row.group * wide),
               broadcast(c, factors, row.group * wide), broadcast(sum, lanes, wide), wide);
    return lanes == 1 ? b_.CreateExtractElement(all, uint64_t{0}) : lanes_of(all, 0, wide, lanes);
  }
  if (!is_instruction(row, target_)) {
    if (widest_i16(target_) == 0) return dot_by_neon(row.id, a, c, sum);
    if (row.id == kir::Fragment::kU8S8Quads) return dot_by_i16(a, c, sum, bits);
    if (row.id == kir::Fragment::kU8S7Quads) {
      a = b_.CreateIntrinsic(pairs_of_bytes(bits), {}, {a, c});
      c = llvm::ConstantInt::get(a->getType(), 1);
    }
    return added(sum, b_.CreateIntrinsic(pairs_of_i16(bits), {}, {a, c}));
  }
  const ID id = intrinsic_of(row.id, bits);
  // LLVM's versions differ in how they type the factors (words, or elements).
  const llvm::FunctionType* signature = llvm::Intrinsic::getType(context_, id);
  return b_.CreateIntrinsic(id, {},
                            {sum, b_.CreateBitCast(a, signature->getParamType(1)),
                             b_.CreateBitCast(c, signature->getParamType(2))});
}

llvm::Value* Emitter::dot_by_neon(kir::Fragment f, llvm::Value* a, llvm::Value* c,
                                  llvm::Value* sum) {
  const auto vector = [](llvm::Type* element, unsigned lanes) {
    return llvm::FixedVectorType::get(element, lanes);
  };
  if (f == kir::Fragment::kBf16Pairs) {
    llvm::Type* narrow = vector(b_.getBFloatTy(), 8);
    a = b_.CreateBitCast(a, narrow);
    c = b_.CreateBitCast(c, narrow);
    for (const ID half :
         {llvm::Intrinsic::aarch64_neon_bfmlalt, llvm::Intrinsic::aarch64_neon_bfmlalb})
      sum = b_.CreateIntrinsic(half, {}, {sum, a, c});
    return sum;
  }
  if (f == kir::Fragment::kF16Pairs) {
    // fmlal takes the lower halves of its operands, fmlal2 the upper ones, or a single lane of one
    // of them for all. So odd and even elements are put apart, once for the weights that many rows
    // share, and of a row whose pair is for all sums nothing moves.
    static constexpr int kApart[] = {1, 3, 5, 7, 0, 2, 4, 6};
    llvm::Type* narrow = vector(b_.getHalfTy(), 8);
    if (repeats_a_word(c)) std::swap(a, c);
    llvm::Value* row = b_.CreateBitCast(a, narrow);
    const auto lane = [&](int i) {
      return b_.CreateShuffleVector(row, llvm::SmallVector<int, 8>(8, i));
    };
    const bool one_pair = repeats_a_word(a);
    llvm::Value* odd = one_pair ? lane(1) : b_.CreateShuffleVector(row, kApart);
    llvm::Value* even = one_pair ? lane(0) : odd;
    c = b_.CreateShuffleVector(b_.CreateBitCast(c, narrow), kApart);
    const auto add_half = [&](ID id, llvm::Value* to, llvm::Value* factors) {
      return b_.CreateIntrinsic(id, {to->getType(), narrow}, {to, c, factors});
    };
    sum = add_half(llvm::Intrinsic::aarch64_neon_fmlal, sum, odd);
    return add_half(llvm::Intrinsic::aarch64_neon_fmlal2, sum, even);
  }
  llvm::Type* bytes = vector(b_.getInt8Ty(), 16);
  const auto product = [&](ID id, llvm::Value* to, llvm::Value* left) {
    return b_.CreateIntrinsic(id, {to->getType(), bytes}, {to, left, c});
  };
  if (target_.has("i8mm")) return product(llvm::Intrinsic::aarch64_neon_usdot, sum, a);
  // With the highest bit turned over a byte is signed and 128 less.
  llvm::Value* less = llvm::ConstantInt::get(bytes, 0x80);
  llvm::Value* zero = llvm::Constant::getNullValue(sum->getType());
  const ID id = llvm::Intrinsic::aarch64_neon_sdot;
  llvm::Value* all = product(id, sum, b_.CreateXor(a, less));
  return b_.CreateSub(all, product(id, zero, less));
}

// Of quads, unsigned times signed, as two products of pairs of i16.
llvm::Value* Emitter::dot_by_i16(llvm::Value* a, llvm::Value* c, llvm::Value* sum, int bits) {
  llvm::Type* i16 = llvm::FixedVectorType::get(b_.getInt16Ty(), static_cast<unsigned>(bits / 16));
  const auto number = [&](uint64_t v) { return llvm::ConstantInt::get(i16, v); };
  llvm::Value* x = b_.CreateBitCast(a, i16);
  llvm::Value* y = b_.CreateBitCast(c, i16);
  const auto product = [&](llvm::Value* l, llvm::Value* r) {
    return b_.CreateIntrinsic(pairs_of_i16(bits), {}, {l, r});
  };
  llvm::Value* even =
      product(b_.CreateAnd(x, number(0xff)), b_.CreateAShr(b_.CreateShl(y, number(8)), number(8)));
  llvm::Value* odd = product(b_.CreateLShr(x, number(8)), b_.CreateAShr(y, number(8)));
  return added(sum, b_.CreateAdd(even, odd));
}

// LLVM's machine combiner would add up the products of successive steps first, which shortens a
// chain that nothing waits for and needs so many registers more that the sums of a tile are kept in
// memory. It looks through integers alone.
llvm::Value* Emitter::added(llvm::Value* sum, llvm::Value* products) {
  llvm::Type* integers = sum->getType();
  llvm::Type* floats =
      llvm::VectorType::get(b_.getFloatTy(), llvm::cast<llvm::VectorType>(integers));
  llvm::Value* total = b_.CreateBitCast(b_.CreateAdd(sum, products), floats);
  return b_.CreateBitCast(b_.CreateIntrinsic(llvm::Intrinsic::arithmetic_fence, {floats}, {total}),
                          integers);
}

}  // namespace nimble::codegen
