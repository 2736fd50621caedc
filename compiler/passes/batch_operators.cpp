// The batched form of each operator (what JAX calls vmap): a value of shape (d…) that differs from
// row to row is a tensor (rows, d…), and an operator on it is the same operator, one axis further
// in. Three things need care.
//
//   Broadcasting aligns shapes at their ends, so a batched operand of lower rank gets its missing
//   axes behind the rows.
//   A product with a matrix that all rows share becomes one product of a taller matrix: (rows, m,
//   k) times (k, n) is ((rows*m), k) times (k, n). This is what batching is for: the matrix is read
//   once for all rows.
//   What no row decides is computed once, unbatched.
//
// An operator that is not listed here, or that decides extents or control by values, cannot be
// batched: NotBatchable, and the caller leaves the program as it is.
#include "compiler/passes/batch_operators.h"

#include <algorithm>
#include <set>

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

// An axis of a value of this rank, one further in.
int64_t shifted(int64_t axis, size_t rank) {
  return (axis < 0 ? axis + static_cast<int64_t>(rank) : axis) + 1;
}

Attrs shift_axis(Attrs attrs, size_t rank) {
  attrs["axis"] = shifted(ir::attr<int64_t>(attrs, "axis"), rank);
  return attrs;
}

Attrs shift_axes(Attrs attrs, size_t rank) {
  Ints axes = ir::attr<Ints>(attrs, "axes");
  for (int64_t& a : axes) a = shifted(a, rank);
  attrs["axes"] = std::move(axes);
  return attrs;
}

}  // namespace

bool is_static_tensor(const ir::Type& t) {
  return t && t->kind == TypeKind::kTensor &&
         std::all_of(t->dims.begin(), t->dims.end(), [](const Dim& d) { return d.as_constant(); });
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

Atom Batcher::spread(const Batched& value) {
  if (value.batched) return value.atom;
  const Dims& dims = value.type->dims;
  const VarRef one = out_.call("unsqueeze", {value.atom}, {{"axes", Ints{0}}});
  return out_.call("expand", {one}, {{"shape", with_rows(dims)}});
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
      if (!tuple.is_tuple) refuse("a field of what is no tuple of tensors");
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
      refuse("it makes values that are no tensors");
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
  if (!op || op->shape_mode != ir::ShapeMode::kDataIndependent || e.op == "assert_shape" ||
      e.op == "read_extents" || op->fusion == ir::FusionKind::kData)
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
  const Dims& dims = out.type->dims;
  static const std::set<std::string> kShapeOnly = {"reshape", "squeeze", "unsqueeze"};
  static const std::set<std::string> kOneAxis = {"softmax", "log_softmax", "l2_normalize", "cumsum",
                                                 "argmax"};
  static const std::set<std::string> kAxes = {"sum", "mean", "reduce_max", "reduce_min", "prod"};
  if (e.op == "batch_norm" || e.op == "full") refuse(e.op);
  if (op->fusion == ir::FusionKind::kElementwise) {
    out.atom = elementwise(b, in);
  } else if (kShapeOnly.contains(e.op) && in.size() == 1) {
    out.atom = emit(b, "reshape", args, {{"shape", with_rows(dims)}, {"allow_zero", true}});
  } else if (e.op == "expand" && in.size() == 1) {
    out.atom = emit(b, "expand", {with_rank(b, in[0], dims.size())}, {{"shape", with_rows(dims)}});
  } else if (kOneAxis.contains(e.op)) {
    out.atom = emit(b, e.op, args, shift_axis(e.attrs, rank));
  } else if (kAxes.contains(e.op) || (e.op == "slice" && in.size() == 1)) {
    out.atom = emit(b, e.op, args, shift_axes(e.attrs, rank));
  } else if (e.op == "layer_norm" && !in[1].batched && !in[2].batched) {
    out.atom = emit(b, e.op, args, shift_axis(e.attrs, rank));
  } else if (e.op == "concat" || e.op == "append") {
    for (size_t i = 0; i < in.size(); ++i) args[i] = spread(in[i]);
    out.atom = emit(b, "concat", args, shift_axis(e.attrs, rank));
  } else if (e.op == "transpose") {
    Ints axes = {0};
    for (int64_t a : ir::attr<Ints>(e.attrs, "axes")) axes.push_back(shifted(a, rank));
    out.atom = emit(b, e.op, args, {{"axes", axes}});
  } else if (e.op == "take_row" && !in[0].batched) {
    out.atom = emit(b, "gather", args, {{"axis", int64_t{0}}});
  } else if (e.op == "gather" && !in[0].batched &&
             shifted(ir::attr<int64_t>(e.attrs, "axis"), rank) == 1) {
    out.atom = emit(b, "gather", args, {{"axis", int64_t{0}}});
  } else if (e.op == "matmul") {
    out.atom = product(b, in);
  } else {
    refuse("no batched form of " + e.op);
  }
  return out;
}

// The value as if it had been of this rank: axes of extent 1 behind the rows.
Atom Batcher::with_rank(const Binding& b, const Batched& v, size_t rank) {
  if (!v.batched || v.type->dims.size() >= rank) return v.atom;
  Ints axes;
  for (size_t i = v.type->dims.size(); i < rank; ++i)
    axes.push_back(static_cast<int64_t>(axes.size()) + 1);
  return emit(b, "unsqueeze", {v.atom}, {{"axes", axes}});
}

Atom Batcher::elementwise(const Binding& b, const std::vector<Batched>& in) {
  std::vector<Atom> args;
  for (const Batched& v : in) args.push_back(with_rank(b, v, b.var->type->dims.size()));
  return emit(b, b.value->op, std::move(args), b.value->attrs);
}

Atom Batcher::product(const Binding& b, const std::vector<Batched>& in) {
  const Expr& e = *b.value;
  const size_t rank_a = in[0].type->dims.size(), rank_b = in[1].type->dims.size();
  if (in[0].batched && !in[1].batched && rank_b == 2 && rank_a >= 1) {
    const bool transposed = ir::attr_or<bool>(e.attrs, "transpose_a", false);
    if (!transposed) {
      const Dim k = in[0].type->dims.back();
      Dim tall = rows_;
      for (size_t i = 0; i + 1 < rank_a; ++i) tall = tall * in[0].type->dims[i];
      const Attrs shape = {{"shape", Dims{tall, k}}, {"allow_zero", true}};
      const Atom x = rank_a == 1 ? in[0].atom : Atom(emit(b, "reshape", {in[0].atom}, shape));
      const VarRef y = emit(b, "matmul", {x, in[1].atom}, e.attrs);
      if (rank_a == 1) return y;
      return emit(b, "reshape", {y},
                  {{"shape", with_rows(b.var->type->dims)}, {"allow_zero", true}});
    }
  }
  // Batch axes broadcast at the ends, so both sides need the same rank, and no vectors.
  const size_t rank = std::max(rank_a, rank_b);
  if (rank_a < 2 || rank_b < 2) refuse("a product with a vector that differs from row to row");
  return emit(b, "matmul", {with_rank(b, in[0], rank), with_rank(b, in[1], rank)}, e.attrs);
}

}  // namespace nimble::passes
