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
// read back with memory.read_scalar. Only an entry function's own parameters and results of that
// kind are tensors, converted at the border.
#include "compiler/passes/lower_memory.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/template.h"
#include "compiler/passes/ownership.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

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
using ir::Var;
using ir::VarRef;

bool is_scalar(const Type& t) {
  return t &&
         (t->kind == TypeKind::kScalar || (t->kind == TypeKind::kTensor && t->dims.empty() &&
                                           (t->dtype == DType::kI64 || t->dtype == DType::kBool)));
}

Type lowered_type(const Type& t) {
  if (is_scalar(t)) return ir::scalar_type();
  if (t->kind != TypeKind::kTuple) return t;
  std::vector<Type> elements;
  for (const Type& e : t->elements) elements.push_back(lowered_type(e));
  return ir::tuple_type(std::move(elements));
}

bool is_view_op(const std::string& op) {
  return op == "reshape" || op == "squeeze" || op == "unsqueeze";
}

bool is_scalar_op(const Expr& call) {
  static const std::set<std::string> kOps = {
      "add",   "sub",       "mul",   "div",        "mod",     "maximum",       "minimum",
      "equal", "not_equal", "less",  "less_equal", "greater", "greater_equal", "and",
      "or",    "not",       "where", "neg",        "cast",    "size"};
  if (call.kind != ExprKind::kCall || !kOps.count(call.op)) return false;
  if (call.op == "cast") {
    DType to = ir::attr<DType>(call.attrs, "dtype");
    if (to != DType::kI64 && to != DType::kBool) return false;  // leaves the registers
  }
  return std::all_of(call.args.begin(), call.args.end(),
                     [](const Atom& a) { return is_scalar(ir::type_of(a)); });
}

namespace {

constexpr int64_t kAlignment = 64;  // a cache line and an AVX-512 vector

// The group that puts scalars into an i64 (or bool) tensor: rank 0 from one, rank 1 from several.
ir::FunctionRef boxing_group(size_t count, DType dtype, bool vector) {
  std::vector<VarRef> parameters;
  std::vector<int64_t> scalars;
  BlockBuilder body;
  std::vector<Atom> parts;
  for (size_t i = 0; i < count; ++i) {
    parameters.push_back(ir::make_var("p" + std::to_string(i), ir::tensor_type({}, dtype)));
    scalars.push_back(static_cast<int64_t>(i));
    if (!vector) continue;
    VarRef part = body.call("unsqueeze", {parameters.back()}, {{"axes", std::vector<int64_t>{0}}});
    part->type = ir::tensor_type({1}, dtype);
    parts.push_back(part);
  }
  VarRef result;
  Type type =
      vector ? ir::tensor_type({static_cast<int64_t>(count)}, dtype) : ir::tensor_type({}, dtype);
  if (vector)
    result = body.call("concat", parts, {{"axis", int64_t{0}}});
  else
    result = body.call("full", {parameters[0]}, {{"shape", std::vector<Dim>{}}, {"dtype", dtype}});
  result->type = type;
  return ir::make_function_of(std::move(parameters), body.finish(result), type,
                              {{"primitive", true}, {"scalars", scalars}});
}

class Lowering {
 public:
  Lowering(const ir::Module& m, PassContext& context)
      : module_(m), context_(context), ownership_(m) {}

