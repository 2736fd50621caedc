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

// Whether `more` takes the rows, of one axis, that the anchor, a normalisation, makes.
bool may_follow(const ir::Binding& more, const ReducePlan& plan) {
  const ir::Expr& e = *more.value;
  if (!plan.normalises || !may_spread(e, plan)) return false;
  const auto last = static_cast<int64_t>(plan.dims.size()) - 1;
  return std::count(plan.reduced.begin(), plan.reduced.end(), true) == 1 &&
         ir::attr<Ints>(e.attrs, "axes") == Ints{last} &&
         ir::type_of(e.args[0])->dims == plan.dims && plan.anchor->var->type->dtype == DType::kF32;
}

// Whether `more` takes rows of the same places as the anchor, a plain reduction.
bool may_stand_beside(const ir::Binding& more, const ReducePlan& plan) {
  const ir::Expr& e = *more.value;
  const ir::Expr& first = *plan.anchor->value;
  return may_spread(e, plan) && may_spread(first, plan) &&
         ir::type_of(e.args[0])->dims == plan.dims &&
         ir::attr<Ints>(e.attrs, "axes") == ir::attr<Ints>(first.attrs, "axes");
}

using Vars = std::set<const ir::Var*>;

// What depends on `from`, and `from` itself.
Vars dependent_on(const Workload& w, Vars from) {
  for (const ir::Binding& b : w.group->body->bindings) {
    if (b.value->kind == ir::ExprKind::kTuple) continue;
    for (const ir::Atom& a : b.value->args)
      if (a.is_var() && from.contains(a.var.get())) from.insert(b.var.get());
  }
  return from;
}

bool may_be_one(const Workload& w, const ReducePlan& plan) {
  const auto reads = [&](const ir::Binding& b, const Vars& from) {
    const ir::Atom& x = b.value->args[0];
    return x.is_var() && dependent_on(w, from).contains(x.var.get());
  };
  Vars all;
  for (const ir::Binding* b : plan.more) all.insert(b->var.get());
  for (const ir::Binding* b : plan.more) {
    if (reads(*b, all) || reads(*b, {plan.anchor->var.get()}) != plan.normalises) return false;
    if (!(plan.normalises ? may_follow(*b, plan) : may_stand_beside(*b, plan))) return false;
  }
  return plan.normalises || plan.more.empty() || !reads(*plan.anchor, all);
}

}  // namespace

std::optional<ReducePlan> plan_reduction(const Workload& w) {
  ReducePlan plan;
  for (const ir::Binding& b : w.group->body->bindings) {
    if (b.value->kind != ir::ExprKind::kCall) continue;
    const ir::OpInfo* op = ir::find_op(b.value->op);
    if (op == nullptr) return std::nullopt;
    if (op->fusion == ir::FusionKind::kReduction) {
      if (plan.anchor == nullptr)
        plan.anchor = &b;
      else
        plan.more.push_back(&b);
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
  if (!may_be_one(w, plan)) return std::nullopt;

  // Results are element-wise over the anchor's shape (up to final reshapes), or over its operand's.
  // What depends on the anchor must not rearrange it.
  Vars results = {plan.anchor->var.get()};
  for (const ir::Binding* b : plan.more) results.insert(b->var.get());
  const Vars dependent = dependent_on(w, results);
  const ir::Binding& reduced = plan.more.empty() ? *plan.anchor : *plan.more[0];
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
    if (results.contains(b.var.get()) || !dependent.contains(b.var.get())) continue;
    if (b.value->kind == ir::ExprKind::kAtom || b.value->kind == ir::ExprKind::kGetField) continue;
    const bool moves = !has_compute_rule(b.value->op);
    const bool reshapes = ir::traits_of(*b.value).memory == ir::Memory::kView;
    if (moves && !reshapes) return std::nullopt;
    if (!plan.spreads && plan.more.empty()) continue;
    if (!reshapes && std::any_of(b.value->args.begin(), b.value->args.end(), moved))
      return std::nullopt;
  }
  for (const ir::Binding* b : plan.more)
    if (moved(b->value->args[0])) return std::nullopt;
  return plan;
}

}  // namespace nimble::kernels
