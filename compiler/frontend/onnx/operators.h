// The table of ONNX operators that nimble imports. A row is a rule that turns a node into operators
// of the IR, and a check that says from the node alone what of it is not supported, so that all
// unsupported nodes of a model are found before anything is built.
#pragma once

#include <string>

#include "compiler/frontend/onnx/node_context.h"

namespace nimble::frontend::onnx {

using Rule = Values (*)(NodeContext&);
using Check = std::string (*)(const Node&, int64_t opset);  // empty: supported

struct Operator {
  const char* name;
  Rule rule;
  Check check = nullptr;
};

// Null if there is no rule for the operator of the standard domain.
const Operator* find_operator(const std::string& name);

// The families, each in its own file.
std::span<const Operator> elementwise_operators();
std::span<const Operator> shape_operators();
std::span<const Operator> product_operators();
std::span<const Operator> reduction_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> dynamic_operators();

}  // namespace nimble::frontend::onnx
