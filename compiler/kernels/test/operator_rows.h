// A row for every operator that may stand in a kernel, and the reference interpreter as the oracle
// of their cases: for the tests of templates and of the kernels made from them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "compiler/kernels/test/template_harness.h"
#include "compiler/reference/reference.h"

namespace nimble::kernels::testing {

inline ir::TensorRef tensor_of(const Array& a, DType t) {
  std::vector<std::byte> bytes;
  to_bytes(a, t, bytes);
  uint8_t* data = nullptr;
  auto tensor = ir::Tensor::make(t, a.shape, &data);
  std::memcpy(data, bytes.data(), tensor->bytes.size());
  return tensor;
}

// What the group of a workload gives, interpreted.
inline std::vector<ir::TensorRef> interpreted(const Workload& w,
                                              const std::vector<ir::TensorRef>& inputs) {
  ir::Module m;
  m.set("main", w.group);
  std::vector<reference::ValueRef> args;
  for (const ir::TensorRef& t : inputs) args.push_back(reference::value_of(t));
  const reference::ValueRef v = reference::Interpreter(m).run("main", args);
  if (v->tensor) return {v->tensor};
  std::vector<ir::TensorRef> out;
  for (const reference::ValueRef& f : v->fields) out.push_back(f->tensor);
  return out;
}

// The canonical group of a case, interpreted.
inline Oracle by_reference(const std::string& text) {
  const Workload w = workload_of(text);
  return [w](const Arrays& in, Arrays& out) {
    std::vector<ir::TensorRef> inputs;
    for (size_t i = 0; i < in.size(); ++i)
      inputs.push_back(tensor_of(in[i], w.group->parameters[i]->type->dtype));
    const std::vector<ir::TensorRef> results = interpreted(w, inputs);
    ASSERT_EQ(results.size(), out.size());
    for (size_t r = 0; r < results.size(); ++r) {
      ASSERT_EQ(results[r]->shape, out[r].shape);
      for (int64_t i = 0; i < out[r].size(); ++i)
        out[r][i] = is_float(results[r]->dtype) ? results[r]->value(i)
                    : results[r]->dtype == DType::kU64
                        ? static_cast<double>(static_cast<uint64_t>(results[r]->integer(i)))
                        : static_cast<double>(results[r]->integer(i));
    }
  };
}

struct Row {
  const char* op;
  const char* parameters;
  const char* call;  // of the operator on the parameters
  double low = -2, high = 2;
};

inline constexpr const char* kX = "%x: Tensor[(n, m), f32]";
inline constexpr const char* kXY = "%x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]";
inline constexpr const char* kIJ = "%x: Tensor[(n, m), i64], %y: Tensor[(n, m), i64]";
inline constexpr const char* kBytes = "%x: Tensor[(n, m), u8], %y: Tensor[(n, m), u8]";
inline constexpr const char* kPQ = "%x: Tensor[(n, m), bool], %y: Tensor[(n, m), bool]";
inline constexpr const char* kImage = "%x: Tensor[(n, 2, m, 9), f32]";

inline const Row kOperatorRows[] = {
    {"neg", kX, "neg(%x)"},
    {"abs", kX, "abs(%x)"},
    {"exp", kX, "exp(%x)"},
    {"log", kX, "log(%x)", 0.1, 9},
    {"sqrt", kX, "sqrt(%x)", 0, 9},
    {"rsqrt", kX, "rsqrt(%x)", 0.1, 9},
    {"reciprocal", kX, "reciprocal(%x)", 0.1, 9},
    {"tanh", kX, "tanh(%x)"},
    {"sigmoid", kX, "sigmoid(%x)"},
    {"erf", kX, "erf(%x)"},
    {"relu", kX, "relu(%x)"},
    {"gelu", kX, "gelu(%x)"},
    {"gelu_tanh", kX, "gelu_tanh(%x)"},
    {"softplus", kX, "softplus(%x)"},
    {"leaky_relu", kX, "leaky_relu(%x) {alpha = 0.1}"},
    {"floor", kX, "floor(%x)"},
    {"ceil", kX, "ceil(%x)"},
    {"round", kX, "round(%x)"},
    {"sin", kX, "sin(%x)"},
    {"cos", kX, "cos(%x)"},
    {"atan", kX, "atan(%x)", -9, 9},
    {"trunc", kX, "trunc(%x)", -9, 9},
    {"bitwise_and", kIJ, "bitwise_and(%x, %y)", -99, 99},
    {"bitwise_or", kIJ, "bitwise_or(%x, %y)", -99, 99},
    {"bitwise_xor", kIJ, "bitwise_xor(%x, %y)", -99, 99},
    {"shift_left", kBytes, "shift_left(%x, %y)", 0, 11},
    {"shift_right", kBytes, "shift_right(%x, %y)", 0, 11},
    {"shift_right", kIJ, "shift_right(%x, %y)", 0, 99},
    {"random_bits", kIJ, "random_bits(%x, %y) {key = 1234567890123}", -99, 99},
    {"bitcast", kX, "bitcast(%x) {dtype = u32}"},
    {"bitcast", "%x: Tensor[(n, m), f16]", "bitcast(%x) {dtype = i16}"},
    {"bitcast", kPQ, "bitcast(%x) {dtype = u8}"},
    {"not", kPQ, "not(%x)"},
    {"cast", kX, "cast(%x) {dtype = i64}", -9, 9},
    {"cast", kX, "cast(%x) {dtype = bool}"},
    {"cast", kIJ, "cast(%x) {dtype = f32}", -9, 9},
    {"cast", kPQ, "cast(%x) {dtype = f32}"},
    {"clip", kX, "clip(%x) {min = -0.5, max = 1.0}"},
    {"clip", kIJ, "clip(%x) {min = 1.0}", -3, 4},
    {"add", kXY, "add(%x, %y)"},
    {"sub", kIJ, "sub(%x, %y)", -9, 9},
    {"mul", kXY, "mul(%x, %y)"},
    {"div", kIJ, "div(%x, %y)", 1, 9},
    {"mod", kIJ, "mod(%x, %y)", -9, -1},
    {"mod", kXY, "mod(%x, %y)", 0.5, 9},
    {"mod", "%x: Tensor[(n, m), f32]", "mod(%x, f32[1]{-inf})"},
    {"mod", "%x: Tensor[(n, m), f32]", "mod(%x, f32[1]{-1.5})", -9, 9},
    {"pow", kXY, "pow(%x, %y)", 0.1, 3},
    {"maximum", kXY, "maximum(%x, %y)"},
    {"minimum", kIJ, "minimum(%x, %y)", -9, 9},
    {"equal", kIJ, "equal(%x, %y)"},
    {"not_equal", kIJ, "not_equal(%x, %y)"},
    {"less", kXY, "less(%x, %y)"},
    {"less_equal", kIJ, "less_equal(%x, %y)"},
    {"greater", kXY, "greater(%x, %y)"},
    {"greater_equal", kIJ, "greater_equal(%x, %y)"},
    {"and", kPQ, "and(%x, %y)"},
    {"or", kPQ, "or(%x, %y)"},
    {"where", "%c: Tensor[(n, 1), bool], %x: Tensor[(n, m), f32], %y: Tensor[(m), f32]",
     "where(%c, %x, %y)"},
    {"where", kXY, "where(true, %x, f32[1]{-2.5})"},
    {"reshape", kX, "reshape(%x) {shape = (-1, n)}"},
    {"transpose", kImage, "transpose(%x) {axes = [3, 1, 0, 2]}"},
    {"squeeze", "%x: Tensor[(n, 1, m), f32]", "squeeze(%x) {axes = [1]}"},
    {"unsqueeze", kX, "unsqueeze(%x) {axes = [0, 3]}"},
    {"expand", "%x: Tensor[(n, 1), f32]", "expand(%x) {shape = (2, n, 5)}"},
    {"slice", kX, "slice(%x) {axes = [1], starts = (-5), ends = (100), steps = [2]}"},
    {"slice", kX, "slice(%x) {axes = [0], starts = (n - 2), ends = (0), steps = [-1]}"},
    {"concat", kXY, "concat(%x, %y, %x) {axis = 1}"},
    {"pad", kX, "pad(%x) {before = [0, 3], after = [2, 1], value = 2.5}"},
    {"gather", "%x: Tensor[(n, 7, m), f32], %i: Tensor[(3), i64]", "gather(%x, %i) {axis = 1}"},
    {"gather", "%x: Tensor[(7), f32], %i: Tensor[(n, m), i64]", "gather(%x, %i) {axis = 0}"},
    {"gather_elements", "%x: Tensor[(n, 7, m), f32], %i: Tensor[(n, 3, m), i64]",
     "gather_elements(%x, %i) {axis = 1}"},
    {"take_row", "%x: Tensor[(4, n, m), f32], %i: Tensor[(), i64]", "take_row(%x, %i)"},
    {"conv2d", "%x: Tensor[(n, 2, m, 9), f32], %w: Tensor[(3, 2, 1, 3), f32]",
     "conv2d(%x, %w) {strides = [1, 2], pads = [0, 1, 0, 1], dilations = [1, 1], groups = 1}"},
    {"conv2d", "%x: Tensor[(n, m, 9, 4), f32], %w: Tensor[(3, 1, 2, 6), f32]",
     "conv2d(%x, %w) {strides = [2, 1], pads = [1, 0, 1, 0], dilations = [1, 1], groups = 2, "
     "layout = \"nhwc\", skip_padding = true}"},
    {"attention",
     "%q: Tensor[(n, m, 8), f32], %k: Tensor[(n, 3, 8), f32], %v: Tensor[(n, 3, 8), f32], "
     "%c: Tensor[(2, 1, 3), f32]",
     "attention(%q, %k, %v, %c) {heads = 2, scale = 0.5}"},
    {"sum", kX, "sum(%x) {axes = [0], keepdims = true}"},
    {"mean", kX, "mean(%x) {axes = [1], keepdims = false}"},
    {"reduce_max", kIJ, "reduce_max(%x) {axes = [0, 1], keepdims = false}", -9, 9},
    {"reduce_min", kX, "reduce_min(%x) {axes = [0], keepdims = false}"},
    {"prod", kX, "prod(%x) {axes = [1], keepdims = false}", 0.8, 1.2},
    {"argmax", kX, "argmax(%x) {axis = 1, keepdims = true}"},
    {"softmax", kImage, "softmax(%x) {axis = 1}"},
    {"log_softmax", kX, "log_softmax(%x) {axis = -1}"},
    {"layer_norm", "%x: Tensor[(n, m), f32], %g: Tensor[(m), f32], %b: Tensor[(m), f32]",
     "layer_norm(%x, %g, %b) {epsilon = 0.01, axis = 1}"},
    {"l2_normalize", kX, "l2_normalize(%x) {axis = 0, epsilon = 0.001}"},
    {"batch_norm",
     "%x: Tensor[(n, 2, m), f32], %s: Tensor[(2), f32], %b: Tensor[(2), f32], "
     "%e: Tensor[(2), f32], %v: Tensor[(2), f32]",
     "batch_norm(%x, %s, %b, %e, %v) {epsilon = 0.001}", 0.1, 2},
    {"max_pool2d", kImage,
     "max_pool2d(%x) {kernel = [1, 3], strides = [1, 2], pads = [0, 1, 0, 1], "
     "dilations = [1, 2], ceil_mode = false}"},
    {"avg_pool2d", kImage,
     "avg_pool2d(%x) {kernel = [1, 3], strides = [1, 2], pads = [0, 1, 0, 1], "
     "dilations = [1, 1], ceil_mode = true, count_include_pad = true}"},
    {"max_pool2d", "%x: Tensor[(n, m, 9, 5), f32]",
     "max_pool2d(%x) {kernel = [2, 3], strides = [1, 2], pads = [0, 1, 0, 1], "
     "dilations = [1, 2], ceil_mode = false, layout = \"nhwc\"}"},
    {"full", "%x: Tensor[(n, m), f32], %s: Tensor[(), f32]",
     "full(%s) {shape = (m, n, 2), dtype = f32}"},
    {"full", kX, "full() {shape = (m, n), dtype = i64, value = 3.0}"},
    {"range", kX, "range() {count = n, start = 5, step = -2, dtype = i64}"},
    {"cumprod", kX, "cumprod(%x) {axis = 1, exclusive = true}", 0.8, 1.2},
    {"cumsum", kX, "cumsum(%x) {axis = 0, reverse = true}"},
};

inline std::string text_of(const Row& r) {
  return fmt::format("fn @f({}) {{ let %r = {}; %r }}", r.parameters, r.call);
}

}  // namespace nimble::kernels::testing
