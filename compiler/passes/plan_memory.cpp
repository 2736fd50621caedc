// Storage sharing by liveness (paper, 3.3: "storage coalescing").
//
// Within a block, a storage lives from its allocation to the last use of any tensor in it, views
// and views of views included. A storage that leaves the block (in its result, a tuple or an
// argument of a function call) lives for ever as far as this pass is concerned. Walking the
// allocations in order, each one takes over the best storage that has died:
//   1. one provably at least as large (the smallest such, by proof),
//   2. else one provably smaller, which then grows to the new size,
//   3. else any dead one, whose size becomes the maximum of both.
// max(a, b) <= a + b, so sharing never costs memory. What the prover cannot order is still right,
// since sizes are evaluated at run time.
//
// Finally every tensor and storage that dies inside the block gets a memory.kill after its last
// use, so that registers do not keep memory alive.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ir/infer.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Dim;
using ir::Expr;
using ir::ExprKind;
using ir::Proof;
using ir::Var;
using ir::VarRef;

struct Storage {
  size_t first = 0, last = 0;  // binding indices
  bool escapes = false;
  Dim bytes;
  VarRef var;
};

class Planner {
 public:
  Planner(const ir::DimContext& dims, PassContext& context) : dims_(dims), context_(context) {}

  ir::BlockRef plan(const Block& block) {
    std::vector<Binding> bindings = block.bindings;
    for (Binding& b : bindings) plan_nested(b);

    // Which storages each variable of this block may point into.
    std::vector<Storage> storages;
    std::unordered_map<const Var*, std::vector<size_t>> holds;
    for (size_t i = 0; i < bindings.size(); ++i) {
      const Expr& e = *bindings[i].value;
      std::vector<size_t> held;
      bool escape = e.kind == ExprKind::kTuple || (e.kind == ExprKind::kCall && e.callee);
      visit_atoms(e, [&](const Atom& a) {
        if (!a.is_var()) return;
        auto it = holds.find(a.var.get());
        if (it == holds.end()) return;
        for (size_t s : it->second) {
          storages[s].last = i;
          storages[s].escapes |= escape;
          held.push_back(s);
        }
      });
      if (e.kind == ExprKind::kCall && e.op == "memory.alloc_storage") {
        holds[bindings[i].var.get()] = {storages.size()};
        storages.push_back({i, i, false, ir::attr<Dim>(e.attrs, "bytes"), bindings[i].var});
      } else if (aliases(e)) {
        std::sort(held.begin(), held.end());
        held.erase(std::unique(held.begin(), held.end()), held.end());
        holds[bindings[i].var.get()] = std::move(held);
      }
    }
    if (block.result.is_var()) {
      auto it = holds.find(block.result.var.get());
      if (it != holds.end())
        for (size_t s : it->second) storages[s].escapes = true;
    }

    std::unordered_map<const Var*, VarRef> shared;  // allocation -> the one it reuses
    std::vector<size_t> slots;                      // storages that stay
    std::unordered_map<const Var*, Dim> sizes;
    for (size_t s = 0; s < storages.size(); ++s) {
      Storage& now = storages[s];
      size_t best = now.escapes ? SIZE_MAX : best_slot(storages, slots, now);
      if (best == SIZE_MAX) {
        slots.push_back(s);
        continue;
      }
      Storage& slot = storages[slots[best]];
      if (dims_.less_equal(now.bytes, slot.bytes) != Proof::kYes)
        slot.bytes = dims_.less_equal(slot.bytes, now.bytes) == Proof::kYes
                         ? now.bytes
                         : max(slot.bytes, now.bytes);
      slot.last = std::max(slot.last, now.last);
      shared[now.var.get()] = slot.var;
      sizes[slot.var.get()] = slot.bytes;
      context_.count("plan-memory.shared");
    }
    // A slot's memory may be freed after the last use of whatever it held; an escaping one never.
    std::unordered_map<const Var*, size_t> freed_after;
    for (size_t s : slots)
      if (!storages[s].escapes) freed_after[storages[s].var.get()] = storages[s].last;
    return rebuild(block, std::move(bindings), shared, sizes, freed_after);
  }

 private:
  void plan_nested(Binding& b) {
    if (b.value->kind != ExprKind::kIf) return;
    auto copy = std::make_shared<Expr>(*b.value);
    copy->then_block = plan(*copy->then_block);
    copy->else_block = plan(*copy->else_block);
    b.value = copy;
  }

