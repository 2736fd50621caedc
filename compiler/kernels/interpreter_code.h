// The interpreter's program: names resolved to slots, value graphs to straight-line operations.
#pragma once

#include <string>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kir {

// One lane. Integers are kept extended to 64 bits by their signedness, bool as 0 or 1, f16 and
// bf16 as their bits.
union Lane {
  float f32;
  double f64;
  int64_t i;
};

// A Dim over slots: constant + sum of coefficient * product of factors.
struct DimCode {
  struct Factor {
    int slot = -1;                  // a symbol, or
    Dim::Function function{};       // a function of
    std::vector<DimCode> operands;  // these
  };
  struct Term {
    int64_t coefficient;
    std::vector<Factor> factors;
  };
  int64_t constant = 0;
  std::vector<Term> terms;
  bool by_lane = false;  // of a launch: may differ between the lanes of a warp
};

struct AccessCode {
  int buffer = -1;
  DimCode index, stride;
  bool masked = false;
  DimCode valid;
  int64_t width = 1;  // elements that a launch's thread may access at once: gpu_access.h
};

// Computes `lanes` lanes at frame[result] from frame[operand…].
struct OpCode {
  const Value* value = nullptr;
  int result = 0;
  int operand[3] = {0, 0, 0};  // kLoad: operand[0] is the passthrough, or -1
  DType from{};                // element type of the first operand
  int from_lanes = 1;
  AccessCode access;  // kLoad, kRegister; kIndex and kShuffle use access.index
};

// What a copy of a box reads.
struct BoxCode {
  int buffer = -1;
  std::vector<DimCode> extents, coordinates;
};

struct StmtCode {
  const Stmt* stmt = nullptr;
  std::vector<StmtCode> body;
  int slot = -1;          // kFor, kLetIndex: the symbol; kLet: place in the frame
  DimCode begin, extent;  // begin: a phase, too
  struct Term {
    DimCode a, b;
    Condition::Op op;
  };
  std::vector<Term> condition;
  AccessCode access, to;          // to: kAsyncCopy, kTensorCopy
  BoxCode box;                    // kTensorCopy
  std::vector<AccessCode> tiles;  // of `tiles`, with their numbers; of `shapes`, with their rows
  std::vector<AccessCode> views;
  std::vector<OpCode> ops;  // computes the statement's value
  int value = 0;            // where in the frame
  int32_t check = 0;
  bool meets = false;  // a block's barrier, or its wait for a signal, is this or in it
  bool steps = false;  // a loop of steps is this or in it
};

struct InterpreterCode {
  std::string name;
  std::vector<BufferRef> buffers;  // arguments, scratch, shared, registers
  std::vector<DimCode> extents;
  std::vector<bool> defined;  // arguments: whether the caller's contents may be read
  size_t arguments = 0, scratch = 0, shared = 0;
  int symbols = 0;  // slots: thread, threads, contract's symbols, a launch's block_x, …, locals
  std::vector<std::string> contract_symbols;
  std::vector<ir::SymbolFacts> facts;  // of the contract's symbols
  int frame = 0;                       // lanes
  bool has_barrier = false;
  int launch_threads = 0;  // 0: a CPU's function
  std::vector<DimCode> grid;
  std::vector<bool> ready;  // buffers that a launch's steps find as they were made ahead of them
  StmtRef root;             // keeps the statements and values alive
  StmtCode body;

  size_t memories() const { return arguments + scratch + shared; }
};

InterpreterCode compile_for_interpreter(const Function& f);

}  // namespace nimble::kir
