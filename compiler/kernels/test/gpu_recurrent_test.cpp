// The template gpu_recurrent in the emulator, against the reference interpreter.
#include "compiler/kernels/test/recurrent_cases.h"

namespace nimble::kernels {
namespace {

Workload cell(const std::string& op, int64_t hidden, ir::Attrs attrs, DType weights) {
  return testing::recurrent_workload(op, hidden, std::move(attrs), weights);
}

void check_cell(const Workload& w, int configurations) {
  testing::check_recurrent_on_gpu(w, "gpu_recurrent", configurations,
                                  [](ReferenceHarness& harness, const Config& c, int i) {
                                    harness.lower(c);
                                    if (::testing::Test::HasFatalFailure()) return;
                                    for (const int64_t batch : {0, 1, 2, 5, 9}) {
                                      if (i > 0 && batch % 3 != i % 3) continue;
                                      harness.run({batch}, 1, static_cast<unsigned>(batch + i));
                                      if (::testing::Test::HasFatalFailure()) return;
                                    }
                                  });
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
  testing::expect_refuses_shapes_of_no_block("gpu_recurrent",
                                             cell("lstm_cell", 19, {}, DType::kF32));
}

}  // namespace
}  // namespace nimble::kernels
