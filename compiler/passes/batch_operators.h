// Operators on many values at once: a straight piece of program, for `rows` different inputs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/expr.h"

namespace nimble::passes {

// What stands for a value of the program. Batched: a tensor with one more axis in front, of extent
// `rows`, a slice of which is the value of one input; else one tensor for all of them. Merged: the
// rows stand in for the first axis of the value, whose extent is 1, so (1, 150) is (rows, 150).
struct Batched {
  ir::Atom atom;
  ir::Type type;  // of one value
  bool batched = false;
  bool merged = false;
  bool is_tuple = false;
  std::vector<Batched> fields;
};

// Why a piece of program cannot be batched.
struct NotBatchable {
  std::string why;
};

// Whether a value is a tensor whose extents are all constants.
bool is_static_tensor(const ir::Type& t);
// Whether rows can stand in for the first axis of such a tensor.
bool can_merge(const ir::Type& t);
// The extents of `rows` such tensors, merged where they can be.
std::vector<ir::Dim> stacked_dims(const ir::Type& t, const ir::Dim& rows);

class Batcher {
 public:
  // Writes to `out`. `call` gives the result of a call of a function of the module with these
  // arguments where the caller knows it; what it does not know is written out, if it is straight.
  using Call = std::function<std::optional<Batched>(const ir::Expr& call)>;
  Batcher(const ir::Module& m, ir::Dim rows, ir::BlockBuilder* out, Call call)
      : module_(m), rows_(std::move(rows)), out_(*out), call_(std::move(call)) {}

  void define(const ir::VarRef& v, Batched value) { values_[v.get()] = std::move(value); }
  // All bindings of a block but the last `except`; NotBatchable.
  void bindings(const ir::Block& b, size_t except = 0);
  Batched block(const ir::Block& b);
  // The same value as a tensor of stacked_dims, whether it differs from row to row or not.
  ir::Atom stacked(const Batched& value);

 private:
  Batched value_of(const ir::Atom& a) const;
  Batched expression(const ir::Binding& b);
  Batched operation(const ir::Binding& b);
  Batched called(const ir::Binding& b);
  ir::VarRef emit(const ir::Binding& like, const std::string& op, std::vector<ir::Atom> args,
                  ir::Attrs attrs);
  ir::Atom shaped(const ir::Atom& a, std::vector<ir::Dim> shape);
  ir::Atom spread(const Batched& value);
  ir::Atom apart(const Batched& value);
  ir::Atom merged(const Batched& value);
  ir::Atom with_rank(const Batched& v, size_t rank);
  ir::Atom elementwise(const ir::Binding& b, const std::vector<Batched>& in, bool merge);
  Batched product(const ir::Binding& b, const std::vector<Batched>& in);
  std::vector<ir::Dim> with_rows(const std::vector<ir::Dim>& dims) const;

  const ir::Module& module_;
  ir::Dim rows_;
  ir::BlockBuilder& out_;
  Call call_;
  std::map<const ir::Var*, Batched> values_;
  int depth_ = 0;
};

}  // namespace nimble::passes
