// Method: a walk with what may hold at each place: which registers have products under way, in a
// batch or in none yet, and which were written since the last fence. Branches are joined, and a
// loop's body is walked until it adds nothing.
#include "compiler/kernels/verify_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

namespace nimble::kir {
namespace {

using Buffers = std::set<const Buffer*>;

struct State {
  Buffers written;  // since the last fence, or never
  Buffers open;     // with products of no batch yet
  Buffers batched;  // with products of a batch

  bool under_way(const Buffer* b) const { return open.contains(b) || batched.contains(b); }
  const Buffer* any() const {
    return !open.empty() ? *open.begin() : !batched.empty() ? *batched.begin() : nullptr;
  }
  void join(const State& other) {
    written.insert(other.written.begin(), other.written.end());
    open.insert(other.open.begin(), other.open.end());
    batched.insert(other.batched.begin(), other.batched.end());
  }
  bool operator==(const State&) const = default;
};

class Order {
 public:
  std::string run(const Stmt& body) {
    State state;
    find_sums(body, state.written);
    if (state.written.empty()) return {};
    walk(body, state);
    if (const Buffer* b = state.any())
      fault(fmt::format("the function ends while products into {} are under way; wait for them",
                        b->name));
    return fault_;
  }

 private:
  void fault(std::string text) {
    if (fault_.empty()) fault_ = std::move(text);
  }

  static void find_sums(const Stmt& s, Buffers& sums) {
    if (s.kind == StmtKind::kGroupDot) sums.insert(s.tiles[0].buffer.get());
    for (const StmtRef& b : s.body) find_sums(*b, sums);
  }

  void touched(const Buffer& b, const State& state) {
    if (state.under_way(&b))
      fault(fmt::format("register {} is used while products into it are under way; wait for them",
                        b.name));
  }

  void reads(const Value& v, const State& state, std::unordered_set<const Value*>& seen) {
    if (!seen.insert(&v).second) return;
    if (v.kind == ValueKind::kRegister) touched(*v.buffer, state);
    for (const ValueRef& o : v.operands) reads(*o, state, seen);
    if (v.passthrough) reads(*v.passthrough, state, seen);
  }

  void write(const Buffer& b, State& state) {
    touched(b, state);
    state.written.insert(&b);
  }

  void loop(const Stmt& s, State& state) {
    State after = state;
    walk(*s.body[0], after);
    const auto extent = s.extent.as_constant();
    if (!extent || *extent <= 0) after.join(state);  // it may run not once
    for (State before; before != after && fault_.empty();) {
      before = after;
      State next = after;
      walk(*s.body[0], next);
      after.join(next);
    }
    state = std::move(after);
  }

  void walk(const Stmt& s, State& state) {
    if (!fault_.empty()) return;
    if (s.value) {
      std::unordered_set<const Value*> seen;
      reads(*s.value, state, seen);
    }
    switch (s.kind) {
      case StmtKind::kSeq:
        for (const StmtRef& b : s.body) walk(*b, state);
        return;
      case StmtKind::kFor:
        return loop(s, state);
      case StmtKind::kIf: {
        State then = state, otherwise = state;
        walk(*s.body[0], then);
        if (s.body.size() > 1) walk(*s.body[1], otherwise);
        state = std::move(then);
        state.join(otherwise);
        return;
      }
      case StmtKind::kSetRegister:
        return write(*s.buffer, state);
      case StmtKind::kWarpLoad:
        return write(*s.tiles[0].buffer, state);
      case StmtKind::kWarpDot:
        for (size_t i = 1; i < s.tiles.size(); ++i) touched(*s.tiles[i].buffer, state);
        return write(*s.tiles[0].buffer, state);
      case StmtKind::kBarrier:
        if (s.together == Together::kBlock && !state.open.empty())
          fault(
              fmt::format("a barrier of the block among products into {} that are of no batch yet",
                          (*state.open.begin())->name));
        return;
      case StmtKind::kCheck:
        if (const Buffer* b = state.any())
          fault(
              fmt::format("a check while products into {} are under way, which a failure would "
                          "leave behind",
                          b->name));
        return;
      case StmtKind::kGroupDot: {
        const Buffer* sum = s.tiles[0].buffer.get();
        if (state.written.contains(sum))
          fault(fmt::format("products into {}, which is written with no fence of the group behind",
                            sum->name));
        if (!columns_.emplace(sum, s.columns).second && columns_.at(sum) != s.columns)
          fault(
              fmt::format("products of {} and of {} columns into {}; each needs registers of its "
                          "own",
                          columns_.at(sum), s.columns, sum->name));
        state.open.insert(sum);
        return;
      }
      case StmtKind::kGroupFence:
        return state.written.clear();
      case StmtKind::kGroupCommit:
        state.batched.insert(state.open.begin(), state.open.end());
        return state.open.clear();
      case StmtKind::kGroupWait:
        if (s.count == 0) state.batched.clear();
        return;
      default:
        return;
    }
  }

  std::map<const Buffer*, int> columns_;  // of the products into a buffer
  std::string fault_;
};

}  // namespace

std::string group_order_fault(const Function& f) {
  return Order().run(*f.body);
}

}  // namespace nimble::kir
