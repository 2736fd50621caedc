// What a run did in its order: each instruction with the kinds and shapes of what it read, each
// kernel's call, and the bytes that were live in between. A profile keeps it where it is asked to
// (profiler.h); json() is the trace event format of Chrome's tracing, which Perfetto opens too.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/executable.h"
#include "vm/executable/opcodes.h"
#include "vm/runtime/object.h"

namespace nimble::rt {

class Trace {
 public:
  // Instructions that a trace may keep at most. Each takes some 100 bytes here and 300 in a file.
  static constexpr size_t kMost = 2'000'000;

  // Keeps the first `most` instructions (0: nothing, the default) and counts the others.
  void set_limit(size_t most) { most_ = most < kMost ? most : kMost; }
  bool on() const { return most_ != 0; }

  // Times in ns of Profiler::now(). The registers that an instruction reads are told between
  // begin() and the next.
  void begin(uint32_t function, uint32_t instruction, uint32_t depth, exec::Opcode op);
  void add_operand(const Value& value);
  void begin_at(int64_t time);  // it starts now: noting its operands took time of its own
  void end(int64_t ns);         // of the instruction that began last
  void withdraw();  // it did nothing: the run is suspended before it, and it will begin anew
  void add_memory(int32_t device, uint64_t bytes, int64_t time);
  void add_kernel(uint32_t kernel, uint32_t implementation, int32_t threads,
                  std::span<const int64_t> symbols, int64_t start, int64_t ns);

  void clear() noexcept;
  // Puts what another one saw behind it, within the limit of this one.
  void absorb(Trace& other) noexcept;

  size_t size() const { return size_; }          // instructions kept
  uint64_t dropped() const { return dropped_; }  // and not kept
  // `executable`: whose run it was. Objects' members come in a fixed order; a function's event
  // stands before its instructions', and an instruction's before its kernel's.
  std::string json(const exec::Executable& executable) const;

 private:
  struct Event {
    int64_t start = 0, ns = 0;
    size_t operands = 0;  // where its words begin
    uint32_t function = 0, instruction = 0, depth = 0, operand_count = 0;
    exec::Opcode op{};
  };
  struct Kernel {
    size_t event = 0;
    int64_t start = 0, ns = 0;
    size_t symbols = 0;
    uint32_t kernel = 0, implementation = 0, symbol_count = 0;
    int32_t threads = 0;
  };
  struct Memory {
    size_t before = 0;  // the event that follows
    int64_t time = 0;
    uint64_t bytes = 0;
    int32_t device = 0;
  };
  // A run, or a slice of one.
  struct Run {
    std::vector<Event> events;
    std::vector<Kernel> kernels;
    std::vector<Memory> memory;
    std::vector<int64_t> words;  // operands, as add_operand() writes them, and symbols
  };
  class Writer;

  Run& run();
  bool full() const { return size_ >= most_; }

  std::list<Run> runs_;  // the last one is being written
  size_t most_ = 0, size_ = 0;
  uint64_t dropped_ = 0;
  bool skipping_ = false;  // the instruction in progress is not kept
};

}  // namespace nimble::rt
