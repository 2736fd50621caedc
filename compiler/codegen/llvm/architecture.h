// What LLVM and lld call the architectures that machine code is generated for, and what each level
// of one can do without a feature being named.
#pragma once

#include "compiler/kernels/target.h"

namespace nimble::codegen {

struct ArchitectureTraits {
  const char* triple;
  const char* emulation;  // of lld
  const char* pages;      // the largest pages of its systems, as an option of lld
  // Whether the file has each segment at a multiple of those, too. Where they are large, it would
  // be mostly padding.
  bool aligned_in_file;
  bool fma;           // multiplies and adds with one rounding
  bool converts_f16;  // to f32 and back
};

// Of a target's level. An internal error for the portable one: no machine code is generated for it.
const ArchitectureTraits& architecture_of(const std::string& level);

bool has_fma(const kernels::TargetInfo& target);
bool converts_f16(const kernels::TargetInfo& target);

}  // namespace nimble::codegen
