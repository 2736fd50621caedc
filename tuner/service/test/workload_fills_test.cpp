// The data that kernels are run with.
#include "tuner/service/workload_fills.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "compiler/reference/reference.h"
#include "tuner/service/oracle.h"

namespace nimble::tuner {
namespace {

ir::Module typed(const std::string& text) {
  return ir::infer_types(ir::parse_module(text));
}
std::vector<TuningTask> tasks_of(const std::string& text) {
  const ir::Module m = typed(text);
  passes::PassContext context;
  context.target = kernels::target_by_name("x86-64-v3");
  return tuning_tasks(passes::run_pipeline(m, context), model_points(m, {}), context.target,
                      nullptr);
}

// The fills of a product of bytes, in the order of its operands.
std::vector<Fill> fills_of_product(const std::string& attributes) {
  const auto tasks = tasks_of(fmt::format(R"(
fn @main(%x: Tensor[(n, 96), u8], %w: Tensor[(5, 24, 32, 4), i8]) -> Tensor[(n, 160), i32] {{
  let %y = packed_matmul(%x, %w) {{n = 160, k = 96, layout = "panel32x4", out = i32{}}};
  %y
}})",
                                          attributes));
  EXPECT_EQ(tasks.size(), 1u);
  return tasks.at(0).fills;
}

// Sums that saturate in 16 bits, or signs that are not seen, show at large bytes alone.
TEST(Workloads, BytesOfAProductHaveTheRangeThatItPromises) {
  const auto range = [](const Fill& f) { return std::pair(f.low, f.high); };
  for (const auto& [attributes, low, high] :
       std::initializer_list<std::tuple<const char*, double, double>>{
           {"", -128, 127},
           {", max_weight = 128", -128, 127},
           {", max_weight = 64", -64, 64},
           {", max_weight = 0", 0, 0}}) {
    const std::vector<Fill> fills = fills_of_product(attributes);
    ASSERT_EQ(fills.size(), 2u);
    EXPECT_EQ(range(fills[0]), std::pair(0.0, 255.0)) << attributes;
    EXPECT_EQ(range(fills[1]), std::pair(low, high)) << attributes;
  }
}

// As small as a model's: a byte that is made of a sum tells what the sum was.
TEST(Workloads, ScalesOfSumsOfBytesLeaveBytes) {
  const auto tasks = tasks_of(R"(
fn @main(%x: Tensor[(n, 96), u8], %w: Tensor[(5, 24, 32, 4), i8], %s: Tensor[(160), f32])
    -> Tensor[(n, 160), u8] {
  let %y = packed_matmul(%x, %w) {n = 160, k = 96, layout = "panel32x4", out = i32};
  let %f = cast(%y) {dtype = f32};
  let %z = mul(%f, %s);
  let %r = round(%z);
  let %c = clip(%r) {min = 0.0, max = 255.0};
  let %b = cast(%c) {dtype = u8};
  %b
})");
  ASSERT_EQ(tasks.size(), 1u);
  const WorkloadPoint& p = tasks[0].points[tasks[0].representative()];
  const Expectation e = expected_result(tasks[0], p, {}, [] { return std::nullopt; });
  const auto inside =
      std::ranges::count_if(e.outputs.at(0), [](uint8_t byte) { return byte > 0 && byte < 255; });
  EXPECT_GT(inside, static_cast<int64_t>(e.outputs[0].size() / 4));
}

// A product of bytes with what follows its sums, as one kernel.
TuningTask product_with(const std::string& parameters, const std::string& epilogue) {
  const ir::Module m = typed(fmt::format(R"(
fn @main(%x: Tensor[(16, 96), u8], %w: Tensor[(5, 24, 32, 4), i8], {})
    -> Tensor[(16, 160), i8] {{
  let %y = packed_matmul(%x, %w) {{n = 160, k = 96, layout = "panel32x4", out = i32}};
  {}
  let %r = round(%z);
  let %c = clip(%r) {{min = -128.0, max = 127.0}};
  let %b = cast(%c) {{dtype = i8}};
  %b
}})",
                                         parameters, epilogue));
  TuningTask out;
  out.use.workload = kernels::make_workload(*m.find("main"));
  WorkloadPoint point;
  point.representative = true;
  out.points = {point};
  complete(out);
  return out;
}

