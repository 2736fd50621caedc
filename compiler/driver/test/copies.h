// How often an executable copies between devices.
#pragma once

#include <algorithm>

#include "vm/executable/executable.h"
#include "vm/executable/opcodes.h"

namespace nimble::driver::testing {

inline size_t copies_in(const exec::Executable& e) {
  size_t n = 0;
  for (const exec::BytecodeFunction& f : e.functions)
    n += static_cast<size_t>(std::count_if(
        f.code.begin(), f.code.end(),
        [](const exec::Instruction& i) { return i.op == exec::Opcode::kDeviceCopy; }));
  return n;
}

}  // namespace nimble::driver::testing
