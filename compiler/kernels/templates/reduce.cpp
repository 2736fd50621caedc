// The template "reduce": reductions over any axes (sum, mean, reduce_max, reduce_min, prod,
// argmax) and normalisations (softmax, log_softmax, l2_normalize, layer_norm), each with
// element-wise operators fused before and behind it; behind a reduction of whole rows also those
// that take its result back to the rows (x / sum(x), round(x / max |x|)), also those of several
// reductions of the same rows ((x - min(x)) / (max(x) - min(x))).
//
// Reductions and row normalisations.
//
// The operand has kept axes and reduced axes. There are two ways to use vectors:
//  - If the last axis is reduced ("along"), lanes run along it: `unroll` vector accumulators hide
//    the latency of their additions, and the lanes are added up at the end of the row.
//  - If it is kept ("across"), lanes are neighbouring results, each reduced on its own; the
//    accumulators take turns over the reduced axis. Nothing is added across lanes. Plain reductions
//    take several vectors of columns at a time (fold_columns.h).
//
// A reduction is one pass, and there is one more where results go back to the rows. The rows may be
// those of a normalisation ahead, which then stay in the thread's scratch. Normalisations need two
// or three over the same row: the maximum (or mean), then the sum of exponentials (or squared
// deviations), then the results. A row that comes out of fused operators, or whose exponentials
// would be computed twice, is kept in the thread's scratch between the passes; a plain row is read
// again, from the first-level cache.
// The variance is the mean of squared deviations, not a difference of squares, which cancels.
//
// Threads share the rows; how a sum is split between them (fold_columns.h) does not depend on their
// number, so results don't either.
#include <fmt/format.h>

#include <limits>

#include "compiler/ir/op.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/reduce_lowering.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;
using Dims = std::vector<Dim>;

Fold ReduceLowering::plain_fold() const {
  const std::string& op = call_.op;
  if (op == "reduce_max" || op == "reduce_min")
    return {op == "reduce_max" ? BinaryOp::kMax : BinaryOp::kMin, is_float(type_)};
  return {op == "prod" ? BinaryOp::kMul : BinaryOp::kAdd, false};
}

void ReduceLowering::reduce(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  fold_row(columns, out);
  reduce_more(columns, out);
}

void ReduceLowering::reduce_more(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  for (const ir::Binding* b : plan_.more) {
    anchor_ = b;
    call_ = *b->value;
    x_ = group_.resolve(call_.args[0]);
    type_ = element_type(ir::type_of(x_)->dtype);
    fold_row(columns, out);
  }
  finish(columns, out);
}

void ReduceLowering::fold_row(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  const std::string& op = call_.op;
  const auto operand = [&](const Step& s, std::vector<StmtRef>& all) { return pull(s, all); };
  ValueRef total;
  if (op == "argmax") {
    total = arg_max(columns, out);
  } else if (op == "reduce_max" || op == "reduce_min") {
    total = fold(out, columns, plain_fold().op, "m", operand, plain_fold().keep_nan);
  } else {
    total = fold(out, columns, plain_fold().op, op == "prod" ? "p" : "sum", operand);
  }
  give(total, out);
}

void ReduceLowering::give(ValueRef total, std::vector<StmtRef>& out) {
  if (call_.op == "mean")
    total = let(out, "mean", kb::div(total, kb::cast(type_, kb::index(row_length()))));
  total = kb::cast(compute_type(anchor_->var->type->dtype), total);
  group_.give(anchor_->var,
              [total](const Dims&, int lanes) { return kb::broadcast(total, lanes); });
}

void ReduceLowering::finish(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  const bool keep = ir::attr<bool>(call_.attrs, "keepdims");
  Dims at;
  for (size_t i = 0; i < plan_.dims.size(); ++i) {
    if (!plan_.reduced[i]) {
      at.push_back(base_[i]);
    } else if (keep) {
      at.push_back(0);
    }
  }
  const int lanes = plan_.along ? 1 : lanes_;
  std::vector<size_t> rows;  // the results that are as long as the operand's rows
  for (size_t r = 0; r < frame_.results.size(); ++r) {
    const ir::Atom a = stripped(frame_.result_atoms[r]);
    if (plan_.spreads && ir::type_of(a)->dims == plan_.dims) {
      rows.push_back(r);
      continue;
    }
    StmtRef s = store(r, a, at, lanes, columns, out);
    out.push_back(std::move(s));
  }
  if (rows.empty()) return;
  out.push_back(walk(columns, [&](const Step& s) {
    std::vector<StmtRef> all;
    for (const size_t r : rows) {
      StmtRef one = store(r, stripped(frame_.result_atoms[r]), s.at, lanes_, s.valid, all);
      all.push_back(std::move(one));
    }
    return all;
  }));
}

