// How a match finds its case: a binary search over tags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nimble::emit {

// A node either asks whether the tag is at least `threshold`, or names a case.
struct TagNode {
  bool leaf = false;
  size_t which = 0;            // of a leaf: the case
  int64_t threshold = 0;       // of a question …
  size_t below = 0, from = 0;  // … the nodes where it goes on
};

// `case_of_tag[t]` is the case for tag t; neighbours with one case are never told apart. The root
// is node 0; there are at most 2 * tags - 1 nodes and log2(tags) questions on any path.
std::vector<TagNode> plan_tag_switch(const std::vector<size_t>& case_of_tag);

}  // namespace nimble::emit
