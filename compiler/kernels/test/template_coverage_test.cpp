// Every operator that may stand in a kernel is served by some template, and agrees with the
// reference interpreter.
#include <map>
#include <set>

#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/host_ops.h"
#include "compiler/kernels/test/operator_rows.h"
#include "compiler/kernels/test/template_harness.h"

namespace nimble::kernels::testing {
namespace {

TEST(Coverage, EveryOperatorAgreesWithTheReference) {
  for (const Row& r : kOperatorRows) {
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
  for (const Row& r : kOperatorRows) covered.insert(r.op);
  // Computed by the VM or by passes, never by a kernel of their own …
  const std::set<std::string> outside = {
      "pack",         "write_row",   "append",    "shape_of", "size",      "read_extents", "prefix",
      "assert_shape", "device_copy", "on_device", "tile",     "take_rows", "pitched"};
  // … and those with tests of their own (recurrent_steps_test.cpp, template_product_test.cpp,
  // template_recurrent_test.cpp, template_blockwise_test.cpp, template_groupwise_test.cpp,
  // template_image_test.cpp, template_image_tiles_test.cpp, template_winograd_test.cpp).
  const std::set<std::string> products = {
      "matmul",           "packed_matmul",           "lstm_cell",     "packed_lstm_cell",
      "gru_cell",         "packed_gru_cell",         "packed_conv2d", "packed_winograd",
      "blockwise_matmul", "packed_groupwise_matmul", "lstm_steps",    "gru_steps"};
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

// A configuration may come from a file or a command line. No template multiplies its numbers beyond
// 64 bits, or copies a loop's body without end.
TEST(Config, NumbersWithoutMeaningAreNotValid) {
  const char* texts[] = {
      "fn @f(%x: Tensor[(m, 40), f32], %w: Tensor[(40, 24), f32]) "
      "{ let %y = matmul(%x, %w); %y }",
      "fn @f(%x: Tensor[(m, 40), f32], %w: Tensor[(m, 24), f32]) "
      "{ let %y = matmul(%x, %w) {transpose_a = true}; %y }",
      "fn @f(%x: Tensor[(m, 40), f32]) { let %y = softmax(%x) {axis = 1}; %y }",
      "fn @f(%x: Tensor[(m, 40), f32]) { let %y = exp(%x); %y }",
      "fn @f(%x: Tensor[(m, 40), f32]) { let %y = cumsum(%x) {axis = 1}; %y }",
      "fn @f(%x: Tensor[(b, 3, h, w), f32], %w: Tensor[(5, 3, 3, 3), f32]) "
      "{ let %y = conv2d(%x, %w) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], "
      "groups = 1}; %y }"};
  for (const TargetInfo& target : {test_target(512, 32), target_by_name("sm_90a")})
    for (const char* text : texts) {
      const Workload w = workload_of(text);
      const Template* t = template_for(w, target);
      if (t == nullptr) continue;
      const Config config = t->default_config(w, target);
      ASSERT_TRUE(t->valid(w, config, target)) << w.key;
      for (const auto& [name, value] : config) {
        if (!std::holds_alternative<int64_t>(value)) continue;
        Config other = config;
        for (const int64_t number :
             {int64_t{-1}, int64_t{INT32_MAX}, int64_t{1} << 32, (int64_t{1} << 32) + 32,
              int64_t{1} << 62, INT64_MAX, INT64_MIN}) {
          other[name] = number;
          EXPECT_FALSE(t->valid(w, other, target)) << t->name() << " " << to_json(other);
        }
        if (name != "unroll") continue;
        other[name] = int64_t{1024};
        EXPECT_FALSE(t->valid(w, other, target)) << t->name() << " " << to_json(other);
      }
    }
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