  ir::FunctionRef lower(const std::string& name, const ir::FunctionRef& f) {
    entry_ = name == "main" || module_.signatures.count(name) > 0;
    map_.clear();
    fields_.clear();
    auto out = std::make_shared<ir::Function>(*f);
    BlockBuilder b;
    for (VarRef& p : out->parameters) {
      if (!is_scalar(p->type)) continue;
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

 private:
  VarRef bind(BlockBuilder& b, ir::ExprRef e, Type type, const std::string& hint) {
    VarRef v = b.bind(std::move(e), hint);
    v->type = std::move(type);
    return v;
  }

  Atom resolve(const Atom& a) const {
    if (!a.is_var()) return a;
    auto it = map_.find(a.var.get());
    return it == map_.end() ? a : it->second;
  }

  // The operand as a tensor: scalars are boxed.
  Atom tensor(BlockBuilder& b, const Atom& a) {
    Atom r = resolve(a);
    if (r.is_constant() || !is_scalar(ir::type_of(r))) return r;
    Type type = ir::type_of(a);
    DType dtype = type->kind == TypeKind::kTensor ? type->dtype : DType::kI64;
    return call_group(b, boxing_group(1, dtype, false), {r}, ir::tensor_type({}, dtype), "boxed",
                      {});
  }

  // Allocates the results of a group and calls it. `type`: one tensor.
  VarRef call_group(BlockBuilder& b, ir::FunctionRef group, std::vector<Atom> inputs,
                    const Type& type, const std::string& hint, const ir::Location& location) {
    VarRef out = allocate(b, type, hint, location);
    append_extra_scalars(b, *group, inputs, location);
    auto count = static_cast<int64_t>(inputs.size());
    inputs.push_back(out);
    invoke(b, std::move(group), std::move(inputs), count, location);
    return out;
  }

  // Extents that the kernel cannot read off its tensors are passed as scalars.
  void append_extra_scalars(BlockBuilder& b, const ir::Function& group, std::vector<Atom>& inputs,
                            const ir::Location& location) {
    for (const Dim& d : kernels::make_workload(group).extra_scalars)
      inputs.push_back(
          bind(b, ir::make_call("size", {}, {{"value", d}}, location), ir::scalar_type(), "d"));
  }

  VarRef allocate(BlockBuilder& b, const Type& type, const std::string& hint,
                  const ir::Location& location) {
    VarRef storage = bind(
        b,
        ir::make_call(
            "memory.alloc_storage", {},
            {{"bytes", ir::byte_size(type)}, {"alignment", kAlignment}, {"device", int64_t{0}}},
            location),
        ir::storage_type(), hint + "_mem");
    context_.count("lower-memory.storages");
    return bind(b,
                ir::make_call("memory.alloc_tensor", {storage},
                              {{"shape", type->dims}, {"dtype", type->dtype}, {"offset", Dim(0)}},
                              location),
                type, hint);
  }

  void invoke(BlockBuilder& b, ir::FunctionRef group, std::vector<Atom> args, int64_t inputs,
              const ir::Location& location) {
    auto e = std::make_shared<Expr>(
        *ir::make_call("memory.invoke_mut", std::move(args), {{"inputs", inputs}}, location));
    e->primitive = std::move(group);
    bind(b, e, ir::tuple_type({}), "u");
    context_.count("lower-memory.kernel_calls");
  }

  ir::BlockRef lower_block(const Block& block) {
    BlockBuilder b;
    Atom result = lower_into(block, b);
    return b.finish(std::move(result));
  }

  Atom lower_into(const Block& block, BlockBuilder& b) {
    for (const Binding& binding : block.bindings) lower_binding(binding, b);
    return materialise(b, block.result);
  }

  // A tuple that so far only exists as its fields becomes a value.
  Atom materialise(BlockBuilder& b, const Atom& a) {
    if (a.is_var()) {
      auto it = fields_.find(a.var.get());
      if (it != fields_.end() && !map_.count(a.var.get())) {
        VarRef t = bind(b, ir::make_tuple(it->second), lowered_type(a.var->type), a.var->name);
        map_[a.var.get()] = t;
      }
    }
    return resolve(a);
  }

  void keep(const Binding& binding, ir::ExprRef e, BlockBuilder& b) {
    Type type = lowered_type(binding.var->type);
    VarRef v = ir::make_var(binding.var->name, type, binding.var->location);
    b.append({v, std::move(e)});
    map_[binding.var.get()] = v;
  }

  void lower_binding(const Binding& binding, BlockBuilder& b) {
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
      case ExprKind::kFunction:
      case ExprKind::kConstruct:
      case ExprKind::kMatch:
      case ExprKind::kClosure:
        throw Error(Status::kUnsupported, e.location.str(),
                    "a function used as a value cannot be compiled",
                    "call a named function instead");
      case ExprKind::kCall:
        break;
    }
    if (e.callee) {
      if (!e.callee->is_global())
        throw Error(Status::kUnsupported, e.location.str(),
                    "a call of a function value cannot be compiled",
                    "call a named function instead");
      std::vector<Atom> args;
      for (const Atom& a : e.args) args.push_back(materialise(b, a));
      keep(binding, ir::make_call_function(*e.callee, std::move(args), e.location), b);
    } else if (e.primitive) {
      lower_group(binding, e, b);
    } else {
      lower_op(binding, e, b);
    }
  }

  void lower_group(const Binding& binding, const Expr& e, BlockBuilder& b) {
    auto scalars = ir::attr_or<std::vector<int64_t>>(e.primitive->attrs, "scalars", {});
    std::vector<Atom> args;
    for (size_t i = 0; i < e.args.size(); ++i) {
      bool scalar =
          std::find(scalars.begin(), scalars.end(), static_cast<int64_t>(i)) != scalars.end();
      args.push_back(scalar ? resolve(e.args[i]) : tensor(b, e.args[i]));
    }
    const Type& type = binding.var->type;
    if (type->kind == TypeKind::kTensor) {
      VarRef out = call_group(b, e.primitive, std::move(args), type, binding.var->name, e.location);
      out->location = binding.var->location;
      map_[binding.var.get()] = is_scalar(type) ? Atom(read_scalar(b, out)) : Atom(out);
      return;
    }
    append_extra_scalars(b, *e.primitive, args, e.location);
    auto inputs = static_cast<int64_t>(args.size());
    std::vector<Atom> outs;
    for (const Type& t : type->elements)
      outs.push_back(allocate(b, t, binding.var->name, e.location));
    args.insert(args.end(), outs.begin(), outs.end());
    invoke(b, e.primitive, std::move(args), inputs, e.location);
    for (Atom& out : outs)
      if (is_scalar(out.var->type)) out = read_scalar(b, out.var);
    fields_[binding.var.get()] = std::move(outs);
  }

  VarRef read_scalar(BlockBuilder& b, const VarRef& t) {
    return bind(b, ir::make_call("memory.read_scalar", {t}, {}, t->location), ir::scalar_type(),
                t->name);
  }

  void lower_op(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    if (is_scalar_op(e)) {
      std::vector<Atom> args;
      for (const Atom& a : e.args) args.push_back(resolve(a));
      keep(binding, ir::make_call(e.op, std::move(args), e.attrs, e.location), b);
    } else if (is_view_op(e.op)) {
      map_[binding.var.get()] = bind(b,
                                     ir::make_call("memory.reshape", {tensor(b, e.args[0])},
                                                   {{"shape", type->dims}}, e.location),
                                     type, binding.var->name);
      if (is_scalar(type)) map_[binding.var.get()] = read_scalar(b, map_[binding.var.get()].var);
    } else if (e.op == "take_row") {
      VarRef row = row_view(b, tensor(b, e.args[0]), resolve(e.args[1]), type, binding.var->name,
                            e.location);
      map_[binding.var.get()] = is_scalar(type) ? Atom(read_scalar(b, row)) : Atom(row);
    } else if (e.op == "write_row") {
      lower_write_row(binding, e, b);
    } else if (e.op == "shape_of") {
      const Type operand = ir::type_of(e.args[0]);
      std::vector<Atom> sizes;
      for (const Dim& d : operand->dims)
        sizes.push_back(
            bind(b, ir::make_call("size", {}, {{"value", d}}, e.location), ir::scalar_type(), "d"));
      size_t rank = sizes.size();
      map_[binding.var.get()] = call_group(b, boxing_group(rank, DType::kI64, true),
                                           std::move(sizes), type, binding.var->name, e.location);
    } else if (e.op == "assert_shape") {
      lower_assert(binding, e, b);
    } else {
      throw Error(Status::kUnsupported, e.location.str(),
                  fmt::format("operator {} has no kernel for {}", e.op, ir::str(type)),
                  "enable the pass 'fuse', or use another dtype");
    }
  }

  VarRef row_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& row,
                  const std::string& hint, const ir::Location& location) {
    return bind(
        b,
        ir::make_call(
            "memory.row_view", {x, i},
            {{"shape", row->dims}, {"dtype", row->dtype}, {"row_bytes", ir::byte_size(row)}},
            location),
        row, hint);
  }

