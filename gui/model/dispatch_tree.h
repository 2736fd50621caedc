// The decision tree of a dispatch table, as windows draw it: which entry serves a shape, where its
// borders lie, by which tests. What it reads, writes and decides is the machine's own
// (vm/executable/dispatch.h, dispatch_json.h); here are its tests by the names of their symbols.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/store/records.h"
#include "vm/executable/dispatch.h"

namespace nimble::gui {

struct Feature {
  using Kind = exec::DispatchFeature::Kind;
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

// The names of a workload's symbols, in the order in which its kernels take them.
std::vector<std::string> symbols_of(const db::Workload& workload);
// Their extents at a shape; one that `dims` lacks counts as 0.
std::vector<int64_t> extents_of(const std::vector<std::string>& symbols, const db::Dims& dims);

class DispatchTree {
 public:
  DispatchTree() = default;
  // Throws Error(kCorrupt) for what the machine would refuse: other JSON, a test or a symbol that
  // it does not know, a jump back or out of it, a divisor below 1, an entry that the table
  // (`entries` of them) lacks.
  static DispatchTree from_json(const std::string& json, size_t entries,
                                std::vector<std::string> symbols);
  static DispatchTree of(const db::Workload& workload, const db::DispatchTable& table) {
    return from_json(table.tree, table.entries.size(), symbols_of(workload));
  }
  std::string json() const;

  const std::vector<TreeNode>& nodes() const { return nodes_; }
  // What a test compares with.
  void set_value(size_t node, int64_t value);
  // The entry that serves a shape.
  int64_t entry_at(const db::Dims& dims, int64_t threads) const;
  std::vector<TreeStep> path_at(const db::Dims& dims, int64_t threads) const;
  // Values of `symbol` after which a test on it alone changes its answer, ascending.
  std::vector<int64_t> borders_of(const std::string& symbol) const;

 private:
  exec::DispatchTree tree_;
  std::vector<std::string> symbols_;
  std::vector<TreeNode> nodes_;  // of the tree, by names
};

}  // namespace nimble::gui
