#include "compiler/codegen/portable/builder.h"

#include <algorithm>

#include "vm/base/error.h"

namespace nimble::codegen {

using exec::PortableInstruction;
using exec::PortableOp;
using exec::PortableValue;
using ir::Dim;

PortableBuilder::PortableBuilder(const std::string& name, const std::vector<std::string>& symbols)
    : name_(name), regions_(1) {
  for (const std::string& s : symbols) symbols_[s] = {new_slot(), 0};
}

// --- Regions -------------------------------------------------------------------------------------

void PortableBuilder::emit_at(size_t depth, PortableOp op,
                              std::initializer_list<int64_t> operands) {
  PortableInstruction in{op, {}};
  std::copy(operands.begin(), operands.end(), in.operands.begin());
  regions_[depth].code.push_back(in);
}

void PortableBuilder::open(PortableOp op, std::initializer_list<int64_t> operands) {
  regions_.emplace_back();
  regions_.back().head.op = op;
  std::copy(operands.begin(), operands.end(), regions_.back().head.operands.begin());
}

void PortableBuilder::otherwise() {
  Region& r = regions_.back();
  r.code.push_back({PortableOp::kElse, {}});
  r.dims.clear();  // computed on the other path only
}

void PortableBuilder::close() {
  Region r = std::move(regions_.back());
  regions_.pop_back();
  for (const int64_t v : r.kept) free_[key(kernel_.values[v])].push_back(v);
  std::vector<PortableInstruction>& out = regions_.back().code;
  out.push_back(r.head);
  out.insert(out.end(), r.code.begin(), r.code.end());
  out.push_back({PortableOp::kEnd, {}});
  if (out.size() > exec::kMaxPortableCode)
    throw Error(
        Status::kUnsupported, "kernel " + name_,
        fmt::format("its portable form has more than {} operations", exec::kMaxPortableCode),
        "choose a configuration that unrolls less, or compile with --portable=off");
}

exec::PortableKernel PortableBuilder::finish() {
  NIMBLE_CHECK(regions_.size() == 1);
  kernel_.code = std::move(regions_.back().code);
  return std::move(kernel_);
}

// --- Indices -------------------------------------------------------------------------------------
//
// As in the LLVM printer (emit_address.cpp), a polynomial is summed in the order of the depth at
// which its symbols become known, and every partial sum is a Dim that is computed once.

void PortableBuilder::bind(const std::string& symbol, Placed slot) {
  symbols_[symbol] = slot;
}
void PortableBuilder::unbind(const std::string& symbol) {
  symbols_.erase(symbol);
}

size_t PortableBuilder::depth_of(const Dim& d) const {
  size_t deepest = 0;
  for (const std::string& s : d.symbols()) deepest = std::max(deepest, symbols_.at(s).depth);
  return deepest;
}

Placed PortableBuilder::remember(const Dim& d, Placed p) {
  regions_[p.depth].dims.emplace(d, p.at);
  return p;
}

Placed PortableBuilder::binary(PortableOp op, Placed a, Placed b) {
  const Placed result{new_slot(), std::max(a.depth, b.depth)};
  emit_at(result.depth, op, {result.at, a.at, b.at});
  return result;
}

Placed PortableBuilder::index(const Dim& d) {
  if (const auto name = d.as_symbol()) return symbols_.at(*name);
  const size_t deepest = depth_of(d);
  if (auto it = regions_[deepest].dims.find(d); it != regions_[deepest].dims.end())
    return {it->second, deepest};
  if (const auto c = d.as_constant()) {
    const Placed p{new_slot(), 0};
    emit_at(0, PortableOp::kIndexConst, {p.at, *c});
    return remember(d, p);
  }
  Dim outer = 0;
  std::vector<Dim::Term> inner;
  for (const Dim::Term& t : d.terms()) {
    size_t depth = 0;
    for (const Dim& a : t.atoms) depth = std::max(depth, depth_of(a));
    if (depth == deepest && !t.atoms.empty()) {
      inner.push_back(t);
      continue;
    }
    Dim term = t.coefficient;
    for (const Dim& a : t.atoms) term = term * a;
    outer = outer + term;
  }
  // A lone atom, or a product of them, is itself; else a chain of multiply-adds.
  if (inner.size() == 1 && inner[0].coefficient == 1 && outer == Dim(0))
    return remember(d, product(inner[0].atoms));
  Placed sum = index(outer);
  for (const Dim::Term& t : inner) {
    const Placed p = product(t.atoms);
    const Placed next{new_slot(), deepest};
    emit_at(deepest, PortableOp::kIndexMulAdd, {next.at, sum.at, p.at, t.coefficient});
    sum = next;
  }
  return remember(d, sum);
}

Placed PortableBuilder::product(const std::vector<Dim>& atoms) {
  std::vector<Dim> sorted = atoms;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const Dim& a, const Dim& b) { return depth_of(a) < depth_of(b); });
  Placed p = atom(sorted[0]);
  Dim so_far = sorted[0];
  for (size_t i = 1; i < sorted.size(); ++i) {
    so_far = so_far * sorted[i];
    const size_t depth = std::max(p.depth, depth_of(sorted[i]));
    if (auto it = regions_[depth].dims.find(so_far); it != regions_[depth].dims.end())
      p = {it->second, depth};
    else
      p = remember(so_far, binary(PortableOp::kIndexMul, p, atom(sorted[i])));
  }
  return p;
}

