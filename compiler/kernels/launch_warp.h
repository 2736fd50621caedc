// A warp in the emulator: its lanes run each statement together, with a mask of those that take
// part.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/interpreter_dim.h"
#include "compiler/kernels/launch_memory.h"
#include "compiler/kernels/warp_product.h"
#include "vm/base/error.h"

namespace nimble::kir {

using Mask = uint32_t;
inline constexpr Mask kAll = ~Mask{0};
using Numbers = std::array<int64_t, kWarpLanes>;

template <class Body>
void each(Mask mask, const Body& body) {
  for (; mask != 0; mask &= mask - 1) body(std::countr_zero(mask));
}

struct Registers {
  enum State : uint8_t { kUndefined, kDefined, kSummed /* products into it are on their way */ };
  int64_t extent = 0;
  int width = 0;  // lanes of one
  std::vector<Lane> lanes;
  std::vector<State> states;
};

// A copy on its way. Its source is not to change meanwhile.
struct Copy {
  const StmtCode* stmt;
  int64_t to, from;
  int64_t valid;
  std::array<std::byte, 16> bytes;
};

struct Copies {
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;  // of no group yet
};

// A warp's part of a group's product: its 16 rows, by all columns.
struct GroupProduct {
  const StmtCode* stmt;
  std::array<int64_t, 2> begins;  // bytes of its factors' buffers
  int64_t number;                 // of its first register
};

struct GroupProducts {
  std::vector<std::vector<GroupProduct>> batches;
  std::vector<GroupProduct> open;  // of no batch yet
};

// When a thread last showed its writes to products, now and ahead of the phase.
struct ProxyFences {
  uint32_t latest = 0, before = 0;
};

// A copy of a box on its way: element by element in the order of its place in shared memory.
struct BoxCopy {
  const StmtCode* stmt;
  int64_t to;                 // its first element
  std::vector<int64_t> from;  // in the argument; -1: beyond the tensor
  std::vector<std::byte> bytes;
};

// A signal of a block.
struct Signal {
  int arrivals = 0;  // of a phase
  uint32_t made = 0;
  int32_t maker = 0;                // the thread
  int64_t over = 0;                 // phases
  int arrived = 0;                  // in the one that goes on
  int64_t expected = 0, begun = 0;  // bytes, in the same
  std::vector<BoxCopy> copies;      // begun in the same
};

struct Launched {
  const InterpreterCode& code;
  const Interpreter::Options& options;
  LaunchStatistics* statistics;
  std::vector<LaunchMemory> memory;  // arguments, scratch, shared
  std::vector<int64_t> symbols;
  LaunchTime time;
  std::array<int64_t, 3> block{};
  int32_t status = 0;
  std::vector<ProxyFences> fences = {};                    // of the block's threads
  std::map<std::pair<int, int64_t>, Signal> signals = {};  // of the block, by buffer and element
};

class Warp {
 public:
  Warp(Launched& run, int number)
      : r_(run),
        code_(run.code),
        number_(number),
        symbols_(static_cast<size_t>(code_.symbols) * kWarpLanes),
        frame_(static_cast<size_t>(code_.frame) * kWarpLanes) {
    for (size_t i = code_.memories(); i < code_.buffers.size(); ++i) {
      const Buffer& b = *code_.buffers[i];
      const int64_t extent = *b.extent.as_constant();
      const auto n = static_cast<size_t>(extent) * kWarpLanes;
      registers_.push_back({extent, b.lanes, std::vector<Lane>(n * b.lanes),
                            std::vector<Registers::State>(n, Registers::kUndefined)});
    }
  }

  void begin_block() {
    live = kAll;
    since = r_.time.now;
    for (int s = 0; s < code_.symbols; ++s)
      for (int t = 0; t < kWarpLanes; ++t) symbols_[s * kWarpLanes + t] = r_.symbols[s];
    for (int t = 0; t < kWarpLanes; ++t) symbols_[t] = number_ * kWarpLanes + t;
    for (Registers& r : registers_)
      std::fill(r.states.begin(), r.states.end(), Registers::kUndefined);
    copies_.assign(kWarpLanes, {});
    products_ = {};
    multiplied_ = 0;
  }

  // The next step of the grid begins: nothing is left of the one before in registers.
  void begin_step() {
    for (size_t i = 0; i < registers_.size(); ++i)
      if (!code_.ready[code_.memories() + i])
        std::fill(registers_[i].states.begin(), registers_[i].states.end(), Registers::kUndefined);
  }
  void end_step() const {
    for (int t = 0; t < kWarpLanes; ++t)
      if (!copies_[t].groups.empty() || !copies_[t].open.empty())
        fault(t, "a step that ends while a copy is on its way");
  }

