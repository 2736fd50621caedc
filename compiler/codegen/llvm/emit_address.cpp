// Dims to 64-bit arithmetic, and addresses.
//
// A polynomial has lost the nesting of the loops that it was written for: m*lda + i*lda + k is a
// flat sum. It is rebuilt here by depth: terms are added in the order of the depth at which their
// symbols become known, so every partial sum belongs to the outermost loop that can hold it and
// LLVM's invariant code motion moves it there. An address is a chain of such steps with the
// constant part last, where it becomes the displacement of the load: eight rows that differ by
// a constant share one pointer.
#include <algorithm>
#include <bit>
#include <numeric>

#include "compiler/codegen/llvm/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {

using ir::Dim;

int64_t Emitter::constant(const Dim& d) const {
  const auto c = d.as_constant();
  NIMBLE_CHECK(c.has_value(), "{} is not constant in {}", d.str(), f_->name);
  return *c;
}

int Emitter::depth(const Dim& d) const {
  int deepest = 0;
  for (const std::string& s : d.symbols()) deepest = std::max(deepest, symbols_.at(s).depth);
  return deepest;
}

llvm::Value* Emitter::dim(const Dim& d) {
  if (const auto c = d.as_constant()) return b_.getInt64(*c);
  if (auto it = dims_.find(d); it != dims_.end()) return it->second;
  struct Ordered {
    int depth;
    Dim::Term term;
  };
  std::vector<Ordered> terms;
  int64_t rest = 0;
  for (Dim::Term& t : d.terms()) {
    if (t.atoms.empty()) {
      rest = t.coefficient;
      continue;
    }
    int deepest = 0;
    for (const Dim& a : t.atoms) deepest = std::max(deepest, depth(a));
    terms.push_back({deepest, std::move(t)});
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Ordered& a, const Ordered& b) { return a.depth < b.depth; });
  llvm::Value* sum = nullptr;
  for (const Ordered& t : terms) {
    llvm::Value* v = monomial(t.term);
    sum = sum ? b_.CreateNSWAdd(sum, v) : v;
  }
  if (rest != 0) sum = b_.CreateNSWAdd(sum, b_.getInt64(rest));
  dims_.emplace(d, sum);
  new_dims_.push_back(d);
  return sum;
}

llvm::Value* Emitter::monomial(const Dim::Term& t) {
  std::vector<Dim> atoms = t.atoms;
  std::stable_sort(atoms.begin(), atoms.end(),
                   [&](const Dim& a, const Dim& b) { return depth(a) < depth(b); });
  llvm::Value* product = nullptr;
  for (const Dim& a : atoms) {
    llvm::Value* v = atom(a);
    product = product ? b_.CreateNSWMul(product, v) : v;
  }
  if (t.coefficient != 1) product = b_.CreateNSWMul(product, b_.getInt64(t.coefficient));
  return product;
}

// Whether the signs alone show that d >= 0.
bool Emitter::nonnegative(const Dim& d) const {
  const auto all = [&](const std::vector<Dim>& operands) {
    return std::all_of(operands.begin(), operands.end(),
                       [&](const Dim& o) { return nonnegative(o); });
  };
  if (const auto name = d.as_symbol()) return symbols_.at(*name).nonnegative;
  if (const auto call = d.as_application()) {
    if (call->function == Dim::Function::kMod) return nonnegative(call->operands[1]);
    if (call->function != Dim::Function::kMax) return all(call->operands);
    return std::any_of(call->operands.begin(), call->operands.end(),
                       [&](const Dim& o) { return nonnegative(o); });
  }
  const std::vector<Dim::Term> terms = d.terms();
  return std::all_of(terms.begin(), terms.end(),
                     [&](const Dim::Term& t) { return t.coefficient > 0 && all(t.atoms); });
}

llvm::Value* Emitter::floor_div_mod(const Dim& dividend, const Dim& divisor, bool mod) {
  llvm::Value* a = dim(dividend);
  llvm::Value* b = dim(divisor);
  const auto c = divisor.as_constant();
  if (c && *c > 0 && (*c & (*c - 1)) == 0) {
    // Two's complement rounds towards minus infinity by itself.
    if (mod) return b_.CreateAnd(a, b_.getInt64(*c - 1));
    return b_.CreateAShr(a, b_.getInt64(std::countr_zero(static_cast<uint64_t>(*c))));
  }
  if (nonnegative(dividend) && nonnegative(divisor))
    return mod ? b_.CreateURem(a, b) : b_.CreateUDiv(a, b);
  llvm::Value* zero = b_.getInt64(0);
  llvm::Value* r = b_.CreateSRem(a, b);
  llvm::Value* wrong_side =
      b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, b), zero));
  if (mod) return b_.CreateSelect(wrong_side, b_.CreateAdd(r, b), r);
  return b_.CreateSub(b_.CreateSDiv(a, b), b_.CreateZExt(wrong_side, b_.getInt64Ty()));
}

