// Values of a fused group, pulled from its results towards its parameters.
//
// An injective operator moves coordinates, an element-wise one computes; so the value of any
// variable at any coordinates is an expression of loads. A request carries several lanes: lane l
// stands at coordinates + l*steps, so that a transpose, a slice with a step or a broadcast only
// changes the steps, and a load gets its stride from them. Values that no lane changes are
// computed once and broadcast.
//
// What no affine step describes — lanes that cross the seam of a concatenation or wrap in a
// reshape — raises NeedsScalar, and vectorizable() tells a template so beforehand.
//
// Branches that must not touch memory (a concatenation's other operands, padding) are masked
// loads with an empty mask, chosen by a select: the mask is a Dim that is <= 0 outside.
#include "compiler/kernels/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "compiler/ir/axes.h"
#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::kernels {

namespace kb = kir::build;
using ir::Dim;
using kir::ValueRef;

namespace {

using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

bool all_zero(const Dims& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const Dim& d) { return d.is_constant(0); });
}

// 1 where 0 <= x < extent, else 0.
Dim inside(const Dim& x, const Dim& extent) {
  return ir::min(1, ir::max(0, ir::min(x + 1, extent - x)));
}

// 1 where x < 0, else 0.
Dim is_negative(const Dim& x) {
  if (auto c = x.as_constant()) return *c < 0 ? 1 : 0;
  return 0 - ir::max(ir::min(x, 0), -1);
}

Dim product(const Dims& dims, size_t begin, size_t end) {
  Dim p = 1;
  for (size_t i = begin; i < end; ++i) p = p * dims[i];
  return p;
}

}  // namespace

Dim flat_offset(const Dims& dims, const Dims& coordinates) {
  NIMBLE_CHECK(dims.size() == coordinates.size(), "{} coordinates for rank {}", coordinates.size(),
               dims.size());
  Dim offset = 0;
  for (size_t i = 0; i < dims.size(); ++i) offset = offset * dims[i] + coordinates[i];
  return offset;
}

Dims coordinates_of(const Dims& dims, const Dim& offset) {
  Dims out(dims.size());
  Dim rest = offset;
  for (size_t i = dims.size(); i-- > 0;) {
    const bool outermost = product(dims, 0, i).is_constant(1);
    if (dims[i].is_constant(1) || dims[i].is_constant(0)) {  // of 0 there is no element to name
      out[i] = 0;
    } else if (outermost) {
      out[i] = rest;
      rest = 0;
    } else {
      out[i] = ir::mod(rest, dims[i]);
      rest = ir::floordiv(rest, dims[i]);
    }
  }
  return out;
}

DType compute_type(DType t) {
  return is_narrow_float(t) ? DType::kF32 : t;
}

GroupEvaluator::GroupEvaluator(const ir::Function& group, std::vector<kir::BufferRef> buffers,
                               std::string prefix)
    : prefix_(std::move(prefix)) {
  NIMBLE_CHECK(buffers.size() == group.parameters.size(), "{} buffers for {} parameters",
               buffers.size(), group.parameters.size());
  for (size_t i = 0; i < buffers.size(); ++i)
    parameters_.emplace(group.parameters[i].get(), buffers[i]);
  const auto scalars = ir::attr_or<Ints>(group.attrs, "scalars", {});
  const auto names = ir::attr_or<std::vector<std::string>>(group.attrs, "scalar_symbols", {});
  NIMBLE_CHECK(scalars.size() == names.size(), "{} scalars", scalars.size());
  for (size_t i = 0; i < scalars.size(); ++i)
    scalar_symbols_.emplace(group.parameters[static_cast<size_t>(scalars[i])].get(), names[i]);
  for (const ir::Binding& b : group.body->bindings)
    definitions_.emplace(b.var.get(), b.value.get());
}

void GroupEvaluator::give(const ir::VarRef& v, Given value) {
  given_[v.get()] = std::move(value);
}

