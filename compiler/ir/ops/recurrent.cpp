// Recurrent cells: one step each, or all steps of a sequence.
#include "compiler/ir/ops/relations.h"

namespace nimble::ir {
namespace {

// gates (b, parts*h), with `rows` more extents ahead, and state (b, h)
void relate_gates(RelationContext& c, int64_t parts, size_t rows = 0) {
  require_rank(c, 0, static_cast<int64_t>(rows) + 2);
  require_rank(c, 1, 2);
  c.require_equal(dims(c, 0)[rows], dims(c, 1)[0], "the batch of gates and state");
  c.require_equal(dims(c, 0)[rows + 1], Dim(parts) * dims(c, 1)[1],
                  fmt::format("gates are {} times as wide as the state", parts));
}

void relate_cell_state(RelationContext& c, size_t input) {
  require_rank(c, input, 2);
  c.require_equal(dims(c, 1)[0], dims(c, input)[0], "the batch of h and c");
  c.require_equal(dims(c, 1)[1], dims(c, input)[1], "the width of h and c");
}

void relate_weights(RelationContext& c, size_t input, int64_t parts) {
  require_rank(c, input, 2);
  c.require_equal(dims(c, input)[0], dims(c, 1)[1], "rows of the recurrent weights");
  c.require_equal(dims(c, input)[1], Dim(parts) * dims(c, 1)[1],
                  "columns of the recurrent weights");
}

void relate_packed_weights(RelationContext& c, size_t input, int64_t parts) {
  const Dim hidden = attr<int64_t>(c.call.attrs, "hidden");
  c.require_equal(dims(c, 1)[1], hidden, "the width of the state");
  const Dim width = layout_of(c, Layout::Kind::kGate).width;
  c.require_equal(element_count(c.inputs[input]),
                  ceildiv(hidden, width) * hidden * Dim(parts) * width,
                  "the size of the packed weights");
}

// The recurrent matrix may be f16 or bf16 where everything else is f32: it is converted as it is
// read.
void relate_cell_dtypes(RelationContext& c, const CellOperands& cell) {
  const size_t end = cell.step.value_or(c.inputs.size());
  for (size_t i = 1; i < end; ++i) {
    const bool stored =
        i == cell.weights && dtype(c, 0) == DType::kF32 && is_narrow_float(dtype(c, i));
    if (!stored) require_dtype(c, i, dtype(c, 0));
  }
  if (cell.step) require_index(c, *cell.step);
}

void relate_bias(RelationContext& c, const CellOperands& cell) {
  require_rank(c, *cell.bias, 1);
  c.require_equal(dims(c, *cell.bias)[0], Dim(cell.gates) * dims(c, 1)[1], "the recurrent bias");
}

}  // namespace

RelationResult relate_cell(RelationContext& c) {
  const CellOperands& cell = *traits_of(c.call).cell;
  relate_cell_dtypes(c, cell);
  require_float(c, 0);
  relate_gates(c, cell.gates);
  if (cell.c) relate_cell_state(c, *cell.c);
  (cell.step ? relate_packed_weights : relate_weights)(c, cell.weights, cell.gates);
  if (cell.bias) relate_bias(c, cell);
  return {cell.c ? tuple_type({c.inputs[1], c.inputs[*cell.c]}) : c.inputs[1], std::nullopt};
}

RelationResult relate_cell_steps(RelationContext& c) {
  const CellOperands& cell = *find_op(traits_of(c.call).steps_of)->traits.cell;
  relate_cell_dtypes(c, cell);
  require_float(c, 0);
  relate_gates(c, cell.gates, 1);
  if (cell.c) relate_cell_state(c, *cell.c);
  relate_weights(c, cell.weights, cell.gates);
  if (cell.bias) relate_bias(c, cell);
  const Type all = tensor_type({dims(c, 0)[0], dims(c, 0)[1], dims(c, 1)[1]}, dtype(c, 1));
  std::vector<Type> results = {all, c.inputs[1]};
  if (cell.c) results.push_back(c.inputs[*cell.c]);
  return {tuple_type(std::move(results)), std::nullopt};
}

}  // namespace nimble::ir
