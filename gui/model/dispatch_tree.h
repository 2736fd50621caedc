// The decision tree of a dispatch table, read from its JSON (vm/executable/dispatch_json.h):
//   {"nodes":[{"feature":"symbol","a":"s0","op":"<=","value":16,"yes":1,"no":2},{"leaf":0},…]}
// and what windows draw of it: which entry serves a shape, where its borders lie, by which tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/store/records.h"

namespace nimble::gui {

struct Feature {
  enum class Kind { kSymbol, kCeilDiv, kMod, kProduct, kThreads };
  Kind kind = Kind::kSymbol;
  std::string a, b;
  int64_t t = 1;
  bool operator==(const Feature&) const = default;
};
std::string text_of(const Feature& f);  // "s0", "ceildiv(s0,8)", "mod(s0,8)", "s0*s1", "threads"

struct TreeNode {
  bool leaf = true;
  int64_t entry = 0;  // of a leaf
  Feature feature;
  bool equal = false;  // tests == instead of <=
  int64_t value = 0;
  size_t yes = 0, no = 0;
};
std::string text_of(const TreeNode& test);  // "s0 <= 113"

struct TreeStep {
  size_t node = 0;
  int64_t value = 0;  // of the feature at the shape
  bool holds = false;
};

class DispatchTree {
 public:
  // Throws Error(kCorrupt) for what is no tree: other JSON, a jump back or out of it, a divisor
  // below 1, an entry that the table (`entries` of them) lacks.
  static DispatchTree from_json(const std::string& json, size_t entries);
  std::string json() const;

  const std::vector<TreeNode>& nodes() const { return nodes_; }
  std::vector<TreeNode>& nodes() { return nodes_; }
  // The entry that serves a shape. A symbol that `dims` lacks counts as 0.
  int64_t entry_at(const db::Dims& dims, int64_t threads) const;
  std::vector<TreeStep> path_at(const db::Dims& dims, int64_t threads) const;
  // Values of `symbol` after which a test on it alone changes its answer, ascending.
  std::vector<int64_t> borders_of(const std::string& symbol) const;

 private:
  std::vector<TreeNode> nodes_;
};

}  // namespace nimble::gui
