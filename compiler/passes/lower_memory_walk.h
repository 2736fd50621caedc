// The walk of lower-memory over a function; lower_memory.cpp tells what becomes of what. Operators
// that become neither a kernel's call nor scalar code are in lower_memory_operators.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/passes/analysis/ownership.h"
#include "compiler/passes/passes.h"

namespace nimble::passes {

// The groups that lower-memory makes itself.
//
// Puts scalars into an i64 (or bool) tensor: rank 0 from one, rank 1 from several.
ir::FunctionRef boxing_group(size_t count, DType dtype, bool vector);
ir::FunctionRef concat_group(const std::vector<ir::Atom>& parts, int64_t axis, const ir::Type& type,
                             int64_t device);
ir::FunctionRef copy_group(const ir::Type& type, int64_t device, bool scalar = false);

class MemoryLowering {
 public:
  MemoryLowering(const ir::Module& m, PassContext& context)
      : module_(m), context_(context), ownership_(m) {}
  ir::FunctionRef lower(const std::string& name, const ir::FunctionRef& f);

 private:
  using Atom = ir::Atom;
  using Binding = ir::Binding;
  using Block = ir::Block;
  using BlockBuilder = ir::BlockBuilder;
  using Dim = ir::Dim;
  using Expr = ir::Expr;
  using Type = ir::Type;
  using Var = ir::Var;
  using VarRef = ir::VarRef;

  // ---------------------------------------------------------------- lower_memory.cpp

  ir::BlockRef lower_block(const Block& block);
  Atom lower_into(const Block& block, BlockBuilder& b);
  void lower_binding(const Binding& binding, BlockBuilder& b);
  // A match after flatten-matches: the variables of its patterns are registers from now on.
  void lower_match(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_group(const Binding& binding, const Expr& e, BlockBuilder& b);
  // Tensors inside a group are never allocated, so nobody computes how large they are; but kernels
  // count their elements in 64 bits. A count that no argument or result bounds is computed like a
  // size, so that it fails instead of wrapping.
  void check_counts(const ir::Function& group, BlockBuilder& b, const ir::Location& location);
  // A tuple that so far only exists as its fields becomes a value, for the rest of the block: what
  // a branch has made, its sibling does not have.
  Atom materialise(BlockBuilder& b, const Atom& a);
  void keep(const Binding& binding, ir::ExprRef e, BlockBuilder& b);
  Atom resolve(const Atom& a) const;
  // The operand as a tensor: scalars are boxed.
  Atom tensor(BlockBuilder& b, const Atom& a);
  VarRef bind(BlockBuilder& b, ir::ExprRef e, Type type, const std::string& hint);
  // Allocates the results of a group and calls it. `type`: one tensor.
  VarRef call_group(BlockBuilder& b, ir::FunctionRef group, std::vector<Atom> inputs,
                    const Type& type, const std::string& hint, const ir::Location& location,
                    std::vector<int64_t> consumes = {});
  // Extents that the kernel cannot read off its tensors are passed as scalars.
  void append_extra_scalars(BlockBuilder& b, const ir::Function& group, std::vector<Atom>& inputs,
                            const ir::Location& location);
  VarRef allocate(BlockBuilder& b, const Type& type, const std::string& hint,
                  const ir::Location& location, int64_t device = 0, std::optional<Dim> bytes = {});
  void invoke(BlockBuilder& b, ir::FunctionRef group, std::vector<Atom> args, int64_t inputs,
              const ir::Location& location, std::vector<int64_t> consumes = {});
  // A scalar that a kernel made is read at once, unless it lies on another device: then as soon as
  // it was copied from there.
  Atom scalar_or_tensor(BlockBuilder& b, const Binding& binding, const Type& type,
                        const VarRef& made);
  VarRef read_scalar(BlockBuilder& b, const VarRef& t);
  Atom box_result(BlockBuilder& b, const Atom& result, const Type& type);

  // ---------------------------------------------------------------- lower_memory_operators.cpp

  void lower_op(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_scalar(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_view(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_take_row(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_take_rows(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_device_copy(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_shape_of(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_prefix(const Binding& binding, const Expr& e, BlockBuilder& b);
  // The elements become values of symbols; the tensor itself stays what it is.
  void lower_read_extents(const Binding& binding, const Expr& e, BlockBuilder& b);
  VarRef view_from(BlockBuilder& b, const Atom& x, const Atom& i, const Type& type, const Type& row,
                   const std::string& hint, const ir::Location& location);
  VarRef row_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& row,
                  const std::string& hint, const ir::Location& location);
  // Several rows, from row i on.
  VarRef rows_view(BlockBuilder& b, const Atom& x, const Atom& i, const Type& rows,
                   const std::string& hint, const ir::Location& location);
  // In place where the operand is dead afterwards, else on a copy.
  void lower_write_row(const Binding& binding, const Expr& e, BlockBuilder& b);
  // New rows go behind the first operand's data, if the storage has room, else into one twice as
  // large; along any other axis there is nothing to gain over a concatenation. The VM sees nothing
  // new: a comparison, a branch, an allocation and copies. Twice what is needed now, so that the
  // copies of n steps add up to less than twice the final size.
  void lower_append(const Binding& binding, const Expr& e, BlockBuilder& b);
  void lower_assert(const Binding& binding, const Expr& e, BlockBuilder& b);

  const ir::Module& module_;
  PassContext& context_;
  Ownership ownership_;
  bool entry_ = false;
  std::unordered_map<const Var*, Atom> map_;                  // what stands for a variable now
  std::unordered_map<const Var*, std::vector<Atom>> fields_;  // tuples taken apart
  std::vector<const Var*> materialised_;  // of them, those that became values, in order
  std::set<const Var*> read_elsewhere_;   // operands of device_copy
};

}  // namespace nimble::passes
