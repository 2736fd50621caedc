// Method: the statements with a block's barriers in them, which all threads come to alike (verify),
// are walked once for the block; between two such places each warp runs by itself. A warp runs a
// statement for all its lanes before the next one, with a mask of those that take part: what lanes
// do together needs nothing else. Nothing is lost by that order, since what other orders could
// change is a fault (launch_memory.h).
//
// A thread's frame and registers lie together; its symbols lie lane by lane, and what cannot differ
// between lanes is computed once.
#include "compiler/kernels/interpreter_launch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <random>

#include "compiler/kernels/interpreter_compute.h"
#include "compiler/kernels/interpreter_dim.h"
#include "compiler/kernels/launch_memory.h"
#include "compiler/kernels/warp_product.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

using Mask = uint32_t;
constexpr Mask kAll = ~Mask{0};
using Numbers = std::array<int64_t, kWarpLanes>;

template <class Body>
void each(Mask mask, const Body& body) {
  for (; mask != 0; mask &= mask - 1) body(std::countr_zero(mask));
}

struct Registers {
  int64_t extent = 0;
  int width = 0;  // lanes of one
  std::vector<Lane> lanes;
  std::vector<uint8_t> defined;
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

struct Launched {
  const InterpreterCode& code;
  const Interpreter::Options& options;
  LaunchStatistics* statistics;
  std::vector<LaunchMemory> memory;  // arguments, scratch, shared
  std::vector<int64_t> symbols;
  LaunchTime time;
  std::array<int64_t, 3> block{};
  int32_t status = 0;
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
      registers_.push_back(
          {extent, b.lanes, std::vector<Lane>(n * b.lanes), std::vector<uint8_t>(n, 0)});
    }
  }

  void begin_block() {
    live = kAll;
    since = r_.time.now;
    for (int s = 0; s < code_.symbols; ++s)
      for (int t = 0; t < kWarpLanes; ++t) symbols_[s * kWarpLanes + t] = r_.symbols[s];
    for (int t = 0; t < kWarpLanes; ++t) symbols_[t] = number_ * kWarpLanes + t;
    for (Registers& r : registers_) std::fill(r.defined.begin(), r.defined.end(), 0);
    copies_.assign(kWarpLanes, {});
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

  Mask live = kAll;    // lanes that no check has ended
  uint32_t since = 0;  // when they met last

 private:
  Lane* frame(int lane) { return &frame_[static_cast<size_t>(lane) * code_.frame]; }

  // --- Memory

  std::byte* element(int buffer, int64_t index, bool write, int lane, bool whole_warp = false) {
    LaunchMemory& m = r_.memory[buffer];
    const int32_t who =
        whole_warp ? Toucher::all_of(number_) : int32_t{number_} * kWarpLanes + lane;
    const Wrong wrong = touch(m, r_.time, index, write, {who, number_, since});
    const Buffer& b = *code_.buffers[buffer];
    if (wrong != Wrong::kNothing) refuse(wrong, b, index, write, lane);
    return m.data + index * static_cast<int64_t>(size_of(b.dtype));
  }

  [[noreturn]] void refuse(Wrong wrong, const Buffer& b, int64_t index, bool write,
                           int lane) const {
    const char* what = write ? "write to" : "read of";
    if (wrong == Wrong::kOutside)
      fault(lane, fmt::format("{} {}[{}] outside its {} elements", what, b.name, index,
                              r_.memory[index_of(b)].extent));
    fault(lane, fmt::format("{} {}[{}], {}", what, b.name, index, text_of(wrong)));
  }

  size_t index_of(const Buffer& b) const {
    size_t i = 0;
    while (code_.buffers[i].get() != &b) ++i;
    return i;
  }

  // The instructions that move `n` neighbours of each lane, as far as each lane has `valid`.
  void note(int buffer, int n, bool neighbours, const Numbers& index, const Numbers& stride,
            const Numbers& valid, Mask mask) const {
    if (!r_.statistics) return;
    const Buffer& b = *code_.buffers[buffer];
    const int size = static_cast<int>(size_of(b.dtype));
    int width = neighbours ? std::clamp(16 / size, 1, n) : 1;
    each(mask, [&](int t) {
      while (index[t] % width != 0) width /= 2;
    });
    MemoryUse& use = r_.statistics->buffers[b.name];
    std::array<LaneOffset, kWarpLanes> lanes;
    for (int i = 0; i < n; i += width) {
      size_t count = 0;
      each(mask, [&](int t) {
        if (i < valid[t]) lanes[count++] = {t, (index[t] + i * stride[t]) * size};
      });
      note_access(use, r_.memory[buffer].shared, {lanes.data(), count}, width * size);
    }
  }

  // Index, stride and lanes of an access.
  void places(const AccessCode& a, int n, Mask mask, Numbers& index, Numbers& stride,
              Numbers& valid) const {
    dims(a.index, mask, index);
    if (n == 1)
      stride.fill(1);
    else
      dims(a.stride, mask, stride);
    if (a.masked)
      dims(a.valid, mask, valid);
    else
      valid.fill(n);
    const bool neighbours = n == 1 || (a.stride.terms.empty() && a.stride.constant == 1);
    note(a.buffer, n, neighbours, index, stride, valid, mask);
  }

  void load(const OpCode& op, Mask mask) {
    const Value& v = *op.value;
    Numbers index, stride, valid;
    places(op.access, v.lanes, mask, index, stride, valid);
    each(mask, [&](int t) {
      Lane* f = frame(t);
      Lane* out = f + op.result;
      for (int i = 0; i < v.lanes; ++i) {
        if (i < valid[t])
          out[i] =
              load_lane(v.dtype, element(op.access.buffer, index[t] + i * stride[t], false, t));
        else if (op.operand[0] >= 0)
          out[i] = f[op.operand[0] + i];
        else
          out[i] = constant_lane(v.dtype, 0, 0);
      }
    });
  }

  void store(const StmtCode& s, Mask mask) {
    const Value& v = *s.stmt->value;
    Numbers index, stride, valid;
    places(s.access, v.lanes, mask, index, stride, valid);
    each(mask, [&](int t) {
      const Lane* from = frame(t) + s.value;
      for (int i = 0; i < v.lanes && i < valid[t]; ++i)
        store_lane(v.dtype, from[i], element(s.access.buffer, index[t] + i * stride[t], true, t));
    });
  }

  // --- Registers

  Lane* reg(const AccessCode& a, int64_t index, int lane, bool write) {
    Registers& r = registers_[a.buffer - code_.memories()];
    if (index < 0 || index >= r.extent)
      fault(lane, fmt::format("register {}[{}] outside its {} elements",
                              code_.buffers[a.buffer]->name, index, r.extent));
    const auto at = static_cast<size_t>(lane * r.extent + index);
    if (write)
      r.defined[at] = 1;
    else if (!r.defined[at])
      fault(lane, fmt::format("read of register {}[{}], which nothing has written",
                              code_.buffers[a.buffer]->name, index));
    return &r.lanes[at * r.width];
  }

  // --- Values

  void compute_all(const StmtCode& s, Mask mask) {
    for (const OpCode& op : s.ops) compute(op, mask);
  }

  void compute(const OpCode& op, Mask mask) {
    Numbers index;
    const int n = op.value->lanes;
    switch (op.value->kind) {
      case ValueKind::kIndex:
        dims(op.access.index, mask, index);
        return each(mask, [&](int t) { frame(t)[op.result].i = index[t]; });
      case ValueKind::kLoad:
        return load(op, mask);
      case ValueKind::kRegister:
        dims(op.access.index, mask, index);
        return each(mask, [&](int t) {
          std::copy_n(reg(op.access, index[t], t, false), n, frame(t) + op.result);
        });
      case ValueKind::kShuffle:
        meet(mask, "a shuffle");
        dims(op.access.index, mask, index);
        return each(mask, [&](int t) {
          if (index[t] < 0 || index[t] >= kWarpLanes)
            fault(t, fmt::format("a shuffle from lane {}", index[t]));
          std::copy_n(frame(static_cast<int>(index[t])) + op.operand[0], n, frame(t) + op.result);
        });
      default:
        return each(mask, [&](int t) { compute_lanes(op, frame(t), r_.options.fused); });
    }
  }

  void meet(Mask mask, const char* what) const {
    if (mask != kAll)
      fault(std::countr_one(mask), fmt::format("{} that not all lanes of the warp reach", what));
  }

  // --- Statements

  void loop(const StmtCode& s, Mask mask) {
    const int64_t step = s.stmt->step;
    Numbers begin, extent;
    dims(s.begin, mask, begin);
    dims(s.extent, mask, extent);
    for (int64_t i = 0;; ++i) {
      Mask runs = 0;
      each(mask & live, [&](int t) {
        if (i * step < extent[t]) runs |= Mask{1} << t;
      });
      if (runs == 0) return;
      each(runs, [&](int t) {
        symbols_[static_cast<size_t>(s.slot) * kWarpLanes + t] = begin[t] + i * step;
      });
      statement(s.body[0], runs);
    }
  }

  void let_index(const StmtCode& s, Mask mask) {
    const auto& f = s.stmt->facts;
    each(mask, [&](int t) {
      const int64_t v = frame(t)[s.value].i;
      if (f && (v < f->low || v > f->high || v % f->divisor != 0))
        fault(t, fmt::format("index {} = {} contradicts its stated range", s.stmt->var, v));
      symbols_[static_cast<size_t>(s.slot) * kWarpLanes + t] = v;
    });
  }

  void check(const StmtCode& s, Mask mask) {
    const Mask failed = mask & ~holds(s, mask);
    if (failed == 0) return;
    if (r_.status == 0) r_.status = s.check;
    live &= ~failed;
  }

  // --- What a warp does together

  void warp_dot(const StmtCode& s, Mask mask) {
    meet(mask, "a product");
    const WarpFragmentRow& row = warp_row_of(s.stmt->warp_fragment);
    const auto all = [&](size_t operand, int count, WarpLanes& to) {
      Numbers number;
      dims(s.tiles[operand].index, mask, number);
      for (int t = 0; t < kWarpLanes; ++t)
        for (int i = 0; i < count; ++i) to[t][i] = reg(s.tiles[operand], number[t] + i, t, false);
    };
    WarpLanes sum, a, b;
    all(0, row.sum_registers(), sum);
    all(1, row.a_registers(), a);
    all(2, row.b_registers(), b);
    warp_product(row, sum, a, b);
  }

  void warp_load(const StmtCode& s, Mask mask) {
    meet(mask, "a load of matrices");
    const DType type = s.stmt->buffer->dtype;
    const int size = static_cast<int>(size_of(type)), elements = 16 / size;
    Numbers index, number;
    dims(s.access.index, mask, index);
    dims(s.tiles[0].index, mask, number);
    for (int i = 0; i < s.stmt->count; ++i) {
      Lane rows[8][16];
      std::array<LaneOffset, 8> offsets;
      for (int r = 0; r < 8; ++r) {
        const int from = 8 * i + r;
        if (index[from] % elements != 0)
          fault(from, fmt::format("a row that a warp loads begins at {}[{}], which is no multiple "
                                  "of 16 bytes",
                                  s.stmt->buffer->name, index[from]));
        offsets[r] = {r, index[from] * size};
        for (int e = 0; e < elements; ++e)
          rows[r][e] =
              load_lane(type, element(s.access.buffer, index[from] + e, false, from, true));
      }
      if (r_.statistics)
        note_access(r_.statistics->buffers[s.stmt->buffer->name], true, offsets, 16);
      const int each_lane = 4 / size;
      for (int t = 0; t < kWarpLanes; ++t) {
        Lane* to = reg(s.tiles[0], number[t] + i, t, true);
        for (int e = 0; e < each_lane; ++e)
          to[e] = s.stmt->transposed ? rows[2 * (t % 4) + e][t / 4]
                                     : rows[t / 4][each_lane * (t % 4) + e];
      }
    }
  }

  // --- Copies without waiting

  void begin_copy(const StmtCode& s, Mask mask) {
    const int n = s.stmt->lanes, size = static_cast<int>(size_of(s.stmt->buffer->dtype));
    Numbers to, from, valid, one;
    one.fill(1);
    dims(s.to.index, mask, to);
    dims(s.access.index, mask, from);
    if (s.access.masked)
      dims(s.access.valid, mask, valid);
    else
      valid.fill(n);
    note(s.access.buffer, n, true, from, one, valid, mask);
    Numbers whole;
    whole.fill(n);
    note(s.to.buffer, n, true, to, one, whole, mask);
    each(mask, [&](int t) {
      Copy c{&s, to[t], from[t], std::clamp<int64_t>(valid[t], 0, n), {}};
      if (to[t] % n != 0 || from[t] % n != 0)
        fault(t,
              fmt::format("a copy of {} bytes from {}[{}] to {}[{}], which are no multiples of "
                          "its size",
                          n * size, s.stmt->buffer->name, from[t], s.stmt->to_buffer->name, to[t]));
      for (int i = 0; i < c.valid; ++i)
        std::copy_n(element(s.access.buffer, from[t] + i, false, t), size, &c.bytes[i * size]);
      for (int i = 0; i < n; ++i) element(s.to.buffer, to[t] + i, true, t);
      for (int i = 0; i < n; ++i) ++r_.memory[s.to.buffer].cells[to[t] + i].copies;
      copies_[t].open.push_back(c);
    });
  }

  void end_copy(const Copy& c, int lane) {
    const StmtCode& s = *c.stmt;
    const int size = static_cast<int>(size_of(s.stmt->buffer->dtype));
    const LaunchMemory& source = r_.memory[s.access.buffer];
    if (!std::equal(&c.bytes[0], &c.bytes[0] + c.valid * size,
                    source.data + (c.valid ? c.from * size : 0)))
      fault(lane, fmt::format("{}[{}] changed while a copy was on its way", s.stmt->buffer->name,
                              c.from));
    LaunchMemory& target = r_.memory[s.to.buffer];
    for (int i = 0; i < s.stmt->lanes; ++i) {
      --target.cells[c.to + i].copies;
      std::copy_n(&c.bytes[i * size], size, element(s.to.buffer, c.to + i, true, lane));
    }
  }

  void wait(const StmtCode& s, Mask mask) {
    each(mask, [&](int t) {
      auto& groups = copies_[t].groups;
      const size_t left = std::min(groups.size(), static_cast<size_t>(s.stmt->count));
      for (size_t g = 0; g + left < groups.size(); ++g)
        for (const Copy& c : groups[g]) end_copy(c, t);
      groups.erase(groups.begin(), groups.end() - static_cast<int64_t>(left));
    });
  }

  Launched& r_;
  const InterpreterCode& code_;
  const int number_;
  std::vector<int64_t> symbols_;
  std::vector<Lane> frame_;
  std::vector<Registers> registers_;
  std::vector<Copies> copies_;
};

