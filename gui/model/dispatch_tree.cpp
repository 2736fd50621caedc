#include "gui/model/dispatch_tree.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::gui {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kNames[] = {"symbol", "ceildiv", "mod", "product", "threads"};

constexpr char kPlace[] = "tree of a dispatch table";

[[noreturn]] void bad(const std::string& problem) {
  throw Error(Status::kCorrupt, kPlace, problem,
              "roll back to another version of the table, or tune the workload again");
}

int64_t value_of(const Feature& f, const db::Dims& dims, int64_t threads) {
  const auto extent = [&](const std::string& symbol) {
    const auto it = dims.find(symbol);
    return it == dims.end() ? int64_t{0} : it->second;
  };
  switch (f.kind) {
    case Feature::Kind::kSymbol:
      return extent(f.a);
    case Feature::Kind::kCeilDiv:
      return extent(f.a) / f.t + (extent(f.a) % f.t > 0);
    case Feature::Kind::kMod:
      return extent(f.a) % f.t;
    case Feature::Kind::kProduct: {
      int64_t product = 0;
      return __builtin_mul_overflow(extent(f.a), extent(f.b), &product)
                 ? std::numeric_limits<int64_t>::max()
                 : product;
    }
    case Feature::Kind::kThreads:
      return threads;
  }
  NIMBLE_UNREACHABLE();
}

}  // namespace

std::string text_of(const Feature& f) {
  switch (f.kind) {
    case Feature::Kind::kSymbol:
      return f.a;
    case Feature::Kind::kCeilDiv:
      return fmt::format("ceildiv({},{})", f.a, f.t);
    case Feature::Kind::kMod:
      return fmt::format("mod({},{})", f.a, f.t);
    case Feature::Kind::kProduct:
      return f.a + "*" + f.b;
    case Feature::Kind::kThreads:
      return "threads";
  }
  NIMBLE_UNREACHABLE();
}

std::string text_of(const TreeNode& n) {
  return fmt::format("{} {} {}", text_of(n.feature), n.equal ? "==" : "<=", n.value);
}

DispatchTree DispatchTree::from_json(const std::string& text, size_t entries) {
  DispatchTree tree;
  try {
    const auto json = nlohmann::json::parse(text);
    for (const nlohmann::json& j : json.at("nodes")) {
      TreeNode n;
      if (j.contains("leaf")) {
        n.entry = integer_at<int64_t>(j, "leaf", kPlace);
        if (n.entry < 0 || static_cast<uint64_t>(n.entry) >= entries)
          bad(fmt::format("a leaf names entry {} of {}", n.entry, entries));
        tree.nodes_.push_back(n);
        continue;
      }
      n.leaf = false;
      const auto name = j.at("feature").get<std::string>();
      const auto* it = std::find(std::begin(kNames), std::end(kNames), name);
      if (it == std::end(kNames)) bad("it has the unknown feature " + name);
      n.feature.kind = static_cast<Feature::Kind>(it - std::begin(kNames));
      n.feature.a = j.value("a", "");
      n.feature.b = j.value("b", "");
      n.feature.t = j.contains("t") ? integer_at<int64_t>(j, "t", kPlace) : 1;
      if (n.feature.t < 1) bad("it divides by less than 1");
      n.equal = j.at("op").get<std::string>() == "==";
      n.value = integer_at<int64_t>(j, "value", kPlace);
      n.yes = integer_at<size_t>(j, "yes", kPlace);
      n.no = integer_at<size_t>(j, "no", kPlace);
      tree.nodes_.push_back(n);
    }
  } catch (const nlohmann::json::exception& e) {
    bad(std::string("it cannot be read: ") + e.what());
  }
  if (tree.nodes_.empty()) bad("it is empty");
  // Children stand after their parents: every way down ends.
  for (size_t i = 0; i < tree.nodes_.size(); ++i) {
    const TreeNode& n = tree.nodes_[i];
    if (!n.leaf &&
        (n.yes <= i || n.no <= i || n.yes >= tree.nodes_.size() || n.no >= tree.nodes_.size()))
      bad(fmt::format("node {} leads to no later node", i));
  }
  return tree;
}

std::string DispatchTree::json() const {
  Json nodes = Json::array();
  for (const TreeNode& n : nodes_) {
    if (n.leaf) {
      nodes.push_back({{"leaf", n.entry}});
      continue;
    }
    Json j = {{"feature", kNames[static_cast<int>(n.feature.kind)]},
              {"op", n.equal ? "==" : "<="},
              {"value", n.value},
              {"yes", n.yes},
              {"no", n.no}};
    if (n.feature.kind != Feature::Kind::kThreads) j["a"] = n.feature.a;
    if (n.feature.kind == Feature::Kind::kProduct) j["b"] = n.feature.b;
    if (n.feature.kind == Feature::Kind::kCeilDiv || n.feature.kind == Feature::Kind::kMod)
      j["t"] = n.feature.t;
    nodes.push_back(std::move(j));
  }
  return Json{{"nodes", std::move(nodes)}}.dump();
}

std::vector<TreeStep> DispatchTree::path_at(const db::Dims& dims, int64_t threads) const {
  std::vector<TreeStep> path;
  size_t at = 0;
  while (true) {
    const TreeNode& n = nodes_[at];
    if (n.leaf) {
      path.push_back({at, n.entry, true});
      return path;
    }
    const int64_t value = value_of(n.feature, dims, threads);
    const bool holds = n.equal ? value == n.value : value <= n.value;
    path.push_back({at, value, holds});
    at = holds ? n.yes : n.no;
  }
}

int64_t DispatchTree::entry_at(const db::Dims& dims, int64_t threads) const {
  size_t at = 0;
  while (!nodes_[at].leaf) {
    const TreeNode& n = nodes_[at];
    const int64_t value = value_of(n.feature, dims, threads);
    at = (n.equal ? value == n.value : value <= n.value) ? n.yes : n.no;
  }
  return nodes_[at].entry;
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