kir::Function ReduceLowering::run_columns(const std::string& name) {
  ColumnFold f;
  f.fold = plain_fold();
  f.dims = plan_.dims;
  f.reduced = plan_.reduced;
  f.type = type_;
  f.lanes = lanes_;
  f.unroll = unroll_;
  f.facts = &w_.facts;
  for (const ir::Binding& b : w_.group->body->bindings)
    f.may_cut &= b.value->kind != ir::ExprKind::kCall || !ir::traits_of(*b.value).indexes;
  f.element = [&](const Dims& at, const std::optional<Dim>& valid, std::vector<StmtRef>& out) {
    return pull({at, valid, std::nullopt, 0}, out);
  };
  f.finish = [&](const ValueRef& total, const Dims& at, const std::optional<Dim>& valid,
                 std::vector<StmtRef>& out) {
    base_ = at;
    give(total, out);
    finish(valid, out);
  };
  StmtRef body = f.lower();
  return make_function(w_, frame_, name, f.scratch, f.registers, std::move(body));
}

// The first index with the largest value, and a NaN is larger than all numbers: each accumulator
// keeps the first of its own, then the smallest index among those that hold the overall maximum
// wins.
ValueRef ReduceLowering::arg_max(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
  const kir::BufferRef best = registers("best", type_);
  const kir::BufferRef where = registers("where", DType::kI64);
  const ValueRef lowest = Fold{BinaryOp::kMax}.start(type_, lanes_);
  const ValueRef nowhere = kb::integer(DType::kI64, std::numeric_limits<int64_t>::max(), lanes_);
  const auto both = [](ValueRef a, ValueRef b) { return kb::binary(BinaryOp::kAnd, a, b); };
  const auto either = [](ValueRef a, ValueRef b) { return kb::binary(BinaryOp::kOr, a, b); };
  out.push_back(fill(best, lowest));
  out.push_back(fill(where, nowhere));
  size_t axis = 0;
  while (!plan_.reduced[axis]) ++axis;
  out.push_back(walk(columns, [&](const Step& s) {
    std::vector<StmtRef> all;
    const ValueRef v = let(all, "v", pull(s, all));
    ValueRef index = kb::broadcast(kb::index(s.at[axis]), lanes_);
    if (plan_.along && lanes_ > 1) index = kb::add(index, kb::cast(DType::kI64, kb::iota(lanes_)));
    // Not smaller than the best where none was seen: the first element counts even if it is the
    // lowest value there is.
    const ValueRef so_far = kb::reg(best, s.slot);
    ValueRef larger = either(kb::compare(kir::CompareOp::kGt, v, so_far),
                             kb::compare(kir::CompareOp::kEq, kb::reg(where, s.slot), nowhere));
    if (is_float(type_))
      larger = either(larger, both(is_nan(v), kb::compare(kir::CompareOp::kEq, so_far, so_far)));
    if (s.counted && lanes_ > 1) larger = both(larger, lane_mask(*s.counted, lanes_));
    const ValueRef l = let(all, "l", larger);
    all.push_back(kb::set_reg(where, s.slot, kb::select(l, index, kb::reg(where, s.slot))));
    all.push_back(kb::set_reg(best, s.slot, kb::select(l, v, kb::reg(best, s.slot))));
    return all;
  }));
  const auto combine = [&](const ValueRef& a, const ValueRef& b) {
    const ValueRef m = kb::max(b, a);  // a if either is NaN
    return is_float(type_) ? kb::select(is_nan(b), b, m) : m;
  };
  ValueRef top = kb::reg(best, 0);
  for (int u = 1; u < unroll_; ++u) top = combine(top, kb::reg(best, u));
  top = together(out, "tops", top, {BinaryOp::kMax, true});
  top = kb::broadcast(let(out, "top", top), lanes_);
  ValueRef first = nowhere;
  for (int u = 0; u < unroll_; ++u) {
    const ValueRef mine = kb::reg(best, u);
    ValueRef wins = kb::compare(kir::CompareOp::kEq, mine, top);
    if (is_float(type_)) wins = either(wins, both(is_nan(mine), is_nan(top)));
    first = kb::min(first, kb::select(wins, kb::reg(where, u), nowhere));
  }
  return let(out, "index", together(out, "firsts", first, {BinaryOp::kMin}));
}

bool ReduceTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return plan_reduction(w).has_value();
}

std::vector<Knob> ReduceTemplate::knobs(const Workload&, const TargetInfo&) const {
  return {int_knob("unroll", {1, 2, 4, 8})};
}

bool ReduceTemplate::valid(const Workload& w, const Config& c, const TargetInfo& t) const {
  return within(knobs(w, t), c);
}

Config ReduceTemplate::default_config(const Workload&, const TargetInfo&) const {
  return {{"unroll", int64_t{4}}};
}

Lowered ReduceTemplate::lower(const Workload& w, const Config& c, const TargetInfo& t,
                              const std::string& name) const {
  auto plan = plan_reduction(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of reduce", to_json(c));
  const Dim elements = count_of(plan->dims);
  ReduceLowering lowering(w, std::move(*plan), make_frame(w),
                          static_cast<int>(knob_int(c, "unroll")), group_lanes(*w.group, t));
  return one_kernel(lowering.run(name), threads_for(elements));
}

}  // namespace nimble::kernels
