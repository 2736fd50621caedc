// The rows of a reduction: items over the threads, loops over the reduced axes, folds of a row.
#include <fmt/format.h>

#include <utility>

#include "compiler/kernels/templates/knobs.h"
#include "compiler/kernels/templates/reduce_lowering.h"

namespace nimble::kernels {

namespace kb = kir::build;
using kir::BinaryOp;
using kir::Dim;
using kir::StmtRef;
using kir::ValueRef;
using Dims = std::vector<Dim>;

ReduceLowering::ReduceLowering(const Workload& w, ReducePlan plan, Frame frame, int unroll,
                               int lanes)
    : w_(w),
      plan_(std::move(plan)),
      frame_(std::move(frame)),
      group_(*w.group, frame_.parameters),
      unroll_(unroll),
      anchor_(plan_.anchor),
      call_(*anchor_->value),
      x_(group_.resolve(call_.args[0])),
      type_(element_type(ir::type_of(x_)->dtype)) {
  lanes_ = lanes;
  const DType result = compute_type(plan_.anchor->var->type->dtype);
  group_.give(anchor_->var,
              [result](const Dims&, int lanes) { return kb::integer(result, 0, lanes); });
  bool vectors = group_.vectorizable(x_);
  for (const ir::Binding* b : plan_.more) {
    const DType made = compute_type(b->var->type->dtype);
    vectors &= group_.vectorizable(b->value->args[0]);
    group_.give(b->var, [made](const Dims&, int lanes) { return kb::integer(made, 0, lanes); });
  }
  if (!plan_.along || plan_.normalises || plan_.spreads)
    for (const ir::Atom& a : frame_.result_atoms) vectors &= group_.vectorizable(stripped(a));
  // Lanes across columns need columns: an axis of extent 1 is broadcast, not walked.
  if (!plan_.along && !plan_.dims.empty() && plan_.dims.back().is_constant(1)) vectors = false;
  if (!vectors) lanes_ = 1;
}

kir::Function ReduceLowering::run(const std::string& name) {
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

std::string ReduceLowering::fresh(const char* kind) {
  return fmt::format("{}{}", kind, next_++);
}

Dim ReduceLowering::row_length() const {
  Dim n = 1;
  for (size_t i = 0; i < plan_.dims.size(); ++i)
    if (plan_.reduced[i]) n = n * plan_.dims[i];
  return n;
}

kir::BufferRef ReduceLowering::registers(const char* name, DType t) {
  auto b = kb::buffer(fresh(name), kir::Scope::kRegister, t, unroll_, lanes_);
  registers_.push_back(b);
  return b;
}

StmtRef ReduceLowering::walk(const std::optional<Dim>& columns,
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

StmtRef ReduceLowering::fill(const kir::BufferRef& b, const ValueRef& v) {
  std::vector<StmtRef> all;
  for (int u = 0; u < unroll_; ++u) all.push_back(kb::set_reg(b, u, v));
  return kb::seq(std::move(all));
}

ValueRef ReduceLowering::is_nan(const ValueRef& v) {
  return kb::compare(kir::CompareOp::kNe, v, v);
}

ValueRef ReduceLowering::fold(std::vector<StmtRef>& out, const std::optional<Dim>& columns,
                              BinaryOp op, const char* name, const Element& value, bool keep_nan) {
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
  total = together(out, "lanes", total, f);
  const std::string local = fresh(name);
  out.push_back(kb::let(local, total));
  return kb::local(local, total->dtype, total->lanes);
}

ValueRef ReduceLowering::together(std::vector<StmtRef>& out, const char* name, const ValueRef& v,
                                  const Fold& f) {
  if (!plan_.along) return v;
  return f.keep_nan ? extreme_of_lanes(out, let(out, name, v), f.op) : kb::reduce(f.op, v);
}

ValueRef ReduceLowering::extreme_of_lanes(std::vector<StmtRef>& out, const ValueRef& v,
                                          BinaryOp op) {
  const ValueRef extreme = kb::reduce(op, v);
  if (!is_float(type_)) return extreme;
  // NaN if a lane is, else 0.
  const ValueRef spoilt =
      let(out, "spoilt",
          kb::reduce(BinaryOp::kAdd, kb::select(is_nan(v), v, kb::number(type_, 0, lanes_))));
  return kb::select(is_nan(spoilt), spoilt, extreme);
}

ValueRef ReduceLowering::let(std::vector<StmtRef>& out, const char* name, ValueRef v) {
  const std::string local = fresh(name);
  out.push_back(kb::let(local, v));
  return kb::local(local, v->dtype, v->lanes);
}

ValueRef ReduceLowering::pull(const Step& s, std::vector<StmtRef>& out) {
  ValueRef v = group_.value(x_, s.at, lanes_, s.valid);
  for (StmtRef& q : group_.take_statements()) out.push_back(std::move(q));
  return kb::cast(type_, v);
}

StmtRef ReduceLowering::store(size_t r, const ir::Atom& a, const Dims& at, int lanes,
                              const std::optional<Dim>& valid, std::vector<StmtRef>& out) {
  ValueRef v = group_.value(a, at, lanes, valid);
  for (StmtRef& q : group_.take_statements()) out.push_back(std::move(q));
  v = kb::cast(frame_.results[r]->dtype, v);
  const Dim offset = flat_offset(ir::type_of(a)->dims, at);
  return by_its_thread(valid && lanes > 1 ? kb::store_masked(frame_.results[r], offset, v, *valid)
                                          : kb::store(frame_.results[r], offset, v));
}

StmtRef ReduceLowering::item(const std::optional<Dim>& columns) {
  std::vector<StmtRef> out;
  if (plan_.normalises) {
    normalise(columns, out);
  } else {
    reduce(columns, out);
  }
  return kb::seq(std::move(out));
}

}  // namespace nimble::kernels
