// The batched form of each operator (what JAX calls vmap): a value of shape (d…) that differs from
// row to row is a tensor (rows, d…), and an operator on it is the same operator, one axis further
// in. Four things need care.
//
//   Broadcasting aligns shapes at their ends, so a batched operand of lower rank gets its missing
//   axes behind the rows.
//   Where a value's first axis has extent 1, the rows take its place: (1, 150) becomes (rows, 150)
//   and not (rows, 1, 150), if the operator leaves that axis alone. So a row vector's product, bias
//   and gates stay what they are, and fuse as they would alone.
//   A product with a matrix that all rows share becomes one product of a taller matrix: (rows, m,
//   k) times (k, n) is ((rows*m), k) times (k, n). This is what batching is for: the matrix is read
//   once for all rows.
//   What no row decides is computed once, unbatched.
//
// An operator that is not listed here, or that decides extents or control by values, cannot be
// batched: NotBatchable, and the caller leaves the program as it is.
#include "compiler/passes/batch_operators.h"

#include <algorithm>

#include "compiler/ir/op.h"

namespace nimble::passes {

using ir::Atom;
using ir::Attrs;
using ir::Binding;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::TypeKind;
using ir::VarRef;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;

namespace {

constexpr int kMostNested = 16;  // calls written out inside each other

[[noreturn]] void refuse(const std::string& why) {
  throw NotBatchable{why};
}

// What an operator does along its axes: the attribute (`axis` or `axes`), by one further in if the
// rows have an axis of their own.
Attrs along(Attrs attrs, bool merge) {
  const int64_t further = merge ? 0 : 1;
  if (attrs.contains("axis")) attrs["axis"] = ir::attr<int64_t>(attrs, "axis") + further;
  if (attrs.contains("axes")) {
    Ints axes = ir::attr<Ints>(attrs, "axes");
    for (int64_t& a : axes) a += further;
    attrs["axes"] = std::move(axes);
  }
  return attrs;
}

// Whether the operator does something along its operand's first axis.
bool touches_first(const Attrs& attrs) {
  if (ir::attr_or<int64_t>(attrs, "axis", 1) == 0) return true;
  const Ints axes = ir::attr_or<Ints>(attrs, "axes", {});
  return std::find(axes.begin(), axes.end(), 0) != axes.end();
}

}  // namespace

bool is_static_tensor(const ir::Type& t) {
  return t && t->kind == TypeKind::kTensor &&
         std::all_of(t->dims.begin(), t->dims.end(), [](const Dim& d) { return d.as_constant(); });
}

bool can_merge(const ir::Type& t) {
  return is_static_tensor(t) && !t->dims.empty() && t->dims[0] == Dim(1);
}

Dims stacked_dims(const ir::Type& t, const Dim& rows) {
  Dims out = {rows};
  out.insert(out.end(), t->dims.begin() + (can_merge(t) ? 1 : 0), t->dims.end());
  return out;
}

Dims Batcher::with_rows(const Dims& dims) const {
  Dims out = {rows_};
  out.insert(out.end(), dims.begin(), dims.end());
  return out;
}

VarRef Batcher::emit(const Binding& like, const std::string& op, std::vector<Atom> args,
                     Attrs attrs) {
  return out_.call(op, std::move(args), std::move(attrs), like.var->name, like.value->location);
}

Atom Batcher::shaped(const Atom& a, Dims shape) {
  return out_.call("reshape", {a}, {{"shape", std::move(shape)}, {"allow_zero", true}},
                   a.is_var() ? a.var->name : "shaped");
}

// With the rows as an axis of their own …
Atom Batcher::apart(const Batched& value) {
  if (!value.merged) return value.atom;
  return shaped(value.atom, with_rows(value.type->dims));
}

// … or in place of the first.
Atom Batcher::merged(const Batched& value) {
  if (value.merged || !value.batched) return value.atom;
  return shaped(value.atom, stacked_dims(value.type, rows_));
}

Atom Batcher::spread(const Batched& value) {
  if (value.batched) return apart(value);
  const VarRef one = out_.call("unsqueeze", {value.atom}, {{"axes", Ints{0}}});
  return out_.call("expand", {one}, {{"shape", with_rows(value.type->dims)}});
}

Atom Batcher::stacked(const Batched& value) {
  if (!can_merge(value.type)) return spread(value);
  if (value.batched) return merged(value);
  return out_.call("expand", {value.atom}, {{"shape", stacked_dims(value.type, rows_)}});
}

Batched Batcher::value_of(const Atom& a) const {
  if (a.is_global()) refuse("a function is used as a value");
  if (a.is_constant()) return {a, ir::type_of(a)};
  const auto it = values_.find(a.var.get());
  if (it == values_.end()) refuse(fmt::format("%{} is not a tensor of the recursion", a.var->name));
  return it->second;
}

void Batcher::bindings(const ir::Block& b, size_t except) {
  for (size_t i = 0; i + except < b.bindings.size(); ++i)
    values_[b.bindings[i].var.get()] = expression(b.bindings[i]);
}

Batched Batcher::block(const ir::Block& b) {
  bindings(b);
  return value_of(b.result);
}

Batched Batcher::expression(const Binding& b) {
  const Expr& e = *b.value;
  switch (e.kind) {
    case ExprKind::kAtom:
      return value_of(e.args[0]);
    case ExprKind::kTuple: {
      Batched out;
      out.type = b.var->type;
      out.is_tuple = true;
      for (const Atom& a : e.args) out.fields.push_back(value_of(a));
      return out;
    }
    case ExprKind::kGetField: {
      const Batched tuple = value_of(e.args[0]);
      if (!tuple.is_tuple) refuse("a field of what is not a tuple of tensors");
      return tuple.fields.at(static_cast<size_t>(e.index));
    }
    case ExprKind::kCall:
      if (e.callee) return called(b);
      if (e.primitive) refuse("a fused group");
      return operation(b);
    case ExprKind::kIf:
    case ExprKind::kMatch:
      refuse("values decide what is computed");
    case ExprKind::kFunction:
    case ExprKind::kClosure:
    case ExprKind::kConstruct:
      refuse("it makes values that are not tensors");
  }
  refuse("an unknown expression");
}

// A call of a straight function is what that function does.
Batched Batcher::called(const Binding& b) {
  const Expr& e = *b.value;
  if (!e.callee->is_global()) refuse("a call of a function value");
  if (call_)
    if (std::optional<Batched> known = call_(e)) return *std::move(known);
  const ir::FunctionRef f = module_.find(e.callee->global);
  if (!f || !f->type_variables.empty() || ++depth_ > kMostNested)
    refuse(fmt::format("a call of @{}", e.callee->global));
  for (size_t i = 0; i < e.args.size(); ++i) define(f->parameters[i], value_of(e.args[i]));
  Batched out = block(*f->body);
  --depth_;
  return out;
}

Batched Batcher::operation(const Binding& b) {
  const Expr& e = *b.value;
  std::vector<Batched> in;
  bool any = false;
  for (const Atom& a : e.args) {
    in.push_back(value_of(a));
    if (in.back().is_tuple) refuse(fmt::format("{} of a tuple", e.op));
    any |= in.back().batched;
  }
  const ir::OpInfo* op = ir::find_op(e.op);
  if (!op || op->shape_mode != ir::ShapeMode::kDataIndependent ||
      op->traits.memory == ir::Memory::kOperand || op->fusion == ir::FusionKind::kData)
    refuse(e.op + " depends on more than its operands' shapes");
  Batched out;
  out.type = b.var->type;
  std::vector<Atom> args;
  for (const Batched& v : in) args.push_back(v.atom);
  if (!any) {
    auto copy = std::make_shared<Expr>(e);
    copy->args = std::move(args);
    out.atom = out_.bind(std::move(copy), b.var->name);
    if (b.var->type->kind != TypeKind::kTensor) refuse(e.op + " has several results");
    return out;
  }
  out.batched = true;
  if (!is_static_tensor(out.type)) refuse(fmt::format("{} gives {}", e.op, ir::str(out.type)));
  const size_t rank = in[0].type->dims.size();
  // Whether the first axis of all operands, of extent 1, is the result's.
  const bool merge = can_merge(out.type) && !touches_first(e.attrs) &&
                     std::all_of(in.begin(), in.end(), [&](const Batched& v) {
                       return !v.batched || (can_merge(v.type) && v.type->dims.size() == rank);
                     });
  const auto set = [&](const Atom& atom, bool is_merged) {
    out.atom = atom;
    out.merged = is_merged;
  };
  const auto refused = [&] { refuse("no batched form of " + e.op); };
  const bool only_first =
      in[0].batched && std::none_of(in.begin() + 1, in.end(), [](auto& v) { return v.batched; });
  if (op->traits.memory == ir::Memory::kView) {
    if (in.size() > 1) refused();
    const Dims from = in[0].merged ? stacked_dims(in[0].type, rows_) : with_rows(in[0].type->dims);
    const Dims to = stacked_dims(out.type, rows_);
    const bool same = from.size() == to.size() && std::equal(from.begin(), from.end(), to.begin());
    set(same ? args[0] : shaped(args[0], to), can_merge(out.type));
    return out;
  }
  switch (op->rows()) {
    case ir::Rows::kPointwise: {
      const bool merged_result = can_merge(out.type);
      set(elementwise(b, in, merged_result), merged_result);
      break;
    }
    case ir::Rows::kAxes:
      if (!only_first) refused();
      args[0] = merge ? merged(in[0]) : apart(in[0]);
      set(emit(b, e.op, args, along(e.attrs, merge)), merge);
      break;
    case ir::Rows::kResultAxes:
      for (size_t i = 0; i < in.size(); ++i) args[i] = merge ? stacked(in[i]) : spread(in[i]);
      set(emit(b, e.op, args, along(e.attrs, merge)), merge);
      break;
    case ir::Rows::kBroadcast:
      if (in.size() > 1) refused();
      set(emit(b, e.op, {with_rank(in[0], out.type->dims.size())},
               {{"shape", with_rows(out.type->dims)}}),
          false);
      break;
    case ir::Rows::kPermutation: {
      Ints axes = {0};
      for (int64_t a : ir::attr<Ints>(e.attrs, "axes")) axes.push_back(a + 1);
      set(emit(b, e.op, {apart(in[0])}, {{"axes", axes}}), false);
      break;
    }
    case ir::Rows::kIndex:
      if (in[0].batched || ir::attr_or<int64_t>(e.attrs, "axis", 0) != 0) refused();
      set(emit(b, "gather", {args[0], apart(in[1])}, {{"axis", int64_t{0}}}), false);
      break;
    case ir::Rows::kProduct:
      return product(b, in);
    case ir::Rows::kMixed:
    case ir::Rows::kShape:
    case ir::Rows::kFill:
    case ir::Rows::kPads:
    case ir::Rows::kPackedProduct:
      refused();
  }
  return out;
}

// The value, rows apart, as if it had been of this rank: axes of extent 1 behind the rows.
Atom Batcher::with_rank(const Batched& v, size_t rank) {
  if (!v.batched) return v.atom;
  const Atom whole = apart(v);
  if (v.type->dims.size() >= rank) return whole;
  Ints axes;
  for (size_t i = v.type->dims.size(); i < rank; ++i)
    axes.push_back(static_cast<int64_t>(axes.size()) + 1);
  return out_.call("unsqueeze", {whole}, {{"axes", axes}}, "wide");
}

Atom Batcher::elementwise(const Binding& b, const std::vector<Batched>& in, bool merge) {
  const size_t rank = b.var->type->dims.size();
  std::vector<Atom> args;
  for (const Batched& v : in) {
    if (!merge)
      args.push_back(with_rank(v, rank));
    else if (v.type->dims.size() == rank)
      args.push_back(merged(v));  // its first extent is 1, too
    else
      args.push_back(with_rank(v, rank - 1));
  }
  return emit(b, b.value->op, std::move(args), b.value->attrs);
}

Batched Batcher::product(const Binding& b, const std::vector<Batched>& in) {
  const Expr& e = *b.value;
  const size_t rank_a = in[0].type->dims.size(), rank_b = in[1].type->dims.size();
  Batched out;
  out.type = b.var->type;
  out.batched = true;
  if (in[0].batched && !in[1].batched && rank_b == 2 && rank_a >= 1 &&
      !ir::attr_or<bool>(e.attrs, "transpose_a", false)) {
    if (rank_a == 1 || (rank_a == 2 && can_merge(in[0].type))) {
      out.merged = rank_a == 2;
      out.atom = emit(b, "matmul", {out.merged ? merged(in[0]) : in[0].atom, in[1].atom}, e.attrs);
      return out;
    }
    const Dim k = in[0].type->dims.back();
    Dim tall = rows_;
    for (size_t i = 0; i + 1 < rank_a; ++i) tall = tall * in[0].type->dims[i];
    const VarRef y = emit(b, "matmul", {shaped(in[0].atom, {tall, k}), in[1].atom}, e.attrs);
    out.atom = shaped(y, with_rows(b.var->type->dims));
    return out;
  }
  // Batch axes broadcast at the ends, so both sides need the same rank, and no vectors.
  const size_t rank = std::max(rank_a, rank_b);
  if (rank_a < 2 || rank_b < 2) refuse("a product with a vector that differs from row to row");
  out.atom = emit(b, "matmul", {with_rank(in[0], rank), with_rank(in[1], rank)}, e.attrs);
  return out;
}

}  // namespace nimble::passes
