// Storage sharing by liveness (paper, 3.3: "storage coalescing").
//
// A storage lives from its allocation to the last use of any tensor in it, views and views of
// views included, in the order of the function's text; branches stand there one after another, so
// what lives in one of them never meets what lives in another. A storage that leaves the
// function's sight (MemorySurvey: escapes) is not shared. In the order of their beginnings each
// storage takes over the best one that has died:
//   1. one provably at least as large (the smallest such, by proof; ranges of symbols count),
//   2. else one provably smaller, which then grows to the new size,
//   3. else any dead one, whose size becomes the maximum of both.
// max(a, b) <= a + b, so sharing never costs memory. What the prover cannot order is still right,
// since sizes are evaluated at run time. Within each rank, one that stands already where it can be
// seen comes before one that must move.
//
// Across branches. A storage of one branch serves another branch of the same expression, or what
// comes after the expression in the block around it. Its allocation then moves up, in front of
// the expression: to the place that dominates all its uses. It does so only where its size is
// known there and computing it cannot fail, and never further: every path from that place then
// needs the storage, or has left the function.
//
// No path allocates more than it needs itself: the size of a branch that is not taken may be beyond
// all memory. So what only a branch needs does not make a storage around it larger, and where an
// allocation moves, each path from its new place needs that size: two branches the same, what comes
// after the expression at least that of the branch.
//
// Recursion. What stays allocated over a call that comes back to this function is there once for
// each level. So nothing is shared over such a call, tail calls excepted: they replace the frame.
// A loop (a tail call of itself) thus frees its body's storages at the end of each step and takes
// them from the pool's lists at the next: at a fixed shape neither the system nor a miss.
//
// Then place_kills ends every life.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

#include "compiler/ir/entry.h"
#include "compiler/ir/infer.h"
#include "compiler/passes/analysis/memory_survey.h"
#include "compiler/passes/analysis/recursion.h"
#include "compiler/passes/lower_memory.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/place_kills.h"
#include "compiler/passes/support/rewrite.h"

namespace nimble::passes {
namespace {

using ir::Atom;
using ir::Binding;
using ir::Block;
using ir::Dim;
using ir::Expr;
using ir::Proof;
using ir::Var;
using ir::VarRef;

class Planner {
 public:
  Planner(const std::string& name, const ir::FunctionRef& f, const Recursion& recursion,
          PassContext& context)
      : function_(f), dims_(ir::dim_context(*f)), survey_(*f), context_(context) {
    for (const MemorySurvey::Call& c : survey_.calls) {
      const bool back = c.callee.is_global()
                            ? recursion.calls(c.callee.global, name) || c.callee.global == name
                            : recursion.may_return_through_values(name);
      if (back && !c.tail) recursive_calls_.push_back(c.time);
    }
    for (const MemorySurvey::Introduction& i : survey_.introductions) {
      const ir::Type& t = i.var->type;
      if (!t || t->kind != ir::TypeKind::kTensor) continue;
      for (const Dim& d : t->dims)
        if (const auto symbol = d.as_symbol()) introductions_[*symbol].emplace(i.block, i.time);
    }
  }

  ir::FunctionRef run(bool entry) {
    for (const MemorySurvey::Storage& s : survey_.storages) place(s);
    for (Slot& slot : slots_) {
      auto alloc = std::make_shared<Expr>(*slot.alloc);
      alloc->attrs["bytes"] = slot.bytes;
      moved_[{slot.at.block, slot.at.index}].push_back({slot.var, alloc});
    }
    next_block_ = 0;
    auto copy = std::make_shared<ir::Function>(*function_);
    copy->body = rebuild(*function_->body);
    return place_kills(copy, entry);
  }

 private:
  // A place in the function: in front of a binding.
  struct Place {
    size_t block = 0, index = 0, time = 0;
  };
  struct Slot {
    VarRef var;
    const Expr* alloc;
    Dim bytes;
    Place at;
    size_t first, last;  // of what lies in it
  };
  struct Choice {
    size_t slot = SIZE_MAX;
    int rank = 3;  // fits, grows, maximum; see above
    bool moves = true;
    Place at;
    Dim bytes;
  };

  void place(const MemorySurvey::Storage& s) {
    const Dim bytes = ir::attr<Dim>(s.alloc->attrs, "bytes");
    Choice best;
    if (!s.escapes)
      for (size_t k = 0; k < slots_.size(); ++k)
        if (Choice c; consider(k, s, bytes, c) && better(c, best)) best = c;
    if (best.slot == SIZE_MAX) {
      // Only what may be shared gets a slot; the rest stays where it is.
      slot_of_[s.var.get()] = s.var;
      if (!s.escapes)
        slots_.push_back({s.var, s.alloc, bytes, {s.block, s.index, s.first}, s.first, s.last});
      return;
    }
    Slot& slot = slots_[best.slot];
    slot.bytes = best.bytes;
    if (best.moves) context_.count("plan-memory.hoisted");
    slot.at = best.at;
    slot.last = std::max(slot.last, s.last);
    slot_of_[s.var.get()] = slot.var;
    context_.count("plan-memory.shared");
  }

  bool better(const Choice& a, const Choice& b) const {
    if (b.slot == SIZE_MAX) return true;
    if (std::tie(a.rank, a.moves) != std::tie(b.rank, b.moves))
      return std::tie(a.rank, a.moves) < std::tie(b.rank, b.moves);
    const Dim& x = slots_[a.slot].bytes;
    const Dim& y = slots_[b.slot].bytes;
    if (a.rank == 0) return dims_.less_equal(x, y) == Proof::kYes && !(x == y);
    if (a.rank == 1) return dims_.less_equal(y, x) == Proof::kYes && !(x == y);
    return true;  // the latest
  }

