// What templates of recurrent cells share, and how "recurrent" wants its weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/target.h"
#include "compiler/kernels/templates/frame.h"
#include "vm/base/dtype.h"

namespace nimble::kernels {

using kir::Dim;

// One step of an LSTM or GRU of f32, by its operands' buffers.
struct RecurrentCell {
  Frame frame;
  bool lstm = false, packed = false, linear_before_reset = false;
  kir::BufferRef gates, h, c, weights, bias;  // c: LSTM only; bias: GRU only
  std::vector<kir::BufferRef> h_out, c_out;   // a result may be wanted in several places
  DType dtype{};                              // of the state; the weights' may be narrower
  Dim batch;
  int64_t hidden = 0;
  int gate_count = 0;  // of a unit
};
// Nothing if the group does more than a step whose results it hands out, once or more often.
std::optional<RecurrentCell> recurrent_cell(const Workload& w, Frame frame);

// All steps of such a cell: `gates` has a row of the batch's for each, h and c are the states ahead
// of them, h_out and c_out those behind.
struct RecurrentSteps : RecurrentCell {
  std::vector<kir::BufferRef> y_out;  // (steps, batch, hidden)
  Dim count;
  bool reverse = false;  // from the last row of gates on

  // The row of gates and of y of a step.
  Dim row_of(const Dim& step) const { return reverse ? count - 1 - step : step; }
};
// Nothing if the group does more than these, whose results it hands out, each at least once.
std::optional<RecurrentSteps> recurrent_steps(const Workload& w, Frame frame);

// The layout in which a cell's recurrent weights should be packed for `t`.
std::string recurrent_layout(const TargetInfo& t, DType dtype);

}  // namespace nimble::kernels