std::vector<kir::StmtRef> GroupEvaluator::take_statements() {
  known_.clear();
  return std::exchange(statements_, {});
}

ir::Atom GroupEvaluator::resolve(const ir::Atom& a) const {
  ir::Atom x = a;
  while (x.is_var()) {
    const auto it = definitions_.find(x.var.get());
    if (it == definitions_.end() || given_.contains(x.var.get())) return x;
    const ir::Expr& e = *it->second;
    if (e.kind == ir::ExprKind::kAtom) {
      x = e.args[0];
    } else if (e.kind == ir::ExprKind::kGetField) {
      const ir::Atom tuple = resolve(e.args[0]);
      const auto fields = definitions_.find(tuple.var.get());
      if (fields == definitions_.end() || fields->second->kind != ir::ExprKind::kTuple) return x;
      x = fields->second->args[static_cast<size_t>(e.index)];
    } else {
      return x;
    }
  }
  return x;
}

const ir::Expr* GroupEvaluator::definition(const ir::Atom& a) const {
  const ir::Atom x = resolve(a);
  if (!x.is_var()) return nullptr;
  const auto it = definitions_.find(x.var.get());
  return it == definitions_.end() ? nullptr : it->second;
}

std::string GroupEvaluator::fresh(const char* kind) {
  return fmt::format("{}{}{}", prefix_, kind, next_++);
}

// Binds a value to a local unless that is as short as the value itself.
ValueRef GroupEvaluator::share(ValueRef v) {
  if (v->kind == kir::ValueKind::kConst || v->kind == kir::ValueKind::kLocal ||
      v->kind == kir::ValueKind::kRegister)
    return v;
  // What was only widened is kept narrow: who wants it so again has its very bits (kb::cast).
  if (v->kind == kir::ValueKind::kCast && v->dtype == DType::kF32 &&
      compute_type(v->operands[0]->dtype) != v->operands[0]->dtype)
    return kb::cast(DType::kF32, share(v->operands[0]));
  const std::string name = fresh("v");
  statements_.push_back(kb::let(name, v));
  return kb::local(name, v->dtype, v->lanes);
}

ValueRef GroupEvaluator::value(const ir::Atom& a, const Dims& coordinates, int lanes,
                               const std::optional<Dim>& valid) {
  Dims steps(coordinates.size(), 0);
  if (!steps.empty()) steps.back() = 1;
  return value_along(a, coordinates, steps, lanes, valid);
}

ValueRef GroupEvaluator::value_along(const ir::Atom& a, const Dims& coordinates, const Dims& steps,
                                     int lanes, const std::optional<Dim>& valid) {
  return at(a, {coordinates, steps, lanes, valid, false});
}

bool GroupEvaluator::vectorizable(const ir::Atom& a, std::optional<size_t> axis) {
  auto statements = std::exchange(statements_, {});
  auto known = std::exchange(known_, {});
  const int next = next_;
  bool yes = true;
  try {
    Dims coordinates;
    for (size_t i = 0; i < ir::type_of(a)->dims.size(); ++i)
      coordinates.push_back(Dim::symbol(fmt::format("{}probe{}", prefix_, i)));
    Dims steps(coordinates.size(), 0);
    if (!steps.empty()) steps[axis.value_or(steps.size() - 1)] = 1;
    value_along(a, coordinates, steps, 2);
  } catch (const NeedsScalar&) {
    yes = false;
  }
  next_ = next;
  statements_ = std::move(statements);
  known_ = std::move(known);
  return yes;
}