Placed PortableBuilder::atom(const Dim& d) {
  if (const auto name = d.as_symbol()) return symbols_.at(*name);
  const size_t depth = depth_of(d);
  if (auto it = regions_[depth].dims.find(d); it != regions_[depth].dims.end())
    return {it->second, depth};
  const auto call = d.as_application();
  NIMBLE_CHECK(call.has_value(), "{}", d.str());
  PortableOp op{};
  switch (call->function) {
    case Dim::Function::kFloorDiv:
      op = PortableOp::kIndexDiv;
      break;
    case Dim::Function::kMod:
      op = PortableOp::kIndexMod;
      break;
    case Dim::Function::kMin:
      op = PortableOp::kIndexMin;
      break;
    case Dim::Function::kMax:
      op = PortableOp::kIndexMax;
      break;
    case Dim::Function::kBroadcast:
      op = PortableOp::kIndexBroadcast;
      break;
  }
  Placed result = index(call->operands[0]);
  for (size_t i = 1; i < call->operands.size(); ++i)
    result = binary(op, result, index(call->operands[i]));
  return remember(d, {result.at, depth});
}

PortableBuilder::Address PortableBuilder::address(const Dim& d) {
  const size_t deepest = depth_of(d);
  Address a{0, 0, 0};
  Dim outer = 0, inner = 0;
  for (const Dim::Term& t : d.terms()) {
    if (t.atoms.empty()) {
      a.displacement = t.coefficient;
      continue;
    }
    Dim term = t.coefficient;
    size_t depth = 0;
    for (const Dim& x : t.atoms) {
      term = term * x;
      depth = std::max(depth, depth_of(x));
    }
    (depth == deepest ? inner : outer) = (depth == deepest ? inner : outer) + term;
  }
  a.outer = index(outer).at;
  a.inner = index(inner).at;
  return a;
}

Placed PortableBuilder::condition(const kir::Condition& c) {
  using Op = kir::Condition::Op;
  std::optional<Placed> all;
  for (const kir::Condition::Term& t : c.terms) {
    const PortableOp op = t.op == Op::kLt   ? PortableOp::kIndexLt
                          : t.op == Op::kLe ? PortableOp::kIndexLe
                          : t.op == Op::kEq ? PortableOp::kIndexEq
                                            : PortableOp::kIndexNe;
    const Placed one = binary(op, index(t.a), index(t.b));
    all = all ? binary(PortableOp::kIndexAnd, *all, one) : one;
  }
  return all ? *all : index(1);
}

// --- Values --------------------------------------------------------------------------------------

int64_t PortableBuilder::fresh(PortableValue type) {
  kernel_.values.push_back(type);
  return static_cast<int64_t>(kernel_.values.size()) - 1;
}

int64_t PortableBuilder::temporary(PortableValue type) {
  std::vector<int64_t>& free = free_[key(type)];
  int64_t v = 0;
  if (free.empty()) {
    v = fresh(type);
  } else {
    v = free.back();
    free.pop_back();
  }
  temporaries_.push_back(v);
  return v;
}

Placed PortableBuilder::pure(PortableOp op, PortableValue type, size_t depth,
                             std::initializer_list<int64_t> operands) {
  PortableInstruction in{op, {}};
  std::copy(operands.begin(), operands.end(), in.operands.begin() + 1);
  if (depth == this->depth()) {
    in.operands[0] = temporary(type);
  } else {
    in.operands[0] = fresh(type);
    regions_[depth].kept.push_back(in.operands[0]);
  }
  regions_[depth].code.push_back(in);
  return {in.operands[0], depth};
}

Placed PortableBuilder::constant(PortableValue type, int64_t bits) {
  const auto [it, added] = constants_.emplace(std::pair(key(type), bits), 0);
  if (added) {
    it->second = fresh(type);
    emit_at(0, PortableOp::kConst, {it->second, bits});
  }
  return {it->second, 0};
}

bool PortableBuilder::is_temporary(int64_t value) const {
  return std::find(temporaries_.begin(), temporaries_.end(), value) != temporaries_.end();
}

void PortableBuilder::keep(int64_t value) {
  const auto it = std::find(temporaries_.begin(), temporaries_.end(), value);
  NIMBLE_CHECK(it != temporaries_.end());
  temporaries_.erase(it);
  regions_.back().kept.push_back(value);
}

void PortableBuilder::end_statement() {
  for (const int64_t v : temporaries_) free_[key(kernel_.values[v])].push_back(v);
  temporaries_.clear();
}

}  // namespace nimble::codegen
