// Operators that a kernel of the runtime's own library computes (vm/library), not a template: what
// sorts, counts and selects. A row of the table in host_ops.cpp adds one.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::kernels {

struct HostOp {
  const char* op;      // of Ops.def
  const char* kernel;  // "host.nonzero"
  // What the kernel is told besides its tensors: the contract's first scalars, in the order that
  // the kernel's signature gives.
  std::vector<ir::Dim> (*parameters)(const ir::Expr& call);
};

const HostOp* find_host_op(const std::string& op);  // null if there is none
// The same for a group: a host operator is always alone in its group.
const HostOp* host_op_of(const ir::Function& group);
// The group of one host operator; `result` is its type.
ir::FunctionRef host_group(const ir::Expr& call, const ir::Type& result);

}  // namespace nimble::kernels
