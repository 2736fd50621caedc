#include "compiler/passes/support/has_kernel.h"

#include <string>

#include "compiler/ir/builder.h"
#include "compiler/kernels/template.h"

namespace nimble::passes {

bool has_kernel(const ir::Expr& call, const std::vector<ir::Type>& operands, const ir::Type& result,
                const kernels::TargetInfo& target, PassContext& context) {
  std::vector<ir::VarRef> parameters;
  std::vector<ir::Atom> args;
  for (const ir::Type& t : operands) {
    parameters.push_back(ir::make_var("p" + std::to_string(parameters.size()), t));
    args.emplace_back(parameters.back());
  }
  ir::BlockBuilder body;
  const ir::VarRef y = body.call(call.op, std::move(args), call.attrs, "y");
  y->type = result;
  const ir::FunctionRef group =
      ir::make_function_of(std::move(parameters), body.finish(y), result, {{"primitive", true}});
  return kernels::template_for(*context.workloads->of(*group), target) != nullptr;
}

}  // namespace nimble::passes