ValueRef GroupEvaluator::at(const ir::Atom& atom, const Place& p) {
  const ir::Atom a = resolve(atom);
  if (a.is_constant()) {
    const ir::Tensor& t = *a.constant;
    NIMBLE_CHECK(t.elements() == 1, "a constant of {} elements inside a group", t.elements());
    const DType type = compute_type(t.dtype);
    return is_float(type) ? kb::number(type, t.value(0), p.lanes)
                          : kb::integer(type, t.integer(0), p.lanes);
  }
  NIMBLE_CHECK(a.is_var(), "a function as an operand");
  if (p.lanes > 1 && all_zero(p.steps)) {
    Place one = p;
    one.lanes = 1;
    if (!p.conditional) one.valid.reset();
    return kb::broadcast(at(a, one), p.lanes);
  }
  const ir::Var* v = a.var.get();
  if (const auto given = given_.find(v); given != given_.end()) {
    if (p.lanes > 1)
      for (size_t i = 0; i < p.steps.size(); ++i)
        if (!p.steps[i].is_constant(i + 1 == p.steps.size() ? 1 : 0)) throw NeedsScalar{};
    return given->second(p.at, p.lanes);
  }
  if (parameters_.contains(v))
    return parameter(v, flat_offset(v->type->dims, p.at), flat_offset(v->type->dims, p.steps), p);

  std::string key = fmt::format("{}", static_cast<const void*>(v));
  for (const Dim& d : p.at) key += fmt::format(" {}", static_cast<const void*>(d.node()));
  for (const Dim& d : p.steps) key += fmt::format(" {}", static_cast<const void*>(d.node()));
  key += fmt::format(" {} {} {}", p.lanes, p.conditional,
                     p.valid ? static_cast<const void*>(p.valid->node()) : nullptr);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const auto definition = definitions_.find(v);
  NIMBLE_CHECK(definition != definitions_.end(), "{} is not bound in its group", v->name);
  ValueRef value = call(a.var, *definition->second, p);
  known_.emplace(std::move(key), value);
  return value;
}

ValueRef GroupEvaluator::parameter(const ir::Var* v, const Dim& offset, const Dim& stride,
                                   const Place& p) {
  const DType type = compute_type(v->type->dtype);
  if (const auto scalar = scalar_symbols_.find(v); scalar != scalar_symbols_.end()) {
    ValueRef x = kb::index(Dim::symbol(scalar->second));
    x = type == DType::kBool ? kb::compare(kir::CompareOp::kNe, x, kb::integer(DType::kI64, 0))
                             : kb::cast(type, x);
    return kb::broadcast(x, p.lanes);
  }
  const kir::BufferRef& buffer = parameters_.at(v);
  NIMBLE_CHECK(buffer, "parameter {} has no buffer", v->name);
  return kb::cast(type, kb::load_strided(buffer, offset, stride, p.lanes, p.valid));
}

// numpy broadcasting: where the elements of an operand of dims `from` are that a place in a
// result of dims `to` needs.
GroupEvaluator::Place GroupEvaluator::broadcast_to(const Dims& from, const Dims& to,
                                                   const Place& p) const {
  NIMBLE_CHECK(from.size() <= to.size(), "rank {} broadcast to {}", from.size(), to.size());
  Place q = p;
  q.at.clear();
  q.steps.clear();
  const size_t offset = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    const Dim& f = from[i];
    const Dim& t = to[offset + i];
    Dim factor = 1;
    if (f.is_constant(1)) {
      factor = 0;
    } else if (!(f == t) && !f.as_constant()) {
      factor = ir::min(f - 1, 1);  // a run-time zero stride where the extent is 1
    }
    q.at.push_back(p.at[offset + i] * factor);
    q.steps.push_back(p.steps[offset + i] * factor);
  }
  return q;
}

