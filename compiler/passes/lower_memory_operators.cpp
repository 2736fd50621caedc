// Operators that become allocations, views and copies, and the groups that lower-memory makes.
#include <algorithm>
#include <set>
#include <string_view>

#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/lower_memory_walk.h"

namespace nimble::passes {

using ir::Atom;
using ir::Binding;
using ir::BlockBuilder;
using ir::Dim;
using ir::Expr;
using ir::Type;
using ir::VarRef;

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

ir::FunctionRef concat_group(const std::vector<Atom>& parts, int64_t axis, const Type& type,
                             int64_t device) {
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

ir::FunctionRef copy_group(const Type& type, int64_t device, bool scalar) {
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

void MemoryLowering::lower_op(const Binding& binding, const Expr& e, BlockBuilder& b) {
  using Rule = void (MemoryLowering::*)(const Binding&, const Expr&, BlockBuilder&);
  static const std::unordered_map<std::string_view, Rule> kRules = {
      {"take_row", &MemoryLowering::lower_take_row},
      {"take_rows", &MemoryLowering::lower_take_rows},
      {"device_copy", &MemoryLowering::lower_device_copy},
      {"write_row", &MemoryLowering::lower_write_row},
      {"append", &MemoryLowering::lower_append},
      {"shape_of", &MemoryLowering::lower_shape_of},
      {"assert_shape", &MemoryLowering::lower_assert},
      {"read_extents", &MemoryLowering::lower_read_extents},
      {"prefix", &MemoryLowering::lower_prefix}};
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

void MemoryLowering::lower_scalar(const Binding& binding, const Expr& e, BlockBuilder& b) {
  std::vector<Atom> args;
  for (const Atom& a : e.args) args.push_back(resolve(a));
  keep(binding, ir::make_call(e.op, std::move(args), e.attrs, e.location), b);
}

void MemoryLowering::lower_view(const Binding& binding, const Expr& e, BlockBuilder& b) {
  const Type& type = binding.var->type;
  const VarRef view = bind(
      b,
      ir::make_call("memory.reshape", {tensor(b, e.args[0])}, {{"shape", type->dims}}, e.location),
      type, binding.var->name);
  map_[binding.var.get()] = scalar_or_tensor(b, binding, type, view);
}

void MemoryLowering::lower_take_row(const Binding& binding, const Expr& e, BlockBuilder& b) {
  const Type& type = binding.var->type;
  VarRef row =
      row_view(b, tensor(b, e.args[0]), resolve(e.args[1]), type, binding.var->name, e.location);
  map_[binding.var.get()] = scalar_or_tensor(b, binding, type, row);
}

void MemoryLowering::lower_take_rows(const Binding& binding, const Expr& e, BlockBuilder& b) {
  map_[binding.var.get()] = rows_view(b, tensor(b, e.args[0]), resolve(e.args[1]),
                                      binding.var->type, binding.var->name, e.location);
}

void MemoryLowering::lower_device_copy(const Binding& binding, const Expr& e, BlockBuilder& b) {
  const Type& type = binding.var->type;
  VarRef copy = bind(b, ir::make_call(e.op, {resolve(e.args[0])}, e.attrs, e.location), type,
                     binding.var->name);
  map_[binding.var.get()] = scalar_or_tensor(b, binding, type, copy);
}

void MemoryLowering::lower_shape_of(const Binding& binding, const Expr& e, BlockBuilder& b) {
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

void MemoryLowering::lower_prefix(const Binding& binding, const Expr& e, BlockBuilder& b) {
  const Type& type = binding.var->type;
  map_[binding.var.get()] =
      bind(b,
           ir::make_call("memory.alloc_tensor", {tensor(b, e.args[0])},
                         {{"shape", type->dims}, {"dtype", type->dtype}, {"offset", Dim(0)}},
                         e.location),
           type, binding.var->name);
}

void MemoryLowering::lower_read_extents(const Binding& binding, const Expr& e, BlockBuilder& b) {
  const Atom x = materialise(b, e.args[0]);
  const auto& symbols = ir::attr<std::vector<std::string>>(e.attrs, "symbols");
  bind(b, ir::make_call("memory.read_extents", {x}, e.attrs, e.location),
       ir::tuple_type(std::vector<Type>(symbols.size(), ir::scalar_type())), "extents");
  map_[binding.var.get()] = x;
}

VarRef MemoryLowering::view_from(BlockBuilder& b, const Atom& x, const Atom& i, const Type& type,
                                 const Type& row, const std::string& hint,
                                 const ir::Location& location) {
  return bind(
      b,
      ir::make_call(
          "memory.row_view", {x, i},
          {{"shape", type->dims}, {"dtype", type->dtype}, {"row_bytes", ir::byte_size(row)}},
          location),
      type, hint);
}

VarRef MemoryLowering::row_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& row,
                                const std::string& hint, const ir::Location& location) {
  return view_from(b, x, i, row, row, hint, location);
}

VarRef MemoryLowering::rows_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& rows,
                                 const std::string& hint, const ir::Location& location) {
  const Type row = ir::tensor_type({rows->dims.begin() + 1, rows->dims.end()}, rows->dtype);
  return view_from(b, x, i, rows, row, hint, location);
}

void MemoryLowering::lower_write_row(const Binding& binding, const Expr& e, BlockBuilder& b) {
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

void MemoryLowering::lower_append(const Binding& binding, const Expr& e, BlockBuilder& b) {
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
  auto call = [&](BlockBuilder& to, const char* op, std::vector<Atom> args, ir::Attrs attrs, Type t,
                  const std::string& hint) {
    return bind(to, ir::make_call(op, std::move(args), std::move(attrs), e.location), std::move(t),
                hint);
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

void MemoryLowering::lower_assert(const Binding& binding, const Expr& e, BlockBuilder& b) {
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

}  // namespace nimble::passes