  bool consider(size_t k, const MemorySurvey::Storage& s, const Dim& bytes, Choice& c) const {
    const Slot& slot = slots_[k];
    if (slot.last >= s.first) return false;
    if (ir::attr<int64_t>(slot.alloc->attrs, "device") !=
        ir::attr<int64_t>(s.alloc->attrs, "device"))
      return false;
    c.slot = k;
    c.at = slot.at;
    c.moves = !encloses(slot.at.block, s.block);
    if (c.moves && !dominator(slot.at.block, s.block, c.at)) return false;
    // Idle from the slot's last use to the new one's first, and from where it moves to.
    if (recursive_call_in(slot.last, s.first) || recursive_call_in(c.at.time, slot.first))
      return false;
    c.bytes = slot.bytes;
    const bool fits = dims_.less_equal(bytes, slot.bytes) == Proof::kYes;
    if (!fits && c.at.block != s.block) return false;
    const bool covers = (c.moves || !fits) && dims_.less_equal(slot.bytes, bytes) == Proof::kYes;
    if (c.moves && !covers) return false;
    if (fits) {
      c.rank = 0;
    } else if (covers) {
      c.rank = 1;
      c.bytes = bytes;
    } else {
      c.rank = 2;
      c.bytes = max(slot.bytes, bytes);
    }
    const bool same = !c.moves && c.bytes == slot.bytes;
    return same || computable(c.bytes, c.at);
  }

  bool recursive_call_in(size_t from, size_t to) const {
    return std::any_of(recursive_calls_.begin(), recursive_calls_.end(),
                       [&](size_t t) { return from < t && t < to; });
  }

  bool encloses(size_t outer, size_t inner) const {
    while (survey_.blocks[inner].depth > survey_.blocks[outer].depth)
      inner = survey_.blocks[inner].parent;
    return inner == outer;
  }

  // The place in front of the expression, in the innermost block around both, that holds block
  // `from`; if every path from there comes to `to`, or to another branch of the expression.
  bool dominator(size_t from, size_t to, Place& at) const {
    const auto& blocks = survey_.blocks;
    const size_t wanted = to;
    size_t a = from, b = to, a_below = SIZE_MAX, b_below = SIZE_MAX;
    auto climb = [&](size_t& x, size_t& below) {
      below = x;
      x = blocks[x].parent;
    };
    while (a != b) {
      if (blocks[a].depth >= blocks[b].depth) {
        if (blocks[a].depth == blocks[b].depth) climb(b, b_below);
        climb(a, a_below);
      } else {
        climb(b, b_below);
      }
    }
    if (a_below == SIZE_MAX) return false;
    at = {a, blocks[a_below].index, blocks[a_below].time};
    if (b == wanted) return true;
    // Branches of one expression: both allocate at once, nested deeper they may not at all.
    return b_below == wanted && a_below == from && blocks[a_below].index == blocks[b_below].index;
  }

  // Whether the extent is known at a place, on every path, without a computation that may fail.
  bool computable(const Dim& d, const Place& at) const {
    if (can_fail(d)) return false;
    const std::set<std::string> symbols = d.symbols();
    return std::all_of(symbols.begin(), symbols.end(), [&](const std::string& symbol) {
      const auto it = introductions_.find(symbol);
      return it != introductions_.end() &&
             std::any_of(it->second.begin(), it->second.end(), [&](const auto& introduction) {
               const auto [block, time] = introduction;
               return time < at.time && encloses(block, at.block);
             });
    });
  }

  // Blocks are met in the survey's order.
  ir::BlockRef rebuild(const Block& b) {
    const size_t id = next_block_++;
    ir::BlockBuilder out;
    for (size_t i = 0; i < b.bindings.size(); ++i) {
      const Binding& binding = b.bindings[i];
      if (auto it = moved_.find({id, i}); it != moved_.end())
        for (const Binding& alloc : it->second) out.append(alloc);
      if (binding.value->op == "memory.alloc_storage") {
        const auto& slot = slot_of_.at(binding.var.get());
        const bool stands = slot == binding.var && !is_slot(slot.get());
        if (stands) out.append(binding);
        continue;
      }
      auto now = std::make_shared<Expr>(*binding.value);
      for (Atom& a : now->args)
        if (a.is_var())
          if (auto it = slot_of_.find(a.var.get()); it != slot_of_.end()) a = it->second;
      if (now->then_block) now->then_block = rebuild(*now->then_block);
      if (now->else_block) now->else_block = rebuild(*now->else_block);
      for (ir::MatchCase& c : now->cases) c.body = rebuild(*c.body);
      out.append({binding.var, now});
    }
    return out.finish(b.result);
  }

  bool is_slot(const Var* v) const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [v](const Slot& s) { return s.var.get() == v; });
  }

  const ir::FunctionRef function_;
  const ir::DimContext dims_;
  const MemorySurvey survey_;
  PassContext& context_;
  std::vector<size_t> recursive_calls_;  // their times
  // Of each symbol: the time when a block first has a variable that brings it, by block.
  std::map<std::string, std::map<size_t, size_t>> introductions_;
  std::vector<Slot> slots_;
  std::unordered_map<const Var*, VarRef> slot_of_;  // by the variable of the allocation
  std::map<std::pair<size_t, size_t>, std::vector<Binding>> moved_;
  size_t next_block_ = 0;
};

}  // namespace

ir::Module plan_memory(const ir::Module& m, PassContext& context) {
  ir::Module out = m;
  const Recursion recursion(m);
  for (auto& [name, f] : out.functions) {
    const bool entry = ir::is_entry(m, name);
    f = Planner(name, f, recursion, context).run(entry);
  }
  return out;
}

}  // namespace nimble::passes
