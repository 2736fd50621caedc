// Inference of expressions: operators, groups, tuples, branches.
#include <algorithm>

#include "compiler/ir/axes.h"
#include "compiler/ir/infer_function.h"
#include "compiler/ir/op.h"
#include "vm/base/error.h"

namespace nimble::ir {
namespace {

std::string operand_remedy(const Type& t) {
  if (!t) return "annotate it";
  switch (t->kind) {
    case TypeKind::kFunction:
      return "call the function";
    case TypeKind::kData:
      return "match it: match (…) { … }";
    case TypeKind::kVariable:
      return "give the function a tensor type instead of the type variable";
    default:
      return "take a field of the tuple";
  }
}

}  // namespace

// Of an assert_shape, the sides stay as written: simplified by what it asserts itself, a
// second inference would find it trivial.
Attrs FunctionInference::map_attrs(const Attrs& attrs, bool simplify, const Location& at) {
  auto map = [&](const Dim& d) {
    if (d.is_any()) return d;
    Dim mapped = d.substitute(aliases_);
    if (simplify) mapped = facts_.simplify(mapped);
    for (const std::string& s : mapped.symbols()) {
      if (!known_.contains(s)) {
        fail(at, fmt::format("unknown symbol {} in an attribute", s),
             "use symbols of the parameters' types, or name an extent where it arises: "
             "let %x: Tensor[(k), …] = …");
      }
    }
    return mapped;
  };
  Attrs out = attrs;
  for (auto& [name, value] : out) {
    if (auto* d = std::get_if<Dim>(&value)) *d = map(*d);
    if (auto* ds = std::get_if<Dims>(&value))
      std::transform(ds->begin(), ds->end(), ds->begin(), map);
  }
  return out;
}

namespace {

// In a shape to reshape to, a 0 copies an extent: one that is known to be 0 stays as it is written.
void keep_from_copying(const Attrs& written, Attrs& simplified) {
  const auto from = written.find("shape");
  const auto to = simplified.find("shape");
  if (to == simplified.end() || attr_or<bool>(written, "allow_zero", false)) return;
  const Dims& dims = std::get<Dims>(from->second);
  Dims& now = std::get<Dims>(to->second);
  for (size_t i = 0; i < now.size(); ++i)
    if (now[i].is_constant(0) && !dims[i].is_constant(0)) now[i] = dims[i];
}

}  // namespace

Typed FunctionInference::infer_op(const Expr& e, BlockBuilder& out) {
  if (e.op == "read_extents") return infer_read_extents(e);
  const OpInfo* op = find_op(e.op);
  if (!op)
    fail(e.location, fmt::format("there is no operator {}", e.op), "Ops.def lists all operators");
  auto call = std::make_shared<Expr>(e);
  call->attrs = map_attrs(e.attrs, e.op != "assert_shape", e.location);
  if (e.op == "reshape")
    keep_from_copying(map_attrs(e.attrs, /*simplify=*/false, e.location), call->attrs);
  if (std::string fault = check_call(*op, *call); !fault.empty())
    fail(e.location, fault, form_of(*op));
  std::vector<Type> inputs;
  for (Atom& a : call->args) {
    a = map_atom(a, e.location);
    inputs.push_back(atom_type(a, e.location));
    const TypeKind wanted = op->fusion == FusionKind::kData ? TypeKind::kData : TypeKind::kTensor;
    if (!inputs.back() || inputs.back()->kind != wanted) {
      fail(e.location,
           fmt::format("operand {} of {} is {}, not a {}", inputs.size(), e.op,
                       types_.str(inputs.back()),
                       wanted == TypeKind::kData ? "value of a data type" : "tensor"),
           operand_remedy(inputs.back()));
    }
  }
  std::vector<Demand> unproved;
  std::set<std::pair<Dim, Dim>> asserted;  // the prover may not see that what it learnt says so
  RelationContext context{*call,
                          inputs,
                          facts_,
                          [&](size_t i) { return contents_of(call->args[i]); },
                          [&](const Dim& a, const Dim& b, const std::string& what) {
                            if (asserted.contains({a, b})) return;
                            demand(a, b, fmt::format("{}: {}", e.op, what), e.location, unproved);
                          },
                          [this] { return fresh(); },
                          [&](size_t i) { return read_contents(*call, inputs[i], i, out); }};
  RelationResult r = op->relation(context);
  // What is asserted may decide more: of extents 2*n and 4 that n is 2, hence not 1, so that beside
  // it along another axis m must fit.
  constexpr int kMostRounds = 4;
  for (int round = 1; !unproved.empty(); ++round) {
    for (const Demand& d : unproved) asserted.emplace(d.left, d.right);
    assert_demands_of_call(*call, inputs, unproved, out);
    unproved.clear();
    if (round == kMostRounds || op->shape_mode != ShapeMode::kDataIndependent) break;
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = atom_type(call->args[i], e.location);
    r = op->relation(context);
  }
  if (r.resolved) {
    call->attrs = map_attrs(r.resolved->attrs, true, e.location);
    call->args.resize(r.resolved->operands);
  }
  if (!inputs.empty()) count_axes_from_front(*call, inputs[0], r.type);
  Type type = map_dims(r.type, [&](const Dim& d) { return facts_.simplify(d); });
  if (r.contents) {
    for (Dim& d : *r.contents) d = facts_.simplify(d);
  }
  return {std::move(call), std::move(type), std::move(r.contents)};
}

// A fused group: its parameters are the arguments, its symbols are ours.
Typed FunctionInference::infer_primitive(const Expr& e) {
  auto call = std::make_shared<Expr>(e);
  auto group = std::make_shared<Function>(*e.primitive);
  if (group->parameters.size() != e.args.size()) {
    fail(e.location, "a fused group has another number of arguments than parameters",
         "pass one argument per parameter");
  }
  for (size_t i = 0; i < e.args.size(); ++i) {
    call->args[i] = map_atom(e.args[i], e.location);
    group->parameters[i] =
        bind_parameter(e.primitive->parameters[i], atom_type(call->args[i], e.location));
    if (const Dims* known = contents_of(call->args[i])) {
      contents_[group->parameters[i].get()] = Dims(*known);
    }
  }
  auto [body, type] = infer_nested(*e.primitive->body, nullptr);
  group->body = body;
  group->result_type = type;
  call->primitive = std::move(group);
  return {std::move(call), type, {}};
}

Typed FunctionInference::infer_if(const Expr& e) {
  auto node = std::make_shared<Expr>(e);
  node->args[0] = map_atom(e.args[0], e.location);
  const Type condition = atom_type(node->args[0], e.location);
  if (!condition || condition->kind != TypeKind::kTensor || condition->dtype != DType::kBool ||
      !condition->dims.empty()) {
    fail(e.location,
         fmt::format("the condition is {}, not Tensor[(), bool]", types_.str(condition)),
         "compare scalars, or reduce the tensor");
  }
  std::vector<Demand> none;
  const Location& last = e.else_block->location;
  const MatchContext context = match_context(last.str().empty() ? e.location : last, none);
  Type type;
  bool faulty = false;
  for (auto [block, to] :
       {std::pair(e.then_block, &node->then_block), std::pair(e.else_block, &node->else_block)}) {
    try {
      std::set<std::string> inner;
      auto [inferred, t] = infer_nested(*block, nullptr, &inner);
      *to = inferred;
      t = leave_block(t, inner, /*rename=*/false, context);
      type = type ? join(type, t, "the else branch", context) : t;
    } catch (const Silent&) {
      faulty = true;
    }
  }
  if (faulty) throw Silent{};
  return {std::move(node), std::move(type)};
}

Typed FunctionInference::infer_field(const Expr& e) {
  Atom a = map_atom(e.args[0], e.location);
  const Type t = atom_type(a, e.location);
  if (!t || t->kind != TypeKind::kTuple) {
    fail(e.location, fmt::format("field {} of {}, which is not a tuple", e.index, types_.str(t)),
         t && t->kind == TypeKind::kData ? "match it: match (…) { … }"
                                         : "take fields of tuples only");
  }
  if (e.index < 0 || e.index >= static_cast<int64_t>(t->elements.size())) {
    fail(e.location, fmt::format("field {} of a tuple of {}", e.index, t->elements.size()),
         "fields count from 0");
  }
  return {make_get_field(a, e.index, e.location), t->elements[static_cast<size_t>(e.index)]};
}

Typed FunctionInference::infer_expr(const Expr& e, const Type& previous, BlockBuilder& out) {
  switch (e.kind) {
    case ExprKind::kAtom: {
      Atom a = map_atom(e.args[0], e.location);
      const Dims* known = contents_of(a);
      Type t = atom_type(a, e.location);
      return {make_atom(a, e.location), std::move(t), known ? std::optional(*known) : std::nullopt};
    }
    case ExprKind::kCall:
      if (e.callee) return infer_call(e, out);
      if (e.primitive) return infer_primitive(e);
      if (e.op.starts_with("memory.")) return keep_lowered(e, previous);
      return infer_op(e, out);
    case ExprKind::kTuple: {
      auto tuple = std::make_shared<Expr>(e);
      return {tuple, tuple_type(operand_types(*tuple))};
    }
    case ExprKind::kGetField:
      return infer_field(e);
    case ExprKind::kIf:
      return infer_if(e);
    case ExprKind::kFunction:
      return infer_closure(e);
    case ExprKind::kConstruct:
      return infer_construct(e, out);
    case ExprKind::kMatch:
      return infer_match(e);
    case ExprKind::kClosure:
      return infer_converted_closure(e, out);
  }
  NIMBLE_UNREACHABLE("expression kind");
}

Typed FunctionInference::keep_lowered(const Expr& e, const Type& previous) {
  auto call = std::make_shared<Expr>(e);
  for (Atom& a : call->args) a = map_atom(a, e.location);
  if (!previous) fail(e.location, fmt::format("{} has no type", e.op), "lowering must set it");
  return {std::move(call), previous, {}};
}

// Maps the operands of an expression in place; their types.
std::vector<Type> FunctionInference::operand_types(Expr& e) {
  std::vector<Type> types;
  for (Atom& a : e.args) {
    a = map_atom(a, e.location);
    types.push_back(atom_type(a, e.location));
  }
  return types;
}

}  // namespace nimble::ir
