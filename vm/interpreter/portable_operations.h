// The operations of a portable program: what PortableProgram's code consists of.
#pragma once

#include <cstdint>

#include "vm/executable/portable_kernel.h"
#include "vm/interpreter/portable_kernel.h"

namespace nimble::rt {

struct PortableState {
  int64_t* index = nullptr;
  uint8_t* frame = nullptr;  // value registers
  int64_t* trips = nullptr;  // of the loops around, by depth
  const PortableMemory* buffers = nullptr;
  uint64_t slice = 0;  // steps taken from the meter, not yet used
  WorkMeter* meter = nullptr;
  int32_t status = 0;
  const char* name = "";
};

struct PortableOperation {
  // Does the operation's work; returns the next one, or nullptr at the end.
  using Run = const PortableOperation* (*)(PortableState&, const PortableOperation*);
  Run run = nullptr;
  const PortableOperation* target = nullptr;  // Loop, If, Else: behind the block; End: its Loop
  int64_t immediate = 0;
  uint64_t steps = 0;                              // what a turn of the loop costs
  uint32_t operand[exec::kPortableOperands] = {};  // slots, buffers, bytes into the frame
  uint32_t lanes = 1;
  uint32_t bytes = 0;  // of the value that is moved
  uint32_t depth = 0;  // Loop, End: of the loop
};

// The function that does operation `op`; `result` is the register that it writes, or for stores
// reads, `source` its (last) operand's type where that differs.
PortableOperation::Run portable_arithmetic(exec::PortableOp op, exec::PortableValue result,
                                           exec::PortableValue source);
PortableOperation::Run portable_cast(exec::PortableValue from, DType to);
PortableOperation::Run portable_memory(exec::PortableOp op, exec::PortableValue value);

}  // namespace nimble::rt
