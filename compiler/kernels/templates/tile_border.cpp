#include "compiler/kernels/templates/tile_border.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace nimble::kernels {

namespace kb = kir::build;
using kir::StmtRef;

namespace {

// Pixels [from, to) of a tile for which a tap's column lies inside the image.
using Range = std::pair<int, int>;
struct Ranges {
  std::vector<Range> known;  // those with a part of their own
  bool others = false;       // whether there may be more
};

// The ranges, other than the whole, that taps may have in tiles of n pixels.
Ranges ranges_of(const Window& x, const RowTiles& tiles, int n) {
  constexpr size_t kMost = 4;  // code for more is rather compiled than run
  Ranges out;
  if (n == 1) return out;
  const auto width = x.in.as_constant(), columns = x.out.as_constant();
  if (width && columns) {
    std::set<Range> all;
    for (const auto& [first, size] : tiles.known_tiles()) {
      if (size != n) continue;
      for (int64_t j = 0; j < x.taps; ++j) {
        int from = n, to = 0;
        for (int r = 0; r < n; ++r) {
          const int64_t column = (first + r) * x.stride - x.before + j * x.dilation;
          if (column < 0 || column >= *width) continue;
          from = std::min(from, r);
          to = r + 1;
        }
        if (from < to && (from > 0 || to < n)) all.emplace(from, to);
      }
    }
    for (const Range& r : all)
      if (out.known.size() < kMost) out.known.push_back(r);
    out.others = all.size() > kMost;
    return out;
  }
  // As many pixels of the first tile, and of the last, as the padding reaches into.
  const int64_t left = (x.before + x.stride - 1) / x.stride;
  const int64_t right = (x.after + x.stride - 1) / x.stride;
  constexpr int64_t kSide = kMost / 2;
  for (int cut = 1; cut <= std::min({left, kSide, int64_t{n} - 1}); ++cut)
    out.known.emplace_back(cut, n);
  for (int cut = 1; cut <= std::min({right, kSide, int64_t{n} - 1}); ++cut)
    out.known.emplace_back(0, n - cut);
  // A tap finds pixels outside on both sides only if the row of the result, at its stride, is
  // longer than the image's: (out - 1) * stride <= in - 1 + before + after - reach.
  out.others = left > kSide || right > kSide || x.before + x.after > x.reach() + 1;
  return out;
}

}  // namespace

StmtRef part_of_tile(const Window& x, const RowTiles& tiles, int n, const Dim& start,
                     const TilePart& part, bool whole) {
  if (!x.clipped) return whole ? part(0, n, "a_") : nullptr;
  const Dim from = Dim::symbol("from"), to = Dim::symbol("to");
  const Ranges ranges = ranges_of(x, tiles, n);
  StmtRef chain;
  if (ranges.others) {
    std::vector<StmtRef> pixels;
    for (int r = 0; r < n; ++r)
      pixels.push_back(kb::if_then(kb::both(kb::le(from, r), kb::lt(r, to)),
                                   part(r, 1, "p" + std::to_string(r) + "_")));
    chain = kb::seq(std::move(pixels));
  }
  for (size_t q = ranges.known.size(); q-- > 0;) {
    const Range& r = ranges.known[q];
    StmtRef then = part(r.first, r.second - r.first, "q" + std::to_string(q) + "_");
    chain = kb::if_then(kb::both(kb::eq(from, r.first), kb::eq(to, r.second)), std::move(then),
                        std::move(chain));
  }
  if (!whole && !chain) return nullptr;
  chain = kb::if_then(kb::both(kb::eq(from, 0), kb::eq(to, n)),
                      whole ? part(0, n, "a_") : kb::seq({}), std::move(chain));
  // Pixel r stands in column start + r * stride.
  const auto clamped = [&](const Dim& d) { return kb::index(ir::max(ir::min(d, n), 0)); };
  return kb::seq({kb::let_index("from", clamped(ir::ceildiv(0 - start, x.stride))),
                  kb::let_index("to", clamped(ir::floordiv(x.in - 1 - start, x.stride) + 1)),
                  std::move(chain)});
}

}  // namespace nimble::kernels
