#pragma once

#include <functional>

#include "vm/executable/executable.h"

namespace nimble::emit {

// Renames a function's registers so that those never in use at the same time become one.
// `results` tells how many registers the function of an Invoke writes, by its index.
void share_registers(exec::BytecodeFunction* f, const std::function<uint32_t(int64_t)>& results);

}  // namespace nimble::emit
