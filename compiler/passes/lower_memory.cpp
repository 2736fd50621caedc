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
#include <set>
#include <unordered_map>

#include "compiler/ir/builder.h"
#include "compiler/ir/entry.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/passes/analysis/ownership.h"
#include "compiler/passes/passes.h"
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
using ir::Var;
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
  NIMBLE_CHECK(count > 0, "a group without operands");
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
                    const Type& type, const std::string& hint, const ir::Location& location,
                    std::vector<int64_t> consumes = {}) {
    VarRef out = allocate(b, type, hint, location, device_of(*group));
    append_extra_scalars(b, *group, inputs, location);
    auto count = static_cast<int64_t>(inputs.size());
    inputs.push_back(out);
    invoke(b, std::move(group), std::move(inputs), count, location, std::move(consumes));
    return out;
  }

  // Extents that the kernel cannot read off its tensors are passed as scalars.
  void append_extra_scalars(BlockBuilder& b, const ir::Function& group, std::vector<Atom>& inputs,
                            const ir::Location& location) {
    for (const Dim& d : context_.workloads->of(group)->extra_scalars)
      inputs.push_back(
          bind(b, ir::make_call("size", {}, {{"value", d}}, location), ir::scalar_type(), "d"));
  }

  static int64_t device_of(const ir::Function& group) {
    return ir::attr_or<int64_t>(group.attrs, "device", 0);
  }

  VarRef allocate(BlockBuilder& b, const Type& type, const std::string& hint,
                  const ir::Location& location, int64_t device = 0, std::optional<Dim> bytes = {}) {
    VarRef storage = bind(b,
                          ir::make_call("memory.alloc_storage", {},
                                        {{"bytes", bytes.value_or(ir::byte_size(type))},
                                         {"alignment", kAlignment},
                                         {"device", device}},
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
              const ir::Location& location, std::vector<int64_t> consumes = {}) {
    ir::Attrs attrs = {{"inputs", inputs}};
    if (!consumes.empty()) attrs["consumes"] = std::move(consumes);
    auto e = std::make_shared<Expr>(
        *ir::make_call("memory.invoke_mut", std::move(args), std::move(attrs), location));
    e->primitive = std::move(group);
    bind(b, e, ir::tuple_type({}), "u");
    context_.count("lower-memory.kernel_calls");
  }

  ir::BlockRef lower_block(const Block& block) {
    BlockBuilder b;
    const size_t outside = materialised_.size();
    Atom result = lower_into(block, b);
    for (; materialised_.size() > outside; materialised_.pop_back())
      map_.erase(materialised_.back());
    return b.finish(std::move(result));
  }

  Atom lower_into(const Block& block, BlockBuilder& b) {
    for (const Binding& binding : block.bindings) lower_binding(binding, b);
    return materialise(b, block.result);
  }

  // A tuple that so far only exists as its fields becomes a value, for the rest of the block: what
  // a branch has made, its sibling does not have.
  Atom materialise(BlockBuilder& b, const Atom& a) {
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

  // A match after flatten-matches: the variables of its patterns are registers from now on.
  void lower_match(const Binding& binding, const Expr& e, BlockBuilder& b) {
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

  // Tensors inside a group are never allocated, so nobody computes how large they are; but kernels
  // count their elements in 64 bits. A count that no argument or result bounds is computed like a
  // size, so that it fails instead of wrapping.
  void check_counts(const ir::Function& group, BlockBuilder& b, const ir::Location& location) {
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

  void lower_group(const Binding& binding, const Expr& e, BlockBuilder& b) {
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

  // A scalar that a kernel made is read at once, unless it lies on another device: then as soon as
  // it was copied from there.
  Atom scalar_or_tensor(BlockBuilder& b, const Binding& binding, const Type& type,
                        const VarRef& made) {
    if (!is_scalar(type) || read_elsewhere_.count(binding.var.get())) return made;
    return read_scalar(b, made);
  }

  VarRef read_scalar(BlockBuilder& b, const VarRef& t) {
    return bind(b, ir::make_call("memory.read_scalar", {t}, {}, t->location), ir::scalar_type(),
                t->name);
  }

  void lower_op(const Binding& binding, const Expr& e, BlockBuilder& b) {
    using Rule = void (Lowering::*)(const Binding&, const Expr&, BlockBuilder&);
    static const std::unordered_map<std::string_view, Rule> kRules = {
        {"take_row", &Lowering::lower_take_row},
        {"take_rows", &Lowering::lower_take_rows},
        {"device_copy", &Lowering::lower_device_copy},
        {"write_row", &Lowering::lower_write_row},
        {"append", &Lowering::lower_append},
        {"shape_of", &Lowering::lower_shape_of},
        {"assert_shape", &Lowering::lower_assert},
        {"read_extents", &Lowering::lower_read_extents},
        {"prefix", &Lowering::lower_prefix}};
    if (is_scalar_op(e)) return lower_scalar(binding, e, b);
    if (ir::traits_of(e).memory == ir::Memory::kView) return lower_view(binding, e, b);
    if (const auto rule = kRules.find(e.op); rule != kRules.end())
      return (this->*rule->second)(binding, e, b);
    const Type& type = binding.var->type;
    if (kernels::find_host_op(e.op))
      return lower_group(
          binding, *ir::make_call_primitive(kernels::host_group(e, type), e.args, e.location), b);
    throw Error(Status::kUnsupported, e.location.str(),
                fmt::format("operator {} has no kernel for {}", e.op, ir::str(type)),
                e.op == "conv2d" ? "give its weights constant extents, and f32 or f64 elements"
                                 : "enable the pass 'fuse', or use another dtype");
  }

  void lower_scalar(const Binding& binding, const Expr& e, BlockBuilder& b) {
    std::vector<Atom> args;
    for (const Atom& a : e.args) args.push_back(resolve(a));
    keep(binding, ir::make_call(e.op, std::move(args), e.attrs, e.location), b);
  }

  void lower_view(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    const VarRef view = bind(b,
                             ir::make_call("memory.reshape", {tensor(b, e.args[0])},
                                           {{"shape", type->dims}}, e.location),
                             type, binding.var->name);
    map_[binding.var.get()] = scalar_or_tensor(b, binding, type, view);
  }

  void lower_take_row(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    VarRef row =
        row_view(b, tensor(b, e.args[0]), resolve(e.args[1]), type, binding.var->name, e.location);
    map_[binding.var.get()] = scalar_or_tensor(b, binding, type, row);
  }

  void lower_take_rows(const Binding& binding, const Expr& e, BlockBuilder& b) {
    map_[binding.var.get()] = rows_view(b, tensor(b, e.args[0]), resolve(e.args[1]),
                                        binding.var->type, binding.var->name, e.location);
  }

  void lower_device_copy(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    VarRef copy = bind(b, ir::make_call(e.op, {resolve(e.args[0])}, e.attrs, e.location), type,
                       binding.var->name);
    map_[binding.var.get()] = scalar_or_tensor(b, binding, type, copy);
  }

  void lower_shape_of(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    const Type operand = ir::type_of(e.args[0]);
    if (operand->dims.empty()) {
      // No constant: a loop may be given it to extend.
      map_[binding.var.get()] = allocate(b, type, binding.var->name, e.location);
      return;
    }
    std::vector<Atom> sizes;
    for (const Dim& d : operand->dims)
      sizes.push_back(
          bind(b, ir::make_call("size", {}, {{"value", d}}, e.location), ir::scalar_type(), "d"));
    size_t rank = sizes.size();
    map_[binding.var.get()] = call_group(b, boxing_group(rank, DType::kI64, true), std::move(sizes),
                                         type, binding.var->name, e.location);
  }

  void lower_prefix(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    map_[binding.var.get()] =
        bind(b,
             ir::make_call("memory.alloc_tensor", {tensor(b, e.args[0])},
                           {{"shape", type->dims}, {"dtype", type->dtype}, {"offset", Dim(0)}},
                           e.location),
             type, binding.var->name);
  }

  // The elements become values of symbols; the tensor itself stays what it is.
  void lower_read_extents(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Atom x = materialise(b, e.args[0]);
    const auto& symbols = ir::attr<std::vector<std::string>>(e.attrs, "symbols");
    bind(b, ir::make_call("memory.read_extents", {x}, e.attrs, e.location),
         ir::tuple_type(std::vector<Type>(symbols.size(), ir::scalar_type())), "extents");
    map_[binding.var.get()] = x;
  }

  VarRef view_from(BlockBuilder& b, const Atom& x, const Atom& i, const Type& type, const Type& row,
                   const std::string& hint, const ir::Location& location) {
    return bind(
        b,
        ir::make_call(
            "memory.row_view", {x, i},
            {{"shape", type->dims}, {"dtype", type->dtype}, {"row_bytes", ir::byte_size(row)}},
            location),
        type, hint);
  }
  VarRef row_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& row,
                  const std::string& hint, const ir::Location& location) {
    return view_from(b, x, i, row, row, hint, location);
  }
  // Several rows, from row i on.
  VarRef rows_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& rows,
                   const std::string& hint, const ir::Location& location) {
    const Type row = ir::tensor_type({rows->dims.begin() + 1, rows->dims.end()}, rows->dtype);
    return view_from(b, x, i, rows, row, hint, location);
  }

  // In place where the operand is dead afterwards, else on a copy.
  void lower_write_row(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    const int64_t device = ir::attr_or<int64_t>(e.attrs, "device", 0);
    Atom x = tensor(b, e.args[0]);
    if (!ownership_.consumable(binding, 0)) {
      context_.count("lower-memory.copies");
      x = call_group(b, copy_group(type, device), {x}, type, binding.var->name, e.location);
    }
    const Type part = ir::type_of(e.args[2]);
    const bool several = part->dims.size() == type->dims.size();
    VarRef view = several ? rows_view(b, x, resolve(e.args[1]), part, "rows", e.location)
                          : row_view(b, x, resolve(e.args[1]), part, "row", e.location);
    bool scalar = is_scalar(part);
    invoke(b, copy_group(part, device, scalar),
           {scalar ? resolve(e.args[2]) : tensor(b, e.args[2]), view}, 1, e.location);
    map_[binding.var.get()] = x;
  }

  // New rows go behind the first operand's data, if the storage has room, else into one twice as
  // large; along any other axis there is nothing to gain over a concatenation. The VM sees nothing
  // new: a comparison, a branch, an allocation and copies. Twice what is needed now, so that the
  // copies of n steps add up to less than twice the final size.
  void lower_append(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const Type& type = binding.var->type;
    std::vector<Atom> parts;
    for (const Atom& a : e.args) parts.push_back(tensor(b, a));
    const auto axis = ir::attr<int64_t>(e.attrs, "axis");
    const int64_t device = ir::attr_or<int64_t>(e.attrs, "device", 0);
    if (axis != 0 || !ownership_.consumable(binding, 0)) {
      map_[binding.var.get()] = call_group(b, concat_group(parts, axis, type, device), parts, type,
                                           binding.var->name, e.location);
      return;
    }
    auto call = [&](BlockBuilder& to, const char* op, std::vector<Atom> args, ir::Attrs attrs,
                    Type t, const std::string& hint) {
      return bind(to, ir::make_call(op, std::move(args), std::move(attrs), e.location),
                  std::move(t), hint);
    };
    // The other extents as the result names them: in its terms the size is given.
    std::vector<Dim> before = type->dims;
    before[0] = ir::type_of(parts[0])->dims[0];
    const Type old = ir::tensor_type(std::move(before), type->dtype);
    VarRef storage = call(b, "memory.storage_of", {parts[0]}, {}, ir::storage_type(), "mem");
    VarRef room = call(b, "memory.capacity", {storage}, {}, ir::scalar_type(), "room");
    VarRef need = call(b, "size", {}, {{"value", ir::byte_size(type)}}, ir::scalar_type(), "need");
    VarRef fits = call(b, "less_equal", {need, room}, {}, ir::scalar_type(), "fits");
    BlockBuilder stay, move;
    VarRef larger = allocate(move, old, "moved", e.location, device, 2 * ir::byte_size(type));
    Atom memory = move.bindings()[0].var;
    invoke(move, copy_group(old, device), {parts[0], larger}, 1, e.location);
    VarRef home = bind(b, ir::make_if(fits, stay.finish(storage), move.finish(memory), e.location),
                       ir::storage_type(), "home");
    VarRef y = call(b, "memory.alloc_tensor", {home},
                    {{"shape", type->dims}, {"dtype", type->dtype}, {"offset", Dim(0)}}, type,
                    binding.var->name);
    Dim at = old->dims[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      const Type part = ir::type_of(parts[i]);
      VarRef index = call(b, "size", {}, {{"value", at}}, ir::scalar_type(), "at");
      VarRef view = rows_view(b, y, index, part, "part", e.location);
      invoke(b, copy_group(part, device), {parts[i], view}, 1, e.location);
      at = at + part->dims[0];
    }
    context_.count("lower-memory.grown");
    map_[binding.var.get()] = y;
  }

  static ir::FunctionRef concat_group(const std::vector<Atom>& parts, int64_t axis,
                                      const Type& type, int64_t device) {
    std::vector<VarRef> parameters;
    for (size_t i = 0; i < parts.size(); ++i)
      parameters.push_back(ir::make_var("p" + std::to_string(i), ir::type_of(parts[i])));
    BlockBuilder body;
    VarRef y = body.call("concat", {parameters.begin(), parameters.end()}, {{"axis", axis}});
    y->type = type;
    ir::Attrs attrs = {{"primitive", true}};
    if (device != 0) attrs["device"] = device;
    return ir::make_function_of(parameters, body.finish(y), type, attrs);
  }

  static ir::FunctionRef copy_group(const Type& type, int64_t device, bool scalar = false) {
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
    if (device != 0) attrs["device"] = device;
    return ir::make_function_of({p}, body.finish(y), t, attrs);
  }

  void lower_assert(const Binding& binding, const Expr& e, BlockBuilder& b) {
    const auto& left = ir::attr<std::vector<Dim>>(e.attrs, "left");
    const auto& right = ir::attr<std::vector<Dim>>(e.attrs, "right");
    Atom x = materialise(b, e.args[0]);
    std::optional<Atom> all;
    std::vector<Atom> values;  // for the message, which names each once
    std::string message = ir::assertion_text(e);
    std::set<Dim> named;
    auto scalar = [&](const std::string& op, std::vector<Atom> args, ir::Attrs attrs = {}) {
      return bind(b, ir::make_call(op, std::move(args), std::move(attrs), e.location),
                  ir::scalar_type(), "ok");
    };
    for (size_t i = 0; i < left.size(); ++i) {
      VarRef l = scalar("size", {}, {{"value", left[i]}});
      VarRef r = scalar("size", {}, {{"value", right[i]}});
      VarRef same = scalar("equal", {l, r});
      for (const auto& [dim, v] : {std::pair(left[i], l), std::pair(right[i], r)}) {
        if (dim.as_constant() || !named.insert(dim).second) continue;
        message += (values.empty() ? ": " : ", ") + dim.str() + " is {}";
        values.push_back(v);
      }
      all = all ? Atom(scalar("and", {*all, same})) : Atom(same);
    }
    if (!all) {
      map_[binding.var.get()] = x;
      return;
    }
    BlockBuilder pass, fail;
    bind(fail,
         ir::make_call("memory.fatal", std::move(values), {{"message", std::move(message)}},
                       e.location),
         ir::tuple_type({}), "u");
    keep(binding, ir::make_if(*all, pass.finish(x), fail.finish(x), e.location), b);
  }

  Atom box_result(BlockBuilder& b, const Atom& result, const Type& type) {
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

  const ir::Module& module_;
  PassContext& context_;
  Ownership ownership_;
  bool entry_ = false;
  std::unordered_map<const Var*, Atom> map_;                  // what stands for a variable now
  std::unordered_map<const Var*, std::vector<Atom>> fields_;  // tuples taken apart
  std::vector<const Var*> materialised_;  // of them, those that became values, in order
  std::set<const Var*> read_elsewhere_;   // operands of device_copy
};

}  // namespace

ir::Module lower_memory(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  Lowering lowering(m, context);
  for (auto& [name, f] : out.functions) f = lowering.lower(name, f);
  for (ir::DataType& d : out.data_types)
    for (ir::Constructor& c : d.constructors)
      for (Type& field : c.fields) field = lowered_type(field);
  return out;
}

}  // namespace nimble::passes