llvm::Value* Emitter::atom(const Dim& d) {
  if (const auto name = d.as_symbol()) return symbols_.at(*name).value;
  if (auto it = dims_.find(d); it != dims_.end()) return it->second;
  const auto call = d.as_application();
  NIMBLE_CHECK(call.has_value(), "{}", d.str());
  std::vector<llvm::Value*> v;
  for (const Dim& o : call->operands) v.push_back(dim(o));
  llvm::Value* result = v[0];
  switch (call->function) {
    case Dim::Function::kFloorDiv:
    case Dim::Function::kMod:
      result = floor_div_mod(call->operands[0], call->operands[1],
                             call->function == Dim::Function::kMod);
      break;
    case Dim::Function::kMin:
      for (size_t i = 1; i < v.size(); ++i)
        result = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, result, v[i]);
      break;
    case Dim::Function::kMax:
      for (size_t i = 1; i < v.size(); ++i)
        result = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, result, v[i]);
      break;
    case Dim::Function::kBroadcast:  // the contract has checked that the extents agree
      for (size_t i = 1; i < v.size(); ++i)
        result = b_.CreateSelect(b_.CreateICmpEQ(result, b_.getInt64(1)), v[i], result);
      break;
  }
  dims_.emplace(d, result);
  new_dims_.push_back(d);
  return result;
}

llvm::Value* Emitter::address(const kir::Buffer& buffer, const Dim& index) {
  const Place& place = places_.at(&buffer);
  llvm::Type* element = memory_type(buffer.dtype, 1);
  int64_t rest = 0;
  std::map<int, Dim> by_depth;
  for (const Dim::Term& t : index.terms()) {
    if (t.atoms.empty()) {
      rest = t.coefficient;
      continue;
    }
    Dim term = t.coefficient;
    int deepest = 0;
    for (const Dim& a : t.atoms) {
      term = term * a;
      deepest = std::max(deepest, depth(a));
    }
    Dim& sum = by_depth[deepest];
    sum = sum + term;
  }
  llvm::Value* pointer = place.base;
  Dim partial = 0;
  for (const auto& [at, sum] : by_depth) {
    partial = partial + sum;
    const AddressKey key{&buffer, partial};
    if (auto it = addresses_.find(key); it != addresses_.end()) {
      pointer = it->second;
      continue;
    }
    pointer = b_.CreateGEP(element, pointer, dim(sum));
    addresses_.emplace(key, pointer);
    new_addresses_.push_back(key);
  }
  if (rest != 0) pointer = b_.CreateGEP(element, pointer, b_.getInt64(rest));
  return pointer;
}

// A number that divides the Dim, by the coefficients and what is known of the symbols.
int64_t Emitter::divisor(const Dim& d) const {
  int64_t g = 0;
  for (const Dim::Term& t : d.terms()) {
    int64_t term = std::abs(t.coefficient);
    for (const Dim& a : t.atoms)
      if (const auto name = a.as_symbol())
        if (auto it = symbols_.find(*name); it != symbols_.end() && term < (1 << 20))
          term *= std::min<int64_t>(it->second.divisor, 1 << 20);
    g = std::gcd(g, term);
  }
  return g;
}

llvm::Align Emitter::alignment(const kir::Buffer& buffer, const Dim& index) const {
  const int64_t size = static_cast<int64_t>(size_of(buffer.dtype));
  const int64_t base =
      buffer.scope == kir::Scope::kArgument ? std::max<int64_t>(buffer.alignment, size) : 64;
  const int64_t offset = divisor(index) * size;  // 0: the index is 0
  const uint64_t known = offset == 0 ? base : std::gcd(base, offset & -offset);
  return llvm::Align(std::max<uint64_t>(known, 1));
}

void Emitter::annotate(llvm::Instruction* access, const kir::Buffer& buffer, bool load) {
  const Place& place = places_.at(&buffer);
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, place.scope);
  if (place.others) access->setMetadata(llvm::LLVMContext::MD_noalias, place.others);
  // An argument that the kernel does not write is constant for the whole call.
  if (load && buffer.scope == kir::Scope::kArgument && !buffer.writable)
    access->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
}

llvm::Value* Emitter::lane_mask(const Dim& valid, int lanes) {
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (int i = 0; i < lanes; ++i) numbers.push_back(b_.getInt32(i));
  llvm::Value* count =
      b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, dim(valid), b_.getInt64(lanes));
  count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count, b_.getInt64(0));
  count = b_.CreateTrunc(count, b_.getInt32Ty());
  return b_.CreateICmpSLT(llvm::ConstantVector::get(numbers), b_.CreateVectorSplat(lanes, count));
}

llvm::Value* Emitter::lane_offsets(const Dim& stride, int lanes) {
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (int i = 0; i < lanes; ++i) numbers.push_back(b_.getInt64(i));
  return b_.CreateNSWMul(llvm::ConstantVector::get(numbers),
                         b_.CreateVectorSplat(lanes, dim(stride)));
}

}  // namespace nimble::codegen
