// LSTM and GRU as recursive functions over time.
//
// ONNX's operators hold a whole sequence. In the IR a step is a cell, and the loop a function that
// calls itself in tail position:
//
//   fn @lstm(%step, %x: (n, b, 4h), %y: (n, b, h), %h: (b, h), %c: (b, h)) -> (y, h, c) {
//     if (step < n) { h', c' = lstm_cell(take_row(x, step), h, c, R);
//                     @lstm(step + 1, x, write_row(y, step, h'), h', c') } else { (y, h, c) }
//   }
//
// so that planning, tuning and the run see what a loop written by hand has, too. The inputs' part
// of the gates does not depend on the state: it is one product over all steps ahead of the loop.
// The recurrent weights are a constant inside the function, which lets them be packed.
//
// Gates: ONNX orders LSTM's i, o, f, c and GRU's z, r, h; the cells take i, f, g, o and r, z, n as
// PyTorch does. Weights are (directions, gates * h, width) and biases (directions, 2 * gates * h):
// the input's, then the state's. Source: onnx.ai/onnx/operators (LSTM, GRU).
#include <cstring>

#include "compiler/frontend/onnx/operators.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Atom;
using ir::Dim;
using ir::VarRef;

struct CellKind {
  const char* name;  // of the loop function
  Axes order;        // gate g of the IR is ONNX's gate order[g]
  bool has_c;
};

const CellKind kLstm = {"lstm", {0, 2, 3, 1}, true};
const CellKind kGru = {"gru", {1, 0, 2}, false};

// The gates of direction d of a constant (directions, rows, …), taken from row `first` on in the
// order of the IR: (gates * h, …).
ir::TensorRef gates_of(const ir::Tensor& t, int64_t d, int64_t first, const Axes& order,
                       int64_t h) {
  std::vector<int64_t> shape(t.shape.begin() + 1, t.shape.end());
  const size_t row =
      t.bytes.size() / static_cast<size_t>(t.shape[0]) / static_cast<size_t>(shape[0]);
  const size_t begin = static_cast<size_t>(d * shape[0] + first) * row;
  const size_t block = static_cast<size_t>(h) * row;
  shape[0] = static_cast<int64_t>(order.size()) * h;
  uint8_t* data = nullptr;
  auto out = ir::Tensor::make(t.dtype, shape, &data);
  for (size_t g = 0; g < order.size(); ++g)
    std::memcpy(data + g * block, t.bytes.data() + begin + static_cast<size_t>(order[g]) * block,
                block);
  out->name = t.shape[0] > 1 ? fmt::format("{}.{}", t.name, d) : t.name;
  return out;
}

ir::TensorRef transposed(const ir::Tensor& t) {
  uint8_t* data = nullptr;
  const int64_t rows = t.shape[0], columns = t.shape[1];
  auto out = ir::Tensor::make(t.dtype, {columns, rows}, &data);
  const size_t size = size_of(t.dtype);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < columns; ++k)
      std::memcpy(data + static_cast<size_t>(k * rows + r) * size,
                  t.bytes.data() + static_cast<size_t>(r * columns + k) * size, size);
  out->name = t.name;
  return out;
}

ir::TensorRef sum_of(const ir::Tensor& a, const ir::Tensor& b) {
  uint8_t* data = nullptr;
  auto out = ir::Tensor::make(DType::kF32, a.shape, &data);
  auto* sums = reinterpret_cast<float*>(data);
  for (int64_t i = 0; i < a.elements(); ++i) sums[i] = static_cast<float>(a.value(i) + b.value(i));
  out->name = a.name;
  return out;
}

class Recurrent {
 public:
  Recurrent(NodeContext& c, const CellKind& kind) : c_(c), kind_(kind) {}

  Values build() {
    const std::string direction = c_.text("direction", "forward");
    const bool both = direction == "bidirectional";
    if (!both && direction != "forward" && direction != "reverse")
      c_.fail(fmt::format("direction {} has no meaning", printable(direction)));
    directions_ = both ? 2 : 1;
    batch_first_ = c_.integer("layout", 0) != 0;
    read_weights();
    Value x = c_.in(0);
    if (x.rank() != 3) c_.fail(fmt::format("the input has rank {}, not 3", x.rank()));
    if (batch_first_) x = swap_axes(x);
    steps_ = x.dim(0);
    batch_ = x.dim(1);

    Values y, h, c;
    for (int64_t d = 0; d < directions_; ++d) {
      const bool backwards = both ? d == 1 : direction == "reverse";
      Values last = run_direction(x, d, backwards);
      y.push_back(with_axis(last[0], 1));  // (n, 1, b, h)
      h.push_back(with_axis(last[1], 0));  // (1, b, h)
      if (kind_.has_c) c.push_back(with_axis(last[2], 0));
    }
    Values out = {join(y, 1), join(h, 0)};
    if (kind_.has_c) out.push_back(join(c, 0));
    if (batch_first_) {
      out[0] = c_.g.call("transpose", {out[0]}, {{"axes", Axes{2, 0, 1, 3}}});
      for (size_t i = 1; i < out.size(); ++i) out[i] = swap_axes(out[i]);
    }
    return out;
  }

