#include "compiler/emit/tag_switch.h"

#include <functional>

#include "vm/base/error.h"

namespace nimble::emit {

std::vector<TagNode> plan_tag_switch(const std::vector<size_t>& case_of_tag) {
  NIMBLE_CHECK(!case_of_tag.empty(), "a data type without constructors");
  // Runs of tags with one case, by their first tag.
  std::vector<size_t> starts;
  for (size_t t = 0; t < case_of_tag.size(); ++t)
    if (t == 0 || case_of_tag[t] != case_of_tag[t - 1]) starts.push_back(t);
  std::vector<TagNode> nodes;
  std::function<size_t(size_t, size_t)> build = [&](size_t first, size_t last) {
    const size_t at = nodes.size();
    nodes.emplace_back();
    if (first == last) {
      nodes[at] = {true, case_of_tag[starts[first]], 0, 0, 0};
      return at;
    }
    const size_t middle = first + (last - first + 1) / 2;
    const size_t below = build(first, middle - 1), from = build(middle, last);
    nodes[at] = {false, 0, static_cast<int64_t>(starts[middle]), below, from};
    return at;
  };
  build(0, starts.size() - 1);
  return nodes;
}

}  // namespace nimble::emit
