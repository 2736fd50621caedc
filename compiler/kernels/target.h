// The machine that kernels are generated for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::kernels {

struct TargetInfo {
  std::string level;  // of Targets.def: "x86-64-v2", "x86-64-v4-amx", "aarch64", "portable", …
  std::vector<std::string> features;  // what the code may use: "avx2", "fma", "avx512f", …
  int vector_bits = 128;
  int vector_registers = 16;
  // Whether a multiply-add takes one lane of a register for all lanes: a row's elements are loaded
  // a vector at a time then, and stay in registers of their own.
  bool multiplies_by_lane = false;
  // Those of this machine, or where the code may run on others common ones.
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 16 << 20;
  bool knows_l2 = false;  // whether l2_bytes is this machine's
  // Of a GPU (on a CPU 0): shared memory that one block may have, in bytes, and multiprocessors.
  int64_t shared_bytes = 0;
  int multiprocessors = 0;

  bool is_gpu() const { return multiprocessors > 0; }
  // Whether constant operands of products and cells are laid out for its kernels at compile time; a
  // GPU's kernels read them as the model has them.
  bool packs_weights() const { return !is_gpu(); }
  int lanes_f32() const { return vector_bits / 32; }
  bool has(const std::string& feature) const;
};

// Whether every machine of level `higher` runs the code of `lower`, which is another level.
bool is_lower_level(const TargetInfo& lower, const TargetInfo& higher);

// This machine, down to the highest level that it fully supports.
TargetInfo detect_host();
// The checked interpreter's machine, whose code any CPU runs: vectors as wide as the widest, since
// an operation costs about the same for any number of lanes. Weights that are packed for narrower
// vectors need a machine of these.
TargetInfo portable_target(int vector_bits = 512);
// "native", "x86-64-v2", "portable", …; nimble::Error names the choices if there is no such target.
TargetInfo target_by_name(const std::string& name);
// The same with what the CPU has beyond it: the highest level up from `name` of whose features none
// is missing. Error(kInvalidArgument) for a feature that the level found does not have.
TargetInfo target_with_features(const std::string& name, std::span<const std::string> features);
// The highest target whose code such hardware runs: `isa` is that of a hardware record (isa_of in
// vm/base/cpu.h), a level of the psABI and features ("x86-64-v4+avx512_vnni"). nimble::Error if
// there is no such level.
TargetInfo target_of_isa(std::string_view isa);

}  // namespace nimble::kernels