ValueRef GroupEvaluator::call(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  NIMBLE_CHECK(e.kind == ir::ExprKind::kCall && !e.op.empty(), "{} is not an operator call",
               v->name);
  // Operators that move coordinates, or whose operands stand at other ones than numpy's
  // broadcasting says; all others compute element by element (compute.cpp).
  using Rule = ValueRef (GroupEvaluator::*)(const ir::VarRef&, const ir::Expr&, const Place&);
  static const std::unordered_map<std::string_view, Rule> kRules = {
      {"batch_norm", &GroupEvaluator::batch_norm},
      {"full", &GroupEvaluator::full},
      {"reshape", &GroupEvaluator::reshape},
      {"transpose", &GroupEvaluator::transpose},
      {"squeeze", &GroupEvaluator::squeeze},
      {"unsqueeze", &GroupEvaluator::unsqueeze},
      {"expand", &GroupEvaluator::expand},
      {"slice", &GroupEvaluator::slice},
      {"concat", &GroupEvaluator::concat},
      {"pad", &GroupEvaluator::pad},
      {"gather", &GroupEvaluator::gather},
      {"take_row", &GroupEvaluator::gather},
      {"gather_elements", &GroupEvaluator::gather_elements},
      {"range", &GroupEvaluator::range}};
  if (const auto rule = kRules.find(e.op); rule != kRules.end())
    return (this->*rule->second)(v, e, p);
  NIMBLE_CHECK(has_compute_rule(e.op), "operator {} inside an element-wise group", e.op);
  std::vector<ValueRef> operands;
  for (const ir::Atom& a : e.args)
    operands.push_back(share(at(a, broadcast_to(ir::type_of(a)->dims, v->type->dims, p))));
  return share(compute(e, operands, compute_type(v->type->dtype)));
}

ValueRef GroupEvaluator::batch_norm(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  Place channel = p;
  channel.at = {p.at[1]};
  channel.steps = {p.steps[1]};
  std::vector<ValueRef> operands = {share(at(e.args[0], p))};
  for (size_t i = 1; i < 5; ++i) operands.push_back(share(at(e.args[i], channel)));
  return share(compute(e, operands, compute_type(v->type->dtype)));
}

ValueRef GroupEvaluator::full(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  const DType type = compute_type(v->type->dtype);
  if (e.args.empty()) return kb::number(type, ir::attr_or<double>(e.attrs, "value", 0.0), p.lanes);
  const Dims from = ir::type_of(e.args[0])->dims;
  const Place first{Dims(from.size(), 0), Dims(from.size(), 0), p.lanes, p.valid, p.conditional};
  return kb::cast(type, at(e.args[0], broadcast_to(from, Dims(from.size(), 1), first)));
}

// ---------------------------------------------------------------- axes

ValueRef GroupEvaluator::transpose(const ir::VarRef&, const ir::Expr& e, const Place& p) {
  const Ints& axes = ir::attr<Ints>(e.attrs, "axes");
  Place q = p;
  for (size_t j = 0; j < axes.size(); ++j) {
    const auto i = static_cast<size_t>(axes[j]);
    q.at[i] = p.at[j];
    q.steps[i] = p.steps[j];
  }
  return at(e.args[0], q);
}

ValueRef GroupEvaluator::squeeze(const ir::VarRef&, const ir::Expr& e, const Place& p) {
  std::vector<bool> one(ir::type_of(e.args[0])->dims.size(), false);
  for (int64_t axis : ir::attr<Ints>(e.attrs, "axes")) one[static_cast<size_t>(axis)] = true;
  Place q = p;
  q.at.clear();
  q.steps.clear();
  for (size_t i = 0, j = 0; i < one.size(); ++i) {
    q.at.push_back(one[i] ? Dim(0) : p.at[j]);
    q.steps.push_back(one[i] ? Dim(0) : p.steps[j]);
    if (!one[i]) ++j;
  }
  return at(e.args[0], q);
}

ValueRef GroupEvaluator::unsqueeze(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  std::vector<bool> one(v->type->dims.size(), false);
  for (int64_t axis : ir::attr<Ints>(e.attrs, "axes")) one[static_cast<size_t>(axis)] = true;
  Place q = p;
  q.at.clear();
  q.steps.clear();
  for (size_t i = 0; i < one.size(); ++i) {
    if (one[i]) continue;
    q.at.push_back(p.at[i]);
    q.steps.push_back(p.steps[i]);
  }
  return at(e.args[0], q);
}

