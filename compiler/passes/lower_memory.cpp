// Explicit memory (paper, section 3.3 and Appendix A).
//
// Every primitive call `let %y = group(%a, %b)` becomes
//   let %s = memory.alloc_storage() {bytes = …};
//   let %y = memory.alloc_tensor(%s) {shape = …};
//   let %u = memory.invoke_mut[group](%a, %b, %y);
// with extents and sizes still as Dims: the planner reasons about them, and lower-shapes turns
// them into code afterwards. Views (reshape, row views) allocate nothing.
//
// Rank-0 integers and bools live unboxed in registers: their arithmetic becomes scalar code, a
// group takes them as scalar arguments (its attribute "scalars"), a kernel's rank-0 result is
// read back with memory.read_scalar. So are they in the fields of tuples and data values and among
// what a closure captures: a polymorphic function passes either on. Only an entry function's own
// parameters and results of that kind are tensors, converted at the border.
#include "compiler/passes/lower_memory.h"

#include <algorithm>

#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/lower_memory_walk.h"
#include "compiler/passes/support/kernel_call.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Type;
using ir::TypeKind;
using ir::VarRef;

Type lowered_type(const Type& t) {
  if (is_scalar(t)) return ir::scalar_type();
  if (!t || t->elements.empty()) return t;
  auto lowered = std::make_shared<ir::TypeNode>(*t);
  for (Type& e : lowered->elements) e = lowered_type(e);
  return lowered;
}

bool is_scalar_op(const Expr& call) {
  if (!ir::traits_of(call).scalar) return false;
  const auto to = ir::attr_or(call.attrs, "dtype", DType::kI64);
  if (to != DType::kI64 && to != DType::kBool) return false;  // leaves the registers
  return std::all_of(call.args.begin(), call.args.end(),
                     [](const Atom& a) { return is_scalar(ir::type_of(a)); });
}

namespace {

constexpr int64_t kAlignment = 64;  // a cache line and an AVX-512 vector

}  // namespace

ir::FunctionRef MemoryLowering::lower(const std::string& name, const ir::FunctionRef& f) {
  entry_ = ir::is_entry(module_, name);
  map_.clear();
  fields_.clear();
  read_elsewhere_.clear();
  visit_bindings(*f->body, [&](const Binding& b) {
    if (b.value->op == "device_copy" && b.value->args[0].is_var())
      read_elsewhere_.insert(b.value->args[0].var.get());
  });
  materialised_.clear();
  auto out = std::make_shared<ir::Function>(*f);
  BlockBuilder b;
  for (VarRef& p : out->parameters) {
    if (!is_scalar(p->type)) {
      if (Type type = lowered_type(p->type); !entry_ && !ir::equal(type, p->type)) {
        VarRef lowered = ir::make_var(p->name, type, p->location);
        map_[p.get()] = lowered;
        p = lowered;
      }
      continue;
    }
    if (entry_) {
      map_[p.get()] = bind(b, ir::make_call("memory.read_scalar", {p}, {}, p->location),
                           ir::scalar_type(), p->name);
    } else {
      VarRef scalar = ir::make_var(p->name, ir::scalar_type(), p->location);
      map_[p.get()] = scalar;
      p = scalar;
    }
  }
  Atom result = lower_into(*f->body, b);
  if (entry_) result = box_result(b, result, f->result_type);
  out->body = b.finish(std::move(result));
  if (!entry_ && f->result_type) out->result_type = lowered_type(f->result_type);
  return out;
}

ir::BlockRef MemoryLowering::lower_block(const Block& block) {
  BlockBuilder b;
  const size_t outside = materialised_.size();
  Atom result = lower_into(block, b);
  for (; materialised_.size() > outside; materialised_.pop_back()) map_.erase(materialised_.back());
  return b.finish(std::move(result));
}

Atom MemoryLowering::lower_into(const Block& block, BlockBuilder& b) {
  for (const Binding& binding : block.bindings) lower_binding(binding, b);
  return materialise(b, block.result);
}

void MemoryLowering::lower_binding(const Binding& binding, BlockBuilder& b) {
  const Expr& e = *binding.value;
  switch (e.kind) {
    case ExprKind::kAtom:
      map_[binding.var.get()] = materialise(b, e.args[0]);
      return;
    case ExprKind::kTuple: {
      std::vector<Atom> fields;
      for (const Atom& a : e.args) fields.push_back(materialise(b, a));
      fields_[binding.var.get()] = std::move(fields);
      return;
    }
    case ExprKind::kGetField:
      if (e.args[0].is_var()) {
        auto it = fields_.find(e.args[0].var.get());
        if (it != fields_.end()) {
          map_[binding.var.get()] = it->second[static_cast<size_t>(e.index)];
          return;
        }
      }
      keep(binding, ir::make_get_field(resolve(e.args[0]), e.index, e.location), b);
      return;
    case ExprKind::kIf:
      keep(binding,
           ir::make_if(resolve(e.args[0]), lower_block(*e.then_block), lower_block(*e.else_block),
                       e.location),
           b);
      return;
    case ExprKind::kConstruct:
    case ExprKind::kClosure: {
      auto value = std::make_shared<Expr>(e);
      for (Atom& a : value->args) a = materialise(b, a);
      keep(binding, std::move(value), b);
      return;
    }
    case ExprKind::kMatch:
      lower_match(binding, e, b);
      return;
    case ExprKind::kFunction:
      NIMBLE_UNREACHABLE("convert-closures leaves no literal");
    case ExprKind::kCall:
      break;
  }
  if (e.callee) {
    std::vector<Atom> args;
    for (const Atom& a : e.args)
      args.push_back(is_empty_constant(a) ? allocate(b, ir::type_of(a), "empty", e.location)
                                          : materialise(b, a));
    keep(binding, ir::make_call_function(resolve(*e.callee), std::move(args), e.location), b);
  } else if (e.primitive) {
    lower_group(binding, e, b);
  } else {
    lower_op(binding, e, b);
  }
}