  // In place where the operand is dead afterwards, else on a copy.
  void lower_write_row(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    Atom x = tensor(b, e.args[0]);
    Type row = ir::tensor_type({type->dims.begin() + 1, type->dims.end()}, type->dtype);
    if (!ownership_.consumable(binding, 0)) {
      context_.count("lower-memory.copies");
      x = call_group(b, copy_group(type), {x}, type, binding.var->name, e.location);
    }
    VarRef view = row_view(b, x, resolve(e.args[1]), row, "row", e.location);
    bool scalar = is_scalar(row);
    invoke(b, copy_group(row, scalar), {scalar ? resolve(e.args[2]) : tensor(b, e.args[2]), view},
           1, e.location);
    map_[binding.var.get()] = x;
  }

  static ir::FunctionRef copy_group(const Type& type, bool scalar = false) {
    // The group's symbols are its own: equal copies share one kernel whatever the extents' names.
    std::vector<Dim> dims;
    for (size_t i = 0; i < type->dims.size(); ++i)
      dims.push_back(type->dims[i].as_constant() ? type->dims[i]
                                                 : Dim::symbol("d" + std::to_string(i)));
    Type t = ir::tensor_type(dims, type->dtype);
    VarRef p = ir::make_var("p0", t);
    BlockBuilder body;
    VarRef y = body.call("cast", {p}, {{"dtype", type->dtype}});
    y->type = t;
    ir::Attrs attrs = {{"primitive", true}};
    if (scalar) attrs["scalars"] = std::vector<int64_t>{0};
    return ir::make_function_of({p}, body.finish(y), t, attrs);
  }