ValueRef GroupEvaluator::expand(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  return at(e.args[0], broadcast_to(ir::type_of(e.args[0])->dims, v->type->dims, p));
}

// ---------------------------------------------------------------- reshape

// Whether flat offsets pass through unchanged down to the parameters.
bool GroupEvaluator::is_flat(const ir::Atom& atom) const {
  const ir::Atom a = resolve(atom);
  if (!a.is_var()) return true;
  if (given_.contains(a.var.get())) return false;
  if (parameters_.contains(a.var.get())) return true;
  const ir::Expr& e = *definitions_.at(a.var.get());
  if (ir::traits_of(e).memory == ir::Memory::kView) return is_flat(e.args[0]);
  if (!has_compute_rule(e.op) || ir::find_op(e.op)->rows() != ir::Rows::kPointwise) return false;
  for (const ir::Atom& x : e.args) {
    const bool scalar = x.is_constant();
    if (!scalar && !(ir::type_of(x)->dims == a.var->type->dims)) return false;
    if (!is_flat(x)) return false;
  }
  return true;
}

ValueRef GroupEvaluator::flat(const ir::Atom& atom, const Dim& offset, const Dim& step,
                              const Place& p) {
  const ir::Atom a = resolve(atom);
  if (!a.is_var()) return at(a, p);
  if (parameters_.contains(a.var.get())) return parameter(a.var.get(), offset, step, p);
  const ir::Expr& e = *definitions_.at(a.var.get());
  if (!has_compute_rule(e.op)) return flat(e.args[0], offset, step, p);
  std::vector<ValueRef> operands;
  for (const ir::Atom& x : e.args) operands.push_back(share(flat(x, offset, step, p)));
  return share(compute(e, operands, compute_type(a.var->type->dtype)));
}

ValueRef GroupEvaluator::reshape(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  const ir::Atom& input = e.args[0];
  const Dims& out = v->type->dims;
  if (is_flat(input)) return flat(input, flat_offset(out, p.at), flat_offset(out, p.steps), p);
  // Axes fall into the smallest groups of equal products: (b, n, 384) and (b, n, 12, 32) are
  // b, n and 384 = 12*32. A group of one input axis keeps its steps.
  const Dims in = ir::type_of(input)->dims;
  Place q = p;
  q.at.assign(in.size(), 0);
  q.steps.assign(in.size(), 0);
  size_t i0 = 0, j0 = 0;
  while (i0 < in.size() || j0 < out.size()) {
    size_t i1 = in.size(), j1 = out.size();
    bool found = false;
    for (size_t span = 1; !found && span <= (in.size() - i0) + (out.size() - j0); ++span) {
      for (size_t i = i0; !found && i <= in.size() && i - i0 <= span; ++i) {
        const size_t j = j0 + (span - (i - i0));
        if (j > out.size() || !(product(in, i0, i) == product(out, j0, j))) continue;
        i1 = i;
        j1 = j;
        found = true;
      }
    }
    const Dims from(out.begin() + static_cast<long>(j0), out.begin() + static_cast<long>(j1));
    const Dims to(in.begin() + static_cast<long>(i0), in.begin() + static_cast<long>(i1));
    const auto part = [&](const Dims& d) {
      return flat_offset(
          from, Dims(d.begin() + static_cast<long>(j0), d.begin() + static_cast<long>(j1)));
    };
    const Dim step = part(p.steps);
    const Dims at = coordinates_of(to, part(p.at));
    const long axes =
        std::count_if(to.begin(), to.end(), [](const Dim& d) { return !d.is_constant(1); });
    if (p.lanes > 1 && axes > 1 && !step.is_constant(0)) throw NeedsScalar{};
    for (size_t i = i0; i < i1; ++i) {
      q.at[i] = at[i - i0];
      if (!in[i].is_constant(1)) q.steps[i] = axes == 1 ? step : Dim(0);
    }
    i0 = i1;
    j0 = j1;
  }
  return this->at(input, q);
}