void MemoryLowering::lower_match(const Binding& binding, const Expr& e, BlockBuilder& b) {
  auto match = std::make_shared<Expr>(e);
  match->args[0] = materialise(b, e.args[0]);
  for (ir::MatchCase& c : match->cases) {
    for (ir::Pattern& field : c.pattern.fields) {
      if (field.kind != ir::Pattern::Kind::kVar) continue;
      VarRef v = ir::make_var(field.var->name, lowered_type(field.var->type), field.location);
      map_[field.var.get()] = v;
      field.var = v;
    }
    c.body = lower_block(*c.body);
  }
  keep(binding, std::move(match), b);
}

void MemoryLowering::lower_group(const Binding& binding, const Expr& e, BlockBuilder& b) {
  check_counts(*e.primitive, b, e.location);
  auto scalars = ir::attr_or<std::vector<int64_t>>(e.primitive->attrs, "scalars", {});
  std::vector<Atom> args;
  std::vector<int64_t> consumes;
  for (size_t i = 0; i < e.args.size(); ++i) {
    bool scalar =
        std::find(scalars.begin(), scalars.end(), static_cast<int64_t>(i)) != scalars.end();
    args.push_back(scalar ? resolve(e.args[i]) : tensor(b, e.args[i]));
    if (!scalar && ownership_.consumable(binding, i)) consumes.push_back(static_cast<int64_t>(i));
  }
  const Type& type = binding.var->type;
  if (type->kind == TypeKind::kTensor) {
    VarRef out = call_group(b, e.primitive, std::move(args), type, binding.var->name, e.location,
                            std::move(consumes));
    out->location = binding.var->location;
    map_[binding.var.get()] = scalar_or_tensor(b, binding, type, out);
    return;
  }
  append_extra_scalars(b, *e.primitive, args, e.location);
  auto inputs = static_cast<int64_t>(args.size());
  std::vector<Atom> outs;
  for (const Type& t : type->elements)
    outs.push_back(allocate(b, t, binding.var->name, e.location, device_of(*e.primitive)));
  args.insert(args.end(), outs.begin(), outs.end());
  invoke(b, e.primitive, std::move(args), inputs, e.location);
  for (Atom& out : outs)
    if (is_scalar(out.var->type) && device_of(*e.primitive) == 0) out = read_scalar(b, out.var);
  fields_[binding.var.get()] = std::move(outs);
}

void MemoryLowering::check_counts(const ir::Function& group, BlockBuilder& b,
                                  const ir::Location& location) {
  std::vector<Dim> bounded = {1};
  const auto bounds = [&](const Type& t) {
    if (t && t->kind == TypeKind::kTensor) bounded.push_back(ir::element_count(t));
  };
  for (const VarRef& p : group.parameters) bounds(p->type);
  const Type result = ir::type_of(group.body->result);
  bounds(result);
  if (result->kind == TypeKind::kTuple)
    for (const Type& t : result->elements) bounds(t);
  const ir::DimContext facts;
  for (const Binding& binding : group.body->bindings) {
    const Type& t = binding.var->type;
    if (!t || t->kind != TypeKind::kTensor) continue;
    const Dim count = ir::element_count(t);
    if (std::any_of(bounded.begin(), bounded.end(), [&](const Dim& known) {
          return count == known || facts.less_equal(count, known) == ir::Proof::kYes;
        }))
      continue;
    bounded.push_back(count);
    if (count.as_constant()) continue;
    bind(b, ir::make_call("size", {}, {{"value", count}}, location), ir::scalar_type(), "count");
  }
}

Atom MemoryLowering::materialise(BlockBuilder& b, const Atom& a) {
  if (a.is_var()) {
    auto it = fields_.find(a.var.get());
    if (it != fields_.end() && !map_.count(a.var.get())) {
      VarRef t = bind(b, ir::make_tuple(it->second), lowered_type(a.var->type), a.var->name);
      map_[a.var.get()] = t;
      materialised_.push_back(a.var.get());
    }
  }
  return resolve(a);
}

void MemoryLowering::keep(const Binding& binding, ir::ExprRef e, BlockBuilder& b) {
  Type type = lowered_type(binding.var->type);
  VarRef v = ir::make_var(binding.var->name, type, binding.var->location);
  b.append({v, std::move(e)});
  map_[binding.var.get()] = v;
}

