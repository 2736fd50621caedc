// What a template whose work centres on one operator (the anchor) needs around it: buffers for
// the group's parameters and results, the anchor's place in the group, stores of the results
// with everything that was fused behind the anchor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/group.h"
#include "compiler/kernels/template.h"

namespace nimble::kernels {

struct Frame {
  std::vector<kir::BufferRef> parameters;  // one per parameter of the group; null for a scalar
  std::vector<kir::BufferRef> results;
  std::vector<ir::Atom> result_atoms;  // the group's result, or the fields of its tuple
  std::vector<ir::Type> result_types;
  // How each result lies in memory: its own extents, or those of the in/out argument that it is the
  // first part of along one axis.
  std::vector<std::vector<kir::Dim>> result_dims;
  const ir::Binding* anchor = nullptr;  // the only binding of an operator named w.anchor
};

// The frame of a workload; `anchor` is null if the operator stands there not exactly once.
Frame make_frame(const Workload& w);

// The buffer of a parameter that an atom names directly; null for any other atom.
kir::BufferRef parameter_buffer(const Workload& w, const Frame& f, const ir::Atom& a);
// The contract's symbol of a scalar parameter that an atom names; nothing for any other atom.
std::optional<kir::Dim> scalar_symbol(const Workload& w, const ir::Atom& a);

// True if every binding that depends on the anchor's value is element-wise with exactly the
// anchor's shape, every result is one of them, and all can be had in vectors: an epilogue in place.
bool has_elementwise_epilogue(const Workload& w, const Frame& f);

// The parameters that the epilogue reads element by element as the results are written: residuals.
std::vector<kir::BufferRef> epilogue_operands(const Workload& w, const Frame& f);

// Whether something in the group checks an index. A failed check leaves the kernel, so none of its
// threads may wait for the others.
bool has_index(const Workload& w);

// Statements that store `lanes` consecutive elements of every result at `coordinates`, the
// anchor's value there being `value`. Lanes from `valid` on are not stored. `prefix` keeps the
// local names apart from those of other calls in the same scope.
kir::StmtRef store_results(const Workload& w, const Frame& f, kir::ValueRef value,
                           const std::vector<kir::Dim>& coordinates, int lanes,
                           const std::optional<kir::Dim>& valid, const std::string& prefix);

// Vectors of neighbouring columns of one row of a result.
struct ColumnVectors {
  int vectors = 1, lanes = 1;
  kir::Dim first;                 // the first vector's first column, a coordinate
  std::optional<kir::Dim> valid;  // columns from there on that there are; all of them if not given
  std::string prefix = "e";       // of names, where several rows are stored one after the other

  // The same columns in vectors of twice as many lanes, if their number is even and all columns are
  // there. LLVM computes both halves in turns, operator by operator: constants are loaded once for
  // both, and neither waits for all of the other. A GELU takes some 40 % less time on a Zen 3. For
  // values that come from memory, where vectors are neighbours.
  ColumnVectors in_pairs() const;
};
// The anchor's value in vector `v`, whose first column is `column`. Lanes from `valid` on are none.
using ColumnValue = std::function<kir::ValueRef(int v, const kir::Dim& column,
                                                const std::optional<kir::Dim>& valid)>;
// store_results of each vector; `row` are the coordinates but the last.
kir::StmtRef store_columns(const Workload& w, const Frame& f, const std::vector<kir::Dim>& row,
                           const ColumnVectors& columns, const ColumnValue& value);

// Scratch that each thread has for itself, and that all have together, from the beginning of a
// cache line on.
kir::BufferRef thread_scratch(const std::string& name, DType dtype, const kir::Dim& extent);
kir::BufferRef shared_scratch(const std::string& name, DType dtype, const kir::Dim& extent);

// The numbers of a group's results, by those that one walk over elements makes: of equal dims, and
// had in vectors (`is_plain`); every other one by itself.
std::vector<std::vector<size_t>> results_together(
    const Frame& f, const std::function<bool(const ir::Atom&)>& is_plain);

// A function with the workload's contract and facts.
kir::Function make_function(const Workload& w, const Frame& f, const std::string& name,
                            std::vector<kir::BufferRef> scratch,
                            std::vector<kir::BufferRef> registers, kir::StmtRef body);

// The axes of the anchor's value but the last.
std::vector<kir::Dim> row_dims(const Frame& f);
// Elements of a tensor of `dims`.
kir::Dim count_of(const std::vector<kir::Dim>& dims);
// Coordinates of element number `flat` in a row-major tensor of `dims`; one axis needs no division.
std::vector<kir::Dim> unflatten(const kir::Dim& flat, const std::vector<kir::Dim>& dims);

}  // namespace nimble::kernels
