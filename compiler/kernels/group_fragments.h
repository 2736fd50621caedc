// How factors of a group's product lie in shared memory and what the hardware is told of that: the
// matrix descriptor and the swizzle (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
// Layout" and "Matrix Descriptor"). The printer writes the descriptor into the code, and the
// emulator finds elements by the same 64 bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "compiler/kernels/interpreter_code.h"

namespace nimble::kir {

inline constexpr int kGroupLines = 8;   // that a swizzle's pattern goes through
inline constexpr int kPieceBytes = 16;  // that it leaves together
// Piece p of a line stands where piece p ^ phase would, modulo a line's pieces; so many bytes of
// lines have one phase.
inline constexpr int kPhaseBytes = 128;
inline constexpr int kMostColumns = 256;  // of a group's product

struct Swizzle {
  int line_bytes;
  int code;  // in a descriptor
};
std::span<const Swizzle> all_swizzles();
// Of lines of `span` elements; nullptr if there is none.
const Swizzle* swizzle_of(DType t, int span);
// The widest lines of such elements that `extent` elements are a multiple of; 0 if none is.
int widest_span(DType t, int extent);

// All of a view's descriptor but the address, which is its low 14 bits in units of kPieceBytes.
uint64_t descriptor_of(const GroupView& v);

// Where byte `at` of a buffer lies that is aligned to the swizzle's pattern.
int64_t swizzled(const Swizzle& s, int64_t at);

// Byte from the buffer's begin of the element in row (a) or column (b) `x` at place `k` of a view
// that begins at byte `begin` of it.
int64_t group_place(uint64_t descriptor, bool along_k, DType t, int64_t begin, int x, int k);

// Row and column of a thread's register of the sum; `thread` in its group.
WarpPlace group_sum_place(int thread, int number);

// What keeps a product of these views and columns from being one of the row; "" if nothing does.
std::string group_dot_fault(const GroupFragmentRow& row, int columns,
                            std::span<const GroupView> views);

// sum += a b of one element: k elements each of a row and of a column.
void add_group_products(const GroupFragmentRow& row, Lane& sum, const Lane* a, const Lane* b);

}  // namespace nimble::kir
