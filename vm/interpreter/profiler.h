// Where a run's time goes: per opcode and per kernel, implementation and shape. What is left of
// the wall time after the kernels is the machine's own overhead.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/opcodes.h"
#include "vm/interpreter/trace.h"

namespace nimble::rt {

class KernelLog;  // replay.h

class Profiler {
 public:
  // A profile keeps this many shapes of kernels apart, so that its memory has a bound however many
  // a host sees; calls of other shapes count as calls of their kernel without a shape.
  static constexpr size_t kMostShapes = size_t{1} << 14;

  using Clock = std::chrono::steady_clock;
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
        .count();
  }

  // Besides sums, the order of what happens, of so many instructions; 0: sums alone.
  void set_trace(size_t most) { trace_.set_limit(most); }
  // Where calls of kernels are told with their arguments, too; nullptr: nowhere.
  void set_log(KernelLog* log) { log_ = log; }
  KernelLog* log() { return log_; }
  // Where the machine tells it, or nullptr.
  Trace* trace() { return trace_.on() ? &trace_ : nullptr; }

  void clear() noexcept;
  // Adds what another one saw, and takes its records along: no memory is asked for. What is left
  // there is to be cleared.
  void absorb(Profiler& other) noexcept;
  // A run that was suspended in between adds its time slice by slice.
  void add_time(int64_t ns, bool run_is_done) {
    runs_ += run_is_done;
    wall_ns_ += ns;
  }
  // `ns` of an InvokePacked includes its kernel.
  void add_instruction(exec::Opcode op, int64_t ns) {
    Count& c = opcodes_[static_cast<size_t>(op)];
    ++c.count;
    c.ns += ns;
    trace_.end(ns);
  }
  // A DeviceCopy.
  void add_copy(int32_t from, int32_t to, uint64_t bytes) {
    Copies& c = copies_[{from, to}];
    ++c.count;
    c.bytes += bytes;
  }
  // How many rows of launches the session has had no graph of so far, and why not of the last one:
  // runs without a profile launch these kernel by kernel, too.
  void note_refused_graphs(uint64_t rows, const std::string& last) {
    if (rows == refused_graphs_) return;
    refused_graphs_ = rows;
    last_refusal_ = last;
  }
  void add_kernel(uint32_t kernel, uint32_t implementation, int32_t threads,
                  std::span<const int64_t> symbols, int64_t ns);

  size_t shapes() const { return kernels_.size(); }
  std::string json(const exec::Executable& executable) const;
  std::string table(const exec::Executable& executable) const;
  std::string trace_json(const exec::Executable& executable) const {
    return trace_.json(executable);
  }

 private:
  struct Count {
    int64_t count = 0, ns = 0;
  };
  struct Copies {
    int64_t count = 0;
    uint64_t bytes = 0;
  };
  struct Row;  // a kernel at a shape, sorted by time
  std::vector<Row> rows() const;

  int64_t runs_ = 0, wall_ns_ = 0, kernel_ns_ = 0;
  std::array<Count, exec::kOpcodeCount> opcodes_{};
  std::map<std::pair<int32_t, int32_t>, Copies> copies_;  // by source and target device
  // kernel, implementation, threads, shape
  using Call = std::tuple<uint32_t, uint32_t, int32_t, std::vector<int64_t>>;
  std::map<Call, Count> kernels_;
  uint64_t refused_graphs_ = 0;
  std::string last_refusal_;
  Trace trace_;
  KernelLog* log_ = nullptr;
};

}  // namespace nimble::rt
