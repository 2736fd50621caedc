// The template gpu_recurrent in the emulator, against the reference interpreter.
#include "compiler/ir/builder.h"
#include "compiler/ir/op.h"
#include "compiler/kernels/test/knob_cases.h"
#include "compiler/kernels/test/reference_harness.h"

namespace nimble::kernels {
namespace {

// One step of so many hidden units for a batch of `b`.
Workload cell(const std::string& op, int64_t hidden, ir::Attrs attrs, DType weights) {
  const ir::CellOperands& operands = *ir::find_op(op)->traits.cell;
  const ir::Type state = ir::tensor_type({ir::Dim::symbol("b"), hidden}, DType::kF32);
  const int64_t columns = operands.gates * hidden;
  std::vector<ir::VarRef> parameters;
  std::vector<ir::Atom> args;
  for (size_t i = 0; i < 4; ++i) {
    ir::Type type = state;
    if (i == 0) type = ir::tensor_type({ir::Dim::symbol("b"), columns}, DType::kF32);
    if (i == operands.weights) type = ir::tensor_type({hidden, columns}, weights);
    if (i == operands.bias) type = ir::tensor_type({columns}, DType::kF32);
    parameters.push_back(ir::make_var("p" + std::to_string(i), type));
    args.emplace_back(parameters.back());
  }
  ir::BlockBuilder block;
  const ir::VarRef y = block.call(op, args, std::move(attrs), "y");
  y->type = operands.c ? ir::tuple_type({state, state}) : state;
  return make_workload(
      *ir::make_function_of(parameters, block.finish(y), y->type, {{"primitive", true}}));
}

void check_cell(const Workload& w, int configurations) {
  SCOPED_TRACE(w.key);
  const TargetInfo gpu = target_by_name("sm_90a");
  ReferenceHarness harness(w, gpu);
  ASSERT_NE(harness.chosen(), nullptr);
  ASSERT_EQ(harness.chosen()->name(), "gpu_recurrent");
  std::mt19937 random(7);
  for (int i = 0; i <= configurations; ++i) {
    const Config c = i == 0 ? harness.chosen()->default_config(harness.workload(), gpu)
                            : random_config(*harness.chosen(), harness.workload(), gpu, random);
    SCOPED_TRACE(to_json(c));
    ASSERT_TRUE(harness.chosen()->valid(harness.workload(), c, gpu));
    harness.lower(c);
    if (::testing::Test::HasFatalFailure()) return;
    for (const int64_t batch : {0, 1, 2, 5, 9}) {
      if (i > 0 && batch % 3 != i % 3) continue;
      harness.run({batch}, 1, static_cast<unsigned>(batch + i));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuRecurrent, LstmCell) {
  for (const int64_t hidden : {1, 19, 32, 64, 100})
    check_cell(cell("lstm_cell", hidden, {}, DType::kF32), hidden == 64 ? 6 : 2);
}

TEST(GpuRecurrent, GruCell) {
  for (const bool linear_before_reset : {false, true})
    for (const int64_t hidden : {1, 21, 32, 72})
      check_cell(
          cell("gru_cell", hidden, {{"linear_before_reset", linear_before_reset}}, DType::kF32),
          hidden == 72 ? 6 : 2);
}

TEST(GpuRecurrent, CellsOfHalfWeights) {
  for (const DType stored : {DType::kF16, DType::kBF16})
    for (const int64_t hidden : {19, 40}) {
      check_cell(cell("lstm_cell", hidden, {}, stored), 2);
      check_cell(cell("gru_cell", hidden, {{"linear_before_reset", false}}, stored), 2);
    }
}

TEST(GpuRecurrent, ShapesThatABlockCannotHaveAreNotValid) {
  constexpr int64_t kLarge = int64_t{1} << 62;  // four of which are 0
  testing::expect_refuses_on_gpu("gpu_recurrent", cell("lstm_cell", 19, {}, DType::kF32),
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

}  // namespace
}  // namespace nimble::kernels
