// Reference functions of the recurrent cells.
#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/ir/layout.h"
#include "compiler/ir/op.h"
#include "compiler/reference/operand.h"

namespace nimble::reference {
namespace {

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The recurrent matrix (h, gates * h) of a cell, which has it plain or packed.
class RecurrentMatrix {
 public:
  explicit RecurrentMatrix(const OpCall& c)
      : cell_(*ir::traits_of(c.e).cell),
        weights_(c.in[cell_.weights]),
        hidden_(c.in[1].shape.back()) {
    if (cell_.step) width_ = ir::parse_layout(ir::attr<std::string>(c.e.attrs, "layout"))->width;
  }

  // Of unit `row` of the old state, for unit `unit` of `gate`.
  double operator()(int64_t row, int64_t gate, int64_t unit) const {
    const int64_t gates = cell_.gates;
    const int64_t at =
        width_ == 0 ? (row * gates + gate) * hidden_ + unit
                    : ((unit / width_ * hidden_ + row) * gates + gate) * width_ + unit % width_;
    return weights_.f[static_cast<size_t>(at)];
  }

 private:
  const ir::CellOperands& cell_;
  const Array& weights_;
  int64_t hidden_ = 0;
  int64_t width_ = 0;  // of a packed panel; 0: plain
};

// One LSTM step: gates i, f, g, o.
std::vector<Array> lstm(const OpCall& c) {
  Array h_new = c.result(0), c_new = c.result(1);
  const Array &x = c.in[0], &h = c.in[1], &cell = c.in[2];
  const RecurrentMatrix weight(c);
  int64_t width = h.shape.back(), batch = width ? h.size() / width : 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t u = 0; u < width; ++u) {
      double gate[4];
      for (int64_t g = 0; g < 4; ++g) {
        gate[g] = x.f[static_cast<size_t>(b * 4 * width + g * width + u)];
        for (int64_t k = 0; k < width; ++k)
          gate[g] += h.f[static_cast<size_t>(b * width + k)] * weight(k, g, u);
      }
      auto p = static_cast<size_t>(b * width + u);
      double next = sigmoid(gate[1]) * cell.f[p] + sigmoid(gate[0]) * std::tanh(gate[2]);
      c_new.f[p] = next;
      h_new.f[p] = sigmoid(gate[3]) * std::tanh(next);
    }
  return {h_new, c_new};
}

// One GRU step: gates r, z, n.
std::vector<Array> gru(const OpCall& c) {
  Array y = c.result();
  const Array &x = c.in[0], &h = c.in[1], &bias = c.in[3];
  const RecurrentMatrix weight(c);
  bool linear = ir::attr_or(c.e.attrs, "linear_before_reset", true);
  int64_t width = h.shape.back(), batch = width ? h.size() / width : 0;
  std::vector<double> reset(static_cast<size_t>(width)), update(static_cast<size_t>(width));
  for (int64_t b = 0; b < batch; ++b) {
    auto old = [&](int64_t k) { return h.f[static_cast<size_t>(b * width + k)]; };
    auto input = [&](int64_t g, int64_t u) {
      return x.f[static_cast<size_t>(b * 3 * width + g * width + u)];
    };
    auto recurrent = [&](int64_t g, int64_t u, bool with_reset) {
      double sum = 0;
      for (int64_t k = 0; k < width; ++k)
        sum += old(k) * (with_reset ? reset[static_cast<size_t>(k)] : 1.0) * weight(k, g, u);
      return sum + bias.f[static_cast<size_t>(g * width + u)];
    };
    for (int64_t u = 0; u < width; ++u) {
      reset[static_cast<size_t>(u)] = sigmoid(input(0, u) + recurrent(0, u, false));
      update[static_cast<size_t>(u)] = sigmoid(input(1, u) + recurrent(1, u, false));
    }
    for (int64_t u = 0; u < width; ++u) {
      double r = reset[static_cast<size_t>(u)], z = update[static_cast<size_t>(u)];
      double n = std::tanh(linear ? input(2, u) + r * recurrent(2, u, false)
                                  : input(2, u) + recurrent(2, u, true));
      y.f[static_cast<size_t>(b * width + u)] = (1 - z) * n + z * old(u);
    }
  }
  return {y};
}

// The cell on row after row of the gates' input parts, from the last one on with `reverse`.
std::vector<Array> steps(const OpCall& c) {
  const char* name = ir::traits_of(c.e).steps_of;
  const ir::CellOperands& operands = *ir::find_op(name)->traits.cell;
  const ir::ExprRef cell = ir::make_call(name, {}, c.e.attrs);
  const int64_t count = c.in[0].shape[0];
  const bool reverse = ir::attr<bool>(c.e.attrs, "reverse");
  Array y = c.result(0);
  OpCall step{*cell, c.in, std::vector<ir::Type>(c.results.begin() + 1, c.results.end())};
  Array& gates = step.in[0];
  gates.shape.erase(gates.shape.begin());
  const auto wide = static_cast<ptrdiff_t>(elements(gates.shape));
  const auto state = static_cast<ptrdiff_t>(c.in[1].f.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<ptrdiff_t>(reverse ? count - 1 - i : i);
    gates.f.assign(c.in[0].f.begin() + row * wide, c.in[0].f.begin() + (row + 1) * wide);
    std::vector<Array> next = operands.c ? lstm(step) : gru(step);
    std::copy(next[0].f.begin(), next[0].f.end(), y.f.begin() + row * state);
    step.in[1] = std::move(next[0]);
    if (operands.c) step.in[*operands.c] = std::move(next[1]);
  }
  std::vector<Array> out = {std::move(y), step.in[1]};
  if (operands.c) out.push_back(step.in[*operands.c]);
  return out;
}

}  // namespace

ReferenceFunction find_network(const std::string& op) {
  static const std::map<std::string, ReferenceFunction> kTable = {
      {"lstm_cell", lstm},      {"packed_lstm_cell", lstm}, {"gru_cell", gru},
      {"packed_gru_cell", gru}, {"lstm_steps", steps},      {"gru_steps", steps}};
  auto it = kTable.find(op);
  return it == kTable.end() ? nullptr : it->second;
}

}  // namespace nimble::reference
