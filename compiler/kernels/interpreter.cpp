// Execution. Method: names were resolved by interpreter_compile.cpp, so a run walks a tree of
// statements whose values are straight-line lists of lane operations on one frame of 8-byte lanes.
//
// Races and undefined reads are found with a shadow cell per element of memory: who wrote it
// last and who read it last, each with the number of the phase (the stretch between two
// barriers). A second thread's access in the same phase is a race if either writes. Threads run
// one at a time (a token passes at barriers), so the cells need no synchronisation.
#include "compiler/kernels/interpreter.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "compiler/kernels/interpreter_compute.h"
#include "compiler/kernels/interpreter_dim.h"
#include "compiler/kernels/interpreter_launch.h"
#include "compiler/kernels/interpreter_memory.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

struct Cell {
  uint32_t writer = 0, reader = 0;  // phase * 256 + thread + 1; 0: never
};
constexpr uint32_t kSeveral = 255;  // in place of thread + 1: more than one thread reads
constexpr uint32_t kBefore = 1;     // phase 0: what the caller has written

struct Memory {
  std::byte* data = nullptr;
  int64_t extent = 0;  // elements; kThread: of one copy
  std::vector<Cell> cells;
};

// Passes the right to run around the threads of a region.
class Token {
 public:
  explicit Token(int threads) : threads_(threads), finished_(threads, false) {}

  void wait_for(int thread) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return current_ == thread; });
  }
  void barrier(int thread) {
    std::unique_lock lock(mutex_);
    waiting_ = true;
    advance(thread);
    turn_.wait(lock, [&] { return current_ == thread; });
  }
  void finish(int thread) {
    std::unique_lock lock(mutex_);
    finished_[thread] = true;
    ended_ = true;
    advance(thread);
  }
  uint32_t phase() const { return phase_; }
  // Whether some thread has ended while another waits at a barrier.
  bool disagreement() const { return disagreement_; }

 private:
  void advance(int thread) {
    int next = thread + 1;
    while (next < threads_ && finished_[next]) ++next;
    if (next == threads_) {
      disagreement_ |= waiting_ && ended_;
      ended_ = std::find(finished_.begin(), finished_.end(), true) != finished_.end();
      waiting_ = false;
      ++phase_;
      next = static_cast<int>(std::find(finished_.begin(), finished_.end(), false) -
                              finished_.begin());
    }
    current_ = next;
    turn_.notify_all();
  }

  const int threads_;
  std::vector<bool> finished_;
  std::mutex mutex_;
  std::condition_variable turn_;
  int current_ = 0;
  uint32_t phase_ = 1;
  bool waiting_ = false, ended_ = false, disagreement_ = false;
};

struct Region {
  const InterpreterCode& code;
  bool fused;
  int threads;
  std::vector<Memory> memory;  // arguments, then scratch
  std::vector<int64_t> symbols;
  Token token;
};

class Thread {
 public:
  Thread(Region& region, int thread)
      : r_(region),
        code_(region.code),
        thread_(thread),
        symbols_(region.symbols),
        frame_(region.code.frame) {
    symbols_.resize(code_.symbols);
    symbols_[0] = thread;
    for (size_t i = code_.arguments + code_.scratch; i < code_.buffers.size(); ++i) {
      const Buffer& b = *code_.buffers[i];
      const int64_t extent = *b.extent.as_constant();
      registers_.push_back({std::vector<Lane>(extent * std::max(b.rows, 1) * b.lanes),
                            std::vector<bool>(extent, false)});
    }
  }

  int32_t run() {
    statement(code_.body);
    return status_;
  }

 private:
  [[noreturn]] void fault(const std::string& problem) const {
    throw Error(Status::kFatal, "kernel " + code_.name, problem);
  }

  int64_t dim(const DimCode& d) const {
    return evaluate<1>(d, symbols_.data(), [this](const char* problem) { fault(problem); });
  }

