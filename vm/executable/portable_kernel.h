// The portable form of a kernel: code that any machine can run, and that can be checked.
//
// Native code is fast and cannot be verified. Beside it an executable carries each kernel once
// more as a sequential program over typed registers (PortableOps.def lists the operations):
//
//   index slots     64-bit integers for addresses, bounds and conditions. The first hold the
//                   contract's symbols. Their arithmetic is total: it wraps, and x / 0 is 0.
//   values          vector registers, each of one dtype and one number of lanes for good
//   buffers         the contract's tensor arguments in order, then scratch buffers of the
//                   kernel's own, whose sizes are dim programs over the symbols
//   blocks          Loop and If, properly nested
//
// What makes any accepted code safe to run: the verifier (verify_portable) proves everything that
// does not depend on the shape (registers exist, types and lanes agree, blocks nest, inputs are
// not written), and the interpreter (vm/interpreter/portable_kernel.h) checks each access against
// the bytes that are there, each size, and a budget of steps. All registers and scratch start as
// zeros. The code is sequential: there are no threads, so no races and no barriers, and equal
// inputs give equal bits on every machine.
//
// The method is that of a verified intermediate language (the Java virtual machine's verifier,
// WebAssembly): types are declared per register, so that one pass over the code suffices.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vm/base/bytes.h"
#include "vm/base/dtype.h"
#include "vm/executable/contract.h"
#include "vm/executable/fault.h"

namespace nimble::exec {

enum class PortableOp : uint8_t {
#define NIMBLE_PORTABLE_OP(name, operands, types, sentence) k##name,
#include "vm/executable/PortableOps.def"
#undef NIMBLE_PORTABLE_OP
};

#define NIMBLE_PORTABLE_OP(name, operands, types, sentence) +1
inline constexpr int kPortableOpCount = 0
#include "vm/executable/PortableOps.def"
    ;
#undef NIMBLE_PORTABLE_OP

// How the dtypes and lanes of an operation's values hang together; the verifier spells them out.
enum class PortableTypes : uint8_t {
  kNone,
  kSame,          // any dtype; all values alike
  kNumber,        // alike; an integer, f32 or f64
  kFloat,         // alike; f32 or f64
  kInteger,       // alike; an integer
  kLogic,         // alike; an integer or bool
  kCompare,       // bool from two alike, neither f16 nor bf16
  kSelect,        // bool, then alike
  kCast,          // equal lanes
  kBitcast,       // equal bytes in all, no bool
  kBroadcast,     // one lane to any, one dtype
  kReduceNumber,  // any lanes to one, one dtype; as kNumber
  kReduceLogic,   // the same as kLogic
  kExtract,       // any lanes to one, one dtype; the immediate is a lane
  kConst,         // any; the immediate has no bits beyond the dtype's
  kIota,          // i32
  kFromIndex,     // one i64 lane
  kIndexOf,       // one integer lane
  kMemory,        // values have the buffer's dtype
};

struct PortableOpInfo {
  std::string_view name;
  std::string_view operands;  // a letter each, as PortableOps.def explains
  PortableTypes types;
  std::string_view sentence;
};
// `op` must be below kPortableOpCount.
const PortableOpInfo& info_of(PortableOp op);

inline constexpr size_t kPortableOperands = 8;
struct PortableInstruction {
  PortableOp op{};
  std::array<int64_t, kPortableOperands> operands{};  // in the row's order, the others 0
  friend bool operator==(const PortableInstruction&, const PortableInstruction&) = default;
};

struct PortableValue {
  DType dtype = DType::kF32;
  uint8_t lanes = 1;  // a power of two up to 64
  friend bool operator==(const PortableValue&, const PortableValue&) = default;
};

struct PortableScratch {
  DType dtype = DType::kF32;
  DimProgram extent;  // elements, over the contract's symbols
  friend bool operator==(const PortableScratch&, const PortableScratch&) = default;
};

struct PortableKernel {
  uint32_t indices = 0;  // slots; the contract's symbols come first
  std::vector<PortableValue> values;
  std::vector<PortableScratch> scratch;
  std::vector<PortableInstruction> code;
  // Where it came from, for explain: a template and its configuration as canonical JSON.
  std::string template_name, config;
  friend bool operator==(const PortableKernel&, const PortableKernel&) = default;
};

// Limits that keep a malformed kernel from being expensive before it runs.
inline constexpr uint32_t kMaxPortableIndices = 1u << 16;
inline constexpr size_t kMaxPortableValues = 1u << 16;
inline constexpr size_t kMaxPortableScratch = 256;
inline constexpr size_t kMaxPortableCode = 1u << 18;
inline constexpr size_t kMaxPortableDepth = 64;
inline constexpr int kMaxPortableLanes = 64;

// The bytes in a file: counts and slots as varints, immediates zigzag. The reader makes sure that
// the parts exist (operations, dtypes, operand counts), not that they make sense.
inline constexpr uint32_t kPortableVersion = 1;
void encode(const PortableKernel& kernel, ByteWriter* out);
PortableKernel decode_portable(ByteReader* in);

struct PortableViolation {
  PortableFault fault{};
  int rule = 0;            // the fault's: 1 … kPortableRuleCount
  size_t instruction = 0;  // meaningless for faults of the declarations
  std::string message;
};
// The first thing wrong with a kernel's portable form; `contract` must be well formed itself.
std::optional<PortableViolation> verify_portable(const PortableKernel& kernel,
                                                 const KernelContract& contract);

// One instruction to a line, blocks indented: "  v3 = Load b0 [i2 + i5 + 16]". Works on kernels
// that were not verified, too.
std::string disassemble(const PortableKernel& kernel, const KernelContract& contract);

}  // namespace nimble::exec
