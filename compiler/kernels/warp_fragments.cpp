// Where the elements of a warp's matrices lie (PTX ISA, "Matrix Fragments for mma.m16n8k…").
#include "compiler/kernels/kernel_ir.h"
#include "vm/base/error.h"

namespace nimble::kir {

std::span<const WarpFragmentRow> all_warp_fragments() {
  static const WarpFragmentRow kRows[] = {
#define NIMBLE_WARP_FRAGMENT(id, name, a, b, sum, m, n, k, feature) \
  {WarpFragment::id, name, DType::a, DType::b, DType::sum, m, n, k, feature},
#include "compiler/kernels/Fragments.def"
  };
  return kRows;
}

const WarpFragmentRow& warp_row_of(WarpFragment f) {
  return all_warp_fragments()[static_cast<size_t>(f)];
}

// All are m16n8 with k of 32 bytes. A lane's group g is its row of a and of the sum, and its column
// of b; its number t in the group says which elements along k, or which columns of the sum.
WarpPlace warp_place(const WarpFragmentRow& row, WarpOperand operand, int lane, int number,
                     int element) {
  NIMBLE_CHECK(row.m == 16 && row.n == 8, "{}", row.name);
  const int g = lane / 4, t = lane % 4;
  switch (operand) {
    case WarpOperand::kA: {
      const int each = row.per_register(row.a);
      return {g + 8 * (number % 2), (number / 2) * row.k / 2 + t * each + element};
    }
    case WarpOperand::kB: {
      const int each = row.per_register(row.b);
      return {number * row.k / 2 + t * each + element, g};
    }
    case WarpOperand::kSum:
      return {g + 8 * (number / 2), 2 * t + number % 2};
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
