// Every operator that may stand in a kernel is served by some template, and agrees with the
// reference interpreter.
#include <map>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/kernels/test/template_harness.h"
#include "compiler/reference/reference.h"

namespace nimble::kernels::testing {
namespace {

ir::TensorRef tensor_of(const Array& a, DType t) {
  std::vector<std::byte> bytes;
  to_bytes(a, t, bytes);
  uint8_t* data = nullptr;
  auto tensor = ir::Tensor::make(t, a.shape, &data);
  std::memcpy(data, bytes.data(), tensor->bytes.size());
  return tensor;
}

// The canonical group of a case, interpreted.
Oracle by_reference(const std::string& text) {
  const Workload w = workload_of(text);
  ir::Module m;
  m.set("main", w.group);
  return [m, w](const Arrays& in, Arrays& out) {
    reference::Interpreter interpreter(m);
    std::vector<reference::ValueRef> args;
    for (size_t i = 0; i < in.size(); ++i)
      args.push_back(reference::value_of(tensor_of(in[i], w.group->parameters[i]->type->dtype)));
    const reference::ValueRef v = interpreter.run("main", args);
    std::vector<ir::TensorRef> results;
    if (v->tensor) {
      results = {v->tensor};
    } else {
      for (const reference::ValueRef& f : v->fields) results.push_back(f->tensor);
    }
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

const char* const kX = "%x: Tensor[(n, m), f32]";
const char* const kXY = "%x: Tensor[(n, m), f32], %y: Tensor[(n, m), f32]";
const char* const kIJ = "%x: Tensor[(n, m), i64], %y: Tensor[(n, m), i64]";
const char* const kBytes = "%x: Tensor[(n, m), u8], %y: Tensor[(n, m), u8]";
const char* const kPQ = "%x: Tensor[(n, m), bool], %y: Tensor[(n, m), bool]";
const char* const kImage = "%x: Tensor[(n, 2, m, 9), f32]";

const Row kRows[] = {
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
    {"full", "%x: Tensor[(n, m), f32], %s: Tensor[(), f32]",
     "full(%s) {shape = (m, n, 2), dtype = f32}"},
    {"full", kX, "full() {shape = (m, n), dtype = i64, value = 3.0}"},
    {"range", kX, "range() {count = n, start = 5, step = -2, dtype = i64}"},
    {"cumprod", kX, "cumprod(%x) {axis = 1, exclusive = true}", 0.8, 1.2},
    {"cumsum", kX, "cumsum(%x) {axis = 0, reverse = true}"},
};

std::string text_of(const Row& r) {
  return fmt::format("fn @f({}) {{ let %r = {}; %r }}", r.parameters, r.call);
}

TEST(Coverage, EveryOperatorAgreesWithTheReference) {
  for (const Row& r : kRows) {
    SCOPED_TRACE(r.call);
    Case c;
    c.text = text_of(r);
    const Workload w = workload_of(c.text);
    const Template* t = template_for(w, test_target(512, 32));
    ASSERT_NE(t, nullptr) << w.key;
    c.served_by = t->name();
    c.oracle = by_reference(c.text);
    c.tolerance = 2e-5;
    c.low = r.low;
    c.high = r.high;
    c.configurations = 2;
    c.sizes =
        w.contract.symbols.empty() ? Sizes{{}} : random_sizes(w.contract.symbols.size(), 40, 6);
    for (auto& s : c.sizes)  // windows, maxima and slices need an element
      for (int64_t& n : s) n = std::max<int64_t>(n, 2);
    if (std::string(r.op).starts_with("gather")) c.low = -7, c.high = 7;
    if (std::string(r.op) == "take_row") c.low = 0, c.high = 4;
    check(c);
    if (HasFatalFailure()) return;
  }
}

TEST(Coverage, NoOperatorIsLeftOut) {
  std::set<std::string> covered;
  for (const Row& r : kRows) covered.insert(r.op);
  // Computed by the VM or by passes, never by a kernel of their own …
  const std::set<std::string> outside = {"pack",        "write_row",    "append", "shape_of",
                                         "size",        "read_extents", "prefix", "assert_shape",
                                         "device_copy", "on_device",    "tile",   "take_rows"};
  // … and those with tests of their own (template_product_test.cpp).
  const std::set<std::string> products = {"matmul", "packed_matmul", "lstm_cell",
                                          "packed_lstm_cell", "gru_cell"};
  for (const ir::OpInfo& op : ir::all_ops()) {
    if (op.name.rfind("memory.", 0) == 0 || outside.contains(op.name) || products.contains(op.name))
      continue;
    // The library of the VM computes what the values of tensors decide (vm/library/test).
    if (op.shape_mode != ir::ShapeMode::kDataIndependent || find_host_op(op.name)) continue;
    EXPECT_TRUE(covered.contains(op.name)) << op.name;
  }
}

TEST(Workload, EqualWorkHasEqualKeys) {
  const Workload a = workload_of(
      "fn @f(%x: Tensor[(b, n, 8), f32], %c: Tensor[(8), f32]) { let %y = add(%x, %c); %y }");
  const Workload b = workload_of(
      "fn @g(%in: Tensor[(rows, 8), f32], %bias: Tensor[(8), f32]) "
      "{ let %out = add(%in, %bias); %out }");
  // A group's dims may be expressions of its caller's symbols.
  const ir::Dim rows = 2 * ir::Dim::symbol("k") + 1;
  ir::VarRef x = ir::make_var("x", ir::tensor_type({rows, 8}, DType::kF32));
  ir::VarRef v = ir::make_var("v", ir::tensor_type({8}, DType::kF32));
  ir::BlockBuilder block;
  ir::VarRef y = block.call("add", {x, v});
  y->type = x->type;
  const Workload compound = make_workload(*ir::make_function_of({x, v}, block.finish(y), x->type));
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.key, compound.key);
  EXPECT_EQ(a.contract.symbols, std::vector<std::string>{"s0"});
  EXPECT_TRUE(a.contract.arguments[0].collapse_leading);
  EXPECT_FALSE(a.contract.arguments[1].collapse_leading);
  const Workload d = workload_of(
      "fn @f(%x: Tensor[(b, n, 9), f32], %c: Tensor[(9), f32]) { let %y = add(%x, %c); %y }");
  EXPECT_NE(a.key, d.key);
}

TEST(Workload, CompoundDimsAreSolvedForTheirSymbol) {
  const ir::Dim k = ir::Dim::symbol("k");
  ir::VarRef x = ir::make_var("x", ir::tensor_type({2 * k + 1}, DType::kF32));
  ir::BlockBuilder block;
  ir::VarRef y = block.call("slice", {x},
                            {{"axes", std::vector<int64_t>{0}},
                             {"starts", std::vector<ir::Dim>{0}},
                             {"ends", std::vector<ir::Dim>{k}}});
  y->type = ir::tensor_type({k}, DType::kF32);
  const Workload w = make_workload(*ir::make_function_of({x}, block.finish(y), y->type));
  ASSERT_EQ(w.contract.symbols.size(), 1u);
  EXPECT_TRUE(w.extra_scalars.empty());
  const std::vector<int64_t> symbols = {21};
  EXPECT_EQ(w.contract.arguments.back().dims[0].evaluate1(symbols), 10);
}

// The rows (n, 4) are one axis of 4*n, in front of the n that would explain them.
TEST(Workload, NoDimIsReadBeforeItsSymbolIsBound) {
  const Workload w = workload_of(
      "fn @f(%x: Tensor[(n, 4, 5, n), f32]) "
      "{ let %y = prod(%x) {axes = [2], keepdims = true}; %y }");
  const std::vector<exec::DimProgram>& dims = w.contract.arguments[0].dims;
  ASSERT_EQ(dims.size(), 3u);
  uint32_t symbol = 0;
  EXPECT_TRUE(dims[0].is_argument(&symbol));
  EXPECT_EQ(symbol, 0u);
  EXPECT_TRUE(dims[2].is_argument(&symbol));
  EXPECT_EQ(symbol, 1u);
  EXPECT_TRUE(w.extra_scalars.empty());
}

TEST(Workload, UnboundSymbolsAreScalarArguments) {
  ir::Module m = ir::infer_types(ir::parse_module(
      "fn @f(%x: Tensor[(n), f32]) { let %r = range() {count = n, start = 0, step = 1, "
      "dtype = i64}; %r }"));
  ir::Function f = *m.functions.at(0).second;
  f.parameters.clear();  // nothing binds n any more
  const Workload w = make_workload(f);
  ASSERT_EQ(w.extra_scalars.size(), 1u);
  EXPECT_EQ(w.extra_scalars[0].str(), "n");
  ASSERT_EQ(w.contract.arguments.size(), 2u);
  EXPECT_EQ(w.contract.arguments[0].kind, exec::KernelArgument::Kind::kScalar);
}

TEST(Config, RoundTripsAndRefusesBadText) {
  const Config c = {{"unroll", int64_t{4}}, {"tails", std::string("even")}};
  EXPECT_EQ(to_json(c), "{\"tails\":\"even\",\"unroll\":4}");
  EXPECT_EQ(config_from_json(to_json(c)), c);
  EXPECT_EQ(config_from_json("{ }"), Config{});
  for (const char* bad : {"", "{", "[1]", "{\"a\":}", "{\"a\":1.5}", "{\"a\":1,\"a\":2}",
                          "{\"a\":1} x", "{\"a\":\"b}"})
    EXPECT_THROW(config_from_json(bad), Error) << bad;
  EXPECT_THROW(knob_int(c, "tails"), Error);
  EXPECT_THROW(knob_text(c, "nothing"), Error);
}

}  // namespace
}  // namespace nimble::kernels::testing