  // The place of one element, after all checks.
  std::byte* element(int buffer, int64_t index, bool write) {
    const Buffer& b = *code_.buffers[buffer];
    Memory& m = r_.memory[buffer];
    if (index < 0 || index >= m.extent)
      fault(fmt::format("{} {}[{}] outside its {} elements", write ? "write to" : "read of", b.name,
                        index, m.extent));
    const int64_t at = b.scope == Scope::kThread ? thread_ * m.extent + index : index;
    Cell& c = m.cells[at];
    const uint32_t phase = r_.token.phase() << 8;
    const uint32_t me = phase + static_cast<uint32_t>(thread_) + 1;
    if (c.writer > phase && c.writer != me) race(b, index);
    if (write) {
      if (c.reader > phase && c.reader != me) race(b, index);
      c.writer = me;
    } else {
      if (c.writer == 0)
        fault(fmt::format("read of {}[{}], which nothing has written", b.name, index));
      c.reader = c.reader > phase && c.reader != me ? phase + kSeveral : me;
    }
    return m.data + at * static_cast<int64_t>(size_of(b.dtype));
  }

  [[noreturn]] void race(const Buffer& b, int64_t index) const {
    fault(fmt::format("race: two threads use {}[{}] between two barriers", b.name, index));
  }

  struct Registers {
    std::vector<Lane> lanes;
    std::vector<bool> defined;
    int64_t rows = 0;  // of matrix registers that take part in this region
  };

  Registers& all_registers(const AccessCode& a) {
    return registers_[a.buffer - code_.arguments - code_.scratch];
  }

  Registers& registers(const AccessCode& a, int64_t index, bool write) {
    Registers& r = all_registers(a);
    const Buffer& b = *code_.buffers[a.buffer];
    if (index < 0 || index >= static_cast<int64_t>(r.defined.size()))
      fault(
          fmt::format("register {}[{}] outside its {} elements", b.name, index, r.defined.size()));
    if (write)
      r.defined[index] = true;
    else if (!r.defined[index])
      fault(fmt::format("read of register {}[{}], which nothing has written", b.name, index));
    return r;
  }

  void load(const OpCode& op) {
    const Value& v = *op.value;
    Lane* out = &frame_[op.result];
    const int64_t index = dim(op.access.index);
    const int64_t stride = v.lanes == 1 ? 1 : dim(op.access.stride);
    const int64_t valid = op.access.masked ? dim(op.access.valid) : v.lanes;
    for (int i = 0; i < v.lanes; ++i) {
      if (i < valid)
        out[i] = load_lane(v.dtype, element(op.access.buffer, index + i * stride, false));
      else if (op.operand[0] >= 0)
        out[i] = frame_[op.operand[0] + i];
      else
        out[i] = constant_lane(v.dtype, 0, 0);
    }
  }

  void compute(const OpCode& op) {
    switch (op.value->kind) {
      case ValueKind::kIndex:
        frame_[op.result].i = dim(op.access.index);
        return;
      case ValueKind::kLoad:
        return load(op);
      case ValueKind::kRegister: {
        const int64_t index = dim(op.access.index);
        const Registers& r = registers(op.access, index, false);
        const int n = op.value->lanes;
        std::copy_n(&r.lanes[index * n], n, &frame_[op.result]);
        return;
      }
      default:
        return compute_lanes(op, frame_.data(), r_.fused);
    }
  }

  void compute_all(const StmtCode& s) {
    for (const OpCode& op : s.ops) compute(op);
  }

  bool holds(const StmtCode& s) const {
    for (const StmtCode::Term& t : s.condition)
      if (!kir::holds(t.op, dim(t.a), dim(t.b))) return false;
    return true;
  }

  void loop(const StmtCode& s) {
    const Stmt& stmt = *s.stmt;
    const int64_t begin = dim(s.begin), extent = dim(s.extent);
    int64_t trips = extent <= 0 ? 0 : (extent - 1) / stmt.step + 1, first = 0;
    if (stmt.loop == LoopKind::kThread) {
      const int64_t all = trips;
      first = thread_ * all / r_.threads;
      trips = (thread_ + 1) * all / r_.threads;
    }
    for (int64_t i = first; i < trips && status_ == 0; ++i) {
      symbols_[s.slot] = begin + i * stmt.step;
      statement(s.body[0]);
    }
  }

