// Runs a function with a launch (interpreter.h says how).
#pragma once

#include "compiler/kernels/interpreter.h"
#include "compiler/kernels/interpreter_code.h"

namespace nimble::kir {

int32_t run_launch(const InterpreterCode& code, const Interpreter::Options& options,
                   std::span<const std::span<std::byte>> buffers, std::span<const int64_t> symbols,
                   LaunchStatistics* statistics);

}  // namespace nimble::kir
