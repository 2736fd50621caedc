// What one kernel computes, and the one place that works it out for each fused group.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/expr.h"
#include "vm/executable/executable.h"

namespace nimble::kernels {

// What one kernel computes, in canonical form, so that equal work has an equal key whatever the
// model calls its symbols: a fused group whose parameters are %p0, %p1, …, whose symbols are
// s0, s1, … in order of appearance, and whose leading axes are collapsed into one (b*n becomes
// s0) where every operation of the group works row by row.
//
// A parameter whose index is in the group's attribute "scalars" (ints) is an unboxed integer of
// the caller (a loop counter; its type in the group is Tensor[(), i64] or Tensor[(), bool]): in
// the contract it is a scalar argument that binds a symbol of its own, and its value in the
// group is that symbol.
struct Workload {
  ir::FunctionRef group;   // canonical; types inferred; a result may be a tuple
  std::string anchor;      // name of the operator that decides the template, e.g. "matmul"
  std::string key;         // canonical text of the group: the database compares it in full
  std::string anchor_key;  // the anchor with its types alone: explicit fallback
  // Arguments: parameters of `group` in order, then results. Without its requirements: see below.
  exec::KernelContract contract;
  std::vector<bool> constant_parameter;  // from the call site: weights (stay in cache, packed)
  ir::DimContext facts;
  // Values (over the primitive's own symbols) that a caller passes as scalar arguments after the
  // parameters, since no parameter's dims bind them: `range(n)` has no other way to know n.
  std::vector<ir::Dim> extra_scalars;

  // The key and which parameters are constant: with constants it is another kernel, and has a
  // record of its own.
  std::string identity() const;
  // Whether a result is part of an in/out argument (the trait in_out).
  bool writes_part() const;
};
using WorkloadRef = std::shared_ptr<const Workload>;

// Canonicalises a primitive function. Two groups with equal keys are interchangeable.
Workload make_workload(const ir::Function& primitive, std::vector<bool> constant_parameter = {});

// "matmul+add+gelu": the operators of a group in order.
std::string source_of(const ir::Function& group);

// The workloads of a compilation, each made once. A group is looked up by everything that its
// canonical form depends on, written out, so a group that a pass changed is another group and what
// is found is never stale. Not for several threads.
class WorkloadCache {
 public:
  WorkloadRef of(const ir::Function& primitive, const std::vector<bool>& constant_parameter = {});
  // requirements_of, inferred once for each key.
  const std::vector<exec::DimProgram>& requirements(const Workload& w);
  // How many groups were canonicalised, and how many were asked for.
  size_t made() const { return made_; }
  size_t asked() const { return asked_; }

 private:
  WorkloadRef find_or_make(const ir::Function& primitive, const std::string& text);

  std::unordered_map<std::string, WorkloadRef> known_;
  std::unordered_map<std::string, std::vector<exec::DimProgram>> requirements_;
  size_t made_ = 0, asked_ = 0;
};

// What must hold of the contract's symbols for the group to be well typed and does not follow from
// its parameters' and results' types: programs over them that must not be 0 (requirements.cpp).
// With `of_passed` also what extents that the caller passes must be to the others: it holds at the
// sizes of a model, though not of each call. It takes an inference, so only who writes a contract
// asks, or who chooses sizes.
std::vector<exec::DimProgram> requirements_of(const Workload& w, bool of_passed = false);

}  // namespace nimble::kernels
