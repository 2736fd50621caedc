// Dims to integer arithmetic. A Dim is an i64; what its symbols' ranges show to fit, every sum and
// product on the way included, is an i32, which costs a GPU half as much or less. The bound is the
// sum of the terms' magnitudes, so the order of the terms does not matter.
#include <bit>
#include <limits>

#include "compiler/codegen/cuda/emitter.h"
#include "vm/base/error.h"

namespace nimble::codegen {

using ir::Dim;

namespace {

constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// The greatest magnitude, up to one more than an i32 has: more does not matter.
int64_t magnitude(const ir::DimContext::Interval& r) {
  if (r.low < -kMost || r.high > kMost) return kMost + 1;
  return std::max(std::abs(r.low), std::abs(r.high));
}

int64_t product(int64_t a, int64_t b) {  // of magnitudes
  return a == 0 || b <= (kMost + 1) / a ? a * b : kMost + 1;
}

std::string joined(const std::vector<std::string>& parts, const char* by) {
  if (parts.size() == 1) return parts[0];
  std::string out = "(";
  for (size_t i = 0; i < parts.size(); ++i) out += (i ? by : "") + parts[i];
  return out + ")";
}

}  // namespace

int64_t CudaEmitter::constant(const Dim& d) const {
  const auto c = d.as_constant();
  NIMBLE_CHECK(c.has_value(), "{} is not constant in {}", d.str(), f_.name);
  return *c;
}

bool CudaEmitter::fits_i32(const Dim& d) const {
  const auto r = facts_.range(d);
  return r.low >= kLeast && r.high <= kMost;
}

void CudaEmitter::bind_symbol(const std::string& name, const std::string& text,
                              ir::SymbolFacts facts) {
  facts_.set(name, facts);
  symbols_[name] = {text, facts.low >= kLeast && facts.high <= kMost};
}

CudaEmitter::Integer CudaEmitter::dim(const Dim& d) {
  std::vector<std::string> narrow, wide;
  int64_t sum = 0;  // of the magnitudes of what is narrow
  for (const Dim::Term& t : d.terms()) {
    int64_t most =
        t.coefficient < -kMost || t.coefficient > kMost ? kMost + 1 : std::abs(t.coefficient);
    bool fits = most <= kMost;
    std::vector<std::string> factors;
    for (const Dim& a : t.atoms) {
      const Integer factor = atom(a);
      fits &= factor.narrow;
      // A factor that may be 0 does not keep the others from overflowing on the way.
      most = product(most, std::max<int64_t>(1, magnitude(facts_.range(a))));
      factors.push_back(factor.text);
    }
    fits &= most <= kMost && sum + most <= kMost;
    if (t.coefficient != 1 || factors.empty())
      factors.push_back(integer(fits ? DType::kI32 : DType::kI64, t.coefficient));
    if (fits) {
      sum += most;
      narrow.push_back(joined(factors, " * "));
      continue;
    }
    if (factors.size() > 1 || !t.atoms.empty()) factors[0] = "(i64)" + factors[0];
    wide.push_back(joined(factors, " * "));
  }
  if (narrow.empty() && wide.empty()) return {"0", true};
  if (wide.empty()) return {joined(narrow, " + "), true};
  if (!narrow.empty()) wide.push_back("(i64)" + joined(narrow, " + "));
  return {joined(wide, " + "), false};
}

std::string CudaEmitter::wide(const Dim& d) {
  const Integer i = dim(d);
  return i.narrow ? "(i64)" + i.text : i.text;
}

CudaEmitter::Integer CudaEmitter::bound(const Dim& d) {
  Integer i = dim(d);
  if (!d.as_constant()) i.text = bind(i.narrow ? "i32" : "i64", i.text);
  return i;
}

CudaEmitter::Integer CudaEmitter::floor_div_mod(const Dim& dividend, const Dim& divisor, bool mod) {
  const Integer a = dim(dividend), b = dim(divisor);
  const auto c = divisor.as_constant();
  if (c && *c > 0 && std::has_single_bit(static_cast<uint64_t>(*c))) {
    // Two's complement rounds towards minus infinity by itself.
    const bool narrow = a.narrow && *c <= kMost;
    if (mod)
      return {fmt::format("({} & {})", a.text, integer(narrow ? DType::kI32 : DType::kI64, *c - 1)),
              narrow};
    const int by = std::countr_zero(static_cast<uint64_t>(*c));
    if (a.narrow && by > 31)  // further than an i32 can be shifted
      return {fmt::format("((i64){} >> {})", a.text, by), false};
    return {fmt::format("({} >> {})", a.text, by), a.narrow};
  }
  const bool narrow = a.narrow && b.narrow;
  const char* type = narrow ? "i32" : "i64";
  if (facts_.range(dividend).low >= 0 && facts_.range(divisor).low >= 0) {
    const char* natural = narrow ? "u32" : "u64";
    return {fmt::format("({})(({}){} {} ({}){})", type, natural, a.text, mod ? "%" : "/", natural,
                        b.text),
            narrow};
  }
  return {
      fmt::format("{}<{}>({}, {})", mod ? "floor_modulo" : "floor_divide", type, a.text, b.text),
      narrow};
}

CudaEmitter::Integer CudaEmitter::atom(const Dim& d) {
  if (const auto name = d.as_symbol()) return symbols_.at(*name);
  const auto call = d.as_application();
  NIMBLE_CHECK(call.has_value(), "{}", d.str());
  const std::vector<Dim>& operands = call->operands;
  Integer result;
  switch (call->function) {
    case Dim::Function::kFloorDiv:
    case Dim::Function::kMod:
      result = floor_div_mod(operands[0], operands[1], call->function == Dim::Function::kMod);
      break;
    case Dim::Function::kMin:
    case Dim::Function::kMax:
      result = dim(operands[0]);
      for (size_t i = 1; i < operands.size(); ++i) {
        const Integer next = dim(operands[i]);
        const bool narrow = result.narrow && next.narrow;
        result = {fmt::format("{}<{}>({}, {})",
                              call->function == Dim::Function::kMin ? "lesser" : "greater",
                              narrow ? "i32" : "i64", result.text, next.text),
                  narrow};
      }
      break;
    case Dim::Function::kBroadcast:  // the contract has checked that the extents agree
      result = dim(operands[0]);
      for (size_t i = 1; i < operands.size(); ++i) {
        const Integer next = dim(operands[i]);
        result = {fmt::format("({} == 1 ? {} : {})", result.text, next.text, result.text),
                  result.narrow && next.narrow};
      }
      break;
  }
  if (!result.narrow && fits_i32(d)) result = {"(i32)" + result.text, true};
  return result;
}

}  // namespace nimble::codegen
