// Recurrent cells: one step each.
#include "compiler/ir/ops/relations.h"

namespace nimble::ir {
namespace {

// gates (b, parts*h), state (b, h)
void relate_gates(RelationContext& c, int64_t parts) {
  require_rank(c, 0, 2);
  require_rank(c, 1, 2);
  c.require_equal(dims(c, 0)[0], dims(c, 1)[0], "the batch of gates and state");
  c.require_equal(dims(c, 0)[1], Dim(parts) * dims(c, 1)[1],
                  fmt::format("gates are {} times as wide as the state", parts));
}

void relate_cell_state(RelationContext& c) {
  require_rank(c, 2, 2);
  c.require_equal(dims(c, 1)[0], dims(c, 2)[0], "the batch of h and c");
  c.require_equal(dims(c, 1)[1], dims(c, 2)[1], "the width of h and c");
}

void relate_weights(RelationContext& c, size_t input, int64_t parts) {
  require_rank(c, input, 2);
  c.require_equal(dims(c, input)[0], dims(c, 1)[1], "rows of the recurrent weights");
  c.require_equal(dims(c, input)[1], Dim(parts) * dims(c, 1)[1],
                  "columns of the recurrent weights");
}

}  // namespace

RelationResult relate_lstm_cell(RelationContext& c) {
  require_same_dtype(c);
  require_float(c, 0);
  relate_gates(c, 4);
  relate_cell_state(c);
  relate_weights(c, 3, 4);
  return {tuple_type({c.inputs[1], c.inputs[2]}), std::nullopt};
}

RelationResult relate_packed_lstm_cell(RelationContext& c) {
  require_float(c, 0);
  for (size_t i = 1; i <= 3; ++i) require_dtype(c, i, dtype(c, 0));
  require_index(c, 4);
  relate_gates(c, 4);
  relate_cell_state(c);
  c.require_equal(dims(c, 1)[1], Dim(attr<int64_t>(c.call.attrs, "hidden")),
                  "the width of the state");
  const Dim hidden = attr<int64_t>(c.call.attrs, "hidden");
  const Dim width = layout_of(c, Layout::Kind::kGate).width;
  c.require_equal(element_count(c.inputs[3]), ceildiv(hidden, width) * hidden * Dim(4) * width,
                  "the size of the packed weights");
  return {tuple_type({c.inputs[1], c.inputs[2]}), std::nullopt};
}

RelationResult relate_gru_cell(RelationContext& c) {
  require_same_dtype(c);
  require_float(c, 0);
  relate_gates(c, 3);
  relate_weights(c, 2, 3);
  require_rank(c, 3, 1);
  c.require_equal(dims(c, 3)[0], Dim(3) * dims(c, 1)[1], "the recurrent bias");
  return {c.inputs[1], std::nullopt};
}

}  // namespace nimble::ir
