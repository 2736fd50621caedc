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
  const char* domain = "";
  bool any_value = false;  // takes sequences and optional values, too
  bool moves = false;      // gives elements of its first input, in other places, and no others
};

// Null if there is no rule for the operator.
const Operator* find_operator(const std::string& domain, const std::string& name);
// All rules, in no order.
std::vector<const Operator*> all_operators();

// A convolution with the attributes of the node, in the operands' dtype. Of bytes with `out`: in
// that type, which is the bias's, too, and with padding of `zero`, a scalar of i32, instead of 0.
struct ByteConvolution {
  DType out;
  std::optional<Value> zero;
};
Value convolution(NodeContext& c, const Value& x, const Value& w, const std::optional<Value>& bias,
                  const std::optional<ByteConvolution>& bytes = std::nullopt);

// LSTM, GRU or RNN with any weights, activations and lengths.
Values recurrent_layer(NodeContext& c);

// The node's convolution, or a product without a bias, of inputs 0 and 1 where both were
// dequantised and their bytes make the faster way: f32. Nothing where that is not so.
std::optional<Value> quantised_convolution(NodeContext& c);
std::optional<Value> quantised_product(NodeContext& c, bool transpose_b);

// What `rule` makes of the node where its first input was dequantised with one scale, and it gives
// elements of that alone: it is asked with the bytes, and what it gives is dequantised. Nothing
// where the input is another one.
std::optional<Values> moved_bytes(NodeContext& c, Rule rule);

// The families, each in its own file.
std::span<const Operator> elementwise_operators();
std::span<const Operator> shape_operators();
std::span<const Operator> product_operators();
std::span<const Operator> math_operators();
std::span<const Operator> quantised_operators();
std::span<const Operator> byte_operators();
std::span<const Operator> convolution_operators();
std::span<const Operator> pooling_operators();
std::span<const Operator> normalising_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> index_operators();
std::span<const Operator> algebra_operators();
std::span<const Operator> sampling_operators();
std::span<const Operator> signal_operators();
std::span<const Operator> loop_operators();
std::span<const Operator> control_operators();
std::span<const Operator> sequence_operators();
std::span<const Operator> resize_operators();
std::span<const Operator> reduction_operators();
std::span<const Operator> random_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> dynamic_operators();

}  // namespace nimble::frontend::onnx
