// Method: the statements with a block's barriers in them, which all threads come to alike (verify),
// are walked once for the block; between two such places each warp runs by itself. A warp runs a
// statement for all its lanes before the next one, with a mask of those that take part: what lanes
// do together needs nothing else. Nothing is lost by that order, since what other orders could
// change is a fault (launch_memory.h).
//
// A loop of steps is walked once for the grid in the same way: between two steps each block runs by
// itself, and takes its shared memory with it.
//
// A thread's frame and registers lie together; its symbols lie lane by lane, and what cannot differ
// between lanes is computed once.
#include "compiler/kernels/interpreter_launch.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "compiler/kernels/launch_warp.h"
#include "vm/base/error.h"
#include "vm/executable/launch.h"

namespace nimble::kir {
namespace {

// 0, 1, … in the order that is asked for.
std::vector<int64_t> in_order_of(uint64_t order, int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order == 1)
    std::reverse(numbers.begin(), numbers.end());
  else if (order > 1)
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937_64(order));
  return numbers;
}

class Block {
 public:
  Block(Launched& run, std::array<int64_t, 3> at) : r_(run), at_(at) {
    const int warps = run.code.launch_threads / kWarpLanes;
    for (int w = 0; w < warps; ++w) warps_.emplace_back(run, w);
    order_ = in_order_of(run.options.order, warps);
    for (size_t i = first_shared(); i < run.memory.size(); ++i) {
      const Buffer& b = *run.code.buffers[i];
      const int64_t extent = *b.extent.as_constant();
      bytes_.emplace_back(static_cast<size_t>(extent) * size_of(b.dtype));
      shared_.push_back({bytes_.back().data(), extent, true, std::vector<LaunchCell>(extent)});
    }
  }

  // From its beginning to its end.
  void run(std::array<int64_t, 3> at) {
    at_ = at;
    run({&r_.code.body, 1});
  }
  // The statements of a block that has done nothing yet.
  void run(std::span<const StmtCode> list) {
    here([&] {
      // The slot of block_x lies behind those of threads and the contract's.
      const size_t first = 2 + r_.code.contract_symbols.size();
      std::copy(at_.begin(), at_.end(), r_.symbols.begin() + first);
      for (size_t i = first_shared(); i < r_.memory.size(); ++i) forget(i);
      for (Warp& w : warps_) w.begin_block();
      r_.fences.assign(warps_.size() * kWarpLanes, {});
      all_of(list);
    });
  }
  // One of a loop of steps, behind what stands ahead of them.
  void step(const StmtCode& loop, int64_t number) {
    here([&] {
      for (size_t i = first_shared(); i < r_.memory.size(); ++i)
        if (!r_.code.ready[i]) forget(i);
      for (Warp& w : warps_) {
        w.begin_step();
        w.set_symbol(loop.slot, kAll, number);
      }
      all_of({loop.body.data(), 1});
      for (const Warp& w : warps_) w.end_step();
    });
  }

 private:
  size_t first_shared() const { return r_.code.arguments + r_.code.scratch; }
  void forget(size_t memory) {
    std::vector<LaunchCell>& cells = r_.memory[memory].cells;
    std::fill(cells.begin(), cells.end(), LaunchCell{});
  }

  // The block goes on for a while.
  template <class Body>
  void here(const Body& body) {
    const auto exchange = [&] {
      for (size_t i = 0; i < shared_.size(); ++i)
        std::swap(shared_[i], r_.memory[first_shared() + i]);
    };
    r_.block = at_;
    r_.time.block = r_.time.phase = ++r_.time.now;
    for (Warp& w : warps_) w.since = r_.time.now;
    r_.signals.clear();  // none lives from step to step
    exchange();
    body();
    exchange();
    check_groups();
    check_signals();
  }

  // Statements of one list; those between two barriers one warp after the other.
  void all_of(std::span<const StmtCode> list) {
    for (size_t i = 0; i < list.size();) {
      if (list[i].meets) {
        together(list[i++]);
        continue;
      }
      size_t end = i;
      while (end < list.size() && !list[end].meets) ++end;
      for (const int64_t w : order_)
        for (size_t s = i; s < end; ++s) warps_[w].statement(list[s], kAll);
      i = end;
    }
  }

  void together(const StmtCode& s) {
    if (ended()) return;
    switch (s.stmt->kind) {
      case StmtKind::kSeq:
        return all_of(s.body);
      case StmtKind::kFor: {
        const int64_t begin = agreed(s, [&](Warp& w, int t) { return w.dim(s.begin, t); });
        const int64_t extent = agreed(s, [&](Warp& w, int t) { return w.dim(s.extent, t); });
        for (int64_t i = 0; i < extent && !ended(); i += s.stmt->step) {
          for (Warp& w : warps_) w.set_symbol(s.slot, kAll, begin + i);
          all_of({s.body.data(), 1});
        }
        return;
      }
      case StmtKind::kIf: {
        const auto then =
            agreed(s, [&](Warp& w, int t) { return w.holds(s, Mask{1} << t) ? 1 : 0; });
        if (then)
          all_of({s.body.data(), 1});
        else if (s.body.size() > 1)
          all_of({s.body.data() + 1, 1});
        return;
      }
      case StmtKind::kBarrier:
        for (const Warp& w : warps_)
          if (w.live != kAll)
            w.fault(std::countr_one(w.live), "a barrier of the block that a thread does not reach");
        check_groups();
        r_.time.phase = ++r_.time.now;
        for (Warp& w : warps_) w.since = r_.time.now;
        return;
      case StmtKind::kSignalWait: {
        const int64_t index = agreed(s, [&](Warp& w, int t) { return w.dim(s.access.index, t); });
        const int64_t phase = agreed(s, [&](Warp& w, int t) { return w.dim(s.begin, t); });
        return warps_.front().signal_wait(s, index, phase);
      }
      default:
        NIMBLE_UNREACHABLE();
    }
  }

