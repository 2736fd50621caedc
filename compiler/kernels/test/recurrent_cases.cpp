#include "compiler/kernels/test/recurrent_cases.h"

#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/test/knob_cases.h"

namespace nimble::kernels::testing {

Workload recurrent_workload(const std::string& op, int64_t hidden, ir::Attrs attrs, DType weights) {
  using ir::Dim;
  const char* const cell = ir::find_op(op)->traits.steps_of;
  const bool steps = cell != nullptr;
  const ir::CellOperands& operands = *ir::find_op(steps ? cell : op)->traits.cell;
  const Dim n = Dim::symbol("n"), b = Dim::symbol("b");
  const int64_t columns = operands.gates * hidden;
  const auto of_steps = [&](int64_t width) {
    return steps ? ir::tensor_type({n, b, width}, DType::kF32)
                 : ir::tensor_type({b, width}, DType::kF32);
  };
  const ir::Type state = ir::tensor_type({b, hidden}, DType::kF32);
  std::vector<ir::VarRef> parameters;
  std::vector<ir::Atom> args;
  for (size_t i = 0; i < 4; ++i) {
    ir::Type type = state;
    if (i == 0) type = of_steps(columns);
    if (i == operands.weights) type = ir::tensor_type({hidden, columns}, weights);
    if (i == operands.bias) type = ir::tensor_type({columns}, DType::kF32);
    parameters.push_back(ir::make_var("p" + std::to_string(i), type));
    args.emplace_back(parameters.back());
  }
  ir::BlockBuilder block;
  const ir::VarRef y = block.call(op, args, std::move(attrs), "y");
  // Of steps: what each has given, then the last state.
  std::vector<ir::Type> results = {of_steps(hidden)};
  if (steps) results.push_back(state);
  if (operands.c) results.push_back(state);
  y->type = results.size() == 1 ? results[0] : ir::tuple_type(std::move(results));
  return make_workload(
      *ir::make_function_of(parameters, block.finish(y), y->type, {{"primitive", true}}));
}

void check_recurrent_on_gpu(
    const Workload& w, const std::string& name, int configurations,
    const std::function<void(ReferenceHarness& harness, const Config& c, int number)>& each) {
  SCOPED_TRACE(w.key);
  const TargetInfo gpu = target_by_name("sm_90a");
  ReferenceHarness harness(w, gpu);
  ASSERT_NE(harness.chosen(), nullptr);
  ASSERT_EQ(harness.chosen()->name(), name);
  std::mt19937 random(7);
  for (int i = 0; i <= configurations; ++i) {
    const Config c = i == 0 ? harness.chosen()->default_config(harness.workload(), gpu)
                            : random_config(*harness.chosen(), harness.workload(), gpu, random);
    SCOPED_TRACE(to_json(c));
    ASSERT_TRUE(harness.chosen()->valid(harness.workload(), c, gpu));
    each(harness, c, i);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void expect_refuses_shapes_of_no_block(const char* name, const Workload& w) {
  constexpr int64_t kLarge = int64_t{1} << 62;  // four of which are 0
  expect_refuses_on_gpu(name, w,
                        {{"units", 0},
                         {"units", 12},
                         {"units", 64},
                         {"units", kLarge},
                         {"rows", 3},
                         {"rows", 0},
                         {"rows", kLarge},
                         {"threads", 40},
                         {"threads", (int64_t{1} << 32) + 128}});
}

}  // namespace nimble::kernels::testing
