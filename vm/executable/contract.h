// What the VM knows and checks of a kernel before it runs native code that it cannot verify.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vm/base/dtype.h"
#include "vm/executable/dim_program.h"

namespace nimble::exec {

enum class Access : uint8_t { kIn = 0, kOut = 1, kInOut = 2 };

// One operand of InvokePacked: a tensor, a scalar register that binds a symbol, or a data-type
// value, which only kernels of the runtime's own library can read.
struct KernelArgument {
  enum class Kind : uint8_t { kTensor = 0, kScalar = 1, kData = 2 };
  Kind kind = Kind::kTensor;
  // kTensor
  DType dtype = DType::kF32;
  Access access = Access::kIn;
  std::vector<DimProgram> dims;  // over the contract's symbols
  // The tensor may have more axes than `dims`: the surplus leading ones are multiplied into the
  // first. So one kernel over rows serves (b, n, 768) as well as (n, 768).
  bool collapse_leading = false;
  // kScalar
  uint32_t symbol = 0;

  friend bool operator==(const KernelArgument&, const KernelArgument&) = default;
};

// Symbols are bound by walking the arguments in order: a scalar argument, or a dim of an
// input that is a bare, not yet bound symbol, binds it. Every other dim is evaluated and must
// equal the tensor's. Well formed: each symbol is bound before a program reads it. Relations of the
// symbols that no dim spells out (s0 = 2*s1) are requirements, checked when all are bound: whatever
// tensors the contract takes, every access of the kernel is in bounds, as far as that follows from
// extents. Of the values of scalar arguments (a slice's bounds, a row's number) it says nothing but
// where they are extents too. The compiled program answers for them: native code, which is trusted
// like the program, takes them as they come; portable code checks each access, and an operator of
// the library what it is told.
struct KernelContract {
  std::vector<std::string> symbols;  // names, for messages and dispatch features
  std::vector<KernelArgument> arguments;
  std::vector<DimProgram> requirements;                // over symbols; none may be 0
  DimProgram scratch_bytes = DimProgram::constant(0);  // over symbols…, then `threads`

  friend bool operator==(const KernelContract&, const KernelContract&) = default;
};

}  // namespace nimble::exec
