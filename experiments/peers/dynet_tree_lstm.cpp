// The Tree-LSTM of experiments/tree_lstm in DyNet's C++ interface, which spares it the cost of its
// Python bindings. One computation graph a tree, built by recursion, as DyNet's users write it; the
// gates of a cell are one product.
#include <dynet/dynet.h>
#include <dynet/expr.h>
#include <dynet/globals.h>
#include <dynet/init.h>
#include <dynet/model.h>
#include <dynet/tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

using dynet::Expression;

constexpr unsigned kInput = 300, kHidden = 150;

struct Model {
  dynet::ParameterCollection parameters;
  dynet::LookupParameter words;
  dynet::Parameter weight_leaf, bias_leaf, weight_node, bias_node, weight_forget, bias_forget;
};
std::unique_ptr<Model> model;

dynet::Parameter parameter_of(const dynet::Dim& dim, const float* values) {
  dynet::Parameter p = model->parameters.add_parameters(dim);
  p.set_value(std::vector<float>(values, values + dim.size()));
  return p;
}

struct State {
  Expression h, c;
};

// The expressions of one tree.
class Cell {
 public:
  explicit Cell(dynet::ComputationGraph& graph)
      : graph_(graph),
        weight_leaf_(dynet::parameter(graph, model->weight_leaf)),
        bias_leaf_(dynet::parameter(graph, model->bias_leaf)),
        weight_node_(dynet::parameter(graph, model->weight_node)),
        bias_node_(dynet::parameter(graph, model->bias_node)),
        weight_forget_(dynet::parameter(graph, model->weight_forget)),
        bias_forget_(dynet::parameter(graph, model->bias_forget)) {}

  State leaf(int64_t word) {
    const Expression x = dynet::const_lookup(graph_, model->words, static_cast<unsigned>(word));
    return finish(dynet::affine_transform({bias_leaf_, weight_leaf_, x}), {});
  }
  State node(const State& left, const State& right) {
    return finish(dynet::affine_transform({bias_node_, weight_node_, left.h + right.h}),
                  {kept(left), kept(right)});
  }

 private:
  Expression kept(const State& child) {
    const Expression f =
        dynet::logistic(dynet::affine_transform({bias_forget_, weight_forget_, child.h}));
    return dynet::cmult(f, child.c);
  }
  State finish(const Expression& gates, std::vector<Expression> kept) {
    const Expression io = dynet::logistic(dynet::pick_range(gates, 0, 2 * kHidden));
    const Expression i = dynet::pick_range(io, 0, kHidden);
    const Expression o = dynet::pick_range(io, kHidden, 2 * kHidden);
    const Expression u = dynet::tanh(dynet::pick_range(gates, 2 * kHidden, 3 * kHidden));
    kept.push_back(dynet::cmult(i, u));
    const Expression c = kept.size() == 1 ? kept[0] : dynet::sum(kept);
    return {dynet::cmult(o, dynet::tanh(c)), c};
  }

  dynet::ComputationGraph& graph_;
  Expression weight_leaf_, bias_leaf_, weight_node_, bias_node_, weight_forget_, bias_forget_;
};

}  // namespace

extern "C" {

// Once per process. Matrices are given column by column; `words` has `vocabulary` rows of 300.
void tree_lstm_start(int autobatch, int64_t vocabulary, const float* words,
                     const float* weight_leaf, const float* bias_leaf, const float* weight_node,
                     const float* bias_node, const float* weight_forget, const float* bias_forget) {
  dynet::DynetParams settings;
  settings.autobatch = autobatch;
  settings.mem_descriptor = "256";
  dynet::initialize(settings);
  model = std::make_unique<Model>();
  model->words =
      model->parameters.add_lookup_parameters(static_cast<unsigned>(vocabulary), {kInput});
  for (int64_t w = 0; w < vocabulary; ++w)
    model->words.initialize(static_cast<unsigned>(w),
                            std::vector<float>(words + w * kInput, words + (w + 1) * kInput));
  model->weight_leaf = parameter_of({3 * kHidden, kInput}, weight_leaf);
  model->bias_leaf = parameter_of({3 * kHidden}, bias_leaf);
  model->weight_node = parameter_of({3 * kHidden, kHidden}, weight_node);
  model->bias_node = parameter_of({3 * kHidden}, bias_node);
  model->weight_forget = parameter_of({kHidden, kHidden}, weight_forget);
  model->bias_forget = parameter_of({kHidden}, bias_forget);
}

// A tree as its nodes' parents in post-order, -1 of the root, and the words of its leaves from left
// to right. Writes the root's hidden state, 150 numbers.
void tree_lstm_run(const int64_t* parents, int64_t nodes, const int64_t* words, float* h) {
  dynet::ComputationGraph graph;
  Cell cell(graph);
  // In post-order a node's children are the last two states that are not yet taken.
  std::vector<State> open;
  std::vector<bool> inner(static_cast<size_t>(nodes));
  for (int64_t n = 0; n < nodes; ++n) {
    if (!inner[static_cast<size_t>(n)]) {
      open.push_back(cell.leaf(*words++));
    } else {
      const State right = open.back();
      open.pop_back();
      open.back() = cell.node(open.back(), right);
    }
    if (parents[n] >= 0) inner[static_cast<size_t>(parents[n])] = true;
  }
  const std::vector<float> result = dynet::as_vector(graph.forward(open.back().h));
  std::copy(result.begin(), result.end(), h);
}
}
