// The operator registry. A row of Ops.def declares an operator: its name, arity, type relation,
// fusion kind, shape-function mode and traits (traits.h). The relation's code stands in
// ops/<family>.cpp; the reference function in compiler/reference, the compute rule in
// compiler/kernels, keyed by name.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/expr.h"
#include "compiler/ir/traits.h"

namespace nimble::ir {

// How the fusion pass may combine an operator with its neighbours.
enum class FusionKind {
  kElementwise,  // out[i] from in[i], with numpy broadcasting
  kInjective,    // out[i] from in[f(i)]: reshape, transpose, slice, concat, gather
  kReduction,    // a row-wise reduction; takes an element-wise prologue
  kAnchor,       // matmul, conv2d, …: takes an element-wise epilogue
  kOpaque,       // a kernel of its own, never fused
  kData,         // the same, and its operand is a value of a data type
  kOutside,      // no kernel computes it: passes and the virtual machine do
};

// How the output shape is known at run time (paper, 3.2).
enum class ShapeMode {
  kDataIndependent,  // from input shapes
  kDataDependent,    // from input values; never fused after others
  kUpperBound,       // a bound from input shapes; the operator returns the shape with its value
};

// What a relation sees and may do. Output types are a function of input types, attributes and
// the known contents of small integer inputs; what cannot be proved is demanded by require_equal,
// which becomes an assert_shape in the program unless proved or refuted (refuted: an Error).
struct RelationContext {
  const Expr& call;
  std::span<const Type> inputs;  // tensor types, no `?` left
  DimContext& dims;
  // Symbolic contents of input i if known: a flat list of Dims (i64/i32 tensors up to 64 elements).
  std::function<const std::vector<Dim>*(size_t)> contents;
  std::function<void(const Dim&, const Dim&, const std::string& what)> require_equal;
  std::function<Dim()> fresh;  // a new symbol for a dim that is known only at run time
  // As `contents`, but elements that are not known become symbols that the run reads (see
  // read_extents); null where even their number is unknown. Empty: what `contents` says is all.
  std::function<const std::vector<Dim>*(size_t)> read_contents = {};
  [[noreturn]] void fail(const std::string& problem, const std::string& remedy = {}) const;
};
struct RelationResult {
  Type type;                                 // tensor or tuple of tensors
  std::optional<std::vector<Dim>> contents;  // symbolic contents of the output, if known
  // The same call with its integer operands as attributes: these, on the first `operands` operands.
  struct Resolved {
    Attrs attrs;
    size_t operands;
  };
  std::optional<Resolved> resolved = {};
};
using TypeRelation = RelationResult (*)(RelationContext&);

struct AttrSpec {
  std::string name;
  enum class Kind {
    kBool,
    kInt,
    kFloat,
    kString,
    kInts,
    kFloats,
    kStrings,
    kDType,
    kDim,
    kDims
  } kind;
  bool required = false;
  size_t kind_index() const;  // the index of this kind in AttrValue
};

struct OpInfo {
  std::string name;
  int min_args = 0, max_args = 0;  // max_args -1: any number
  FusionKind fusion = FusionKind::kOpaque;
  ShapeMode shape_mode = ShapeMode::kDataIndependent;
  TypeRelation relation = nullptr;
  std::vector<AttrSpec> attrs;
  std::string summary;  // one sentence, for docs and errors
  Traits traits;

  // What becomes of rows: the trait, or what the fusion kind says where it says nothing.
  Rows rows() const;
  // Whether every element of the result is one of its operands', unchanged and whatever their type,
  // found by its place.
  bool moves_elements() const;
};

// Null if there is no such operator.
const OpInfo* find_op(std::string_view name);
const std::vector<OpInfo>& all_ops();
// The traits of the operator that an expression calls; the defaults if it calls none.
const Traits& traits_of(const Expr& e);
// What is wrong with a call's operand count and attributes; empty if nothing.
std::string check_call(const OpInfo& op, const Expr& call);
// How a call is written, as a remedy: "write softmax(%x) {axis = an integer}".
std::string form_of(const OpInfo& op);

}  // namespace nimble::ir