 private:
  Value swap_axes(const Value& v) { return c_.g.call("transpose", {v}, {{"axes", Axes{1, 0, 2}}}); }
  Value with_axis(const Value& v, int64_t axis) {
    return c_.g.call("unsqueeze", {v}, {{"axes", Axes{axis}}});
  }
  Value join(const Values& parts, int64_t axis) {
    return parts.size() == 1 ? parts[0] : c_.g.call("concat", parts, {{"axis", axis}});
  }

  ir::TensorRef constant(size_t input, const char* what, std::vector<int64_t> shape) {
    const Value& v = c_.in(input);
    if (!v.is_constant())
      c_.unsupported(fmt::format("{} is not a constant", what),
                     "export the model with constant folding");
    const ir::TensorRef& t = v.atom.constant;
    if (t->dtype != DType::kF32)
      c_.unsupported(fmt::format("{} is {}", what, nimble::name_of(t->dtype)),
                     "export the model in float32");
    if (shape.back() < 0 && t->shape.size() == shape.size()) shape.back() = t->shape.back();
    if (t->shape != shape)
      c_.fail(fmt::format("{} has shape ({}) where ({}) is needed", what, fmt::join(t->shape, ", "),
                          fmt::join(shape, ", ")));
    return t;
  }

  void read_weights() {
    const Value& r = c_.in(2);
    auto hidden = r.rank() == 3 ? r.dim(2).as_constant() : std::nullopt;
    hidden_ = c_.integer("hidden_size", hidden.value_or(0));
    if (hidden_ < 1 || hidden_ > INT32_MAX) c_.fail("the hidden size is out of range");
    const auto rows = static_cast<int64_t>(kind_.order.size()) * hidden_;
    w_ = constant(1, "the weight W", {directions_, rows, -1});
    r_ = constant(2, "the recurrent weight R", {directions_, rows, hidden_});
    if (c_.has(3)) b_ = constant(3, "the bias B", {directions_, 2 * rows});
  }

  Value initial(size_t input, int64_t d) {
    const Dims shape = {batch_, Dim(hidden_)};
    if (!c_.has(input)) return c_.g.full(shape, 0, DType::kF32);
    Value v = batch_first_ ? swap_axes(c_.in(input)) : c_.in(input);
    if (directions_ > 1) v = c_.g.slice(v, 0, Dim(d), Dim(d + 1));
    return c_.g.call("squeeze", {v}, {{"axes", Axes{0}}});
  }

  // Results y (n, b, h), h (b, h) and, for LSTM, c.
  Values run_direction(const Value& x, int64_t d, bool backwards) {
    const auto rows = static_cast<int64_t>(kind_.order.size()) * hidden_;
    Value w = c_.g.constant(gates_of(*w_, d, 0, kind_.order, hidden_));
    Value gates = c_.g.call("matmul", {x, w}, {{"transpose_b", true}});
    ir::TensorRef state_bias;
    if (b_) {
      ir::TensorRef bias = gates_of(*b_, d, 0, kind_.order, hidden_);
      state_bias = gates_of(*b_, d, rows, kind_.order, hidden_);
      // GRU multiplies a part of the state's bias with its reset gate: it stays apart.
      if (kind_.has_c) bias = sum_of(*bias, *state_bias);
      gates = c_.g.call("add", {gates, c_.g.constant(bias)});
    } else if (!kind_.has_c) {
      uint8_t* data = nullptr;
      state_bias = ir::Tensor::make(DType::kF32, {rows}, &data);
    }
    ir::TensorRef r = transposed(*gates_of(*r_, d, 0, kind_.order, hidden_));
    const std::string loop = define_loop(r, state_bias, backwards);

    Value y = c_.g.full({steps_, batch_, Dim(hidden_)}, 0, DType::kF32);
    Value first = c_.g.integer(0);
    if (backwards) first = c_.g.call("sub", {c_.g.size(steps_), c_.g.integer(1)});
    Values args = {first, gates, y, initial(5, d)};
    const ir::Type state = ir::tensor_type({batch_, Dim(hidden_)}, DType::kF32);
    std::vector<ir::Type> results = {y.type, state};
    if (kind_.has_c) {
      args.push_back(initial(6, d));
      results.push_back(state);
    }
    return c_.g.call_function(loop, args, results);
  }

