// What the sources rewritten by schemata.py call: every mutant is in the program, and the number in
// NIMBLE_MUTANT says which one is alive (none without it).
//
// With NIMBLE_MUTANTS_SEEN=FILE, of one byte for each mutant, the program is as it was, and the
// byte of a mutant becomes 1 once it would have made a difference to the value of its expression: a
// test during which that does not happen cannot find it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <type_traits>

namespace nimble::mutants {

__extension__ using Wide = __int128;

// Straight to the kernel: tests replace the functions of the C library that nimble calls.
inline uint8_t* map_seen() {
  const char* path = std::getenv("NIMBLE_MUTANTS_SEEN");
  if (!path) return nullptr;
  const long file = ::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  const long memory =
      ::syscall(SYS_mmap, nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::syscall(SYS_close, file);
  return memory < 0 && memory > -4096 ? nullptr : reinterpret_cast<uint8_t*>(memory);
}
inline int number() {
  const char* text = std::getenv("NIMBLE_MUTANT");
  return text ? std::atoi(text) : 0;
}
inline const int alive = number();
inline uint8_t* const seen = map_seen();

inline bool choose(int id, bool mutated, bool value) {
  if (seen && mutated != value) seen[id] = 1;
  return id == alive ? mutated : value;
}

// An operand of a condition, and what it is once it is removed.
template <class T>
bool operand(int id, bool removed, const T& value) {
  return choose(id, removed, static_cast<bool>(value));
}

template <class T>
constexpr bool kWhole = std::is_integral_v<T> || std::is_enum_v<T>;

// Of what has no next value (pointers, floating-point numbers), < becomes <= or the reverse; the
// other mutant is none.
inline void drop(int id) {
  if (seen) seen[id] = 2;
}

// A comparison whose bound moves by one: `more` holds for one value more, `less` for one less.
template <class A, class B>
bool less(int more, int fewer, const A& a, const B& b, bool value) {
  if constexpr (kWhole<A> && kWhole<B>) {
    const bool up = static_cast<Wide>(a) < static_cast<Wide>(b) + 1;
    const bool down = static_cast<Wide>(a) < static_cast<Wide>(b) - 1;
    const bool chosen = choose(more, up, value);
    return fewer == alive ? down : (choose(fewer, down, value), chosen);
  } else {
    drop(fewer);
    return choose(more, a <= b, value);
  }
}
template <class A, class B>
bool at_most(int more, int fewer, const A& a, const B& b, bool value) {
  if constexpr (kWhole<A> && kWhole<B>) {
    const bool up = static_cast<Wide>(a) <= static_cast<Wide>(b) + 1;
    const bool down = static_cast<Wide>(a) <= static_cast<Wide>(b) - 1;
    const bool chosen = choose(more, up, value);
    return fewer == alive ? down : (choose(fewer, down, value), chosen);
  } else {
    drop(more);
    return choose(fewer, a < b, value);
  }
}

template <class A, class B>
bool compare_lt(int more, int fewer, const A& a, const B& b) {
  return less(more, fewer, a, b, a < b);
}
template <class A, class B>
bool compare_le(int more, int fewer, const A& a, const B& b) {
  return at_most(more, fewer, a, b, a <= b);
}
template <class A, class B>
bool compare_gt(int more, int fewer, const A& a, const B& b) {
  return less(more, fewer, b, a, a > b);
}
template <class A, class B>
bool compare_ge(int more, int fewer, const A& a, const B& b) {
  return at_most(more, fewer, b, a, a >= b);
}

}  // namespace nimble::mutants
