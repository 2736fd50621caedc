#include "compiler/codegen/llvm/architecture.h"

#include "compiler/kernels/targets.h"
#include "vm/base/error.h"

namespace nimble::codegen {

const ArchitectureTraits& architecture_of(const std::string& level) {
  static constexpr ArchitectureTraits kX86_64 = {
      "x86_64-unknown-linux-gnu", "elf_x86_64", "max-page-size=4096", true, false, false};
  static constexpr ArchitectureTraits kAArch64 = {
      "aarch64-unknown-linux-gnu", "aarch64linux", "max-page-size=65536", false, true, true};
  switch (kernels::target_row(level).architecture) {
    case kernels::Architecture::kX86_64:
      return kX86_64;
    case kernels::Architecture::kAArch64:
      return kAArch64;
    case kernels::Architecture::kPortable:
    case kernels::Architecture::kNvidia:
      break;
  }
  NIMBLE_UNREACHABLE("machine code for {}", level);
}

bool has_fma(const kernels::TargetInfo& target) {
  return architecture_of(target.level).fma || target.has("fma");
}

bool converts_f16(const kernels::TargetInfo& target) {
  return architecture_of(target.level).converts_f16 || target.has("f16c");
}

}  // namespace nimble::codegen
