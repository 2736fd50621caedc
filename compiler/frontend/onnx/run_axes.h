// Axes that only the run knows, as an operand says them. Their number is static, or no rank would
// be: so a reduction is a branch per axis, and a shape a few numbers that the run computes.
#pragma once

#include "compiler/frontend/onnx/arithmetic.h"
#include "compiler/frontend/onnx/node_context.h"

namespace nimble::frontend::onnx {

class RunAxes {
 public:
  // Of a tensor of a rank, from input `input`; nimble::Error if their number is not static.
  RunAxes(NodeContext& c, size_t input, int64_t rank) : c_(c), a_(c.g), rank_(rank) {
    const Value& given = c.in(input);
    const auto n = ir::element_count(given.type).as_constant();
    if (!n)
      c.unsupported(fmt::format("input {} ({}) is not constant, nor is the number of its elements",
                                input + 1, c.node.inputs[input]),
                    "export the model with constant axes");
    count_ = *n;
    Value axes = c.g.reshape(a_.cast(given, DType::kI64), {ir::Dim(1), ir::Dim(count_)});
    axes = a_.where(a_.less(axes, 0.0), a_.add(axes, static_cast<double>(rank)), axes);
    const Value here = a_.equal(a_.range(ir::Dim(rank), DType::kI64, 0, 2), axes);
    const Value any = a_.reduce("reduce_max", a_.cast(here, DType::kI32), {1}, false);
    mask_ = a_.greater(any, 0.0);
  }

  int64_t count() const { return count_; }
  const Value& mask() const { return mask_; }  // (rank) bool: which axes are meant
  Value flag(int64_t axis) {
    return c_.g.reshape(c_.g.slice(mask_, 0, ir::Dim(axis), ir::Dim(axis + 1)), {});
  }

  // f(x, axis) for one axis after the other, where it is meant.
  template <class F>
  Value each(Value x, F f) {
    for (int64_t i = 0; i < rank_; ++i) {
      const Value before = x;
      x = c_.g.branch(
          flag(i), [&] { return Values{f(before, i)}; }, [&] { return Values{before}; })[0];
    }
    return x;
  }

  // x without these axes.
  Value dropped(const Value& x) {
    const Value kept = c_.g.call("compress", {c_.g.call("shape_of", {x}), a_.negation(mask_)},
                                 {{"axis", int64_t{0}}});
    return shaped(x, c_.g.reshape(kept, {ir::Dim(rank_ - count_)}));
  }
  Value shaped(const Value& x, const Value& shape) {
    const auto dims = c_.g.read_contents(shape);
    if (!dims) c_.fail("a rank is too high");
    return c_.g.reshape(x, *dims);
  }

 private:
  NodeContext& c_;
  Arithmetic a_;
  int64_t rank_, count_ = 0;
  Value mask_;
};

}  // namespace nimble::frontend::onnx
