#include "compiler/reference/region.h"

#include <algorithm>
#include <cstring>

#include "compiler/ir/op.h"

namespace nimble::reference {
namespace {

// Parts beyond this are computed again when they are needed again.
constexpr int64_t kKeptBytes = int64_t{256} << 20;

Shape shape_of_type(const ir::Type& t) {
  Shape s;
  for (const ir::Dim& d : t->dims) {
    const auto c = d.as_constant();
    NIMBLE_CHECK(c, "an extent of {} in a function of constant extents", d.str());
    s.push_back(*c);
  }
  return s;
}

// The elements of `r`, of a tensor that begins at `origin` of the whole.
ir::TensorRef cut(const ir::Tensor& t, const Shape& origin, const Region& r) {
  uint8_t* to = nullptr;
  auto out = ir::Tensor::make(t.dtype, r.extent, &to);
  const size_t size = size_of(t.dtype);
  const Shape strides = strides_of(t.shape);
  if (r.extent.empty()) {
    std::memcpy(to, t.bytes.data(), size);
    return out;
  }
  Shape rows = r.extent;
  const int64_t length = rows.back();
  rows.back() = 1;
  if (length == 0) return out;
  for_each(rows, [&](const Shape& at, int64_t) {
    int64_t from = 0;
    for (size_t k = 0; k < at.size(); ++k) from += (r.from[k] - origin[k] + at[k]) * strides[k];
    const size_t bytes = static_cast<size_t>(length) * size;
    std::memcpy(to, t.bytes.data() + static_cast<size_t>(from) * size, bytes);
    to += bytes;
  });
  return out;
}

}  // namespace

bool Region::holds(const Region& other) const {
  for (size_t k = 0; k < from.size(); ++k)
    if (other.from[k] < from[k] || other.from[k] + other.extent[k] > from[k] + extent[k])
      return false;
  return true;
}

RegionEvaluator::RegionEvaluator(ir::FunctionRef f, const std::vector<ir::TensorRef>& arguments)
    : f_(std::move(f)) {
  NIMBLE_CHECK(arguments.size() == f_->parameters.size(), "{} arguments", arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i)
    defined_[f_->parameters[i].get()].parts = {{Region::whole(arguments[i]->shape), arguments[i]}};
  for (const ir::Binding& b : f_->body->bindings) defined_[b.var.get()].binding = &b;
}

ir::TensorRef RegionEvaluator::evaluate(size_t index, const Region& r) {
  const ir::Atom& result = f_->body->result;
  if (f_->result_type->kind != ir::TypeKind::kTuple) return part(result, r);
  // A tuple of variables, or the results of one operator.
  Definition& d = defined_.at(result.var.get());
  if (d.binding && d.binding->value->kind == ir::ExprKind::kTuple)
    return part(d.binding->value->args[index], r);
  Definition field{d.binding, index, {}};
  return part(field, r);
}

ir::TensorRef RegionEvaluator::part(const ir::Atom& a, const Region& r) {
  if (a.is_constant()) return cut(*a.constant, Shape(a.constant->shape.size(), 0), r);
  return part(defined_.at(a.var.get()), r);
}

ir::TensorRef RegionEvaluator::part(Definition& d, const Region& r) {
  for (const Part& p : d.parts)
    if (p.region.holds(r)) {
      if (p.region == r) return p.tensor;
      work_ += elements(r.extent);
      return cut(*p.tensor, p.region.from, r);
    }
  NIMBLE_CHECK(d.binding, "a region beyond an argument");
  const ir::Expr& e = *d.binding->value;
  switch (e.kind) {
    case ir::ExprKind::kAtom:
      return part(e.args[0], r);
    case ir::ExprKind::kGetField: {
      const Definition& tuple = defined_.at(e.args[0].var.get());
      const ir::Expr& made = *tuple.binding->value;
      if (made.kind == ir::ExprKind::kTuple)
        return part(made.args[static_cast<size_t>(e.index)], r);
      Definition field{tuple.binding, static_cast<size_t>(e.index), {}};
      const Part p = compute(field, r);
      keep(d, p);
      return p.region == r ? p.tensor : cut(*p.tensor, p.region.from, r);
    }
    case ir::ExprKind::kCall: {
      const Part p = compute(d, r);
      keep(d, p);
      return p.region == r ? p.tensor : cut(*p.tensor, p.region.from, r);
    }
    default:
      throw Error(Status::kUnsupported, e.location.str(),
                  "only operators, tuples and fields are computed in parts");
  }
}

void RegionEvaluator::keep(Definition& d, const Part& p) {
  const auto bytes = static_cast<int64_t>(p.tensor->bytes.size());
  if (kept_bytes_ + bytes > kKeptBytes) return;
  kept_bytes_ += bytes;
  // The newest first: neighbours are asked for together.
  d.parts.insert(d.parts.begin(), p);
}

RegionEvaluator::Part RegionEvaluator::compute(const Definition& d, const Region& r) {
  const ir::Expr& e = *d.binding->value;
  if (e.op.empty())
    throw Error(Status::kUnsupported, e.location.str(),
                "only operators, tuples and fields are computed in parts");
  if (!moved_operands(e).empty()) return rearrange(d, r);
  DemandCall c{e, {}, {}};
  for (const ir::Atom& a : e.args) c.operands.push_back(shape_of_type(ir::type_of(a)));
  const ir::Type& t = d.binding->var->type;
  for (const ir::Type& one :
       t->kind == ir::TypeKind::kTuple ? t->elements : std::vector<ir::Type>{t})
    c.results.push_back(shape_of_type(one));

  Demand demand{{}, e.attrs, Shape(r.from.size(), 0), 0};
  const DemandRule rule = find_demand_rule(e.op);
  Region origin = r;  // of the call's result: its `from`
  if (rule && elements(r.extent) > 0 && rule(c, r, demand)) {
    for (size_t k = 0; k < r.from.size(); ++k) origin.from[k] -= demand.inside[k];
  } else {
    demand = {{}, e.attrs, {}, 1};
    for (const Shape& s : c.operands) demand.operands.push_back(Region::whole(s));
    origin.from.assign(r.from.size(), 0);
  }
  std::vector<ir::TensorRef> operands;
  for (size_t i = 0; i < e.args.size(); ++i) {
    operands.push_back(part(e.args[i], demand.operands[i]));
    work_ += operands.back()->elements();
  }
  ir::Expr call = e;
  call.attrs = std::move(demand.attrs);
  const ir::TensorRef out = evaluate_op(call, operands, {}).at(d.result);
  work_ += out->elements() * (1 + demand.work);
  return {{origin.from, out->shape}, out};
}

std::vector<int64_t> RegionEvaluator::origins(const ir::Binding& b, const Region& r) {
  const ir::Expr& e = *b.value;
  const OriginRule rule = find_origin(e.op);
  if (!rule) {
    const ir::TensorRef numbers = cut(*all_origins(b), Shape(r.from.size(), 0), r);
    const std::span<const int64_t> all = numbers->as<int64_t>();
    return {all.begin(), all.end()};
  }
  OpCall c{e, {}, {b.var->type}};
  for (size_t i = 0; i < e.args.size(); ++i) {
    const Shape s = shape_of_type(ir::type_of(e.args[i]));
    c.in.push_back(i > 0 ? Array::from(*part(e.args[i], Region::whole(s))) : Array{});
    if (i == 0) c.in[0].shape = s;
  }
  const Origin origin = rule(c);
  const Shape strides = strides_of(c.result_shape());
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(elements(r.extent)));
  for_each(r.extent, [&](Shape at, int64_t) {
    int64_t flat = 0;
    for (size_t k = 0; k < at.size(); ++k) {
      at[k] += r.from[k];
      flat += at[k] * strides[k];
    }
    const int64_t from = origin(at, flat);
    out.push_back(from == kNowhere ? 0 : from + 1);
  });
  work_ += elements(r.extent);
  return out;
}

