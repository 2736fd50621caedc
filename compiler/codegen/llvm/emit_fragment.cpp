// Dots to LLVM IR: the fragment's instruction where the target has it, for vectors of 128, 256 and
// 512 bits; wider ones are cut in halves, narrower ones are filled up, so that every width gives
// the row's bits. Elsewhere the expansion in other values.
#include <llvm/IR/IntrinsicsX86.h>

#include "compiler/codegen/llvm/emitter.h"
#include "compiler/kernels/fragments.h"
#include "vm/base/error.h"

namespace nimble::codegen {
namespace {

using llvm::Intrinsic::ID;

constexpr int kNarrowest = 128, kWidest = 512;  // bits of an instruction's sums

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
  }
  NIMBLE_UNREACHABLE();
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

llvm::Value* Emitter::dot(const kir::Value& v) {
  const kir::FragmentRow& row = kir::row_of(v.fragment);
  if (!target_.has(std::string(row.feature))) {
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
  if (bits > kWidest) {
    const int half = lanes / 2;
    const auto part = [&](int i) {
      return dot_of(row, lanes_of(a, i * factors / 2, factors, factors / 2),
                    lanes_of(c, i * factors / 2, factors, factors / 2),
                    lanes_of(sum, i * half, lanes, half), half);
    };
    llvm::Value* low = part(0);
    llvm::SmallVector<int, 64> all;
    for (int i = 0; i < lanes; ++i) all.push_back(i);
    return b_.CreateShuffleVector(low, part(1), all);
  }
  if (bits < kNarrowest) {
    const int wide = kNarrowest / element;
    llvm::Value* all =
        dot_of(row, broadcast(a, factors, row.group * wide),
               broadcast(c, factors, row.group * wide), broadcast(sum, lanes, wide), wide);
    return lanes == 1 ? b_.CreateExtractElement(all, uint64_t{0}) : lanes_of(all, 0, wide, lanes);
  }
  const ID id = intrinsic_of(row.id, bits);
  // LLVM's versions differ in how they type the factors (words, or elements).
  const llvm::FunctionType* signature = llvm::Intrinsic::getType(context_, id);
  return b_.CreateIntrinsic(id, {},
                            {sum, b_.CreateBitCast(a, signature->getParamType(1)),
                             b_.CreateBitCast(c, signature->getParamType(2))});
}

}  // namespace nimble::codegen
