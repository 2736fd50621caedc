// What a group relies on and its contract does not say by itself.
//
// A contract names extents: a symbol that is bound by one argument and found again in another is
// compared there. Relations between extents that no argument spells out get lost on the way: of
//
//   fn(%p0: Tensor[(s0), f32], %p1: Tensor[(s1), f32])
//     reshape(%p0) {shape = (2, s1)}, add
//
// the kernel reads 2*s1 elements of %p0, because the program knew that s0 = 2*s1 (the extent came
// first as a whole, or was asserted). Whoever calls the kernel must not have to know. The
// operators' own type relations say what must hold: the group, as a function of nothing but its
// parameters, is inferred again, and what inference cannot prove and would assert becomes a
// requirement.
//
// A relation that mentions a scalar argument is none (workload.cpp drops it). Such a symbol is a
// value that the caller computes: the begin and end of a slice, an element of a tensor. The group's
// types know it by a name of its own, as a dim, hence not negative, and know nothing of how the
// caller made it: that end = begin + 2, that a negative begin was counted from the back before it
// was clamped. What inference would assert of it then refuses calls that are valid. What it means
// is checked where it is computed, by the assert_shape of the calling function; the contract alone
// does not bound an access that depends on it, which is why contract.h promises less there.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/ir/infer.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/kernels/workload.h"
#include "vm/base/error.h"

namespace nimble::kernels {

using ir::Dim;
using Pairs = std::vector<std::pair<Dim, Dim>>;

namespace {

void collect(const ir::Block& block, Pairs* out) {
  for (const ir::Binding& b : block.bindings) {
    if (b.value->op != "assert_shape") continue;
    const auto& left = ir::attr<std::vector<Dim>>(b.value->attrs, "left");
    const auto& right = ir::attr<std::vector<Dim>>(b.value->attrs, "right");
    for (size_t i = 0; i < left.size(); ++i) out->emplace_back(left[i], right[i]);
  }
}

}  // namespace

std::vector<exec::DimProgram> requirements_of(const Workload& w, bool of_passed) {
  if (host_op_of(*w.group)) return {};
  const std::vector<std::string>& symbols = w.contract.symbols;
  auto f = std::make_shared<ir::Function>(*w.group);
  f->attrs.clear();
  // Every symbol of the contract has a value, whichever argument tells it.
  for (const std::string& s : symbols)
    f->parameters.push_back(
        ir::make_var("extent_" + s, ir::tensor_type({Dim::symbol(s)}, DType::kBool)));
  ir::Module m;
  m.set("main", f);
  const ir::InferResult inferred = ir::infer_module(m);
  if (!inferred.diagnostics.empty()) return {};
  Pairs pairs;
  collect(*inferred.module.find("main")->body, &pairs);
  // Of values that the caller passes (a slice's bounds, elements of tensors) the group's types say
  // nothing: they may be negative, and what they are to each other was lost with their names.
  const auto computed = ir::attr_or<std::vector<std::string>>(w.group->attrs, "scalar_symbols", {});
  std::set<int64_t> passed;
  for (const exec::KernelArgument& a : w.contract.arguments)
    if (a.kind == exec::KernelArgument::Kind::kScalar &&
        (!of_passed || std::ranges::find(computed, symbols[a.symbol]) != computed.end()))
      passed.insert(a.symbol);
  const auto asks_passed = [&](const exec::DimProgram& p) {
    return std::any_of(p.code.begin(), p.code.end(), [&](const exec::DimInstruction& i) {
      return i.op == exec::DimOp::kArg && passed.contains(i.immediate);
    });
  };
  std::vector<exec::DimProgram> out;
  for (const auto& [left, right] : pairs) {
    std::set<std::string> used = left.symbols();
    used.merge(right.symbols());
    // What inference calls by a name of its own is computed inside the group, not given to it.
    if (!std::all_of(used.begin(), used.end(), [&](const std::string& s) {
          return std::find(symbols.begin(), symbols.end(), s) != symbols.end();
        }))
      continue;
    exec::DimProgram p = left.to_program(symbols);
    const exec::DimProgram q = right.to_program(symbols);
    p.code.insert(p.code.end(), q.code.begin(), q.code.end());
    p.code.push_back({exec::DimOp::kEq, 0});
    p.arguments = std::max(p.arguments, q.arguments);
    if (!asks_passed(p) && std::find(out.begin(), out.end(), p) == out.end())
      out.push_back(std::move(p));
  }
  return out;
}

}  // namespace nimble::kernels
