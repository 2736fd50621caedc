#include "gui/model/dispatch_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "vm/base/error.h"
#include "vm/executable/dispatch_json.h"
#include "vm/executable/dispatch_text.h"

namespace nimble::gui {
namespace {

Feature named(const exec::DispatchFeature& f, const std::vector<std::string>& symbols) {
  Feature out{f.kind, {}, {}, f.t};
  if (f.kind != Feature::Kind::kThreads) out.a = symbols[f.a];
  if (f.kind == Feature::Kind::kProduct) out.b = symbols[f.b];
  return out;
}

int32_t threads_of(int64_t threads) {
  return static_cast<int32_t>(std::clamp<int64_t>(threads, 1, INT32_MAX));
}

}  // namespace

std::string text_of(const Feature& f) {
  const std::vector<std::string> names{f.a, f.b};
  return exec::text_of(exec::DispatchFeature{f.kind, 0, 1, f.t}, names);
}

std::string text_of(const TreeNode& n) {
  return fmt::format("{} {} {}", text_of(n.feature), n.equal ? "==" : "<=", n.value);
}

std::vector<std::string> symbols_of(const db::Workload& workload) {
  std::vector<std::string> symbols;
  std::istringstream names(workload.symbolic_dims);
  for (std::string name; std::getline(names, name, ',');) symbols.push_back(name);
  return symbols;
}

std::vector<int64_t> extents_of(const std::vector<std::string>& symbols, const db::Dims& dims) {
  std::vector<int64_t> extents;
  for (const std::string& s : symbols) {
    const auto it = dims.find(s);
    extents.push_back(it == dims.end() ? 0 : it->second);
  }
  return extents;
}

DispatchTree DispatchTree::from_json(const std::string& json, size_t entries,
                                     std::vector<std::string> symbols) {
  DispatchTree out;
  out.tree_ = exec::tree_from_json(json, symbols);
  const std::string fault =
      out.tree_.verify(static_cast<uint32_t>(symbols.size()), static_cast<uint32_t>(entries));
  if (!fault.empty())
    throw Error(Status::kCorrupt, "tree of a dispatch table", fault,
                "roll back to another version of the table, or tune the workload again");
  out.symbols_ = std::move(symbols);
  for (const exec::DispatchNode& n : out.tree_.nodes) {
    TreeNode node;
    node.leaf = n.test == exec::DispatchNode::Test::kLeaf;
    if (node.leaf) {
      node.entry = n.yes;
    } else {
      node.feature = named(n.feature, out.symbols_);
      node.equal = n.test == exec::DispatchNode::Test::kEqual;
      node.value = n.threshold;
      node.yes = n.yes;
      node.no = n.no;
    }
    out.nodes_.push_back(std::move(node));
  }
  return out;
}

std::string DispatchTree::json() const {
  return exec::tree_to_json(tree_, symbols_);
}

void DispatchTree::set_value(size_t node, int64_t value) {
  nodes_.at(node).value = value;
  tree_.nodes.at(node).threshold = value;
}

std::vector<TreeStep> DispatchTree::path_at(const db::Dims& dims, int64_t threads) const {
  const std::vector<int64_t> extents = extents_of(symbols_, dims);
  std::vector<TreeStep> path;
  size_t at = 0;
  while (true) {
    const TreeNode& n = nodes_[at];
    if (n.leaf) {
      path.push_back({at, n.entry, true});
      return path;
    }
    const int64_t value = exec::value_of(tree_.nodes[at].feature, extents, threads_of(threads));
    const bool holds = n.equal ? value == n.value : value <= n.value;
    path.push_back({at, value, holds});
    at = holds ? n.yes : n.no;
  }
}

int64_t DispatchTree::entry_at(const db::Dims& dims, int64_t threads) const {
  return tree_.choose(extents_of(symbols_, dims), threads_of(threads));
}

std::vector<int64_t> DispatchTree::borders_of(const std::string& symbol) const {
  std::vector<int64_t> borders;
  for (const TreeNode& n : nodes_) {
    if (n.leaf || n.feature.a != symbol) continue;
    if (n.feature.kind == Feature::Kind::kSymbol) {
      if (n.equal) borders.push_back(n.value - 1);
      borders.push_back(n.value);
    } else if (n.feature.kind == Feature::Kind::kCeilDiv &&
               n.value <= std::numeric_limits<int64_t>::max() / n.feature.t) {
      if (n.equal) borders.push_back((n.value - 1) * n.feature.t);
      borders.push_back(n.value * n.feature.t);
    }
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

}  // namespace nimble::gui