// What the kernel makes of its data; with a parameter that is 0 throughout, if one is named.
std::vector<int8_t> bytes_of(const TuningTask& task, std::optional<size_t> without = {}) {
  const ir::FunctionRef& group = task.workload().group;
  std::vector<ir::TensorRef> arguments;
  for (uint32_t i = 0; i < group->parameters.size(); ++i) {
    const ir::Type& type = group->parameters[i]->type;
    std::vector<int64_t> shape;
    for (const ir::Dim& d : type->dims) shape.push_back(*d.as_constant());
    uint8_t* data = nullptr;
    auto tensor = ir::Tensor::make(type->dtype, shape, &data);
    if (i == without)
      std::fill_n(data, tensor->bytes.size(), uint8_t{0});
    else
      fill_tensor(task.fills.at(i), type->dtype, 1, i, {data, tensor->bytes.size()});
    arguments.push_back(std::move(tensor));
  }
  ir::Module m;
  m.set("main", group);
  const ir::TensorRef y = reference::Interpreter(m).run_tensors("main", arguments).at(0);
  return {y->bytes.begin(), y->bytes.end()};
}

int64_t count_inside(const std::vector<int8_t>& bytes) {
  return std::ranges::count_if(bytes, [](int8_t b) { return b > -128 && b < 127; });
}

// A kernel that forgets a bias, or a correction for a zero point, gives other bytes.
TEST(Workloads, AddendsOfSumsOfBytesMatter) {
  const std::string scaled = "let %f = cast(%s) {dtype = f32};\n  let %z = mul(%f, %k);";
  for (const auto& [parameters, addend] :
       std::initializer_list<std::pair<std::string, std::string>>{
           {"%a: Tensor[(160), i32]", "let %s = add(%y, %a);"},
           {"%a: Tensor[(), i32]", "let %s = sub(%y, %a);"},
           {"%a: Tensor[(160), i32], %o: Tensor[(), u8]",
            "let %i = cast(%o) {dtype = i32};\n  let %m = mul(%i, %a);\n  let %s = sub(%y, %m);"},
           {"%a: Tensor[(1, 160), i32], %o: Tensor[(), i32]",
            "let %m = mul(%o, %a);\n  let %n = neg(%m);\n  let %s = add(%y, %n);"}}) {
    SCOPED_TRACE(addend);
    const TuningTask task =
        product_with("%k: Tensor[(160), f32], " + parameters, addend + "\n  " + scaled);
    const std::vector<int8_t> with = bytes_of(task), without = bytes_of(task, 3);
    ASSERT_EQ(with.size(), 16u * 160u);
    EXPECT_GT(count_inside(with), 16 * 160 / 2);
    int64_t apart = 0;
    for (size_t i = 0; i < with.size(); ++i) apart += with[i] != without[i];
    EXPECT_GT(apart, 16 * 160 / 2);
  }
}

// Behind the scale, too: a zero point of the result.
TEST(Workloads, AddendsOfScaledSumsMatter) {
  const TuningTask task = product_with("%k: Tensor[(160), f32], %o: Tensor[(), u8]",
                                       "let %f = cast(%y) {dtype = f32};\n"
                                       "  let %p = mul(%f, %k);\n"
                                       "  let %g = cast(%o) {dtype = f32};\n"
                                       "  let %z = add(%p, %g);");
  EXPECT_GE(task.fills.at(3).low, 4);
  EXPECT_LE(task.fills.at(3).high, 64);
}

