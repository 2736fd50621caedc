// What instructions do to registers, as the data-flow rules see it: what each one reads, in which
// order and what it needs there, and what it leaves. For the verifier, and for who asks where a
// value comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vm/executable/executable.h"

namespace nimble::exec {

// What a register may hold. Order of the lattice: a kind < kUnknown < kFreed < kUnwritten, and
// kTensor < kConstant (a tensor that may be a constant must not be written), which joined with
// anything else is kPerhapsConstant: unknown, but what is placed in it may lie in a constant.
enum class Content : uint8_t {
  kScalar,
  kTensor,
  kConstant,
  kStorage,
  kAdt,
  kClosure,
  kUnknown,
  kPerhapsConstant,
  kFreed,
  kUnwritten,
};
inline constexpr int kContentCount = 10;
const char* name_of(Content content);
Content join(Content a, Content b);
inline bool is_tensor(Content c) {
  return c == Content::kTensor || c == Content::kConstant;
}
inline bool is_unknown(Content c) {
  return c == Content::kUnknown || c == Content::kPerhapsConstant;
}

// Some device or none; one of that number would never be looked at closer.
inline constexpr uint8_t kAnywhere = 255;

// With the device of the tensor or storage in it, as far as that is known.
struct Slot {
  Content content = Content::kUnwritten;
  uint8_t device = kAnywhere;
  friend bool operator==(const Slot&, const Slot&) = default;
};
inline Slot join(Slot a, Slot b) {
  return {join(a.content, b.content), a.device == b.device ? a.device : kAnywhere};
}
// What a register holds for those who read it again: a fault is told once.
inline Slot after_read(Slot s) {
  return s.content < Content::kFreed ? s : Slot{Content::kUnknown};
}

enum class Need : uint8_t {
  kAnything,
  kScalar,
  kTensor,
  kStorage,
  kAdt,
  kClosure,
  kCondition,  // a scalar or a tensor
  kObject,     // all but a scalar
  kMemory,     // a storage or a tensor
};
const char* name_of(Need need);
bool fits(Need need, Content content);

inline constexpr int16_t kAnyDevice = -1;
struct Read {
  uint32_t reg;
  Need need = Need::kAnything;
  bool argument = false;        // of a kernel: rule R14 asks, not R7
  bool written = false;         // by a kernel
  int16_t device = kAnyDevice;  // where a tensor must lie
};
struct Write {
  enum class From : uint8_t {
    kNothing,  // `slot`
    kCopy,     // what the first read found
    kTensor,   // a tensor inside of what the first read found
  };
  uint32_t reg;
  From from = From::kNothing;
  Slot slot{};
};
struct Effects {
  std::vector<Read> reads;    // in the order in which they are told of
  std::vector<Write> writes;  // after them
};
// Of an instruction that keeps the rules about single instructions. An InvokePacked with the wrong
// number of arguments has none.
void find_effects(const Executable& executable, const Instruction& instruction, Effects* out);
// What a write leaves, given what the first read found.
Slot written(const Write& write, Slot first);

// What Invoke calls: a bytecode or a scalar function, by its common index.
struct Callee {
  const std::string* name;
  uint64_t parameters;
  uint64_t results;
  bool is_scalar;
};
std::optional<Callee> callee_of(const Executable& executable, int64_t index);

}  // namespace nimble::exec