  [[noreturn]] void fault(int lane, const std::string& problem) const {
    throw Error(Status::kFatal,
                fmt::format("kernel {}, block {} {} {}, thread {}", code_.name, r_.block[0],
                            r_.block[1], r_.block[2], number_ * kWarpLanes + lane),
                problem);
  }

  int64_t dim(const DimCode& d, int lane) const {
    return evaluate<kWarpLanes>(d, &symbols_[lane],
                                [&](const char* problem) { fault(lane, problem); });
  }

  void dims(const DimCode& d, Mask mask, Numbers& to) const {
    if (!d.by_lane) {
      to.fill(mask ? dim(d, std::countr_zero(mask)) : 0);
      return;
    }
    each(mask, [&](int t) { to[t] = dim(d, t); });
  }

  Mask holds(const StmtCode& s, Mask mask) const {
    Numbers a, b;
    for (const StmtCode::Term& term : s.condition) {
      dims(term.a, mask, a);
      dims(term.b, mask, b);
      Mask left = 0;
      each(mask, [&](int t) {
        if (kir::holds(term.op, a[t], b[t])) left |= Mask{1} << t;
      });
      mask = left;
    }
    return mask;
  }

  void set_symbol(int slot, Mask mask, int64_t v) {
    each(mask, [&](int t) { symbols_[static_cast<size_t>(slot) * kWarpLanes + t] = v; });
  }

  void statement(const StmtCode& s, Mask mask);

  // Of a wait for a signal, to which all threads have come: what it waits for takes effect.
  void signal_wait(const StmtCode& s, int64_t index, int64_t phase);

  // What the warp has multiplied with its group, told apart from anything else.
  uint64_t multiplied() const { return multiplied_; }

  Mask live = kAll;    // lanes that no check has ended
  uint32_t since = 0;  // when they met last

 private:
  Lane* frame(int lane) { return &frame_[static_cast<size_t>(lane) * code_.frame]; }

  // --- Memory

  std::byte* element(int buffer, int64_t index, bool write, int lane, bool whole_warp = false);
  [[noreturn]] void refuse(Wrong wrong, const Buffer& b, int64_t index, bool write, int lane) const;
  size_t index_of(const Buffer& b) const;
  // The instructions that move `n` neighbours of each lane, as far as each lane has `valid`.
  void note(int buffer, int n, bool neighbours, const Numbers& index, const Numbers& stride,
            const Numbers& valid, Mask mask) const;
  // Index, stride and lanes of an access.
  void check_aligned(const AccessCode& a, int64_t index, int lane) const;
  void places(const AccessCode& a, int n, Mask mask, Numbers& index, Numbers& stride,
              Numbers& valid) const;
  void load(const OpCode& op, Mask mask);
  void store(const StmtCode& s, Mask mask);

  // --- Registers

  Lane* reg(const AccessCode& a, int64_t index, int lane, bool write);

  // --- Values

  void compute_all(const StmtCode& s, Mask mask);
  void compute(const OpCode& op, Mask mask);
  void meet(Mask mask, const char* what) const;

  // --- Statements

  void loop(const StmtCode& s, Mask mask);
  void let_index(const StmtCode& s, Mask mask);
  void check(const StmtCode& s, Mask mask);

  // --- What a warp does together

  void warp_dot(const StmtCode& s, Mask mask);
  void warp_load(const StmtCode& s, Mask mask);

  // --- Copies without waiting

  void begin_copy(const StmtCode& s, Mask mask);
  void end_copy(const Copy& c, int lane);
  void wait(const StmtCode& s, Mask mask);

  // --- What a group of warps does together (launch_group.cpp)

  void group_dot(const StmtCode& s, Mask mask);
  void group_wait(const StmtCode& s, Mask mask);
  void proxy_fence(Mask mask);
  // Whether a thread has shown what it wrote then to products and copies of boxes.
  bool is_shown(int32_t thread, uint32_t when) const;
  void set_sums(const GroupProduct& p, Registers::State state);
  // Elements of a factor, one after the other of each row or column of the warp's.
  template <class Body>
  void each_factor(const GroupProduct& p, size_t factor, const Body& body);
  void end_product(const GroupProduct& p);

  // --- Signals and copies of boxes (launch_signal.cpp)

  void signal_init(const StmtCode& s, Mask mask);
  void signal_arrive(const StmtCode& s, Mask mask);
  Signal& made_signal(const StmtCode& s, int64_t index, int lane);
  void tensor_copy(const StmtCode& s, Mask mask);
  BoxCopy begin_box(const StmtCode& s, int64_t to, int lane);
  void end_box(const BoxCopy& c);

  Launched& r_;
  const InterpreterCode& code_;
  const int number_;
  std::vector<int64_t> symbols_;
  std::vector<Lane> frame_;
  std::vector<Registers> registers_;
  std::vector<Copies> copies_;
  GroupProducts products_;
  uint64_t multiplied_ = 0;
};

}  // namespace nimble::kir