const ir::TensorRef& RegionEvaluator::all_origins(const ir::Binding& b) {
  ir::TensorRef& out = origins_[&b];
  if (out) return out;
  const ir::Expr& e = *b.value;
  const std::vector<size_t> moved = moved_operands(e);
  std::vector<ir::TensorRef> operands;
  int64_t next = 1;
  for (size_t i = 0; i < e.args.size(); ++i) {
    const Shape s = shape_of_type(ir::type_of(e.args[i]));
    if (std::find(moved.begin(), moved.end(), i) == moved.end()) {
      operands.push_back(part(e.args[i], Region::whole(s)));
      continue;
    }
    std::vector<int64_t> numbers(static_cast<size_t>(elements(s)));
    for (int64_t& n : numbers) n = next++;
    operands.push_back(ir::Tensor::of<int64_t>(DType::kI64, s, numbers));
    work_ += elements(s);
  }
  out = evaluate_op(e, operands, {}).at(0);
  work_ += out->elements();
  return out;
}

RegionEvaluator::Part RegionEvaluator::rearrange(const Definition& d, const Region& r) {
  const ir::Expr& e = *d.binding->value;
  const std::vector<int64_t> all = origins(*d.binding, r);
  const std::vector<size_t> moved = moved_operands(e);
  uint8_t* to = nullptr;
  const DType dtype = d.binding->var->type->dtype;
  auto out = ir::Tensor::make(dtype, r.extent, &to);
  const size_t size = size_of(dtype);

  // Element k of the region comes from position at[k] of operand from[k].
  int64_t first = 1;
  for (size_t i : moved) {
    const Shape s = shape_of_type(ir::type_of(e.args[i]));
    const int64_t count = elements(s);
    const auto coordinates = [&](int64_t flat) {
      Shape at(s.size());
      for (size_t k = s.size(); k-- > 0; flat /= s[k]) at[k] = flat % s[k];
      return at;
    };
    std::vector<std::pair<size_t, int64_t>> taken;  // position in the region, in the operand
    for (size_t k = 0; k < all.size(); ++k)
      if (all[k] >= first && all[k] < first + count) taken.emplace_back(k, all[k] - first);
    first += count;
    if (taken.empty()) continue;
    Shape low = coordinates(taken[0].second), high = low;
    for (const auto& [k, flat] : taken) {
      const Shape at = coordinates(flat);
      for (size_t x = 0; x < at.size(); ++x) {
        low[x] = std::min(low[x], at[x]);
        high[x] = std::max(high[x], at[x]);
      }
    }
    Region hull{low, high};
    for (size_t x = 0; x < low.size(); ++x) hull.extent[x] = high[x] - low[x] + 1;
    const bool given = e.args[i].is_constant() || !defined_.at(e.args[i].var.get()).binding;
    // Scattered elements of something that is dear are computed one by one.
    if (given || elements(hull.extent) <= 4 * static_cast<int64_t>(taken.size())) {
      const ir::TensorRef x = part(e.args[i], hull);
      const Shape strides = strides_of(hull.extent);
      for (const auto& [k, flat] : taken) {
        const Shape at = coordinates(flat);
        int64_t p = 0;
        for (size_t axis = 0; axis < at.size(); ++axis) p += (at[axis] - low[axis]) * strides[axis];
        std::memcpy(to + k * size, x->bytes.data() + static_cast<size_t>(p) * size, size);
      }
    } else {
      for (const auto& [k, flat] : taken) {
        const Shape at = coordinates(flat);
        const ir::TensorRef x = part(e.args[i], {at, Shape(at.size(), 1)});
        std::memcpy(to + k * size, x->bytes.data(), size);
      }
    }
  }
  if (std::find(all.begin(), all.end(), 0) != all.end()) {
    // What stands around the data (pad); its conversion is the array's.
    Array fill = Array::make(dtype, {1});
    const double value = ir::attr_or<double>(e.attrs, "value", 0.0);
    fill.floating() ? void(fill.f[0] = value) : void(fill.i[0] = static_cast<int64_t>(value));
    const ir::TensorRef one = fill.tensor();
    for (size_t k = 0; k < all.size(); ++k)
      if (all[k] == 0) std::memcpy(to + k * size, one->bytes.data(), size);
  }
  work_ += out->elements();
  return {r, out};
}

}  // namespace nimble::reference
