// Kernel IR to machine code, without LLVM in the interface.
//
//   compile()  functions -> one relocatable object (one LLVM module, one context: thread-safe)
//   link()     objects   -> one ELF shared object that rt::NativeImage loads
//
// The shared object needs no other library and no outside symbol, has neither thread-local
// storage nor constructors, and only relative relocations. Equal input gives equal bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/codegen/code_cache.h"
#include "compiler/kernels/kernel_ir.h"
#include "compiler/kernels/target.h"

namespace nimble::codegen {

// Part of the toolchain's identity in the database. `code_hash` makes raising it for every change
// unnecessary: it is for changes that the hash cannot see (the calling convention, say).
inline constexpr int kCodegenVersion = 1;
// "LLVM 19.1.7"
std::string backend_version();

struct CompiledFunction {
  std::string name;
  std::string code_hash;    // of the kernel's text, the target's processor and its machine code;
                            // independent of `name` and of the other functions of its object
  uint64_t code_bytes = 0;  // of machine code, without constants
};

struct CompiledObject {
  std::vector<uint8_t> bytes;  // ELF, relocatable
  std::vector<CompiledFunction> functions;
  std::string level;    // of the target: objects of different targets do not link
  bool cached = false;  // it was compiled before
};

struct Options {
  // 0: hardly optimised, for tests of code generation itself; 1: cheap; 2: as for shipping.
  int optimize = 2;
};

// Functions must be well formed (verify), their names unique. Error(kUnsupported) for what a CPU
// lacks (a launch: cuda.h compiles those).
CompiledObject compile(std::span<const kir::Function> functions, const kernels::TargetInfo& target,
                       const Options& options = {});
// The same work in several objects, compiled by up to `threads` threads; how many take part does
// not show in the result. What is in the cache is taken from there; null: nothing is.
std::vector<CompiledObject> compile_parallel(std::span<const kir::Function> functions,
                                             const kernels::TargetInfo& target, int threads,
                                             const Options& options = {},
                                             CodeCache* cache = nullptr);

// lld keeps process-global state, so links are serialised inside.
std::vector<uint8_t> link(std::span<const CompiledObject> objects);

// For tests, `nimble inspect` and people: the module before or after optimisation, and the
// machine code as assembly.
std::string llvm_ir(const kir::Function& f, const kernels::TargetInfo& target, bool optimized);
std::string assembly(const kir::Function& f, const kernels::TargetInfo& target);
// Both, optimised as for shipping, for the price of one compilation.
struct Listing {
  std::string llvm_ir, assembly;
};
Listing listing(const kir::Function& f, const kernels::TargetInfo& target);

}  // namespace nimble::codegen