// ---------------------------------------------------------------- other movements

constexpr int64_t kLongestStep = int64_t{1} << 48;  // more bytes than memory has addresses

ValueRef GroupEvaluator::slice(const ir::VarRef&, const ir::Expr& e, const Place& p) {
  const Dims in = ir::type_of(e.args[0])->dims;
  const Ints& axes = ir::attr<Ints>(e.attrs, "axes");
  const Dims& starts = ir::attr<Dims>(e.attrs, "starts");
  const Dims steps = ir::attr_or<Dims>(e.attrs, "steps", Dims(axes.size(), 1));
  Place q = p;
  for (size_t k = 0; k < axes.size(); ++k) {
    const size_t i = static_cast<size_t>(axes[k]);
    const Dim counted = starts[k] + in[i] * is_negative(starts[k]);
    const Dim backwards = is_negative(steps[k]);
    const Dim start = ir::min(ir::max(counted, 0), in[i] - backwards);
    // A step beyond any axis takes one element, whatever it is (ONNX writes the largest integers).
    const Dim step = ir::max(ir::min(steps[k], kLongestStep), -kLongestStep);
    q.at[i] = start + p.at[i] * step;
    q.steps[i] = p.steps[i] * step;
  }
  return at(e.args[0], q);
}

ValueRef GroupEvaluator::concat(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  const size_t axis = ir::axis_of(e);
  const auto chosen = parts_.find(v.get());
  if (chosen == parts_.end() && p.lanes > 1 && !p.steps[axis].is_constant(0)) throw NeedsScalar{};
  ValueRef result;
  Dim begin = 0;
  for (size_t k = 0; k < e.args.size(); ++k) {
    const Dim extent = ir::type_of(e.args[k])->dims[axis];
    Place q = p;
    q.at[axis] = p.at[axis] - begin;
    if (chosen != parts_.end()) {
      if (chosen->second == k) return at(e.args[k], q);
    } else {
      const auto elements = extent.as_constant();
      if (p.lanes > 1 && elements && *elements > 0) {
        // Whole vectors lie in one operand. Of the others any element is as good as none, and read
        // in fewer instructions; a load behind a mask may be slow where its address is not mapped,
        // though no lane asks for it.
        q.at[axis] = ir::max(0, ir::min(q.at[axis], *elements - 1));
      } else {
        q.valid = inside(q.at[axis], extent) * p.valid.value_or(p.lanes);
        q.conditional = true;
      }
      ValueRef part = share(at(e.args[k], q));
      result = !result ? part
                       : kb::select(kb::compare(kir::CompareOp::kGe, kb::index(p.at[axis]),
                                                kb::index(begin)),
                                    part, result);
    }
    begin = begin + extent;
  }
  return share(result);
}

ValueRef GroupEvaluator::pad(const ir::VarRef&, const ir::Expr& e, const Place& p) {
  const ir::Type& type = ir::type_of(e.args[0]);
  const Dims& before = ir::attr<Dims>(e.attrs, "before");
  const Dims& after = ir::attr<Dims>(e.attrs, "after");
  Place q = p;
  Dim here = 1;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].is_constant(0) && after[i].is_constant(0)) continue;
    if (p.lanes > 1 && !p.steps[i].is_constant(0)) throw NeedsScalar{};
    q.at[i] = p.at[i] - before[i];
    here = here * inside(q.at[i], type->dims[i]);
  }
  q.valid = here * p.valid.value_or(p.lanes);
  q.conditional = true;
  const DType t = compute_type(type->dtype);
  return share(kb::select(
      kb::compare(kir::CompareOp::kGt, kb::index(here), kb::integer(DType::kI64, 0)),
      at(e.args[0], q), kb::number(t, ir::attr_or<double>(e.attrs, "value", 0.0), p.lanes)));
}

