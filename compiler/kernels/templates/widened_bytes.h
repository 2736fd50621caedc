// Products of bytes as products of i16, for machines that multiply pairs of i16 but no bytes
// (Fragments.def), or only with weights that keep a bound, which these don't: what the templates
// that serve such products share.
//
// Bytes would be taken apart at every step of a product, each factor by itself. Instead rows and
// images become i16 in a scratch ahead of the product, for each of their elements is multiplied
// with every column, and a convolution's with every tap. Weights stay bytes in memory and become
// i16 as they are loaded, a vector in one instruction. A step of 4 k of a tile of 6 rows by 2
// vectors, in 16 registers, takes these operations on vectors beside the 24 products and 24
// additions that both ways have:
//
//   bytes   12 that take rows apart and 6 that do so with weights, in 18 registers: sums are moved
//   i16     4 that widen weights, in 15 registers; rows are pairs that a load broadcasts
//
// Such a loop, its operands in L1, runs 1.24 times as fast on a Zen 3 (with 4 or 5 rows 1.18 and
// 1.21 times). Weights that were packed as i16 would take twice the memory and save the 4: it
// runs 0.93 to 1.03 times as fast with them, for products and additions are what it waits for. By
// a Skylake's ports they would gain 6 to 8 %.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernels/kernel_ir.h"

namespace nimble::kernels {

// Whether a fragment takes operands of a type only widened to its own.
bool is_widened(std::optional<kir::Fragment> fragment, DType lhs);

// Copies `count` elements of `from`, from element `first` on, into `to`, from element `place` on,
// in its type and so many at a time. `var` names the loop.
kir::StmtRef widen(const kir::BufferRef& from, const kir::Dim& first, const kir::BufferRef& to,
                   const kir::Dim& place, const kir::Dim& count, int lanes, const std::string& var);

// A parameter of so many rows of `pitch` elements, of which elements [first, first + width) of each
// are read, and their copy in a wider type, a scratch of all threads, row behind row.
struct Widened {
  kir::BufferRef from;
  kir::Dim rows;
  int64_t pitch = 0, first = 0, width = 0;
  kir::BufferRef to = nullptr;

  void make_copy(DType type, const std::string& name);
};
// Makes the copies, each thread a share, and waits for the others. Nothing else of the kernel may
// check an index: a failed check leaves it.
std::vector<kir::StmtRef> widen_together(const std::vector<Widened>& all, int lanes);

}  // namespace nimble::kernels