  // Whether the expression's value may point into its operands' storage.
  static bool aliases(const Expr& e) {
    if (e.kind == ExprKind::kIf || e.kind == ExprKind::kTuple || e.kind == ExprKind::kGetField ||
        e.kind == ExprKind::kAtom)
      return true;
    return e.kind == ExprKind::kCall &&
           (e.op == "memory.alloc_tensor" || e.op == "memory.reshape" || e.op == "memory.row_view");
  }

  size_t best_slot(const std::vector<Storage>& storages, const std::vector<size_t>& slots,
                   const Storage& now) const {
    size_t fits = SIZE_MAX, grows = SIZE_MAX, any = SIZE_MAX;
    for (size_t k = 0; k < slots.size(); ++k) {
      const Storage& slot = storages[slots[k]];
      if (slot.escapes || slot.last >= now.first) continue;
      if (dims_.less_equal(now.bytes, slot.bytes) == Proof::kYes) {
        if (fits == SIZE_MAX ||
            dims_.less_equal(slot.bytes, storages[slots[fits]].bytes) == Proof::kYes)
          fits = k;
      } else if (dims_.less_equal(slot.bytes, now.bytes) == Proof::kYes) {
        if (grows == SIZE_MAX ||
            dims_.less_equal(storages[slots[grows]].bytes, slot.bytes) == Proof::kYes)
          grows = k;
      } else {
        any = k;
      }
    }
    return fits != SIZE_MAX ? fits : grows != SIZE_MAX ? grows : any;
  }

  static ir::BlockRef rebuild(const Block& block, std::vector<Binding> bindings,
                              const std::unordered_map<const Var*, VarRef>& shared,
                              const std::unordered_map<const Var*, Dim>& sizes,
                              const std::unordered_map<const Var*, size_t>& freed_after) {
    ir::BlockBuilder out;
    std::vector<Binding> kept;
    std::unordered_map<const Var*, size_t> last_use;
    std::vector<size_t> place(bindings.size());  // of each original binding among those kept
    for (size_t i = 0; i < bindings.size(); ++i) {
      Binding& b = bindings[i];
      place[i] = kept.size();
      auto now = std::make_shared<Expr>(*b.value);
      if (b.value->kind == ExprKind::kCall && b.value->op == "memory.alloc_storage") {
        if (shared.count(b.var.get())) continue;
        auto size = sizes.find(b.var.get());
        if (size != sizes.end()) now->attrs["bytes"] = size->second;
      }
      for (Atom& a : now->args)
        if (a.is_var())
          if (auto it = shared.find(a.var.get()); it != shared.end()) a = it->second;
      visit_atoms(*now, [&](const Atom& a) {
        if (a.is_var()) last_use[a.var.get()] = kept.size();
      });
      kept.push_back({b.var, now});
    }
    // A killed variable must be one that this block defined; its result stays.
    std::unordered_map<size_t, std::vector<VarRef>> kills;
    for (size_t i = 0; i < kept.size(); ++i) {
      const VarRef& v = kept[i].var;
      ir::TypeKind kind = v->type->kind;
      if (kind != ir::TypeKind::kTensor && kind != ir::TypeKind::kStorage) continue;
      if (block.result.is_var() && block.result.var == v) continue;
      if (kind == ir::TypeKind::kStorage) {
        if (auto freed = freed_after.find(v.get()); freed != freed_after.end())
          kills[place[freed->second]].push_back(v);
        continue;
      }
      auto it = last_use.find(v.get());
      kills[it == last_use.end() ? i : it->second].push_back(v);
    }
    // Tensors before their storage.
    for (auto& [i, dying] : kills)
      std::stable_partition(dying.begin(), dying.end(),
                            [](const VarRef& v) { return v->type->kind == ir::TypeKind::kTensor; });
    for (size_t i = 0; i < kept.size(); ++i) {
      out.append(kept[i]);
      for (const VarRef& v : kills[i]) {
        VarRef u = out.call("memory.kill", {v}, {}, "u");
        u->type = ir::tuple_type({});
      }
    }
    return out.finish(block.result);
  }

  const ir::DimContext& dims_;
  PassContext& context_;
};

}  // namespace

ir::Module plan_memory(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  for (auto& [name, f] : out.functions) {
    ir::DimContext dims = ir::dim_context(*f);
    auto copy = std::make_shared<ir::Function>(*f);
    copy->body = Planner(dims, context).plan(*f->body);
    f = copy;
  }
  return out;
}

}  // namespace nimble::passes
