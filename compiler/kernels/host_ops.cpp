#include "compiler/kernels/host_ops.h"

#include <algorithm>

#include "compiler/ir/builder.h"

namespace nimble::kernels {
namespace {

using ir::Dim;
using ir::Expr;
using Dims = std::vector<Dim>;

Dims nothing(const Expr&) {
  return {};
}

// -1: there is no axis, the operand counts as flat.
Dim axis(const Expr& e) {
  return ir::attr_or<int64_t>(e.attrs, "axis", -1);
}

Dims only_axis(const Expr& e) {
  return {axis(e)};
}

Dims flag(const Expr& e, const char* name) {
  return {axis(e), ir::attr<bool>(e.attrs, name) ? 1 : 0};
}

Dims schema(const Expr& e) {
  const auto& numbers = ir::attr<std::vector<int64_t>>(e.attrs, "schema");
  return {numbers.begin(), numbers.end()};
}

Dims reduction(const Expr& e) {
  static const char* const kNames[] = {"none", "add", "mul", "min", "max"};
  const auto* at =
      std::find(std::begin(kNames), std::end(kNames), ir::attr<std::string>(e.attrs, "reduction"));
  return {at - std::begin(kNames)};
}

const HostOp kRows[] = {
    {"nonzero", "host.nonzero", nothing},
    {"compress", "host.compress", only_axis},
    {"unique", "host.unique", [](const Expr& e) { return flag(e, "sorted"); }},
    {"repeat", "host.repeat", only_axis},
    {"scatter", "host.scatter", reduction},
    {"topk", "host.topk", [](const Expr& e) { return flag(e, "largest"); }},
    {"nms.bounded", "host.nms",
     [](const Expr& e) {
       return Dims{ir::attr<Dim>(e.attrs, "limit"), ir::attr<bool>(e.attrs, "center") ? 1 : 0};
     }},
    {"linearise", "host.linearise", schema},
    {"count.linearise", "host.count_linearise", schema},
    {"count.nonzero", "host.count_nonzero", nothing},
    {"count.unique", "host.count_unique", only_axis},
    {"count.repeat", "host.count_repeat", nothing},
    {"count.range", "host.count_range", nothing},
};

}  // namespace

const HostOp* find_host_op(const std::string& op) {
  const auto* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const HostOp& r) { return op == r.op; });
  return row == std::end(kRows) ? nullptr : row;
}

const HostOp* host_op_of(const ir::Function& group) {
  if (group.body->bindings.size() != 1) return nullptr;
  return find_host_op(group.body->bindings[0].value->op);
}

ir::FunctionRef host_group(const Expr& call, const ir::Type& result) {
  std::vector<ir::VarRef> parameters;
  std::vector<ir::Atom> operands;
  for (size_t i = 0; i < call.args.size(); ++i) {
    parameters.push_back(ir::make_var("p" + std::to_string(i), ir::type_of(call.args[i])));
    operands.emplace_back(parameters.back());
  }
  ir::BlockBuilder body;
  ir::VarRef y = body.call(call.op, std::move(operands), call.attrs, "y", call.location);
  y->type = result;
  return ir::make_function_of(std::move(parameters), body.finish(y), result, {{"primitive", true}},
                              call.location);
}

}  // namespace nimble::kernels
