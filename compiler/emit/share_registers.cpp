// Registers that share.
//
// Code is emitted with a register for every variable, most of which are read a few instructions
// later for the last time. A frame would carry them all: a hundred thousand nested calls of a
// function with sixty variables 100 MB of them, and every call and return clears its frame.
//
// Code jumps forward only (loops are calls), so a register is in use at most from the first
// instruction that names it to the last, whichever branches lie between. That is a linear scan
// (Poletto and Sarkar, "Linear scan register allocation", TOPLAS 21(5), 1999) without spills:
// registers are taken in the order of their beginnings, the lowest that is free. Results of one
// instruction lie side by side and are moved together.
#include "compiler/emit/share_registers.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "vm/base/error.h"
#include "vm/executable/opcodes.h"

namespace nimble::emit {
namespace {

using exec::OperandKind;

constexpr int64_t kNever = -1;

// Registers that lie side by side: their numbers, and the first and last instruction naming any.
struct Run {
  size_t first = 0, count = 1;
  int64_t begin = kNever, end = kNever;
};

// Calls `visit` on every register that an instruction names: a reference, and how many registers
// from it on are meant.
template <class Visit>
void visit_registers(exec::Instruction& in, const std::function<uint32_t(int64_t)>& results,
                     const Visit& visit) {
  size_t at = 0;
  for (const exec::OperandSpec& spec : exec::info_of(in.op).operands) {
    int64_t& value = in.operands[at];
    switch (spec.kind) {
      case OperandKind::kDst:
      case OperandKind::kSrc:
        visit(value, 1);
        break;
      case OperandKind::kDsts:  // as many as the rank that follows, or the callee's results
        visit(value, in.op == exec::Opcode::kShapeOf ? static_cast<size_t>(in.operands[at + 1])
                                                     : results(in.operands[at + 1]));
        break;
      case OperandKind::kSrcs:
        for (int64_t i = 0; i < value; ++i) visit(in.operands[at + 1 + static_cast<size_t>(i)], 1);
        break;
      default:
        break;
    }
    at += is_list(spec.kind) ? 1 + static_cast<size_t>(value) : 1;
  }
}

// The runs of a function, by their first register.
std::vector<Run> runs_of(exec::BytecodeFunction& f,
                         const std::function<uint32_t(int64_t)>& results) {
  std::vector<bool> joined(f.registers, false);  // with the register before it
  for (exec::Instruction& in : f.code)
    visit_registers(in, results, [&](int64_t r, size_t count) {
      for (size_t i = 1; i < count; ++i) joined[static_cast<size_t>(r) + i] = true;
    });
  std::vector<size_t> run_of(f.registers);
  std::vector<Run> runs;
  for (size_t r = 0; r < f.registers; ++r) {
    if (joined[r])
      ++runs.back().count;
    else
      runs.push_back({r});
    run_of[r] = runs.size() - 1;
  }
  for (size_t pc = 0; pc < f.code.size(); ++pc)
    visit_registers(f.code[pc], results, [&](int64_t r, size_t) {
      Run& run = runs[run_of[static_cast<size_t>(r)]];
      if (run.begin == kNever) run.begin = static_cast<int64_t>(pc);
      run.end = static_cast<int64_t>(pc);
    });
  return runs;
}

void check_jumps(const exec::BytecodeFunction& f) {
  for (size_t pc = 0; pc < f.code.size(); ++pc) {
    size_t at = 0;
    for (const exec::OperandSpec& spec : exec::info_of(f.code[pc].op).operands) {
      const int64_t value = f.code[pc].operands[at];
      NIMBLE_CHECK(spec.kind != OperandKind::kTarget || value > static_cast<int64_t>(pc),
                   "instruction {} of {} jumps back", pc, f.name);
      at += is_list(spec.kind) ? 1 + static_cast<size_t>(value) : 1;
    }
  }
}

}  // namespace

void share_registers(exec::BytecodeFunction* f, const std::function<uint32_t(int64_t)>& results) {
  check_jumps(*f);
  std::vector<Run> runs = runs_of(*f, results);
  // The instruction from which on a register is free, by new number.
  std::vector<int64_t> free_from(f->parameters, 0);
  std::vector<int64_t> renamed(f->registers, kNever);
  const auto place = [&](const Run& run, size_t at) {
    free_from.resize(std::max(free_from.size(), at + run.count), 0);
    for (size_t i = 0; i < run.count; ++i) {
      free_from[at + i] = run.end + 1;
      renamed[run.first + i] = static_cast<int64_t>(at + i);
    }
  };
  std::erase_if(runs, [&](const Run& run) {
    if (run.first < f->parameters) place(run, run.first);  // where the caller puts it
    return run.first < f->parameters || run.begin == kNever;
  });
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return a.begin < b.begin; });
  for (const Run& run : runs) {
    size_t at = 0;
    for (size_t i = at; i < at + run.count && i < free_from.size(); ++i)
      if (free_from[i] > run.begin) at = i + 1;
    place(run, at);
  }
  for (exec::Instruction& in : f->code)
    visit_registers(in, results, [&](int64_t& r, size_t) { r = renamed[static_cast<size_t>(r)]; });
  f->registers = static_cast<uint32_t>(free_from.size());
}

}  // namespace nimble::emit
