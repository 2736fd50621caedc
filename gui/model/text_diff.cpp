#include "gui/model/text_diff.h"

#include <algorithm>
#include <optional>

namespace nimble::gui {
namespace {

using Index = std::ptrdiff_t;
using Lines = std::vector<std::string_view>;

// Pairs of equal lines between `from` and the ends, in order; nothing if more than `most` differ.
std::optional<std::vector<std::pair<Index, Index>>> matches(const Lines& a, const Lines& b,
                                                            Index from, Index a_end, Index b_end,
                                                            Index most, const Cancel& cancel) {
  const Index n = a_end - from, m = b_end - from;
  const Index limit = std::min(n + m, most);
  // furthest[k + limit + 1]: the furthest place in `a` on the diagonal k = x - y; a copy of what
  // each step could read leads the way back.
  std::vector<Index> furthest(static_cast<size_t>(2 * limit + 3), 0);
  std::vector<std::vector<Index>> trail;
  const auto at = [&](Index k) -> Index& { return furthest[static_cast<size_t>(k + limit + 1)]; };
  for (Index d = 0; d <= limit; ++d) {
    if (d % 64 == 0) cancel.check();
    trail.emplace_back(furthest.begin() + (limit + 1 - d), furthest.begin() + (limit + 2 + d));
    for (Index k = -d; k <= d; k += 2) {
      const bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
      Index x = down ? at(k + 1) : at(k - 1) + 1;
      while (x < n && x - k < m &&
             a[static_cast<size_t>(from + x)] == b[static_cast<size_t>(from + x - k)])
        ++x;
      at(k) = x;
      if (x < n || x - k < m) continue;
      // Back along the trail.
      std::vector<std::pair<Index, Index>> pairs;
      Index at_x = n, at_y = m;
      for (Index step = d; at_x > 0 || at_y > 0; --step) {
        const std::vector<Index>& before = trail[static_cast<size_t>(step)];
        const auto seen = [&](Index diagonal) {
          return before[static_cast<size_t>(diagonal + step)];
        };
        const Index diagonal = at_x - at_y;
        Index to_x = 0, to_y = 0;
        if (step > 0) {
          const bool was_down =
              diagonal == -step || (diagonal != step && seen(diagonal - 1) < seen(diagonal + 1));
          const Index previous = was_down ? diagonal + 1 : diagonal - 1;
          to_x = seen(previous);
          to_y = to_x - previous;
        }
        while (at_x > to_x && at_y > to_y) {
          --at_x;
          --at_y;
          pairs.emplace_back(from + at_x, from + at_y);
        }
        if (step == 0) break;
        at_x = to_x;
        at_y = to_y;
      }
      std::reverse(pairs.begin(), pairs.end());
      return pairs;
    }
  }
  return std::nullopt;
}

}  // namespace

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<DiffLine> diff_of(const Lines& a, const Lines& b, const Cancel& cancel, Index most) {
  std::vector<DiffLine> rows;
  Index a_end = std::ssize(a), b_end = std::ssize(b), from = 0;
  while (from < a_end && from < b_end &&
         a[static_cast<size_t>(from)] == b[static_cast<size_t>(from)])
    ++from;
  Index tail = 0;
  while (a_end > from && b_end > from &&
         a[static_cast<size_t>(a_end - 1)] == b[static_cast<size_t>(b_end - 1)]) {
    --a_end;
    --b_end;
    ++tail;
  }
  for (Index i = 0; i < from; ++i) rows.push_back({i, i, true});
  Index x = from, y = from;
  const auto differ_up_to = [&](Index to_x, Index to_y) {
    while (x < to_x || y < to_y) {
      DiffLine row;
      if (x < to_x) row.left = x++;
      if (y < to_y) row.right = y++;
      rows.push_back(row);
    }
  };
  if (const auto pairs = matches(a, b, from, a_end, b_end, most, cancel))
    for (const auto& [left, right] : *pairs) {
      differ_up_to(left, right);
      rows.push_back({x++, y++, true});
    }
  differ_up_to(a_end, b_end);
  for (Index i = 0; i < tail; ++i) rows.push_back({a_end + i, b_end + i, true});
  return rows;
}

}  // namespace nimble::gui