  // Defines the loop function and returns its name.
  std::string define_loop(const ir::TensorRef& r, const ir::TensorRef& bias, bool backwards) {
    std::string name = kind_.name;
    for (int i = 1; c_.module.find(name); ++i) name = fmt::format("{}_{}", kind_.name, i);

    // Its own symbols; extents that are known stay known.
    const Dim n = steps_.as_constant() ? steps_ : Dim::symbol("n");
    const Dim b = batch_.as_constant() ? batch_ : Dim::symbol("b");
    const Dim h = hidden_;
    const auto gates = static_cast<int64_t>(kind_.order.size());
    const ir::Type state_type = ir::tensor_type({b, h}, DType::kF32);
    const ir::Type y_type = ir::tensor_type({n, b, h}, DType::kF32);
    ir::Location at;
    at.file = c_.place.substr(0, c_.place.find(": node "));
    at.source_name = c_.node.label();

    VarRef step = ir::make_var("step", ir::tensor_type({}, DType::kI64));
    VarRef x = ir::make_var("x", ir::tensor_type({n, b, Dim(gates * hidden_)}, DType::kF32));
    VarRef y = ir::make_var("y", y_type);
    std::vector<VarRef> state = {ir::make_var("h", state_type)};
    if (kind_.has_c) state.push_back(ir::make_var("c", state_type));

    ir::BlockBuilder body;
    ir::BlockBuilder next;
    VarRef row = next.call("take_row", {x, step}, {}, "row", at);
    std::vector<Atom> new_state;
    if (kind_.has_c) {
      VarRef both = next.call("lstm_cell", {row, state[0], state[1], Atom::of(r)}, {}, "cell", at);
      new_state.emplace_back(next.bind(ir::make_get_field(both, 0, at), "h"));
      new_state.emplace_back(next.bind(ir::make_get_field(both, 1, at), "c"));
    } else {
      new_state.emplace_back(
          next.call("gru_cell", {row, state[0], Atom::of(r), Atom::of(bias)},
                    {{"linear_before_reset", c_.integer("linear_before_reset", 0) != 0}}, "h", at));
    }
    VarRef written = next.call("write_row", {y, step, new_state[0]}, {}, "y", at);
    VarRef following = next.call(backwards ? "sub" : "add",
                                 {step, Atom::of(ir::Tensor::scalar_i64(1))}, {}, "step", at);
    std::vector<Atom> args = {following, x, written};
    args.insert(args.end(), new_state.begin(), new_state.end());
    VarRef rest =
        next.bind(ir::make_call_function(Atom::of_global(name), std::move(args), at), "rest");

    ir::BlockBuilder done;
    std::vector<Atom> results = {y};
    for (const VarRef& s : state) results.emplace_back(s);
    VarRef tuple = done.bind(ir::make_tuple(results, at), "results");

    VarRef more = backwards
                      ? body.call("greater_equal", {step, Atom::of(ir::Tensor::scalar_i64(0))}, {},
                                  "more", at)
                      : body.call("less", {step, body.call("size", {}, {{"value", n}}, "n", at)},
                                  {}, "more", at);
    VarRef out = body.bind(ir::make_if(more, next.finish(rest), done.finish(tuple), at), "results");

    std::vector<VarRef> parameters = {step, x, y};
    parameters.insert(parameters.end(), state.begin(), state.end());
    std::vector<ir::Type> types = {y_type, state_type};
    if (kind_.has_c) types.push_back(state_type);
    c_.module.set(name, ir::make_function_of(parameters, body.finish(out),
                                             ir::tuple_type(std::move(types)), {}, at));
    return name;
  }

  NodeContext& c_;
  const CellKind& kind_;
  int64_t directions_ = 1, hidden_ = 0;
  bool batch_first_ = false;
  Dim steps_, batch_;
  ir::TensorRef w_, r_, b_;
};

// Whether a node is what the fused cells compute.
bool is_plain(const NodeContext& c) {
  for (size_t i = 1; i < 4; ++i)
    if (c.has(i) && (!c.in(i).is_constant() || c.in(i).dtype() != DType::kF32)) return false;
  if (c.in(0).dtype() != DType::kF32 || c.has(4) || c.has(7)) return false;
  if (c.node.find("clip") || c.integer("input_forget", 0)) return false;
  const Attribute* a = c.node.find("activations");
  if (!a) return true;
  const std::vector<std::string> usual = c.node.op == "LSTM"
                                             ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                             : std::vector<std::string>{"Sigmoid", "Tanh"};
  for (size_t i = 0; i < a->strings.size(); ++i)
    if (a->strings[i] != usual[i % usual.size()]) return false;
  return true;
}

Values lstm(NodeContext& c) {
  return is_plain(c) ? Recurrent(c, kLstm).build() : recurrent_layer(c);
}

Values gru(NodeContext& c) {
  return is_plain(c) ? Recurrent(c, kGru).build() : recurrent_layer(c);
}

}  // namespace

std::span<const Operator> recurrent_operators() {
  static const Operator kRows[] = {
      {"LSTM", lstm},
      {"GRU", gru},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
