// Pulls the value of a fused group's variable at given coordinates: the shared half of every
// template (prologues, epilogues, element-wise and injective groups).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

// The element computed by one element-wise operator from its operands' elements (any lanes):
// the operator's compute rule. `call` gives name and attributes, `result` the element type.
kir::ValueRef compute(const ir::Expr& call, const std::vector<kir::ValueRef>& operands,
                      DType result);
bool has_compute_rule(const std::string& op);

class GroupEvaluator {
 public:
  // `buffers`: one per parameter of the group, flat row-major.
  GroupEvaluator(const ir::Function& group, std::vector<kir::BufferRef> buffers);

  // Values known already, by variable: an anchor's accumulators, a reduction's result. The
  // function returns the value of the variable at the coordinates it is asked for.
  using Given = std::function<kir::ValueRef(const std::vector<kir::Dim>& coordinates, int lanes)>;
  void give(const ir::VarRef& v, Given value);

  // The value of `a` at `coordinates` (one Dim an axis of its type), for `lanes` consecutive
  // elements along the last axis; with `valid`, only lanes < valid may be read from memory.
  // Broadcasting: an axis of extent 1 reads coordinate 0; an axis whose extent may be 1 at run
  // time reads coordinate * (extent != 1), a zero stride.
  kir::ValueRef value(const ir::Atom& a, const std::vector<kir::Dim>& coordinates, int lanes,
                      const std::optional<kir::Dim>& valid = std::nullopt);

  // Statements that the values need bound first (data-dependent indices of gather with their
  // bounds checks), in order; taking them empties the list.
  std::vector<kir::StmtRef> take_statements();

 private:
  const ir::Function& group_;
  std::map<const ir::Var*, kir::BufferRef> parameters_;
  std::map<const ir::Var*, Given> given_;
  std::map<const ir::Var*, const ir::Expr*> definitions_;
  std::vector<kir::StmtRef> statements_;
};

// Row-major flat offset of coordinates in a tensor of `dims`.
kir::Dim flat_offset(const std::vector<kir::Dim>& dims, const std::vector<kir::Dim>& coordinates);

}  // namespace nimble::kernels
