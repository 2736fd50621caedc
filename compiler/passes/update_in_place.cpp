// Element-wise groups that overwrite an operand.
//
// lower-memory notes at each kernel call which operands are dead afterwards and in memory that the
// function owns (attribute "consumes", from ownership.cpp). Where such an operand has exactly the
// output's extents and dtype and the group is element-wise, the output needs no storage: it takes
// the operand's memory over, `%y = memory.alloc_tensor(%x)`. A loop's state then stays in one
// block of memory from step to step, and a chain of groups in the first one's.
//
// Why the kernel may do that. Its code says that buffers are disjoint (alias scopes), which then
// is not so. But with one output, element-wise, the value stored at index i depends on the load of
// operand i and on no other load of that operand: data dependence puts each load before the only
// store that overwrites it, in whatever order the compiler arranges the rest. So groups with
// several outputs are left alone, as are broadcast operands and everything that moves elements.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/infer.h"
#include "compiler/ir/op.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/support/kernel_call.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Expr;
using ir::ExprKind;
using ir::Proof;
using ir::Var;
using ir::VarRef;

bool elementwise(const ir::Function& group) {
  return std::all_of(
      group.body->bindings.begin(), group.body->bindings.end(), [](const Binding& b) {
        const Expr& e = *b.value;
        if (e.kind == ExprKind::kAtom) return true;
        const ir::OpInfo* op = e.kind == ExprKind::kCall ? ir::find_op(e.op) : nullptr;
        return op && op->fusion == ir::FusionKind::kElementwise;
      });
}

class InPlace {
 public:
  InPlace(const ir::Function& f, PassContext& context)
      : dims_(ir::dim_context(f)), uses_(count_uses(*f.body)), context_(context) {}

  ir::BlockRef run(const ir::BlockRef& block) {
    // The allocations of this block, by the variable that they bind.
    std::unordered_map<const Var*, size_t> at;
    for (size_t i = 0; i < block->bindings.size(); ++i) at[block->bindings[i].var.get()] = i;
    std::unordered_map<size_t, VarRef> takes;  // alloc_tensor -> the tensor to overwrite
    std::unordered_set<size_t> dropped;        // storages that nobody needs any more
    bool nested_changed = false;
    std::vector<Binding> bindings = block->bindings;
    for (size_t i = 0; i < bindings.size(); ++i) {
      const Expr& e = *bindings[i].value;
      ir::ExprRef now = nested(bindings[i].value);
      nested_changed |= now != bindings[i].value;
      bindings[i].value = now;
      if (!is_kernel_call(e) || !elementwise(*e.primitive)) continue;
      if (e.args.size() != inputs_of(e) + 1 || !e.args.back().is_var()) continue;
      auto out = at.find(e.args.back().var.get());
      if (out == at.end()) continue;
      const Expr& tensor = *bindings[out->second].value;
      if (tensor.op != "memory.alloc_tensor" || !tensor.args[0].is_var()) continue;
      auto storage = at.find(tensor.args[0].var.get());
      if (storage == at.end() || uses_[tensor.args[0].var.get()] != 1) continue;
      if (std::optional<VarRef> taken = operand(e, *e.args.back().var)) {
        auto defined = at.find(taken->get());
        if (defined != at.end() && defined->second > out->second) continue;
        takes[out->second] = *taken;
        dropped.insert(storage->second);
        context_.count("update-in-place.tensors");
      }
    }
    if (takes.empty() && !nested_changed) return block;
    ir::BlockBuilder b;
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (dropped.count(i)) continue;
      if (auto it = takes.find(i); it != takes.end()) {
        auto now = std::make_shared<Expr>(*bindings[i].value);
        now->args[0] = it->second;
        bindings[i].value = now;
      }
      b.append(bindings[i]);
    }
    return b.finish(block->result);
  }

 private:
  ir::ExprRef nested(const ir::ExprRef& e) {
    if (ir::blocks_of(*e).empty()) return e;
    auto copy = std::make_shared<Expr>(*e);
    if (copy->then_block) copy->then_block = run(copy->then_block);
    if (copy->else_block) copy->else_block = run(copy->else_block);
    for (ir::MatchCase& c : copy->cases) c.body = run(c.body);
    return copy;
  }

  // The operand that the output may overwrite.
  std::optional<VarRef> operand(const Expr& e, const Var& out) const {
    for (int64_t k : ir::attr_or<std::vector<int64_t>>(e.attrs, "consumes", {})) {
      const Atom& a = e.args[static_cast<size_t>(k)];
      if (!a.is_var() || a.var->type->kind != ir::TypeKind::kTensor) continue;
      const ir::Type& t = a.var->type;
      if (t->dtype != out.type->dtype || t->dims.size() != out.type->dims.size()) continue;
      bool same = true;
      for (size_t d = 0; d < t->dims.size(); ++d)
        same &= dims_.equal(t->dims[d], out.type->dims[d]) == Proof::kYes;
      if (same) return a.var;
    }
    return std::nullopt;
  }

  ir::DimContext dims_;
  UseCounts uses_;
  PassContext& context_;
};

}  // namespace

ir::Module update_in_place(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    ir::BlockRef body = InPlace(*f, context).run(f->body);
    if (body == f->body) continue;
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = std::move(body);
    f = copy;
  }
  return out;
}

}  // namespace nimble::passes