void Warp::statement(const StmtCode& s, Mask mask) {
  mask &= live;
  if (mask == 0) return;
  switch (s.stmt->kind) {
    case StmtKind::kSeq:
      for (const StmtCode& b : s.body) statement(b, mask);
      return;
    case StmtKind::kFor:
      return loop(s, mask);
    case StmtKind::kIf: {
      const Mask then = holds(s, mask);
      statement(s.body[0], then);
      if (s.body.size() > 1) statement(s.body[1], mask & ~then);
      return;
    }
    case StmtKind::kStore:
      compute_all(s, mask);
      return store(s, mask);
    case StmtKind::kSetRegister: {
      compute_all(s, mask);
      Numbers index;
      dims(s.access.index, mask, index);
      const int lanes = s.stmt->value->lanes;
      return each(mask, [&](int t) {
        std::copy_n(frame(t) + s.value, lanes, reg(s.access, index[t], t, true));
      });
    }
    case StmtKind::kLet:
      compute_all(s, mask);
      return each(mask, [&](int t) {
        std::copy_n(frame(t) + s.value, s.stmt->value->lanes, frame(t) + s.slot);
      });
    case StmtKind::kLetIndex:
      compute_all(s, mask);
      return let_index(s, mask);
    case StmtKind::kPrefetch:
      return;
    case StmtKind::kBarrier:  // of the warp
      meet(mask, "a barrier");
      since = ++r_.time.now;
      return;
    case StmtKind::kCheck:
      return check(s, mask);
    case StmtKind::kWarpDot:
      return warp_dot(s, mask);
    case StmtKind::kWarpLoad:
      return warp_load(s, mask);
    case StmtKind::kAsyncCopy:
      return begin_copy(s, mask);
    case StmtKind::kAsyncCommit:
      return each(mask, [&](int t) {
        copies_[t].groups.push_back(std::move(copies_[t].open));
        copies_[t].open.clear();
      });
    case StmtKind::kAsyncWait:
      return wait(s, mask);
    case StmtKind::kTiles:
    case StmtKind::kTileZero:
    case StmtKind::kTileLoad:
    case StmtKind::kTileStore:
    case StmtKind::kTileDot:
      break;  // of CPUs
  }
  NIMBLE_UNREACHABLE();
}

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
  explicit Block(Launched& run) : r_(run) {
    const int warps = run.code.launch_threads / kWarpLanes;
    for (int w = 0; w < warps; ++w) warps_.emplace_back(run, w);
    order_ = in_order_of(run.options.order, warps);
  }

  void run() {
    r_.time.block = r_.time.phase = ++r_.time.now;
    for (size_t i = r_.code.arguments + r_.code.scratch; i < r_.memory.size(); ++i)
      std::fill(r_.memory[i].cells.begin(), r_.memory[i].cells.end(), LaunchCell{});
    for (Warp& w : warps_) w.begin_block();
    all_of({&r_.code.body, 1});
  }

 private:
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
        for (int64_t i = 0; i < extent; i += s.stmt->step) {
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
        r_.time.phase = ++r_.time.now;
        for (Warp& w : warps_) w.since = r_.time.now;
        return;
      default:
        NIMBLE_UNREACHABLE();
    }
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
          w.fault(t, fmt::format(
                         "threads disagree about {} around a barrier of the block",
                         s.stmt->kind == StmtKind::kIf ? "a condition" : "loop " + s.stmt->var));
        all = one;
      });
    return all.value_or(0);
  }

  Launched& r_;
  std::vector<Warp> warps_;
  std::vector<int64_t> order_;
};

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
  for (size_t i = run.memory.size(); i < code.memories(); ++i) {
    const Buffer& b = *code.buffers[i];
    const int64_t extent = *b.extent.as_constant();
    owned.emplace_back(static_cast<size_t>(extent) * size_of(b.dtype));
    run.memory.push_back({owned.back().data(), extent, true, std::vector<LaunchCell>(extent)});
  }
  // What CUDA takes.
  constexpr std::array<int64_t, 3> kMost = {INT32_MAX, 65535, 65535};
  std::array<int64_t, 3> grid{};
  int64_t blocks = 1;
  for (size_t i = 0; i < grid.size(); ++i) {
    grid[i] = evaluate<1>(code.grid[i], run.symbols.data(), [&](const char* problem) {
      throw Error(Status::kFatal, place, problem);
    });
    if (grid[i] < 0 || grid[i] > kMost[i])
      throw Error(Status::kFatal, place,
                  fmt::format("a grid of {} blocks along axis {}; up to {} are possible", grid[i],
                              i, kMost[i]));
    blocks *= grid[i];
  }
  if (blocks == 0) return 0;
  Block block(run);
  const size_t first = 2 + code.contract_symbols.size();  // the slot of block_x
  for (const int64_t n : in_order_of(options.order, blocks)) {
    run.block = {n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]};
    std::copy(run.block.begin(), run.block.end(), run.symbols.begin() + first);
    block.run();
  }
  return run.status;
}

}  // namespace nimble::kir