  void store(const StmtCode& s) {
    const int lanes = s.stmt->value->lanes;
    const int64_t index = dim(s.access.index);
    const int64_t stride = lanes == 1 ? 1 : dim(s.access.stride);
    const int64_t valid = s.access.masked ? dim(s.access.valid) : lanes;
    for (int i = 0; i < lanes && i < valid; ++i)
      store_lane(s.stmt->value->dtype, frame_[s.value + i],
                 element(s.access.buffer, index + i * stride, true));
  }

  // --- Matrix registers

  void tiles(const StmtCode& s) {
    for (const AccessCode& shape : s.tiles) {
      const Buffer& b = *code_.buffers[shape.buffer];
      Registers& r = all_registers(shape);
      r.rows = dim(shape.index);
      if (r.rows < 1 || r.rows > b.rows)
        fault(fmt::format("{} rows of {}, which has 1 to {}", r.rows, b.name, b.rows));
      r.defined.assign(r.defined.size(), false);
    }
    statement(s.body[0]);
  }

  struct Tile {
    Lane* lanes;
    int64_t rows;
    int columns;
    Lane* row(int64_t r) const { return lanes + r * columns; }
  };

  Tile tile(const AccessCode& a, bool write) {
    const int64_t number = dim(a.index);
    Registers& r = registers(a, number, write);
    const Buffer& b = *code_.buffers[a.buffer];
    return {&r.lanes[number * b.rows * b.lanes], r.rows, b.lanes};
  }

  void tile_move(const StmtCode& s) {
    const bool load = s.stmt->kind == StmtKind::kTileLoad;
    const Tile t = tile(s.tiles[0], load);
    const DType type = s.stmt->buffer->dtype;
    const int64_t index = dim(s.access.index), pitch = dim(s.access.stride);
    for (int64_t r = 0; r < t.rows; ++r)
      for (int c = 0; c < t.columns; ++c) {
        std::byte* at = element(s.access.buffer, index + r * pitch + c, !load);
        if (load)
          t.row(r)[c] = load_lane(type, at);
        else
          store_lane(type, t.row(r)[c], at);
      }
  }

  void tile_dot(const StmtCode& s) {
    const TileFragmentRow& row = tile_row_of(s.stmt->tile_fragment);
    const Tile sum = tile(s.tiles[0], false), a = tile(s.tiles[1], false),
               b = tile(s.tiles[2], false);
    for (int64_t m = 0; m < sum.rows; ++m)
      for (int n = 0; n < sum.columns; ++n)
        sum.row(m)[n] = tile_dot_lane(row.id, a.row(m), b.lanes + n * row.group, b.columns,
                                      static_cast<int>(b.rows), sum.row(m)[n]);
  }

  void statement(const StmtCode& s) {
    switch (s.stmt->kind) {
      case StmtKind::kSeq:
        for (const StmtCode& b : s.body) {
          statement(b);
          if (status_ != 0) return;
        }
        return;
      case StmtKind::kFor:
        return loop(s);
      case StmtKind::kIf:
        if (holds(s))
          statement(s.body[0]);
        else if (s.body.size() > 1)
          statement(s.body[1]);
        return;
      case StmtKind::kStore:
        compute_all(s);
        return store(s);
      case StmtKind::kSetRegister: {
        compute_all(s);
        const int64_t index = dim(s.access.index);
        Registers& r = registers(s.access, index, true);
        const int lanes = s.stmt->value->lanes;
        std::copy_n(&frame_[s.value], lanes, &r.lanes[index * lanes]);
        return;
      }
      case StmtKind::kLet:
        compute_all(s);
        std::copy_n(&frame_[s.value], s.stmt->value->lanes, &frame_[s.slot]);
        return;
      case StmtKind::kLetIndex: {
        compute_all(s);
        const int64_t v = frame_[s.value].i;
        if (const auto& f = s.stmt->facts; f && (v < f->low || v > f->high || v % f->divisor != 0))
          fault(fmt::format("index {} = {} contradicts its stated range", s.stmt->var, v));
        symbols_[s.slot] = v;
        return;
      }
      case StmtKind::kPrefetch:
        return;
      case StmtKind::kBarrier:
        return r_.token.barrier(thread_);
      case StmtKind::kCheck:
        if (!holds(s)) status_ = s.check;
        return;
      case StmtKind::kTiles:
        return tiles(s);
      case StmtKind::kTileZero: {
        const Tile t = tile(s.tiles[0], true);
        std::fill(t.lanes, t.row(t.rows), constant_lane(s.stmt->tiles[0].buffer->dtype, 0, 0));
        return;
      }
      case StmtKind::kTileLoad:
      case StmtKind::kTileStore:
        return tile_move(s);
      case StmtKind::kTileDot:
        return tile_dot(s);
#define NIMBLE_GPU_STATEMENT(id, what) case StmtKind::id:
#include "compiler/kernels/Statements.def"
        break;  // of launches (interpreter_launch.cpp)
    }
    NIMBLE_UNREACHABLE();
  }

