#include "compiler/kernels/warp_product.h"

#include <bit>
#include <cmath>
#include <vector>

#include "compiler/kernels/interpreter_lanes.h"
#include "vm/base/error.h"

namespace nimble::kir {
namespace {

// Where the elements of one operand lie, in the order lane, register, element.
struct Layout {
  int registers, each;
  std::vector<WarpPlace> places;
};

Layout layout_of(const WarpFragmentRow& row, WarpOperand operand) {
  const bool is_a = operand == WarpOperand::kA, is_b = operand == WarpOperand::kB;
  Layout l{is_a   ? row.a_registers()
           : is_b ? row.b_registers()
                  : row.sum_registers(),
           row.per_register(is_a   ? row.a
                            : is_b ? row.b
                                   : row.sum),
           {}};
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int number = 0; number < l.registers; ++number)
      for (int e = 0; e < l.each; ++e)
        l.places.push_back(warp_place(row, operand, lane, number, e));
  return l;
}

struct Layouts {
  Layout a, b, sum;
};

const Layouts& layouts_of(const WarpFragmentRow& row) {
  static const std::vector<Layouts> all = [] {
    std::vector<Layouts> made;
    for (const WarpFragmentRow& r : all_warp_fragments())
      made.push_back({layout_of(r, WarpOperand::kA), layout_of(r, WarpOperand::kB),
                      layout_of(r, WarpOperand::kSum)});
    return made;
  }();
  return all[static_cast<size_t>(row.id)];
}

template <class Body>
void each_element(const Layout& l, const WarpLanes& lanes, const Body& body) {
  size_t at = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane)
    for (int number = 0; number < l.registers; ++number)
      for (int e = 0; e < l.each; ++e) body(l.places[at++], lanes[lane][number][e]);
}

constexpr int kRows = 16, kColumns = 8, kMostInner = 32;

// a by rows, b by columns, so that both run along k.
template <class T, class Number, class Add>
void product(const WarpFragmentRow& row, const WarpLanes& sum, const WarpLanes& a,
             const WarpLanes& b, const Number& number, const Add& add) {
  const Layouts& l = layouts_of(row);
  T left[kRows][kMostInner], right[kColumns][kMostInner];
  each_element(l.a, a, [&](WarpPlace p, Lane v) { left[p.row][p.column] = number(v); });
  each_element(l.b, b, [&](WarpPlace p, Lane v) { right[p.column][p.row] = number(v); });
  each_element(l.sum, sum, [&](WarpPlace p, Lane& v) {
    for (int k = 0; k < row.k; ++k) add(v, left[p.row][k], right[p.column][k]);
  });
}

// As cvt.rna.tf32.f32: half a place of the last bit that stays, and the bits below go. The largest
// numbers become infinite.
float tf32_from_f32(float x) {
  constexpr uint32_t kDropped = 0x1fff;
  if (std::isnan(x)) return x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + (kDropped + 1) / 2) & ~kDropped);
}

void add_f32(Lane& sum, float a, float b) {
  const float both = a * b;  // exact, but for what is too small
  sum.f32 += both;
}

}  // namespace

void warp_product(const WarpFragmentRow& row, const WarpLanes& sum, const WarpLanes& a,
                  const WarpLanes& b) {
  NIMBLE_CHECK(row.m <= kRows && row.n <= kColumns && row.k <= kMostInner, "{}", row.name);
  switch (row.id) {
    case WarpFragment::kTf32Warp:
      return product<float>(
          row, sum, a, b, [](Lane v) { return tf32_from_f32(v.f32); }, add_f32);
    case WarpFragment::kBf16Warp:
      return product<float>(
          row, sum, a, b, [](Lane v) { return f32_from_bf16(static_cast<uint16_t>(v.i)); },
          add_f32);
    case WarpFragment::kF16Warp:
      return product<float>(
          row, sum, a, b, [](Lane v) { return f32_from_f16(static_cast<uint16_t>(v.i)); }, add_f32);
    case WarpFragment::kS8Warp:
      return product<int64_t>(
          row, sum, a, b, [](Lane v) { return v.i; },
          [](Lane& s, int64_t x, int64_t y) { s.i = wrap(DType::kI32, s.i + x * y); });
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace nimble::kir
