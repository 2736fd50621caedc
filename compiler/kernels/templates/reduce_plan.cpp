#include "compiler/kernels/templates/reduce_plan.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/group.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/loops.h"

namespace nimble::kernels {
namespace {

using kir::Dim;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

bool is_normalisation(const std::string& op) {
  return op == "softmax" || op == "log_softmax" || op == "l2_normalize" || op == "layer_norm";
}

// Whether elements of a row may be computed from what `e`, a plain reduction, makes of the row: one
// along the last axis that keeps its axes, over rows that a cache holds. Rows of a length that only
// the run knows may be few and long, which is work for more threads than there are rows.
bool may_spread(const ir::Expr& e, const ReducePlan& plan) {
  constexpr int64_t kLongest = 32768;
  if (is_normalisation(e.op) || !plan.along || e.op == "argmax" ||
      !ir::attr<bool>(e.attrs, "keepdims"))
    return false;
  Dim length = 1;
  for (size_t i = 0; i < plan.dims.size(); ++i)
    if (plan.reduced[i]) length = length * plan.dims[i];
  return length.as_constant().value_or(kLongest + 1) <= kLongest;
}

// Whether the second reduction takes the rows, of one axis, that the first, a normalisation, makes.
bool may_follow(const ReducePlan& plan) {
  const ir::Expr& e = *plan.second->value;
  if (!plan.normalises || !may_spread(e, plan)) return false;
  const auto last = static_cast<int64_t>(plan.dims.size()) - 1;
  return std::count(plan.reduced.begin(), plan.reduced.end(), true) == 1 &&
         ir::attr<Ints>(e.attrs, "axes") == Ints{last} &&
         ir::type_of(e.args[0])->dims == plan.dims && plan.anchor->var->type->dtype == DType::kF32;
}

}  // namespace

std::optional<ReducePlan> plan_reduction(const Workload& w) {
  ReducePlan plan;
  for (const ir::Binding& b : w.group->body->bindings) {
    if (b.value->kind != ir::ExprKind::kCall) continue;
    const ir::OpInfo* op = ir::find_op(b.value->op);
    if (op == nullptr) return std::nullopt;
    if (op->fusion == ir::FusionKind::kReduction) {
      if (plan.second != nullptr) return std::nullopt;
      (plan.anchor == nullptr ? plan.anchor : plan.second) = &b;
    } else if (!is_pullable(*b.value)) {
      return std::nullopt;
    }
  }
  if (plan.anchor == nullptr) return std::nullopt;
  const ir::Expr& e = *plan.anchor->value;
  plan.dims = ir::type_of(e.args[0])->dims;
  plan.normalises = is_normalisation(e.op);
  plan.reduced.assign(plan.dims.size(), false);
  if (e.op == "layer_norm") {
    for (size_t i = ir::axis_of(e); i < plan.dims.size(); ++i) plan.reduced[i] = true;
  } else if (plan.normalises || e.op == "argmax") {
    plan.reduced[ir::axis_of(e)] = true;
  } else {
    for (int64_t axis : ir::attr<Ints>(e.attrs, "axes"))
      plan.reduced[static_cast<size_t>(axis)] = true;
  }
  // Over no axis there is nothing to do: the pass expose-shapes takes the operand instead.
  if (std::find(plan.reduced.begin(), plan.reduced.end(), true) == plan.reduced.end())
    return std::nullopt;
  plan.along = plan.reduced.back();
  if (plan.second != nullptr && !may_follow(plan)) return std::nullopt;

  // Results are element-wise over the anchor's shape (up to final reshapes), or over its operand's.
  // What depends on the anchor must not rearrange it.
  std::set<const ir::Var*> dependent = {plan.anchor->var.get()};
  for (const ir::Binding& b : w.group->body->bindings) {
    if (&b == plan.anchor || b.value->kind == ir::ExprKind::kTuple) continue;
    bool depends = false;
    for (const ir::Atom& a : b.value->args)
      depends |= a.is_var() && dependent.contains(a.var.get());
    if (depends) dependent.insert(b.var.get());
  }
  if (plan.second != nullptr && !dependent.contains(plan.second->var.get())) return std::nullopt;
  const ir::Binding& reduced = plan.second != nullptr ? *plan.second : *plan.anchor;
  const Frame frame = make_frame(w);
  const GroupEvaluator group(*w.group, frame.parameters);
  for (const ir::Atom& a : frame.result_atoms) {
    const ir::Atom inner = strip_reshapes(group, a);
    if (inner.is_global()) return std::nullopt;
    const Dims& dims = ir::type_of(inner)->dims;
    if (dims == reduced.var->type->dims) continue;
    if (dims != plan.dims || !may_spread(*reduced.value, plan)) return std::nullopt;
    plan.spreads = true;
  }
  // Where rows are walked again an element meets what its own row made. Under other extents that is
  // another row's: the sums of a square's rows, taken for one row.
  const auto moved = [&](const ir::Atom& a) {
    const ir::Atom inner = strip_reshapes(group, a);
    return inner.is_var() && dependent.contains(inner.var.get()) &&
           ir::type_of(inner)->dims != ir::type_of(a)->dims;
  };
  for (const ir::Binding& b : w.group->body->bindings) {
    if (&b == plan.anchor || &b == plan.second || !dependent.contains(b.var.get())) continue;
    if (b.value->kind == ir::ExprKind::kAtom || b.value->kind == ir::ExprKind::kGetField) continue;
    const bool moves = !has_compute_rule(b.value->op);
    const bool reshapes = ir::traits_of(*b.value).memory == ir::Memory::kView;
    if (moves && !reshapes) return std::nullopt;
    if (!plan.spreads && plan.second == nullptr) continue;
    if (!reshapes && std::any_of(b.value->args.begin(), b.value->args.end(), moved))
      return std::nullopt;
  }
  if (plan.second != nullptr && moved(plan.second->value->args[0])) return std::nullopt;
  return plan;
}

}  // namespace nimble::kernels
