// Parts of what a fused group computes, at the cost of the part.
//
// The plain interpreter computes every element of every operator, which takes minutes for the
// products of a large model. Whoever wants a few elements asks backwards instead: an operator's
// rule (region_rules.cpp) tells which part of its operands a part of its result needs; those parts
// are evaluated in the same way, and the operator's own reference function runs on them. So a
// region is computed by the same functions as the whole, only on smaller tensors.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/reference/operand.h"

namespace nimble::reference {

// A box of a tensor: `extent[i]` elements from `from[i]` on along axis i.
struct Region {
  Shape from, extent;
  static Region whole(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }
  bool holds(const Region& other) const;
  friend bool operator==(const Region&, const Region&) = default;
};

class RegionEvaluator {
 public:
  // `f` is a straight line of operator calls, tuples and fields, all of whose types and attributes
  // have constant extents; one tensor for each of its parameters.
  RegionEvaluator(ir::FunctionRef f, const std::vector<ir::TensorRef>& arguments);

  // The elements of result `index` (0 unless the function returns a tuple) in the region, which
  // must lie within it. Errors are those of evaluate_op, of what was computed for it only.
  ir::TensorRef evaluate(size_t index, const Region& r);

  // Elements read and written and steps of sums so far: a measure of the time spent that is the
  // same on every machine.
  int64_t work() const { return work_; }

 private:
  struct Part {
    Region region;
    ir::TensorRef tensor;
  };
  struct Definition {
    const ir::Binding* binding = nullptr;  // null: a parameter, in `whole`
    size_t result = 0;                     // of an operator with several
    std::vector<Part> parts;               // what has been computed of it
  };
  ir::TensorRef part(const ir::Atom& a, const Region& r);
  ir::TensorRef part(Definition& d, const Region& r);
  Part compute(const Definition& d, const Region& r);
  Part rearrange(const Definition& d, const Region& r);
  void keep(Definition& d, const Part& p);
  // Where each element of a region of a rearranging operator's result comes from, in row-major
  // order: the numbers of its operands' elements, from 1 on. 0 is padding; operand i's elements
  // follow those before it.
  std::vector<int64_t> origins(const ir::Binding& b, const Region& r);
  // The same for the whole result of an operator that tells no single element's origin: it is run
  // on the numbers.
  const ir::TensorRef& all_origins(const ir::Binding& b);

  ir::FunctionRef f_;
  std::map<const ir::Var*, Definition> defined_;
  std::map<const ir::Binding*, ir::TensorRef> origins_;
  int64_t work_ = 0;
  int64_t kept_bytes_ = 0;
};

// ---------------------------------------------------------------- rules

// What an operator needs for a region of its result.
struct Demand {
  std::vector<Region> operands;
  ir::Attrs attrs;   // of the call on these parts; begins as the call's own
  Shape inside;      // where in that call's result the region begins; begins as zeros
  int64_t work = 0;  // steps of sums for one element of that result
};
struct DemandCall {
  const ir::Expr& e;
  std::vector<Shape> operands;  // their shapes, whole
  std::vector<Shape> results;
};
// False: there is no way to compute less than everything.
using DemandRule = bool (*)(const DemandCall& c, const Region& out, Demand& d);
// Null if the operator has none.
DemandRule find_demand_rule(const std::string& op);
// Operands that a rearranging operator moves to its result; empty if it is none.
std::vector<size_t> moved_operands(const ir::Expr& e);

}  // namespace nimble::reference
