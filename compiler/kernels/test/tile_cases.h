// Kernels of products of matrix registers and elements for them, for the tests of every way to run
// one.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "compiler/kernels/test/fragment_cases.h"
#include "vm/base/half.h"

namespace nimble::kir::testing {

// The shapes of a tile_kernel's registers.
struct TileKernel {
  int rows = 16;      // of a tile of a and of the sum
  int groups = 16;    // of a row of a tile of a
  int columns = 16;   // of a tile of the sum
  bool zero = false;  // the sums begin at zero, not at `sum`

  static constexpr int kTiles = 2;  // side by side
};

// y(m, n) = sum(m, n) + a(m, k) b(k, n): a and y row-major, b in groups of k, all columns of a
// group side by side. k is `depth` tiles, m any number of rows, the last tile of which may be
// short.
inline Function tile_kernel(TileFragment fragment, const TileKernel& shape = {}) {
  using namespace build;  // NOLINT
  const TileFragmentRow& row = tile_row_of(fragment);
  const int taken = shape.groups * row.group, all = shape.columns * TileKernel::kTiles;
  KernelBuilder k("tiles");
  const Dim m = k.symbol("m"), depth = k.symbol("depth");
  const Dim i = Dim::symbol("i"), step = Dim::symbol("step"), j = Dim::symbol("j");
  const auto from_a = k.in("a", row.a, m * depth * taken);
  const auto from_b = k.in("b", row.b, depth * taken * all);
  const auto from_sum = k.in("sum", row.sum, m * all);
  const auto y = k.out("y", row.sum, m * all);
  const auto sum = k.tiles("sums", row.sum, shape.rows, shape.columns, TileKernel::kTiles);
  const auto a = k.tiles("lhs", row.a, shape.rows, taken, 1);
  const auto b = k.tiles("rhs", row.b, shape.groups, shape.columns * row.group, 2);
  const Dim first = i * shape.rows, rows = ir::min(m - first, shape.rows);
  const auto each = [&](StmtRef s) {
    return loop(LoopKind::kUnroll, "j", 0, TileKernel::kTiles, std::move(s));
  };
  const Dim at = first * all + j * shape.columns;
  return k.body({loop(
      LoopKind::kThread, "i", 0, ir::ceildiv(m, shape.rows),
      with_tiles(
          {{sum, rows}, {a, rows}, {b, shape.groups}},
          seq({each(shape.zero ? tile_zero(sum, j) : tile_load(sum, j, from_sum, at, all)),
               loop(LoopKind::kSerial, "step", 0, depth,
                    seq({tile_load(a, 0, from_a, (first * depth + step) * taken, depth * taken),
                         each(seq(
                             {tile_load(b, j, from_b,
                                        (step * shape.groups * all + j * shape.columns) * row.group,
                                        all * row.group),
                              tile_dot(fragment, sum, j, a, 0, b, j)}))})),
               each(tile_store(y, at, all, sum, j))})))});
}

// The arguments of a tile_kernel.
struct TileCase {
  TileCase(TileFragment fragment, const TileKernel& kernel, int64_t m, int64_t depth, bool tame,
           std::mt19937_64& random)
      : row(tile_row_of(fragment)), shape(kernel), m(m), depth(depth) {
    const int64_t k = products();
    a = dot_elements(row.a, static_cast<size_t>(m * k), tame, random);
    b = dot_elements(row.b, static_cast<size_t>(k * columns()), tame, random);
    sum = dot_elements(row.sum, static_cast<size_t>(m * columns()), tame, random);
    y.resize(sum.size());
  }
  std::vector<std::span<std::byte>> arguments() { return {a, b, sum, y}; }
  std::vector<int64_t> symbols() const { return {m, depth}; }
  int64_t columns() const { return int64_t{shape.columns} * TileKernel::kTiles; }
  int64_t products() const { return depth * shape.groups * row.group; }  // of one sum
  size_t sums() const { return static_cast<size_t>(m * columns()); }
  // Where the factors number p of sum number i stand.
  size_t of_a(size_t i, int64_t p) const {
    return i / static_cast<size_t>(columns()) * static_cast<size_t>(products()) +
           static_cast<size_t>(p);
  }
  size_t of_b(size_t i, int64_t p) const {
    const auto column = static_cast<int64_t>(i) % columns();
    return static_cast<size_t>((p / row.group * columns() + column) * row.group + p % row.group);
  }

  TileFragmentRow row;
  TileKernel shape;
  int64_t m, depth;
  std::vector<std::byte> a, b, sum, y;
};

// How far the sum number i of an expansion, or of any other order, may be from the row's
// (Fragments.def); negative where it may be anything..
inline double tile_bound(const TileCase& c, size_t i) {
  if (!is_float(c.row.sum)) return 0;
  double magnitude = c.shape.zero ? 0 : std::fabs(element_at<float>(c.sum, i)), lost = 0;
  if (magnitude < 0x1p-126) lost = magnitude;
  const auto n = static_cast<double>(c.products());
  const auto size = [&](const std::vector<std::byte>& factors, size_t at) -> double {
    const auto bits = element_at<uint16_t>(factors, at);
    return std::fabs(c.row.a == DType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits));
  };
  for (int64_t p = 0; p < c.products(); ++p) {
    const double x = size(c.a, c.of_a(i, p)), y = size(c.b, c.of_b(i, p));
    magnitude += x * y;
    if (x < 0x1p-126 || y < 0x1p-126) lost += x * y;
  }
  if (!(magnitude < 0x1p127)) return -1;  // or NaN
  return (3 * n + 2) * (0x1p-24 * magnitude + 0x1p-126) + lost;
}

}  // namespace nimble::kir::testing
