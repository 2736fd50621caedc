// Local rewrites that need nothing but an expression and its operands' definitions. Each rule is
// one function that either returns what stands for the value or nothing; all are exact (no
// reassociation of floating-point arithmetic).
#include <cmath>
#include <numeric>
#include <span>

#include "compiler/ir/axes.h"
#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Expr;
using ir::ExprKind;
using ir::Type;

struct Site {
  const Binding& binding;
  const Expr& e;
  const Definitions& definitions;
  BlockBuilder& out;
  bool& stale;  // set where types of what follows may name dims that nothing binds any more
};

bool same_type(const Type& a, const Type& b) {
  return a && b && ir::equal(a, b);
}

// reshape, expand, cast, slice, … whose result has the operand's type and does not reorder.
std::optional<Atom> identity(const Site& s) {
  const ir::OpInfo* op = ir::find_op(s.e.op);
  if (!op || !op->traits.identity || s.e.args.empty()) return std::nullopt;
  if (op->max_args < 0 && s.e.args.size() != 1) return std::nullopt;  // it joins several
  if (!same_type(ir::type_of(s.e.args[0]), s.binding.var->type)) return std::nullopt;
  for (const ir::Dim& step : ir::attr_or<std::vector<ir::Dim>>(s.e.attrs, "steps", {}))
    if (!step.is_constant(1)) return std::nullopt;
  return s.e.args[0];
}

// concat(x, y) = x where y is empty.
std::optional<Atom> empty_parts(const Site& s) {
  if (s.e.op != "concat" || !s.binding.var->type) return std::nullopt;
  const size_t axis = ir::axis_of(s.e);
  std::vector<Atom> kept;
  for (const Atom& a : s.e.args)
    if (!ir::type_of(a)->dims[axis].is_constant(0)) kept.push_back(a);
  if (kept.empty() || kept.size() == s.e.args.size()) return std::nullopt;
  if (kept.size() == 1 && same_type(ir::type_of(kept[0]), s.binding.var->type)) return kept[0];
  if (kept.size() == 1) return std::nullopt;
  ir::VarRef v =
      s.out.call("concat", std::move(kept), s.e.attrs, s.binding.var->name, s.e.location);
  v->type = s.binding.var->type;
  return v;
}

