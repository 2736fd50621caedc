// The template of recurrent cells against the reference interpreter.
#include "compiler/ir/op.h"
#include "compiler/kernels/targets.h"
#include "compiler/kernels/templates/recurrent.h"
#include "compiler/kernels/test/level_cases.h"
#include "compiler/kernels/test/product_cases.h"

namespace nimble::kernels::products {
namespace {

class CellTest : public testing::LevelTest {};

INSTANTIATE_TEST_SUITE_P(Targets, CellTest, ::testing::ValuesIn(machine_levels()),
                         testing::name_of_level);

// A cell of so many hidden units, plain or packed; `attrs` are the plain one's.
Workload cell_workload(const TargetInfo& target, const std::string& op, int64_t hidden, bool packed,
                       ir::Attrs attrs = {}, DType weights = DType::kF32) {
  Group g;
  const ir::OpInfo& info = *ir::find_op(op);
  const ir::CellOperands& cell = *info.traits.cell;
  const std::string layout = recurrent_layout(target, DType::kF32);
  const ir::Type state = f32({kB, hidden});
  const int64_t columns = cell.gates * hidden;
  std::vector<ir::Atom> args;
  for (size_t i = 0; i < static_cast<size_t>(info.max_args); ++i) {
    ir::Type type = i == 0 ? f32({kB, columns}) : i == cell.bias ? f32({columns}) : state;
    if (i == cell.weights)
      type = ir::tensor_type(packed ? ir::parse_layout(layout)->packed_dims(hidden, columns)
                                    : std::vector<Dim>{hidden, columns},
                             weights);
    args.emplace_back(g.parameter(type));
  }
  const ir::Type result = cell.c ? ir::tuple_type({state, state}) : state;
  if (!packed) return g.finish(g.call(op, args, attrs, result));
  g.attrs["scalars"] = std::vector<int64_t>{static_cast<int64_t>(args.size())};
  args.emplace_back(g.parameter(ir::tensor_type({}, DType::kI64)));
  attrs["hidden"] = hidden;
  attrs["layout"] = layout;
  return g.finish(g.call(cell.packed, args, attrs, result));
}

void check_cell(const Workload& w, const TargetInfo& target, int times) {
  check_configurations(
      w, target, "recurrent",
      [&](int run, std::mt19937&) {
        const int64_t batch = size_of_run(run) % 14;
        if (w.contract.arguments.size() < 5 ||
            w.contract.arguments[4].kind != exec::KernelArgument::Kind::kScalar)
          return std::vector<int64_t>{batch};
        // The batch and the step, in the contract's order.
        std::vector<int64_t> sizes(2, batch);
        sizes[w.contract.arguments[4].symbol] = run % 5;
        return sizes;
      },
      times);
}

TEST_P(CellTest, LstmCell) {
  for (const int64_t hidden : {32, 19})
    check_cell(cell_workload(target_, "lstm_cell", hidden, false), target_, 12);
}

TEST_P(CellTest, PackedLstmCellWalksEitherWay) {
  check_cell(cell_workload(target_, "lstm_cell", 19, true), target_, 25);
}

TEST_P(CellTest, CellsOfHalfWeights) {
  for (const DType stored : {DType::kF16, DType::kBF16})
    for (const bool packed : {false, true}) {
      check_cell(cell_workload(target_, "lstm_cell", 19, packed, {}, stored), target_, 8);
      check_cell(
          cell_workload(target_, "gru_cell", 19, packed, {{"linear_before_reset", false}}, stored),
          target_, 8);
    }
}

// h' once more, as the rows of a sequence want it; then c' twice, in front.
TEST_P(CellTest, ACellStoresAResultWhereverItIsWanted) {
  const ir::Type state = f32({kB, 19});
  for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{0, 1, 0}, {1, 1, 0}}) {
    Group g;
    const ir::VarRef x = g.parameter(f32({kB, 4 * 19})), h = g.parameter(state),
                     c = g.parameter(state), w = g.parameter(f32({19, 4 * 19}));
    const ir::VarRef cell = g.call("lstm_cell", {x, h, c, w}, {}, ir::tuple_type({state, state}));
    const ir::VarRef fields[] = {g.bind(ir::make_get_field(cell, 0), state),
                                 g.bind(ir::make_get_field(cell, 1), state)};
    std::vector<ir::Atom> results;
    for (const int64_t i : wanted) results.emplace_back(fields[i]);
    check_configurations(
        g.finish(g.bind(ir::make_tuple(results), ir::tuple_type({state, state, state}))), target_,
        "recurrent",
        [](int run, std::mt19937&) { return std::vector<int64_t>{size_of_run(run) % 14}; }, 12);
  }
}

TEST_P(CellTest, GruCell) {
  for (const bool linear_before_reset : {false, true})
    check_cell(cell_workload(target_, "gru_cell", 21, false,
                             {{"linear_before_reset", linear_before_reset}}),
               target_, 12);
}

TEST_P(CellTest, PackedGruCellWalksEitherWay) {
  for (const bool linear_before_reset : {false, true})
    check_cell(cell_workload(target_, "gru_cell", 19, true,
                             {{"linear_before_reset", linear_before_reset}}),
               target_, 25);
}

// One unit, and vectors of units that are full, one short and one over.
TEST_P(CellTest, PackedCellsOfAnyWidth) {
  const int64_t lanes = ir::parse_layout(recurrent_layout(target_, DType::kF32))->width;
  for (const int64_t hidden : {int64_t{1}, lanes - 1, lanes, lanes + 1}) {
    if (hidden == 0) continue;
    check_cell(cell_workload(target_, "lstm_cell", hidden, true), target_, 4);
    for (const bool linear_before_reset : {false, true})
      check_cell(cell_workload(target_, "gru_cell", hidden, true,
                               {{"linear_before_reset", linear_before_reset}}),
                 target_, 4);
  }
}

}  // namespace
}  // namespace nimble::kernels::products