// The element of the second operand as an index into an axis of the first, checked and counted from
// the front.
Dim GroupEvaluator::index_of(const ir::Expr& e, const Place& p, const Dim& extent, size_t axis) {
  Place one = p;
  one.lanes = 1;
  if (!p.conditional) one.valid.reset();
  const ValueRef value = at(e.args[1], one);
  const std::string raw = fresh("r"), index = fresh("i");
  statements_.push_back(kb::let_index(raw, kb::cast(DType::kI64, value)));
  const Dim r = Dim::symbol(raw);
  const bool from_end = e.op != "take_row";  // whose row may be a view, which has no end
  kir::StmtRef check =
      kb::check(kb::both(kb::le(from_end ? 0 - extent : Dim(0), r), kb::lt(r, extent)),
                fmt::format("an index of {} is out of range of axis {}, which has {} elements",
                            e.op, axis, extent.str()));
  if (p.conditional) check = kb::if_then(kb::lt(0, *p.valid), check);
  statements_.push_back(std::move(check));
  ir::SymbolFacts facts;
  if (auto c = extent.as_constant(); c && *c > 0) facts.high = *c - 1;
  const Dim forward = from_end ? r + extent * is_negative(r) : r;
  statements_.push_back(kb::let_index(index, kb::index(forward), facts));
  return Dim::symbol(index);
}

ValueRef GroupEvaluator::gather(const ir::VarRef&, const ir::Expr& e, const Place& p) {
  const Dims in = ir::type_of(e.args[0])->dims;
  const size_t index_rank = ir::type_of(e.args[1])->dims.size();
  const size_t axis = e.op == "gather" ? ir::axis_of(e) : 0;
  Place q = p, index = p;
  index.at.assign(p.at.begin() + static_cast<long>(axis),
                  p.at.begin() + static_cast<long>(axis + index_rank));
  index.steps.assign(p.steps.begin() + static_cast<long>(axis),
                     p.steps.begin() + static_cast<long>(axis + index_rank));
  if (p.lanes > 1 && !all_zero(index.steps)) throw NeedsScalar{};
  const Dim i = index_of(e, index, in[axis], axis);
  const auto replace = [&](Dims& d, const Dim& x) {
    d.erase(d.begin() + static_cast<long>(axis), d.begin() + static_cast<long>(axis + index_rank));
    d.insert(d.begin() + static_cast<long>(axis), x);
  };
  replace(q.at, i);
  replace(q.steps, 0);
  return at(e.args[0], q);
}

ValueRef GroupEvaluator::gather_elements(const ir::VarRef&, const ir::Expr& e, const Place& p) {
  const Dims in = ir::type_of(e.args[0])->dims;
  const size_t axis = ir::axis_of(e);
  // Each lane has an index of its own.
  if (p.lanes > 1 && !all_zero(p.steps)) throw NeedsScalar{};
  Place q = p;
  q.at[axis] = index_of(e, p, in[axis], axis);
  return at(e.args[0], q);
}

ValueRef GroupEvaluator::range(const ir::VarRef& v, const ir::Expr& e, const Place& p) {
  const DType type = compute_type(v->type->dtype);
  const Dim& start = ir::attr<Dim>(e.attrs, "start");
  const Dim& step = ir::attr<Dim>(e.attrs, "step");
  ValueRef x = kb::broadcast(kb::index(p.at[0] * step + start), p.lanes);
  if (p.lanes > 1)
    x = kb::add(x, kb::mul(kb::cast(DType::kI64, kb::iota(p.lanes)),
                           kb::broadcast(kb::index(p.steps[0] * step), p.lanes)));
  return kb::cast(type, x);
}

}  // namespace nimble::kernels