  void lower_assert(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const auto& left = ir::attr<std::vector<Dim>>(e.attrs, "left");
    const auto& right = ir::attr<std::vector<Dim>>(e.attrs, "right");
    Atom x = materialise(b, e.args[0]);
    std::optional<Atom> all;
    auto scalar = [&](const std::string& op, std::vector<Atom> args, ir::Attrs attrs = {}) {
      return bind(b, ir::make_call(op, std::move(args), std::move(attrs), e.location),
                  ir::scalar_type(), "ok");
    };
    for (size_t i = 0; i < left.size(); ++i) {
      VarRef l = scalar("size", {}, {{"value", left[i]}});
      VarRef r = scalar("size", {}, {{"value", right[i]}});
      VarRef same = scalar("equal", {l, r});
      all = all ? Atom(scalar("and", {*all, same})) : Atom(same);
    }
    if (!all) {
      map_[binding.var.get()] = x;
      return;
    }
    BlockBuilder pass, fail;
    bind(fail,
         ir::make_call("memory.fatal", {}, {{"message", ir::attr<std::string>(e.attrs, "what")}},
                       e.location),
         ir::tuple_type({}), "u");
    keep(binding, ir::make_if(*all, pass.finish(x), fail.finish(x), e.location), b);
  }

  Atom box_result(BlockBuilder& b, const Atom& result, const Type& type) {
    if (is_scalar(type) && is_scalar(ir::type_of(result)) && !result.is_constant())
      return call_group(b, boxing_group(1, type->dtype, false), {result},
                        ir::tensor_type({}, type->dtype), "boxed", {});
    if (type->kind != TypeKind::kTuple) return result;
    bool any = std::any_of(type->elements.begin(), type->elements.end(), is_scalar);
    if (!any) return result;
    std::vector<Atom> fields;
    for (size_t i = 0; i < type->elements.size(); ++i) {
      VarRef field = bind(b, ir::make_get_field(result, static_cast<int64_t>(i)),
                          lowered_type(type->elements[i]), "r");
      fields.push_back(box_result(b, field, type->elements[i]));
    }
    return bind(b, ir::make_tuple(std::move(fields)), type, "results");
  }

  const ir::Module& module_;
  PassContext& context_;
  Ownership ownership_;
  bool entry_ = false;
  std::unordered_map<const Var*, Atom> map_;                  // what stands for a variable now
  std::unordered_map<const Var*, std::vector<Atom>> fields_;  // tuples taken apart
};

}  // namespace

ir::Module lower_memory(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  Lowering lowering(m, context);
  for (auto& [name, f] : out.functions) f = lowering.lower(name, f);
  return out;
}

}  // namespace nimble::passes
