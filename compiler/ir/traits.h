// What passes, templates and the tuner ask of an operator beyond its type: the named columns of
// Ops.def. A row names those in which it differs from the defaults below. Who needs to know
// something of operators that is no column yet adds one here; a set of names in a pass would soon
// disagree with another pass's.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"

namespace nimble::ir {

class BlockBuilder;

// Where a result lies.
enum class Memory {
  kOwn,      // in memory of its own
  kView,     // in its operand's, every element where it was, under other extents
  kPart,     // in a part of its first operand's
  kOperand,  // it is its first operand, about which something was asserted or learned
};

// What becomes of leading axes that operands share ("rows": a batch, or batch and length as one).
// An operator that computes row by row may have these collapsed into one axis (workload.cpp) or
// get one more of them (batch_operators.cpp).
enum class Rows {
  kMixed,          // rows see each other, or nobody has looked
  kPointwise,      // element by element; operands of lower rank have no rows
  kAxes,           // works along the first operand's `axis` or `axes`; the others are for all rows
  kResultAxes,     // along those of the result; all operands have the rows
  kShape,          // `shape` says the result's extents, the rows' first
  kBroadcast,      // the same, aligned at the last axis
  kFill,           // one value everywhere, in the extents of `shape`
  kPermutation,    // `axes` permutes
  kPads,           // `before` and `after` say how far each axis grows
  kIndex,          // takes slices of `axis` (without one: axis 0) at the second operand's indices
  kProduct,        // rows of the first operand times a matrix, or matrix by matrix
  kPackedProduct,  // rows of the first operand times one packed matrix
};

// How an operator's constant weights are laid out for its template, by the pass pack-weights. What
// takes them packed is an operator of its own; of kBlocks it is the same one with a `layout`.
enum class Packs {
  kNothing,
  kMatrix,    // the second operand of a product
  kFilters,   // the second operand of a convolution of channels-last images
  kGates,     // the weights of a recurrent cell
  kBlocks,    // those of a product that have scales by blocks, and these (blockwise.h)
  kInKernel,  // there are none: both factors are computed at run time, and the kernel packs them
};

// A recurrent cell: one step on the input's part of its gates (operand 0) and its state h
// (operand 1). The other operands by number.
struct CellOperands {
  int64_t gates = 0;             // of a unit: 4 of an LSTM, 3 of a GRU
  std::optional<size_t> c;       // an LSTM's second state
  size_t weights = 0;            // the recurrent matrix
  std::optional<size_t> bias;    // a GRU's recurrent bias
  std::optional<size_t> step;    // the step's number, last: only with packed weights
  const char* packed = nullptr;  // the operator on packed weights; null: it is one
};

// A call's attributes and extents, all of them numbers, for rules that count work.
struct CallExtents {
  const Attrs& attrs;
  std::vector<std::vector<double>> operands;  // of each tensor operand; a scalar has none
  double results = 0;                         // elements of all results
};
using WorkRule = double (*)(const CallExtents&);

// From the gradient of a call's result to those of its operands, one an operand (nothing: it has
// none), as IR that is appended to `out`.
using GradientRule = std::vector<std::optional<Atom>> (*)(const Expr& call, const Atom& result,
                                                          const Atom& gradient, BlockBuilder& out);

struct Traits {
  // ---- arithmetic
  bool cheap = false;             // computing it again costs less than storing it (fuse)
  bool scalar = false;            // on unboxed integers it is scalar code, no kernel
  bool commutative = false;       // in all bits
  std::optional<double> neutral;  // as its last operand (any, if commutative) it changes no bit
  bool identity = false;          // one operand, of the result's type: the result is that operand
  // ---- memory and effect
  Memory memory = Memory::kOwn;
  bool in_place = false;       // may be done in its first operand's memory where that is dead
  bool effect = false;         // stops the run or changes memory: stays though nobody reads it
  bool in_out = false;         // as a group's result it is a part of an in/out argument
  bool names_symbols = false;  // reads its operand's elements: the values of `symbols`
  bool placement = false;      // says on which device its operand's value is wanted
  // ---- axes and attributes
  std::optional<Rows>
      rows;                // default: kPointwise if element-wise, kAxes if a reduction, else kMixed
  bool from_axis = false;  // works on all axes from `axis` on
  bool images = false;  // its first operand are images, a second one weights: `layout` says where
                        // their axes stand (image_layout.h)
  // Each element of its result is its operand's largest of some, so that rounding, which keeps
  // their order, may as well come first.
  bool selects = false;
  bool indexes = false;  // its second operand are indices into `axis` (or 0) of its first
  bool anchors = false;  // injective, and gives the group its name nevertheless
  std::vector<std::string_view> offsets;  // attributes that may be negative, being no extents
  Packs packs = Packs::kNothing;
  std::optional<CellOperands> cell;  // it is a recurrent cell
  // It does all steps of that cell, whose operands it has, but for a row of gates for each step.
  const char* steps_of = nullptr;
  // ---- work
  WorkRule sums = nullptr;   // terms that an element of the result adds up; default: 1
  WorkRule flops = nullptr;  // operations of a call; default: one an element of the results
  // ---- differentiation: null until the pass exists
  GradientRule gradient = nullptr;
};

}  // namespace nimble::ir
