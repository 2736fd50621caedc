// Operators that are left after lowering, as instructions: memory, views, kernels' calls, copies.
#include <algorithm>
#include <string_view>

#include "compiler/emit/function_emitter_walk.h"
#include "compiler/passes/support/kernel_call.h"

namespace nimble::emit {

using exec::DimOp;
using exec::DimProgram;
using exec::Opcode;
using ir::Atom;
using ir::Binding;
using ir::Expr;

namespace {

// A packed matrix is read in full at each run; an embedding table is not.
constexpr size_t kHotBytes = 16 << 10;

bool gathers_from(const ir::Function& group, size_t parameter) {
  for (const Binding& b : group.body->bindings)
    if (b.value->op == "gather" && b.value->args[0].is_var() &&
        b.value->args[0].var == group.parameters[parameter])
      return true;
  return false;
}

}  // namespace

FunctionEmitter::Rule FunctionEmitter::rule_of(const std::string& op) {
  static const std::map<std::string_view, Rule> kRules = {
      {"memory.alloc_storage", &FunctionEmitter::alloc_storage},
      {"memory.alloc_tensor", &FunctionEmitter::alloc_tensor},
      {"memory.row_view", &FunctionEmitter::row_view},
      {"memory.invoke_mut", &FunctionEmitter::invoke_packed},
      {"memory.shape_of", &FunctionEmitter::shape_of},
      {"memory.reshape", &FunctionEmitter::reshape},
      {"memory.read_scalar", &FunctionEmitter::read_scalar},
      {"memory.storage_of", &FunctionEmitter::storage_of},
      {"memory.capacity", &FunctionEmitter::capacity},
      {"memory.release", &FunctionEmitter::release},
      {"memory.kill", &FunctionEmitter::kill},
      {"memory.fatal", &FunctionEmitter::fatal},
      {"device_copy", &FunctionEmitter::device_copy},
  };
  const auto it = kRules.find(op);
  NIMBLE_CHECK(it != kRules.end(), "operator {} after lowering", op);
  return it->second;
}

void FunctionEmitter::alloc_storage(const Binding& b) {
  const Expr& e = *b.value;
  const int64_t bytes = operand(e.args[0]);
  emit(Opcode::kAllocStorage, {define(b.var), bytes, ir::attr<int64_t>(e.attrs, "alignment"),
                               ir::attr<int64_t>(e.attrs, "device")});
}

void FunctionEmitter::alloc_tensor(const Binding& b) {
  const std::vector<Atom>& args = b.value->args;
  tensor_in(b, operand(args[0]), operand(args[1]), {args.begin() + 2, args.end()});
}

void FunctionEmitter::shape_of(const Binding& b) {
  const auto rank = ir::attr<int64_t>(b.value->attrs, "rank");
  const int64_t tensor = operand(b.value->args[0]);
  const int64_t base = fresh(rank);
  spread_[b.var.get()] = base;
  emit(Opcode::kShapeOf, {base, rank, tensor});
}

void FunctionEmitter::reshape(const Binding& b) {
  force_tensor_ = true;
  const int64_t tensor = operand(b.value->args[0]);
  force_tensor_ = false;
  std::vector<int64_t> dims;
  append_list(dims, b.value->args, 1);
  std::vector<int64_t> operands = {define(b.var), tensor};
  operands.insert(operands.end(), dims.begin(), dims.end());
  emit(Opcode::kReshapeTensor, std::move(operands));
}

void FunctionEmitter::read_scalar(const Binding& b) {
  const Expr& e = *b.value;
  const int64_t value = operand(e.args[0]);
  if (ir::is_scalar(ir::type_of(e.args[0])) && e.attrs.count("symbol"))
    registers_[b.var.get()] = static_cast<uint32_t>(value);  // a register already
  else
    emit(Opcode::kGetElement, {define(b.var), value, ir::attr_or<int64_t>(e.attrs, "index", 0)});
}

void FunctionEmitter::storage_of(const Binding& b) {
  const int64_t tensor = operand(b.value->args[0]);
  emit(Opcode::kGetStorage, {define(b.var), tensor});
}

void FunctionEmitter::capacity(const Binding& b) {
  const int64_t storage = operand(b.value->args[0]);
  emit(Opcode::kGetCapacity, {define(b.var), storage});
}

void FunctionEmitter::release(const Binding& b) {
  emit(Opcode::kFreeTensor, {operand(b.value->args[0])});
}

void FunctionEmitter::kill(const Binding& b) {
  const Atom& dead = b.value->args[0];
  const int64_t r = operand(dead);
  switch (dead.var->type->kind) {
    case ir::TypeKind::kStorage:
      return emit(Opcode::kFreeStorage, {r});
    case ir::TypeKind::kTensor:
      return emit(Opcode::kFreeTensor, {r});
    default:
      return emit(Opcode::kLoadConsti, {r, 0});  // any other value dies by being overwritten
  }
}

void FunctionEmitter::fatal(const Binding& b) {
  const Expr& e = *b.value;
  std::vector<int64_t> operands = {context_.text(ir::attr<std::string>(e.attrs, "message"))};
  append_list(operands, e.args);
  emit(Opcode::kFatal, std::move(operands));
  fatal_ = true;
}

void FunctionEmitter::device_copy(const Binding& b) {
  const Atom& x = b.value->args[0];
  const auto device = ir::attr<int64_t>(b.value->attrs, "device");
  if (x.is_constant()) {
    emit(Opcode::kLoadConst,
         {define(b.var), context_.constant(x.constant, false, static_cast<int32_t>(device))});
    return;
  }
  int64_t tensor = operand(x);
  emit(Opcode::kDeviceCopy, {define(b.var), tensor, device});
}

void FunctionEmitter::tensor_in(const Binding& b, int64_t storage, int64_t offset,
                                std::vector<Atom> dims) {
  auto dtype = static_cast<int64_t>(ir::attr<DType>(b.value->attrs, "dtype"));
  bool fixed = std::all_of(dims.begin(), dims.end(), [](const Atom& a) { return a.is_constant(); });
  std::vector<int64_t> shape;
  for (const Atom& a : dims) shape.push_back(fixed ? a.constant->integer(0) : operand(a));
  std::vector<int64_t> operands = {define(b.var), storage, offset, dtype,
                                   static_cast<int64_t>(shape.size())};
  operands.insert(operands.end(), shape.begin(), shape.end());
  emit(fixed ? Opcode::kAllocTensor : Opcode::kAllocTensorReg, std::move(operands));
}

void FunctionEmitter::row_view(const Binding& b) {
  const Expr& e = *b.value;
  // Offset = index * bytes of a row; the VM checks that the row lies inside.
  DimProgram product{2, 1, {{DimOp::kArg, 0}, {DimOp::kArg, 1}, {DimOp::kMul, 0}}};
  int64_t tensor = operand(e.args[0]);
  int64_t index = operand(e.args[1]), bytes = operand(e.args[2]);
  const auto [known, added] = offsets_.try_emplace({index, bytes}, 0);
  if (added) {
    known->second = fresh();
    emit(Opcode::kInvoke,
         {known->second, context_.scalar_function(std::move(product)), 2, index, bytes});
  }
  const int64_t offset = known->second;
  tensor_in(b, tensor, offset, {e.args.begin() + 3, e.args.end()});
}

void FunctionEmitter::invoke_packed(const Binding& b) {
  const Expr& e = *b.value;
  const ir::Function& group = *e.primitive;
  std::vector<bool> constant;
  for (size_t i = 0; i < group.parameters.size(); ++i) constant.push_back(e.args[i].is_constant());
  uint32_t kernel = context_.kernel_index(e.primitive, constant, out_.name);
  auto scalars = ir::attr_or<std::vector<int64_t>>(group.attrs, "scalars", {});
  std::vector<int64_t> operands = {kernel, static_cast<int64_t>(e.args.size())};
  device_ = static_cast<int32_t>(passes::device_of(group));
  for (size_t i = 0; i < e.args.size(); ++i) {
    bool scalar =
        std::find(scalars.begin(), scalars.end(), static_cast<int64_t>(i)) != scalars.end();
    bool hot = e.args[i].is_constant() && e.args[i].constant->bytes.size() >= kHotBytes &&
               i < group.parameters.size() && !gathers_from(group, i);
    force_tensor_ = !scalar && i < group.parameters.size();
    operands.push_back(operand(e.args[i], hot));
    force_tensor_ = false;
  }
  device_ = 0;
  emit(Opcode::kInvokePacked, std::move(operands));
}

}  // namespace nimble::emit