std::optional<Atom> transpose_pair(const Site& s) {
  if (s.e.op != "transpose") return std::nullopt;
  auto axes = ir::attr<std::vector<int64_t>>(s.e.attrs, "axes");
  std::vector<int64_t> sorted(axes.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  if (axes == sorted) return s.e.args[0];
  const Expr* inner = definition(s.definitions, s.e.args[0], "transpose");
  if (!inner) return std::nullopt;
  const auto& first = ir::attr<std::vector<int64_t>>(inner->attrs, "axes");
  for (int64_t& a : axes) a = first[static_cast<size_t>(a)];
  if (axes == sorted) return inner->args[0];
  ir::VarRef v = s.out.call("transpose", {inner->args[0]}, {{"axes", axes}}, s.binding.var->name,
                            s.e.location);
  v->type = s.binding.var->type;
  return v;
}

// A transposition that only moves axes of extent 1 leaves every element where it is.
std::optional<Atom> transpose_of_units(const Site& s) {
  if (s.e.op != "transpose" || !s.binding.var->type) return std::nullopt;
  const Type operand = ir::type_of(s.e.args[0]);
  int64_t last = -1;
  for (int64_t axis : ir::attr<std::vector<int64_t>>(s.e.attrs, "axes")) {
    if (operand->dims[static_cast<size_t>(axis)].is_constant(1)) continue;
    if (axis < last) return std::nullopt;
    last = axis;
  }
  ir::VarRef v = s.out.call("reshape", {s.e.args[0]},
                            {{"shape", s.binding.var->type->dims}, {"allow_zero", true}},
                            s.binding.var->name, s.e.location);
  v->type = s.binding.var->type;
  return v;
}

// A view of a view is a view of the first: reshape(squeeze(x)) = reshape(x).
std::optional<Atom> view_pair(const Site& s) {
  auto is_view = [](const Expr& e) { return ir::traits_of(e).memory == ir::Memory::kView; };
  if (!is_view(s.e)) return std::nullopt;
  const Expr* inner = definition(s.definitions, s.e.args[0]);
  if (!inner || !is_view(*inner)) return std::nullopt;
  const Type& type = s.binding.var->type;
  if (!type) return std::nullopt;
  if (same_type(ir::type_of(inner->args[0]), type)) return inner->args[0];
  ir::VarRef v =
      s.out.call("reshape", {inner->args[0]}, {{"shape", type->dims}, {"allow_zero", true}},
                 s.binding.var->name, s.e.location);
  v->type = type;
  return v;
}

// A reshape or expand by an operand whose contents typing has followed needs the operand no more.
std::optional<Atom> static_shape_operand(const Site& s) {
  if ((s.e.op != "reshape" && s.e.op != "expand") || s.e.args.size() != 2) return std::nullopt;
  const Type& type = s.binding.var->type;
  if (!type) return std::nullopt;
  for (const ir::Dim& d : type->dims)
    for (const std::string& symbol : d.symbols())
      if (symbol[0] == '?') return std::nullopt;
  ir::Attrs attrs = {{"shape", type->dims}};
  if (s.e.op == "reshape") attrs["allow_zero"] = true;
  ir::VarRef v = s.out.call(s.e.op, {s.e.args[0]}, attrs, s.binding.var->name, s.e.location);
  v->type = type;
  return v;
}

// x + 0, x - 0, x * 1, x / 1 where the constant does not widen the result.
std::optional<Atom> neutral(const Site& s) {
  const ir::Traits& traits = ir::traits_of(s.e);
  if (!traits.neutral) return std::nullopt;
  for (size_t side : {size_t{1}, size_t{0}}) {
    if (side == 0 && !traits.commutative) break;
    const auto value = constant_value(s.e.args[side]);
    if (value != *traits.neutral) continue;
    // Of a float's two zeros only one is neutral: -0.0 + 0.0 and -0.0 - -0.0 are 0.0.
    if (is_float(ir::type_of(s.e.args[side])->dtype) &&
        std::signbit(*value) != std::signbit(*traits.neutral))
      continue;
    if (same_type(ir::type_of(s.e.args[1 - side]), s.binding.var->type)) return s.e.args[1 - side];
  }
  return std::nullopt;
}

// A row of a product is the product of the row: take_row(x w, i) = take_row(x, i) w. What a decoder
// reads of a prompt's logits are the last ones. x may have an axis of extent 1 ahead.
std::optional<Atom> row_of_product(const Site& s) {
  if (s.e.op != "take_row" || !s.binding.var->type) return std::nullopt;
  Atom rows = s.e.args[0];
  const Expr* view = definition(s.definitions, rows);
  if (view && ir::traits_of(*view).memory == ir::Memory::kView) rows = view->args[0];
  const Expr* product = definition(s.definitions, rows, "matmul");
  if (!product || ir::attr_or(product->attrs, "transpose_a", false)) return std::nullopt;
  const Type x = ir::type_of(product->args[0]), w = ir::type_of(product->args[1]);
  const Type table = ir::type_of(s.e.args[0]);
  if (!x || !w || !table || table->dims.size() != 2 || w->dims.size() != 2) return std::nullopt;
  const bool ahead = x->dims.size() == 3 && x->dims[0].is_constant(1);
  if (!ahead && x->dims.size() != 2) return std::nullopt;
  const ir::Dim n = x->dims[ahead], k = x->dims[ahead + 1];
  if (!(table->dims[0] == n) || !(table->dims[1] == s.binding.var->type->dims[0]))
    return std::nullopt;
  const auto emit = [&](const char* op, std::vector<Atom> args, ir::Attrs attrs,
                        std::vector<ir::Dim> dims, DType dtype) {
    ir::VarRef v = s.out.call(op, std::move(args), std::move(attrs), "row", s.e.location);
    v->type = ir::tensor_type(std::move(dims), dtype);
    return v;
  };
  const auto shape = [](std::vector<ir::Dim> dims) {
    return ir::Attrs{{"shape", std::move(dims)}, {"allow_zero", true}};
  };
  Atom flat = product->args[0];
  if (ahead) flat = emit("reshape", {flat}, shape({n, k}), {n, k}, x->dtype);
  const Atom row = emit("take_row", {flat, s.e.args[1]}, {}, {k}, x->dtype);
  const Atom matrix = emit("reshape", {row}, shape({1, k}), {1, k}, x->dtype);
  const ir::Dim width = table->dims[1];
  const Atom made =
      emit("matmul", {matrix, product->args[1]}, product->attrs, {1, width}, table->dtype);
  return Atom(emit("reshape", {made}, shape({width}), {width}, table->dtype));
}

std::optional<Atom> field_of_tuple(const Site& s) {
  if (s.e.kind != ExprKind::kGetField || !s.e.args[0].is_var()) return std::nullopt;
  auto it = s.definitions.find(s.e.args[0].var.get());
  if (it == s.definitions.end() || it->second->kind != ExprKind::kTuple) return std::nullopt;
  return it->second->args[static_cast<size_t>(s.e.index)];
}

std::optional<Atom> constant_condition(const Site& s) {
  if (s.e.kind != ExprKind::kIf) return std::nullopt;
  auto value = constant_value(s.e.args[0]);
  if (!value) return std::nullopt;
  const ir::BlockRef& taken = *value != 0 ? s.e.then_block : s.e.else_block;
  for (const Binding& b : taken->bindings) s.out.append(b);
  s.stale |= !same_type(ir::type_of(taken->result), s.binding.var->type);
  return taken->result;
}

std::optional<Atom> copy(const Site& s) {
  if (s.e.kind != ExprKind::kAtom) return std::nullopt;
  return s.e.args[0];
}

using Rule = std::optional<Atom> (*)(const Site&);
constexpr Rule kCallRules[] = {identity,  empty_parts,          transpose_pair, transpose_of_units,
                               view_pair, static_shape_operand, neutral,        row_of_product};
constexpr Rule kOtherRules[] = {field_of_tuple, constant_condition, copy};

}  // namespace

ir::Module simplify(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  bool stale = false;
  for (auto& [name, f] : out.functions) {
    for (bool changed = true; changed;) {
      Definitions definitions = definitions_of(*f);
      Rewriter rewriter([&](const Binding& b, BlockBuilder& o) -> std::optional<Atom> {
        const Expr& e = *b.value;
        // What this sweep has replaced in an operand's definition is gone: rules see it as it is
        // now.
        definitions[b.var.get()] = &e;
        Site site{b, e, definitions, o, stale};
        bool is_op = e.kind == ExprKind::kCall && !e.op.empty();
        for (Rule rule :
             is_op ? std::span<const Rule>(kCallRules) : std::span<const Rule>(kOtherRules))
          if (auto atom = rule(site)) {
            context.count("simplify.rewrites");
            definitions.erase(b.var.get());
            return atom;
          }
        return std::nullopt;
      });
      ir::FunctionRef next = rewriter.rewrite(f);
      changed = next != f;
      f = next;
    }
  }
  return stale ? ir::infer_types(out) : out;
}

}  // namespace nimble::passes