  Region& r_;
  const InterpreterCode& code_;
  const int64_t thread_;
  std::vector<int64_t> symbols_;
  std::vector<Lane> frame_;
  std::vector<Registers> registers_;
  int32_t status_ = 0;
};

void prepare(Region& r, std::span<const std::span<std::byte>> buffers,
             std::span<const int64_t> symbols, std::vector<std::vector<std::byte>>& scratch) {
  const InterpreterCode& code = r.code;
  r.symbols = bind_symbols(code, symbols, r.threads);
  for (const BoundMemory& m : bind_memory(code, r.symbols, buffers, r.threads, scratch)) {
    const size_t i = r.memory.size();
    const int64_t copies = code.buffers[i]->scope == Scope::kThread ? r.threads : 1;
    const bool defined = i < code.arguments && code.defined[i];
    r.memory.push_back({m.data, m.extent,
                        std::vector<Cell>(static_cast<size_t>(m.extent * copies),
                                          Cell{defined ? kBefore : 0, 0})});
  }
}

}  // namespace

Interpreter::Interpreter(const Function& f) : Interpreter(f, Options{}) {}
Interpreter::Interpreter(const Function& f, Options options) : options_(options) {
  const std::string wrong = verify(f);
  NIMBLE_CHECK(wrong.empty(), "malformed kernel: {}\n{}", wrong, print(f));
  code_ = std::make_unique<const InterpreterCode>(compile_for_interpreter(f));
}
Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;

int32_t Interpreter::run(std::span<const std::span<std::byte>> buffers,
                         std::span<const int64_t> symbols, int threads,
                         LaunchStatistics* statistics) const {
  if (code_->launch_threads > 0) return run_launch(*code_, options_, buffers, symbols, statistics);
  NIMBLE_CHECK(threads >= 1 && threads < static_cast<int>(kSeveral) - 1);
  Region region{*code_, options_.fused, threads, {}, {}, Token(threads)};
  std::vector<std::vector<std::byte>> scratch;
  prepare(region, buffers, symbols, scratch);
  std::vector<int32_t> status(threads, 0);
  if (!code_->has_barrier || threads == 1) {
    for (int t = 0; t < threads; ++t) status[t] = Thread(region, t).run();
  } else {
    std::vector<std::exception_ptr> faults(threads);
    std::vector<std::thread> runners;
    for (int t = 0; t < threads; ++t) {
      runners.emplace_back([&, t] {
        region.token.wait_for(t);
        try {
          status[t] = Thread(region, t).run();
        } catch (...) {
          faults[t] = std::current_exception();
        }
        region.token.finish(t);
      });
    }
    for (std::thread& r : runners) r.join();
    for (const std::exception_ptr& f : faults)
      if (f) std::rethrow_exception(f);
    if (region.token.disagreement())
      throw Error(Status::kFatal, "kernel " + code_->name, "threads disagree about a barrier");
  }
  const auto failed = std::find_if(status.begin(), status.end(), [](int32_t s) { return s != 0; });
  return failed == status.end() ? 0 : *failed;
}

}  // namespace nimble::kir