  void check_signals() const {
    for (const auto& [place, signal] : r_.signals)
      if (!signal.copies.empty())
        warps_.front().fault(0, fmt::format("the block ends while copies to {} are on their way",
                                            signal.copies.front().stmt->stmt->to_buffer->name));
  }

  // The warps of a group come to each of its products.
  void check_groups() const {
    for (size_t w = 0; w < warps_.size(); ++w)
      if (warps_[w].multiplied() != warps_[w / kGroupWarps * kGroupWarps].multiplied())
        warps_[w].fault(0, "other products than those of the other warps of its group");
  }

  bool ended() const {
    return std::all_of(warps_.begin(), warps_.end(), [](const Warp& w) { return w.live == 0; });
  }

  // What every thread says.
  template <class Say>
  int64_t agreed(const StmtCode& s, const Say& say) {
    std::optional<int64_t> all;
    for (Warp& w : warps_)
      each(w.live, [&](int t) {
        const int64_t one = say(w, t);
        if (all.value_or(one) != one)
          w.fault(t, fmt::format("threads disagree about {}",
                                 s.stmt->kind == StmtKind::kSignalWait
                                     ? "signal " + s.stmt->buffer->name
                                 : s.stmt->kind == StmtKind::kIf
                                     ? "a condition around a barrier of the block"
                                     : "loop " + s.stmt->var + " around a barrier of the block"));
        all = one;
      });
    return all.value_or(0);
  }

  Launched& r_;
  std::array<int64_t, 3> at_;
  std::vector<Warp> warps_;
  std::vector<int64_t> order_;
  std::vector<std::vector<std::byte>> bytes_;  // of its shared memory
  std::vector<LaunchMemory> shared_;           // while other blocks run
};

using Blocks = std::vector<std::array<int64_t, 3>>;

// The statements ahead of a loop of steps, list by list, and the loop.
struct Steps {
  std::vector<std::span<const StmtCode>> ahead;
  const StmtCode* loop = nullptr;
};
Steps steps_in(const StmtCode& body) {
  Steps out;
  for (out.loop = &body; out.loop->stmt->kind == StmtKind::kSeq;) {
    const std::span<const StmtCode> list = out.loop->body;
    out.ahead.push_back(list.first(list.size() - 1));
    out.loop = &list.back();
  }
  return out;
}

void run_steps(Launched& run, const Blocks& places, int64_t count) {
  const Steps steps = steps_in(run.code.body);
  std::vector<StmtCode> ahead;
  for (const auto& list : steps.ahead) ahead.insert(ahead.end(), list.begin(), list.end());
  std::vector<Block> blocks;
  blocks.reserve(places.size());
  for (const auto& at : places) blocks.emplace_back(run, at);
  for (int64_t i = 0; i < count; ++i) {
    for (Block& b : blocks) {
      if (i == 0 || run.options.apart) b.run(ahead);
      b.step(*steps.loop, i);
    }
    run.time.step = run.time.now;
  }
}

}  // namespace

int32_t run_launch(const InterpreterCode& code, const Interpreter::Options& options,
                   std::span<const std::span<std::byte>> buffers, std::span<const int64_t> symbols,
                   LaunchStatistics* statistics) {
  Launched run{code, options, statistics, {}, bind_symbols(code, symbols, code.launch_threads),
               {},   {},      0};
  const std::string place = "kernel " + code.name;
  std::vector<std::vector<std::byte>> owned;
  for (const BoundMemory& m : bind_memory(code, run.symbols, buffers, code.launch_threads, owned)) {
    const size_t i = run.memory.size();
    const bool defined = i < code.arguments && code.defined[i];
    run.memory.push_back({m.data, m.extent, false,
                          std::vector<LaunchCell>(static_cast<size_t>(m.extent),
                                                  LaunchCell{defined ? LaunchTime::kBefore : 0})});
  }
  // A block brings its own.
  for (size_t i = run.memory.size(); i < code.memories(); ++i)
    run.memory.push_back({nullptr, 0, true, {}});
  const auto number = [&](const DimCode& d) {
    return evaluate<1>(d, run.symbols.data(),
                       [&](const char* problem) { throw Error(Status::kFatal, place, problem); });
  };
  std::array<int64_t, 3> grid{};
  int64_t blocks = 1;
  for (size_t i = 0; i < grid.size(); ++i) {
    grid[i] = number(code.grid[i]);
    if (grid[i] < 0 || grid[i] > exec::kMaxGrid[i])
      throw Error(Status::kFatal, place,
                  fmt::format("a grid of {} blocks along axis {}; up to {} are possible", grid[i],
                              i, exec::kMaxGrid[i]));
    blocks *= grid[i];
  }
  if (blocks == 0) return 0;
  Blocks places;
  for (const int64_t n : in_order_of(options.order, blocks))
    places.push_back({n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]});
  if (code.body.steps) {
    run_steps(run, places, number(steps_in(code.body).loop->extent));
    return run.status;
  }
  Block block(run, {});
  for (const auto& at : places) block.run(at);
  return run.status;
}

}  // namespace nimble::kir
