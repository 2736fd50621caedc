// How much a call computes: the rules of the columns `sums` and `flops` of Ops.def. Private to
// compiler/ir.
#pragma once

#include "compiler/ir/traits.h"

namespace nimble::ir {

// ---- terms behind one element of the result
double sums_of_matmul(const CallExtents& c);
double sums_of_packed_matmul(const CallExtents& c);
double sums_of_conv2d(const CallExtents& c);
double sums_of_packed_conv2d(const CallExtents& c);
double sums_of_winograd(const CallExtents& c);   // over the channels and a tile's products
double sums_of_attention(const CallExtents& c);  // an upper bound: scores, then weighted values
double sums_of_cell(const CallExtents& c);
double sums_along_axes(const CallExtents& c);
double sums_from_axis(const CallExtents& c);  // of all axes from `axis` on
double sums_of_window(const CallExtents& c);

// ---- operations of a call
// Of the products of tiles, were all of them whole; not of what comes before and after them.
double flops_of_winograd(const CallExtents& c);
double flops_of_attention(const CallExtents& c);
double flops_of_window(const CallExtents& c);
// One for each element of the first operand.
double flops_of_operand(const CallExtents& c);
// A multiplication and an addition for each term.
template <WorkRule terms>
double multiply_adds(const CallExtents& c) {
  return 2 * terms(c) * c.results;
}
// The recurrent product of a cell with so many gates, the state being the second operand.
template <int gates>
double flops_of_gates(const CallExtents& c) {
  double state = 1;
  for (double extent : c.operands[1]) state *= extent;
  return 2 * gates * sums_of_cell(c) * state;
}
// The same for each row of the first operand.
template <int gates>
double flops_of_steps(const CallExtents& c) {
  return c.operands[0].front() * flops_of_gates<gates>(c);
}

}  // namespace nimble::ir
