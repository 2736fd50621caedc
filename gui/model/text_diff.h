// Two texts line by line, side by side: what only one of them has stands against a gap of the
// other. After Myers, "An O(ND) difference algorithm" (1986), in its greedy form.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gui/model/cancel.h"

namespace nimble::gui {

struct DiffLine {
  // Lines of either side, numbered from 0; -1: a gap. Equal lines have both.
  std::ptrdiff_t left = -1, right = -1;
  bool same = false;
};

std::vector<std::string_view> lines_of(std::string_view text);

// The least number of differing lines, as long as no more than `most` differ; beyond, the texts'
// middles stand side by side as wholly different. A removed line and one added in its place share a
// row. Throws Error(kCancelled).
std::vector<DiffLine> diff_of(const std::vector<std::string_view>& left,
                              const std::vector<std::string_view>& right, const Cancel& cancel,
                              std::ptrdiff_t most = 4000);

}  // namespace nimble::gui
