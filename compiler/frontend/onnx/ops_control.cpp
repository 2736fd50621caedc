// If, Loop and Scan.
#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/onnx/sequences.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

Value scalar_of(NodeContext& c, const Value& v) {
  if (!is_plain(v)) c.fail("a count or condition is not a tensor");
  return v.rank() == 0 ? v : c.g.reshape(v, {});
}

Values if_(NodeContext& c) {
  const Value condition = scalar_of(c, c.in(0));
  if (condition.is_constant())
    return c.subgraph(condition.atom.constant->integer(0) ? "then_branch" : "else_branch", {});
  return c.g.branch(
      condition, [&] { return c.subgraph("then_branch", {}); },
      [&] { return c.subgraph("else_branch", {}); });
}

// A loop over the graph `body`, whose inputs the step fills.
GraphBuilder::Loop loop_over(NodeContext& c, const char* name) {
  GraphBuilder::Loop loop;
  loop.name = name;
  loop.captured = c.captured("body");
  return loop;
}

Values loop(NodeContext& c) {
  GraphBuilder::Loop l = loop_over(c, "loop");
  Arithmetic a(c.g);
  if (c.has(0)) l.count = a.cast(scalar_of(c, c.in(0)), DType::kI64);
  if (c.has(1)) l.condition = scalar_of(c, c.in(1));
  for (size_t i = 2; i < c.count(); ++i) l.state.push_back(c.in(i));
  const size_t states = l.state.size();
  l.body = [&](const Value& step, const Values& state, const Values& captured) {
    const Value yes = c.g.scalar(1, DType::kBool);
    Values args = {step, yes};
    args.insert(args.end(), state.begin(), state.end());
    Values results = c.subgraph("body", args, captured);
    if (results.size() < states + 1) c.fail("the body of Loop has too few outputs");
    GraphBuilder::Step out;
    out.go_on = scalar_of(c, results[0]);
    const auto split = results.begin() + 1 + static_cast<long>(states);
    out.state.assign(results.begin() + 1, split);
    out.outputs.assign(split, results.end());
    return out;
  };
  return c.g.loop(l);
}

int64_t entry(const Axes& list, size_t i) {
  return i < list.size() ? list[i] : 0;
}

Values scan(NodeContext& c) {
  GraphBuilder::Loop l = loop_over(c, "scan");
  Arithmetic a(c.g);
  // Scan-8 has a batch in front, and lengths as its first input.
  const bool batched = c.opset < 9;
  if (batched && c.has(0)) c.unsupported("sequence_lens of Scan", "export with opset 9 or newer");
  const size_t begin = batched ? 1 : 0;
  const auto inputs = static_cast<size_t>(c.integer("num_scan_inputs"));
  if (inputs < 1 || inputs > c.count() - begin) c.fail("num_scan_inputs is out of range");
  const size_t states = c.count() - begin - inputs;
  const auto item = [&](size_t i) {
    const Value& v = c.in(begin + i);
    if (!batched) return v;
    if (!v.dim(0).is_constant(1))
      c.unsupported("Scan over a batch", "export with opset 9 or newer");
    return a.squeeze(v, {0});
  };
  for (size_t i = 0; i < states; ++i) l.state.push_back(item(i));
  const Axes axes = c.integers("scan_input_axes"), backwards = c.integers("scan_input_directions");
  const Axes out_axes = c.integers("scan_output_axes"),
             out_backwards = c.integers("scan_output_directions");
  Dim steps = 0;
  for (size_t i = 0; i < inputs; ++i) {
    Value v = item(states + i);
    const int64_t axis = c.axis(entry(axes, i), v.rank());
    if (axis != 0) {
      Axes order = {axis};
      for (int64_t k = 0; k < v.rank(); ++k)
        if (k != axis) order.push_back(k);
      v = a.transpose(v, order);
    }
    if (entry(backwards, i)) v = a.reversed(v, 0);
    steps = v.dim(0);
    l.captured.push_back(v);
  }
  l.count = c.g.size(steps);
  l.body = [&](const Value& step, const Values& state, const Values& captured) {
    Values args = state;
    const size_t outside = captured.size() - inputs;
    for (size_t i = 0; i < inputs; ++i)
      args.push_back(c.g.call("take_row", {captured[outside + i], step}));
    Values results = c.subgraph(
        "body", args, Values(captured.begin(), captured.begin() + static_cast<long>(outside)));
    if (results.size() < states) c.fail("the body of Scan has too few outputs");
    GraphBuilder::Step out;
    const auto split = results.begin() + static_cast<long>(states);
    out.state.assign(results.begin(), split);
    out.outputs.assign(split, results.end());
    return out;
  };
  Values results = c.g.loop(l);
  for (size_t i = states; i < results.size(); ++i) {
    Value& y = results[i];
    if (entry(out_backwards, i - states)) y = a.reversed(y, 0);
    const int64_t axis = c.axis(entry(out_axes, i - states), y.rank());
    if (axis != 0) {
      Axes order = axes_between(1, y.rank());
      order.insert(order.begin() + axis, 0);
      y = a.transpose(y, order);
    }
  }
  if (batched)
    for (Value& v : results) v = a.unsqueeze(v, {0});
  return results;
}

}  // namespace

std::span<const Operator> control_operators() {
  static const Operator kRows[] = {
      {"If", if_, nullptr, "", true},
      {"Loop", loop, nullptr, "", true},
      {"Scan", scan},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
