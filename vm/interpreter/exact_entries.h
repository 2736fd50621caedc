// Which calls of a kernel are known before it is called: the sizes that have entries of their own
// in its dispatch tree, and the constants that the program passes to it. What vendors' routines
// need is made for those and no others.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "vm/executable/executable.h"

namespace nimble::rt {

struct ExactEntry {
  uint32_t implementation = 0;
  std::vector<int64_t> symbols;  // all of the contract's
};
// The leaves of a verified tree that one tuple of sizes alone reaches, in a region of so many
// threads: each symbol is asked for an exact size on the way, or between equal bounds. Without
// symbols the one leaf that is chosen. Trees with very many ways to their leaves are not looked
// through to the end, those over more than 64 symbols not at all.
std::vector<ExactEntry> exact_entries(const exec::DispatchTree& tree, size_t symbols,
                                      int32_t threads);

// The constants (indices, each once, in increasing order) that may be argument `argument` of
// kernel `kernel` in a verified program: those that a function loads itself and passes on,
// perhaps through moves. What comes from elsewhere (a parameter, a field) is not found.
std::vector<uint32_t> constants_passed(const exec::Executable& executable, uint32_t kernel,
                                       size_t argument);

}  // namespace nimble::rt