Atom MemoryLowering::resolve(const Atom& a) const {
  if (!a.is_var()) return a;
  auto it = map_.find(a.var.get());
  return it == map_.end() ? a : it->second;
}

Atom MemoryLowering::tensor(BlockBuilder& b, const Atom& a) {
  Atom r = resolve(a);
  if (r.is_constant() || !is_scalar(ir::type_of(r))) return r;
  Type type = ir::type_of(a);
  DType dtype = type->kind == TypeKind::kTensor ? type->dtype : DType::kI64;
  return call_group(b, boxing_group(1, dtype, false), {r}, ir::tensor_type({}, dtype), "boxed", {});
}

VarRef MemoryLowering::bind(BlockBuilder& b, ir::ExprRef e, Type type, const std::string& hint) {
  VarRef v = b.bind(std::move(e), hint);
  v->type = std::move(type);
  return v;
}

VarRef MemoryLowering::call_group(BlockBuilder& b, ir::FunctionRef group, std::vector<Atom> inputs,
                                  const Type& type, const std::string& hint,
                                  const ir::Location& location, std::vector<int64_t> consumes) {
  VarRef out = allocate(b, type, hint, location, device_of(*group));
  append_extra_scalars(b, *group, inputs, location);
  auto count = static_cast<int64_t>(inputs.size());
  inputs.push_back(out);
  invoke(b, std::move(group), std::move(inputs), count, location, std::move(consumes));
  return out;
}

void MemoryLowering::append_extra_scalars(BlockBuilder& b, const ir::Function& group,
                                          std::vector<Atom>& inputs, const ir::Location& location) {
  for (const Dim& d : context_.workloads->of(group)->extra_scalars)
    inputs.push_back(
        bind(b, ir::make_call("size", {}, {{"value", d}}, location), ir::scalar_type(), "d"));
}

VarRef MemoryLowering::allocate(BlockBuilder& b, const Type& type, const std::string& hint,
                                const ir::Location& location, int64_t device,
                                std::optional<Dim> bytes) {
  VarRef storage = bind(b,
                        ir::make_call("memory.alloc_storage", {},
                                      {{"bytes", bytes.value_or(ir::byte_size(type))},
                                       {"alignment", kAlignment},
                                       {"device", device}},
                                      location),
                        ir::storage_type(), hint + "_mem");
  context_.count("lower-memory.storages");
  return bind(
      b,
      ir::make_call("memory.alloc_tensor", {storage},
                    {{"shape", type->dims}, {"dtype", type->dtype}, {"offset", Dim(0)}}, location),
      type, hint);
}

void MemoryLowering::invoke(BlockBuilder& b, ir::FunctionRef group, std::vector<Atom> args,
                            int64_t inputs, const ir::Location& location,
                            std::vector<int64_t> consumes) {
  ir::Attrs attrs = {{"inputs", inputs}};
  if (!consumes.empty()) attrs["consumes"] = std::move(consumes);
  auto e = std::make_shared<Expr>(
      *ir::make_call("memory.invoke_mut", std::move(args), std::move(attrs), location));
  e->primitive = std::move(group);
  bind(b, e, ir::tuple_type({}), "u");
  context_.count("lower-memory.kernel_calls");
}

Atom MemoryLowering::scalar_or_tensor(BlockBuilder& b, const Binding& binding, const Type& type,
                                      const VarRef& made) {
  if (!is_scalar(type) || read_elsewhere_.count(binding.var.get())) return made;
  return read_scalar(b, made);
}

VarRef MemoryLowering::read_scalar(BlockBuilder& b, const VarRef& t) {
  return bind(b, ir::make_call("memory.read_scalar", {t}, {}, t->location), ir::scalar_type(),
              t->name);
}

Atom MemoryLowering::box_result(BlockBuilder& b, const Atom& result, const Type& type) {
  if (is_scalar(type) && is_scalar(ir::type_of(result)) && !result.is_constant())
    return call_group(b, boxing_group(1, type->dtype, false), {result},
                      ir::tensor_type({}, type->dtype), "boxed", {});
  if (type->kind != TypeKind::kTuple) return result;
  bool any = std::any_of(type->elements.begin(), type->elements.end(), ir::is_scalar);
  if (!any) return result;
  std::vector<Atom> fields;
  for (size_t i = 0; i < type->elements.size(); ++i) {
    VarRef field = bind(b, ir::make_get_field(result, static_cast<int64_t>(i)),
                        lowered_type(type->elements[i]), "r");
    fields.push_back(box_result(b, field, type->elements[i]));
  }
  return bind(b, ir::make_tuple(std::move(fields)), type, "results");
}

ir::Module lower_memory(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  MemoryLowering lowering(m, context);
  for (auto& [name, f] : out.functions) f = lowering.lower(name, f);
  for (ir::DataType& d : out.data_types)
    for (ir::Constructor& c : d.constructors)
      for (Type& field : c.fields) field = lowered_type(field);
  return out;
}

}  // namespace nimble::passes
