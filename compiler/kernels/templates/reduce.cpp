// The template "reduce": reductions over any axes (sum, mean, reduce_max, reduce_min, prod,
// argmax) and normalisations (softmax, log_softmax, l2_normalize, layer_norm), each with
// element-wise operators fused before and behind it; behind a reduction of whole rows also those
// that take its result back to the rows (x / sum(x), round(x / max |x|)).
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
// A reduction is one pass, and one more where its result goes back to the rows. The rows may be
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

#include <algorithm>
#include <limits>
#include <set>

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/math.h"
#include "compiler/kernels/templates/fold_columns.h"
#include "compiler/kernels/templates/frame.h"
#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/loops.h"
#include "compiler/kernels/templates/templates.h"
#include "vm/base/error.h"

namespace nimble::kernels {
namespace {

namespace kb = kir::build;
namespace km = kir::math;
using kir::BinaryOp;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

bool is_normalisation(const std::string& op) {
  return op == "softmax" || op == "log_softmax" || op == "l2_normalize" || op == "layer_norm";
}

// What is reduced, and which axes of the operand are.
struct Plan {
  const ir::Binding* anchor = nullptr;
  const ir::Binding* second = nullptr;  // a plain reduction of the rows that the anchor makes
  Dims dims;                            // of the operand
  std::vector<bool> reduced;            // by axis
  bool normalises = false;
  bool along = false;    // lanes run along the last axis, which is reduced
  bool spreads = false;  // some results have the operand's extents: the row is walked once more
};

// Whether elements of a row may be computed from what `e`, a plain reduction, makes of the row: one
// along the last axis that keeps its axes, over rows that a cache holds. Rows of a length that only
// the run knows may be few and long, which is work for more threads than there are rows.
bool may_spread(const ir::Expr& e, const Plan& plan) {
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
bool may_follow(const Plan& plan) {
  const ir::Expr& e = *plan.second->value;
  if (!plan.normalises || !may_spread(e, plan)) return false;
  const auto last = static_cast<int64_t>(plan.dims.size()) - 1;
  return std::count(plan.reduced.begin(), plan.reduced.end(), true) == 1 &&
         ir::attr<Ints>(e.attrs, "axes") == Ints{last} &&
         ir::type_of(e.args[0])->dims == plan.dims && plan.anchor->var->type->dtype == DType::kF32;
}

std::optional<Plan> analyse(const Workload& w) {
  Plan plan;
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

class ReduceLowering {
 public:
  ReduceLowering(const Workload& w, Plan plan, const Config& c, const TargetInfo& t)
      : w_(w),
        plan_(std::move(plan)),
        frame_(make_frame(w)),
        group_(*w.group, frame_.parameters),
        unroll_(static_cast<int>(knob_int(c, "unroll"))),
        anchor_(plan_.anchor),
        call_(*anchor_->value),
        x_(group_.resolve(call_.args[0])),
        type_(element_type(ir::type_of(x_)->dtype)) {
    lanes_ = group_lanes(*w.group, t);
    const DType result = compute_type(plan_.anchor->var->type->dtype);
    group_.give(anchor_->var,
                [result](const Dims&, int lanes) { return kb::integer(result, 0, lanes); });
    bool vectors = group_.vectorizable(x_);
    if (plan_.second) {
      const DType again = compute_type(plan_.second->var->type->dtype);
      vectors &= group_.vectorizable(plan_.second->value->args[0]);
      group_.give(plan_.second->var,
                  [again](const Dims&, int lanes) { return kb::integer(again, 0, lanes); });
    }
    if (!plan_.along || plan_.normalises || plan_.spreads)
      for (const ir::Atom& a : frame_.result_atoms) vectors &= group_.vectorizable(stripped(a));
    // Lanes across columns need columns: an axis of extent 1 is broadcast, not walked.
    if (!plan_.along && !plan_.dims.empty() && plan_.dims.back().is_constant(1)) vectors = false;
    if (!vectors) lanes_ = 1;
  }

  kir::Function run(const std::string& name) {
    if (!plan_.along && !plan_.normalises && call_.op != "argmax" && lanes_ > 1)
      return run_columns(name);
    // Items: kept coordinates, where across replaces the last axis by blocks of `lanes` columns.
    const size_t rank = plan_.dims.size();
    Dims items = plan_.dims;
    for (size_t i = 0; i < rank; ++i)
      if (plan_.reduced[i]) items[i] = 1;
    if (!plan_.along) items.back() = ir::ceildiv(plan_.dims.back(), lanes_);
    const Dim count = count_of(items);
    std::vector<StmtRef> body;
    base_ = bind_coordinates("x", items, Dim::symbol("item"), body);
    if (plan_.along) {
      body.push_back(item(std::nullopt));
    } else {
      const Dim first = base_.back() * lanes_;
      base_.back() = first;
      const Dim left = plan_.dims.back() - first;
      if (lanes_ == 1 || w_.facts.divisible(plan_.dims.back(), lanes_) == ir::Proof::kYes) {
        body.push_back(item(std::nullopt));
      } else {
        StmtRef full = item(std::nullopt);
        body.push_back(kb::if_then(kb::le(lanes_, left), std::move(full), item(left)));
      }
    }
    StmtRef nest = kb::loop(kir::LoopKind::kThread, "item", 0, count, kb::seq(std::move(body)));
    return make_function(w_, frame_, name, scratch_, registers_, std::move(nest));
  }

 private:
  // One element or vector of the row: its coordinates, and how many lanes along it exist.
  struct Step {
    Dims at;
    std::optional<Dim> valid;    // lanes that may be read
    std::optional<Dim> counted;  // lanes that take part in the reduction (along only)
    Dim place;                   // in the thread's row buffer
    int slot = 0;
  };

  // Bools have no order in kernels: they are compared as integers.
  static DType element_type(DType t) { return t == DType::kBool ? DType::kI32 : compute_type(t); }
  ir::Atom stripped(const ir::Atom& a) const { return strip_reshapes(group_, a); }
  std::string fresh(const char* kind) { return fmt::format("{}{}", kind, next_++); }

  Dim row_length() const {
    Dim n = 1;
    for (size_t i = 0; i < plan_.dims.size(); ++i)
      if (plan_.reduced[i]) n = n * plan_.dims[i];
    return n;
  }

  kir::BufferRef registers(const char* name, DType t) {
    auto b = kb::buffer(fresh(name), kir::Scope::kRegister, t, unroll_, lanes_);
    registers_.push_back(b);
    return b;
  }

  // Loops over the reduced axes; the innermost one by vectors (along) or single steps (across).
  StmtRef walk(const std::optional<Dim>& columns,
               const std::function<std::vector<StmtRef>(const Step&)>& body) {
    std::vector<size_t> axes;
    for (size_t i = 0; i < plan_.dims.size(); ++i)
      if (plan_.reduced[i]) axes.push_back(i);
    const size_t inner = axes.back();
    Dims at = base_;
    std::vector<std::string> names;
    for (size_t k = 0; k + 1 < axes.size(); ++k) {
      names.push_back(fresh("o"));
      at[axes[k]] = Dim::symbol(names.back());
    }
    StmtRef nest = vector_loop(fresh("c"), 0, plan_.dims[inner], plan_.along ? lanes_ : 1, unroll_,
                               [&](const Slice& s) {
                                 Step step{at, plan_.along ? s.valid : columns,
                                           plan_.along ? s.valid : std::nullopt, 0, s.slot};
                                 step.at[inner] = s.at;
                                 for (size_t axis : axes)
                                   step.place = step.place * plan_.dims[axis] + step.at[axis];
                                 if (!plan_.along) step.place = step.place * lanes_;
                                 return body(step);
                               });
    for (size_t k = axes.size() - 1; k-- > 0;)
      nest = kb::loop(kir::LoopKind::kSerial, names[k], 0, plan_.dims[axes[k]], std::move(nest));
    return nest;
  }

  StmtRef fill(const kir::BufferRef& b, const ValueRef& v) {
    std::vector<StmtRef> all;
    for (int u = 0; u < unroll_; ++u) all.push_back(kb::set_reg(b, u, v));
    return kb::seq(std::move(all));
  }

  static ValueRef is_nan(const ValueRef& v) { return kb::compare(kir::CompareOp::kNe, v, v); }

  // How a plain reduction folds.
  Fold plain_fold() const {
    const std::string& op = call_.op;
    if (op == "reduce_max" || op == "reduce_min")
      return {op == "reduce_max" ? BinaryOp::kMax : BinaryOp::kMin, is_float(type_)};
    return {op == "prod" ? BinaryOp::kMul : BinaryOp::kAdd, false};
  }

  // Folds `value` of every step by `op`; the result stands in local `name`: a scalar (along) or a
  // vector of one result a lane (across).
  ValueRef fold(std::vector<StmtRef>& out, const std::optional<Dim>& columns, BinaryOp op,
                const char* name,
                const std::function<ValueRef(const Step&, std::vector<StmtRef>&)>& value,
                bool keep_nan = false) {
    const Fold f{op, keep_nan};
    const kir::BufferRef acc = registers("acc", type_);
    const ValueRef neutral = f.start(type_, lanes_);
    out.push_back(fill(acc, neutral));
    out.push_back(walk(columns, [&](const Step& s) {
      std::vector<StmtRef> all;
      ValueRef v = value(s, all);
      if (s.counted && lanes_ > 1) v = kb::select(lane_mask(*s.counted, lanes_), v, neutral);
      if (keep_nan) v = let(all, "v", v);
      all.push_back(kb::set_reg(acc, s.slot, f.combine(kb::reg(acc, s.slot), v)));
      return all;
    }));
    ValueRef total = kb::reg(acc, 0);
    for (int u = 1; u < unroll_; ++u) total = f.combine(total, kb::reg(acc, u));
    if (plan_.along && keep_nan) {
      total = extreme_of_lanes(out, let(out, "lanes", total), op);
    } else if (plan_.along) {
      total = kb::reduce(op, total);
    }
    const std::string local = fresh(name);
    out.push_back(kb::let(local, total));
    return kb::local(local, total->dtype, total->lanes);
  }

  // The maximum or minimum of a vector's lanes; NaN if one of them is.
  ValueRef extreme_of_lanes(std::vector<StmtRef>& out, const ValueRef& v, BinaryOp op) {
    const ValueRef extreme = kb::reduce(op, v);
    if (!is_float(type_)) return extreme;
    // NaN if a lane is, else 0.
    const ValueRef spoilt =
        let(out, "spoilt",
            kb::reduce(BinaryOp::kAdd, kb::select(is_nan(v), v, kb::number(type_, 0, lanes_))));
    return kb::select(is_nan(spoilt), spoilt, extreme);
  }

  ValueRef let(std::vector<StmtRef>& out, const char* name, ValueRef v) {
    const std::string local = fresh(name);
    out.push_back(kb::let(local, v));
    return kb::local(local, v->dtype, v->lanes);
  }

  // The operand at a step, from the parameters; statements go to `out`.
  ValueRef pull(const Step& s, std::vector<StmtRef>& out) {
    ValueRef v = group_.value(x_, s.at, lanes_, s.valid);
    for (StmtRef& q : group_.take_statements()) out.push_back(std::move(q));
    return kb::cast(type_, v);
  }

  StmtRef store(size_t r, const ir::Atom& a, const Dims& at, int lanes,
                const std::optional<Dim>& valid, std::vector<StmtRef>& out) {
    ValueRef v = group_.value(a, at, lanes, valid);
    for (StmtRef& q : group_.take_statements()) out.push_back(std::move(q));
    v = kb::cast(frame_.results[r]->dtype, v);
    const Dim offset = flat_offset(ir::type_of(a)->dims, at);
    return valid && lanes > 1 ? kb::store_masked(frame_.results[r], offset, v, *valid)
                              : kb::store(frame_.results[r], offset, v);
  }

  // One item: a row (along) or a block of columns, of which `columns` exist (across).
  StmtRef item(const std::optional<Dim>& columns) {
    std::vector<StmtRef> out;
    if (plan_.normalises) {
      normalise(columns, out);
    } else {
      reduce(columns, out);
    }
    return kb::seq(std::move(out));
  }

  // ------------------------------------------------------------ plain reductions

  void reduce(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
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
    finish(total, columns, out);
  }

  // What follows a reduction whose result at the item's coordinates is `total`.
  void finish(ValueRef total, const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
    if (call_.op == "mean")
      total = let(out, "mean", kb::div(total, kb::cast(type_, kb::index(row_length()))));
    total = kb::cast(compute_type(anchor_->var->type->dtype), total);
    group_.give(anchor_->var,
                [total](const Dims&, int lanes) { return kb::broadcast(total, lanes); });
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

  // A plain reduction across.
  kir::Function run_columns(const std::string& name) {
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
      finish(total, valid, out);
    };
    StmtRef body = f.lower();
    return make_function(w_, frame_, name, f.scratch, f.registers, std::move(body));
  }

  // The first index with the largest value, and a NaN is larger than all numbers: each accumulator
  // keeps the first of its own, then the smallest index among those that hold the overall maximum
  // wins.
  ValueRef arg_max(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
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
      if (plan_.along && lanes_ > 1)
        index = kb::add(index, kb::cast(DType::kI64, kb::iota(lanes_)));
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
    if (plan_.along) top = extreme_of_lanes(out, let(out, "tops", top), BinaryOp::kMax);
    top = kb::broadcast(let(out, "top", top), lanes_);
    ValueRef first = nowhere;
    for (int u = 0; u < unroll_; ++u) {
      const ValueRef mine = kb::reg(best, u);
      ValueRef wins = kb::compare(kir::CompareOp::kEq, mine, top);
      if (is_float(type_)) wins = either(wins, both(is_nan(mine), is_nan(top)));
      first = kb::min(first, kb::select(wins, kb::reg(where, u), nowhere));
    }
    if (plan_.along) first = kb::reduce(BinaryOp::kMin, first);
    return let(out, "index", first);
  }

  // ------------------------------------------------------------ normalisations

  kir::BufferRef row_buffer() {
    if (!row_) {
      const Dim length = plan_.along ? row_length() + lanes_ : row_length() * lanes_;
      row_ = kb::buffer("row", kir::Scope::kThread, type_, length);
      scratch_.push_back(row_);
    }
    return row_;
  }

  void normalise(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
    const std::string& op = call_.op;
    const bool plain = group_.definition(x_) == nullptr;  // a parameter: reading it twice is free
    const auto keep = [&](const Step& s, ValueRef v, std::vector<StmtRef>& all) {
      v = let(all, "v", v);
      all.push_back(kb::store(row_buffer(), s.place, v));
      return v;
    };
    const auto first = [&](const Step& s, std::vector<StmtRef>& all) {
      ValueRef v = pull(s, all);
      return plain ? v : keep(s, v, all);
    };
    const auto again = [&](const Step& s, std::vector<StmtRef>& all) {
      return plain ? pull(s, all) : kb::load(row_buffer(), s.place, lanes_);
    };
    const auto kept = [&](const Step& s) { return kb::load(row_buffer(), s.place, lanes_); };
    const auto wide = [&](const ValueRef& v) { return kb::broadcast(v, lanes_); };
    const ValueRef one = kb::number(type_, 1, 1);

    std::function<ValueRef(const Step&, std::vector<StmtRef>&)> last;
    if (op == "softmax" || op == "log_softmax") {
      const ValueRef top = fold(out, columns, BinaryOp::kMax, "m", first);
      if (op == "softmax") {
        const ValueRef sum = fold(
            out, columns, BinaryOp::kAdd, "sum", [&](const Step& s, std::vector<StmtRef>& all) {
              const ValueRef x = let(all, "d", kb::sub(again(s, all), wide(top)));
              return keep(s, km::exp_flushed(x), all);
            });
        const ValueRef scale = let(out, "scale", kb::div(wide_like(one, sum), sum));
        last = [=](const Step& s, std::vector<StmtRef>&) { return kb::mul(kept(s), wide(scale)); };
      } else {
        const ValueRef sum = fold(
            out, columns, BinaryOp::kAdd, "sum", [&](const Step& s, std::vector<StmtRef>& all) {
              return km::exp_flushed(let(all, "d", kb::sub(again(s, all), wide(top))));
            });
        const ValueRef log_sum = let(out, "log", km::log(sum));
        last = [=](const Step& s, std::vector<StmtRef>& all) {
          return kb::sub(kb::sub(again(s, all), wide(top)), wide(log_sum));
        };
      }
    } else if (op == "l2_normalize") {
      const ValueRef sum =
          fold(out, columns, BinaryOp::kAdd, "sum", [&](const Step& s, std::vector<StmtRef>& all) {
            const ValueRef v = let(all, "q", first(s, all));
            return kb::mul(v, v);
          });
      const ValueRef epsilon =
          kb::number(type_, ir::attr<double>(call_.attrs, "epsilon"), sum->lanes);
      const ValueRef norm = kb::max(kb::unary(kir::UnaryOp::kSqrt, sum), epsilon);
      const ValueRef scale = let(out, "scale", kb::div(wide_like(one, sum), norm));
      last = [=](const Step& s, std::vector<StmtRef>& all) {
        return kb::mul(again(s, all), wide(scale));
      };
    } else {
      const ValueRef length = kb::cast(type_, kb::index(row_length()));
      const ValueRef sum = fold(out, columns, BinaryOp::kAdd, "sum", first);
      const ValueRef mean = let(out, "mean", kb::div(sum, length));
      const ValueRef squares =
          fold(out, columns, BinaryOp::kAdd, "q", [&](const Step& s, std::vector<StmtRef>& all) {
            const ValueRef d = let(all, "d", kb::sub(again(s, all), wide(mean)));
            return kb::mul(d, d);
          });
      const ValueRef variance =
          kb::add(kb::div(squares, length),
                  kb::number(type_, ir::attr<double>(call_.attrs, "epsilon"), squares->lanes));
      const ValueRef scale =
          let(out, "scale", kb::div(one, kb::unary(kir::UnaryOp::kSqrt, variance)));
      last = [=, this](const Step& s, std::vector<StmtRef>& all) {
        const auto parameter = [&](size_t i) {
          const ir::Atom& a = call_.args[i];
          const size_t rank = a.is_constant() ? 0 : ir::type_of(a)->dims.size();
          const Dims at(s.at.end() - static_cast<long>(rank), s.at.end());
          ValueRef v = group_.value(a, at, lanes_, s.valid);
          for (StmtRef& q : group_.take_statements()) all.push_back(std::move(q));
          return v;
        };
        const ValueRef gamma = parameter(1);
        const ValueRef beta = parameter(2);
        const ValueRef d = kb::mul(kb::sub(again(s, all), wide(mean)), wide(scale));
        return kb::fma(d, gamma, beta);
      };
    }

    out.push_back(walk(columns, [&](const Step& s) {
      std::vector<StmtRef> all;
      const ValueRef y = let(all, "y", last(s, all));
      if (plan_.second) {
        all.push_back(kb::store(row_buffer(), s.place, y));
        return all;
      }
      group_.give(anchor_->var, [y](const Dims&, int) { return y; });
      for (size_t r = 0; r < frame_.results.size(); ++r) {
        StmtRef st = store(r, stripped(frame_.result_atoms[r]), s.at, lanes_, s.valid, all);
        all.push_back(std::move(st));
      }
      return all;
    }));
    if (plan_.second) reduce_again(columns, out);
  }

  // The second reduction, of the row that lies in the scratch by now: its one axis is the last.
  void reduce_again(const std::optional<Dim>& columns, std::vector<StmtRef>& out) {
    group_.give(anchor_->var, [row = row_buffer()](const Dims& at, int lanes) {
      return kb::load(row, at.back(), lanes);
    });
    anchor_ = plan_.second;
    call_ = *anchor_->value;
    x_ = group_.resolve(call_.args[0]);
    type_ = element_type(ir::type_of(x_)->dtype);
    reduce(columns, out);
  }

  static ValueRef wide_like(const ValueRef& v, const ValueRef& like) {
    return kb::broadcast(v, like->lanes);
  }

  const Workload& w_;
  Plan plan_;
  Frame frame_;
  GroupEvaluator group_;
  int unroll_;
  // The reduction at work: the anchor, then the second.
  const ir::Binding* anchor_;
  ir::Expr call_;
  ir::Atom x_;
  DType type_;
  int lanes_ = 1;
  Dims base_;
  kir::BufferRef row_;
  std::vector<kir::BufferRef> scratch_, registers_;
  int next_ = 0;
};

}  // namespace

bool ReduceTemplate::accepts(const Workload& w, const TargetInfo&) const {
  return analyse(w).has_value();
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
  auto plan = analyse(w);
  NIMBLE_CHECK(plan && valid(w, c, t), "configuration {} of reduce", to_json(c));
  const Dim elements = count_of(plan->dims);
  return one_kernel(ReduceLowering(w, std::move(*plan), c, t).run(name), threads_for(elements));
}

}  // namespace nimble::kernels
