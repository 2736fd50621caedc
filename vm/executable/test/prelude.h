// What the verifier's tests write their programs behind.
#pragma once

#include <string>

#include "vm/executable/assembler.h"
#include "vm/executable/executable.h"

namespace nimble::exec {

// Constants c0 (f32), c1 (i64) and c2 (on device 1), kernels k0
// and k1 (on device 1), scalar function
// f"twice" and bytecode function f"callee" of two parameters.
inline constexpr const char* kPrelude = R"ASM(
text "message"
constant "w" f32 [2] { 1, 2 }
constant "n" i64 [] { 3 }
scalar "twice" [a0 2 *]
kernel "k" { symbols m s  in f32 ([a0])  scalar s  out f32 ([a0])  scratch [a0 a1 +]
             dispatch { 0: 0 }  native "k0" }
kernel "far" { symbols m  device d1  in f32 ([a0])  out f32 ([a0])  scratch [0]
               dispatch { 0: 0 }  native "k1" }
constant "there" f32 [2] device d1 { 1, 2 }
)ASM";
inline constexpr const char* kCallee = "function \"callee\" 2 2 { Ret r0 }\n";

inline Executable with_prelude(const std::string& text) {
  return assemble(kPrelude + text + kCallee);
}

}  // namespace nimble::exec