// Scales that the kernel computes, or by which it divides, leave as much as those that it is given.
TEST(Workloads, ComputedScalesOfSumsOfBytesLeaveBytes) {
  for (const auto& [parameters, scaled] :
       std::initializer_list<std::pair<std::string, std::string>>{
           {"%k: Tensor[(160), f32], %t: Tensor[(), f32]",
            "let %p = mul(%k, %t);\n  let %z = mul(%f, %p);"},
           {"%k: Tensor[(160), f32], %t: Tensor[(16, 1), f32]",
            "let %h = mul(%t, 0.00392156f32);\n  let %p = mul(%h, %k);\n  let %z = mul(%p, %f);"},
           {"%t: Tensor[(160), f32]", "let %z = div(%f, %t);"}}) {
    SCOPED_TRACE(scaled);
    const TuningTask task =
        product_with(parameters, "let %f = cast(%y) {dtype = f32};\n  " + scaled);
    EXPECT_GT(count_inside(bytes_of(task)), 16 * 160 / 2);
  }
}

TEST(Workloads, IndicesStayInsideTheirTable) {
  const auto tasks = tasks_of(R"(
fn @main(%x: Tensor[(b, n, 16), f32], %ids: Tensor[(b, n), i64], %t: Tensor[(50, 16), f32])
    -> Tensor[(b, n, 16), f32] {
  let %e = gather(%t, %ids) {axis = 0};
  let %s = add(%e, %x);
  let %y = softmax(%s) {axis = 2};
  %y
})");
  bool seen = false;
  for (const TuningTask& t : tasks)
    for (const Fill& f : t.fills)
      if (f.high == 49) seen = f.low == 0;
  EXPECT_TRUE(seen);
}

// The element-wise gather, too: its indices were 0 and 1 whatever the extent.
TEST(Workloads, ElementwiseIndicesStayInsideTheirAxis) {
  const auto tasks = tasks_of(R"(
fn @main(%x: Tensor[(n, 50), f32], %i: Tensor[(n, 3), i64], %j: Tensor[(n, 1), i64],
         %one: Tensor[(n, 1), f32]) {
  let %y = gather_elements(%x, %i) {axis = 1};
  let %z = gather_elements(%one, %j) {axis = 1};
  let %both = (%y, %z);
  %both
})");
  std::multiset<double> highest;
  for (const TuningTask& t : tasks)
    for (const Fill& f : t.fills)
      if (f.low == 0) highest.insert(f.high);
  EXPECT_EQ(highest, (std::multiset<double>{0, 49}));
}

// A table as long as the text: its rows were asked for by index 0 alone.
TEST(Workloads, IndicesSpanAnExtentThatVaries) {
  const auto tasks = tasks_of(R"(
fn @main(%t: Tensor[(n, 16), f32], %at: Tensor[(n), i64]) -> Tensor[(n, 16), f32] {
  let %rows = gather(%t, %at) {axis = 0};
  %rows
})");
  ASSERT_EQ(tasks.size(), 1u);
  std::set<double> highest;
  for (const WorkloadPoint& p : tasks[0].points)
    for (const Fill& f : tasks[0].fills_at(p))
      if (f.low == 0) {
        EXPECT_LT(f.high, static_cast<double>(p.symbols[0]));
        highest.insert(f.high);
      }
  EXPECT_TRUE(highest.contains(0));
  EXPECT_EQ(*highest.rbegin(), 255);
  // The reference accepts them, and a row of some index is not the first.
  const WorkloadPoint& p = tasks[0].points[tasks[0].representative()];
  const Expectation e = expected_result(tasks[0], p, {}, [] { return std::nullopt; });
  std::set<float> firsts;
  for (size_t row = 0; row < 64; ++row)
    firsts.insert(reinterpret_cast<const float*>(e.outputs.at(0).data())[row * 16]);
  EXPECT_GT(firsts.size(), 10u);
}

}  // namespace
}  // namespace nimble::tuner
