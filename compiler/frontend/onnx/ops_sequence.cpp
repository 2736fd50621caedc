// Sequences and optional values: sequences.h does the work.
#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/operators.h"
#include "compiler/frontend/onnx/sequences.h"

namespace nimble::frontend::onnx {
namespace {

using ir::Dim;

const Value& sequence(NodeContext& c, size_t i) {
  if (!is_sequence(c.in(i))) c.fail(fmt::format("input {} is not a sequence", i + 1));
  return c.in(i);
}

std::optional<Value> position(NodeContext& c, size_t i) {
  if (!c.has(i)) return std::nullopt;
  if (!is_plain(c.in(i))) c.fail("a position is not a tensor");
  return c.in(i);
}

Values empty(NodeContext&) {
  return {list_of({})};
}

Values construct(NodeContext& c) {
  Values items;
  for (size_t i = 0; i < c.count(); ++i) items.push_back(c.in(i));
  if (items.empty()) c.fail("SequenceConstruct has no inputs");
  return {list_of(std::move(items))};
}

Values at(NodeContext& c) {
  if (!c.has(1)) c.fail("input 2 is missing");
  return {sequence_at(c.g, sequence(c, 0), *position(c, 1))};
}

Values insert(NodeContext& c) {
  return {sequence_with(c.g, sequence(c, 0), c.in(1), position(c, 2))};
}

Values erase(NodeContext& c) {
  return {sequence_without(c.g, sequence(c, 0), position(c, 1))};
}

Values length(NodeContext& c) {
  return {sequence_length(c.g, sequence(c, 0))};
}

Values join(NodeContext& c) {
  const Value& s = sequence(c, 0);
  const bool stack = c.integer("new_axis", 0) != 0;
  const ir::Type type = stored_type(s);
  if (!is_complete(type) || type->elements[0]->kind != ir::TypeKind::kTensor)
    c.unsupported("the rank of the elements of a sequence is not known",
                  "export the model without empty sequences");
  const auto rank = static_cast<int64_t>(type->elements[0]->dims.size()) + (stack ? 1 : 0);
  return {sequence_joined(c.g, s, c.axis(c.integer("axis"), rank), stack)};
}

// x after a check that the extents on both sides are equal.
Value demanded(NodeContext& c, const Value& x, Dims left, Dims right) {
  return c.g.call("assert_shape", {x},
                  {{"left", std::move(left)},
                   {"right", std::move(right)},
                   {"what", std::string("the lengths of the parts")}});
}

// Parts that begin at the sums of the lengths.
Value cut(NodeContext& c, const Value& x, int64_t axis, const Dims& lengths, bool keep) {
  Arithmetic a(c.g);
  Values items;
  Dim from = 0;
  for (const Dim& length : lengths) {
    const Dim to = c.g.simplify(from + length);
    items.push_back(c.g.slice(x, axis, from, to));
    if (!keep) items.back() = a.squeeze(items.back(), {axis});
    from = to;
  }
  return list_of(std::move(items));
}

constexpr int64_t kMostParts = 64;  // that become values of their own

Values split(NodeContext& c) {
  Arithmetic a(c.g);
  const Value& x = c.in(0);
  const int64_t axis = c.axis(c.integer("axis", 0), x.rank());
  const Dim& extent = x.dim(axis);
  const std::optional<int64_t> known = extent.as_constant();
  if (!c.has(1)) {
    const bool keep = c.integer("keepdims", 1) != 0;
    if (known && *known <= kMostParts)
      return {cut(c, x, axis, Dims(static_cast<size_t>(*known), Dim(1)), keep)};
    return {sequence_of_parts(c.g, x, axis, c.g.integer(1), keep)};
  }
  const Value& lengths = c.in(1);
  if (lengths.rank() == 0) {
    const std::optional<int64_t> chunk =
        c.known(1) ? c.dim(1).as_constant() : std::optional<int64_t>();
    if (chunk && *chunk < 1) c.fail("the length of a part is not positive");
    if (known && chunk && (*known + *chunk - 1) / *chunk <= kMostParts) {
      Dims all;
      for (int64_t from = 0; from < *known; from += *chunk)
        all.emplace_back(std::min(*chunk, *known - from));
      return {cut(c, x, axis, all, true)};
    }
    // A part of no length would never come to the end.
    Value one = c.g.reshape(a.cast(lengths, DType::kI64), {1});
    if (!chunk) {
      const Dim length = (*c.g.read_contents(one))[0];
      one = demanded(c, one, {ir::max(length, Dim(1))}, {length});
    }
    return {sequence_of_parts(c.g, x, axis, c.g.reshape(one, {}), true)};
  }
  if (lengths.rank() != 1) c.fail("the lengths of the parts are not a vector");
  if (const auto all = c.g.read_contents(lengths)) {
    Dim sum = 0;
    Dims left, right;
    for (const Dim& d : *all) {
      sum = sum + d;
      left.push_back(ir::max(d, Dim(0)));
      right.push_back(d);
    }
    left.push_back(extent);
    right.push_back(c.g.simplify(sum));
    return {cut(c, demanded(c, x, std::move(left), std::move(right)), axis, *all, true)};
  }
  // What is said of all of them is read from their sum and the least; a zero more changes neither.
  const Value wide = a.cast(lengths, DType::kI64);
  const Value more = a.concat({wide, c.g.reshape(c.g.integer(0), {1})}, 0);
  const Dim sum = (*c.g.read_contents(a.sum(wide, {0}, true)))[0];
  const Dim least = (*c.g.read_contents(a.reduce("reduce_min", more, {0}, true)))[0];
  return {sequence_of_lengths(c.g, demanded(c, x, {extent, Dim(0)}, {sum, least}), axis, wide)};
}

// The body once for each element of the first sequence; other sequences go along with it, tensors
// stay as they are.
Values map(NodeContext& c) {
  const Value& first = sequence(c, 0);
  const size_t count = c.node.outputs.size();
  const auto step = [&](const Value& i, const Values& inputs, const Values* captured) {
    Values args;
    for (const Value& v : inputs) args.push_back(is_sequence(v) ? sequence_at(c.g, v, i) : v);
    Values out = captured ? c.subgraph("body", args, *captured) : c.subgraph("body", args);
    if (out.size() != count) c.fail("the body of SequenceMap has another number of outputs");
    return out;
  };
  Values inputs;
  for (size_t i = 0; i < c.count(); ++i) inputs.push_back(c.in(i));
  Values results(count, list_of({}));
  if (is_list(first)) {
    for (size_t i = 0; i < first.items->size(); ++i) {
      const Values out = step(c.g.integer(static_cast<int64_t>(i)), inputs, nullptr);
      for (size_t k = 0; k < count; ++k) results[k] = sequence_with(c.g, results[k], out[k], {});
    }
    return results;
  }
  GraphBuilder::Loop l;
  l.name = "sequence_map";
  l.count = sequence_length(c.g, first);
  l.state = results;
  l.captured = c.captured("body");
  const size_t outside = l.captured.size();
  l.captured.insert(l.captured.end(), inputs.begin(), inputs.end());
  l.body = [&](const Value& i, const Values& state, const Values& captured) {
    const auto split = captured.begin() + static_cast<long>(outside);
    const Values around(captured.begin(), split), given(split, captured.end());
    const Values out = step(i, given, &around);
    GraphBuilder::Step next;
    for (size_t k = 0; k < count; ++k)
      next.state.push_back(sequence_with(c.g, state[k], out[k], {}));
    return next;
  };
  return c.g.loop(l);
}

Values optional(NodeContext& c) {
  return {c.has(0) ? c.in(0) : nothing()};
}

Values optional_has(NodeContext& c) {
  return {optional_is_there(c.g, c.has(0) ? c.in(0) : nothing())};
}

Values optional_get(NodeContext& c) {
  return {optional_element(c.g, c.in(0))};
}

}  // namespace

std::span<const Operator> sequence_operators() {
  static const Operator kRows[] = {
      {"SequenceEmpty", empty, nullptr, "", true},
      {"SequenceConstruct", construct, nullptr, "", true},
      {"SequenceAt", at, nullptr, "", true},
      {"SequenceInsert", insert, nullptr, "", true},
      {"SequenceErase", erase, nullptr, "", true},
      {"SequenceLength", length, nullptr, "", true},
      {"ConcatFromSequence", join, nullptr, "", true},
      {"SplitToSequence", split, nullptr, "", false},
      {"SequenceMap", map, nullptr, "", true},
      {"Optional", optional, nullptr, "", true},
      {"OptionalHasElement", optional_has, nullptr, "", true},
      {"OptionalGetElement", optional_get, nullptr, "", true},
  };
  return kRows;
}

}  // namespace nimble::frontend::onnx
