#include "compiler/kernels/interpreter_memory.h"

#include "compiler/kernels/interpreter_dim.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

[[noreturn]] void refuse(const InterpreterCode& code, const std::string& problem) {
  throw Error(Status::kFatal, "kernel " + code.name, problem);
}

}  // namespace

std::vector<int64_t> bind_symbols(const InterpreterCode& code, std::span<const int64_t> values,
                                  int threads) {
  if (values.size() != code.contract_symbols.size())
    refuse(code,
           fmt::format("{} symbols given, {} needed", values.size(), code.contract_symbols.size()));
  std::vector<int64_t> symbols(code.symbols, 0);
  symbols[1] = threads;
  std::copy(values.begin(), values.end(), symbols.begin() + 2);
  for (size_t i = 0; i < code.facts.size(); ++i) {
    const int64_t v = values[i];
    const ir::SymbolFacts& f = code.facts[i];
    if (v < f.low || v > f.high || v % f.divisor != 0)
      refuse(code, fmt::format("symbol {} = {} contradicts its stated range",
                               code.contract_symbols[i], v));
  }
  return symbols;
}

std::vector<BoundMemory> bind_memory(const InterpreterCode& code,
                                     const std::vector<int64_t>& symbols,
                                     std::span<const std::span<std::byte>> buffers, int threads,
                                     std::vector<std::vector<std::byte>>& scratch) {
  if (buffers.size() != code.arguments)
    refuse(code, fmt::format("{} buffers given, {} needed", buffers.size(), code.arguments));
  const auto fault = [&](const char* problem) { refuse(code, problem); };
  std::vector<BoundMemory> memory(code.arguments + code.scratch);
  for (size_t i = 0; i < memory.size(); ++i) {
    const Buffer& b = *code.buffers[i];
    BoundMemory& m = memory[i];
    m.extent = evaluate<1>(code.extents[i], symbols.data(), fault);
    if (m.extent < 0) refuse(code, fmt::format("buffer {} has {} elements", b.name, m.extent));
    const int64_t copies = b.scope == Scope::kThread ? threads : 1;
    const size_t bytes = static_cast<size_t>(m.extent * copies) * size_of(b.dtype);
    if (b.scope != Scope::kArgument) {
      scratch.emplace_back(bytes);
      m.data = scratch.back().data();
      continue;
    }
    if (buffers[i].size() < bytes)
      refuse(code,
             fmt::format("buffer {} has {} bytes, {} needed", b.name, buffers[i].size(), bytes));
    m.data = buffers[i].data();
    // A launch's accesses are looked at one by one: views lie anywhere.
    if (code.launch_threads == 0 && b.alignment > 1 && bytes > 0 &&
        reinterpret_cast<uintptr_t>(m.data) % b.alignment != 0)
      refuse(code, fmt::format("buffer {} is not aligned to {} bytes", b.name, b.alignment));
  }
  return memory;
}

}  // namespace nimble::kir
