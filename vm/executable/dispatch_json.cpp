#include "vm/executable/dispatch_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vm/base/error.h"
#include "vm/base/json_text.h"

namespace nimble::exec {
namespace {

using Json = nlohmann::json;

constexpr char kPlace[] = "dispatch table";
constexpr const char* kFeatures[] = {"symbol", "ceildiv", "mod", "product", "threads"};

[[noreturn]] void bad(const std::string& problem) {
  throw Error(Status::kCorrupt, kPlace, problem,
              "tune the workload again or roll back to an older version of the table");
}

}  // namespace

std::string tree_to_json(const DispatchTree& tree, const std::vector<std::string>& symbols) {
  Json nodes = Json::array();
  for (const DispatchNode& n : tree.nodes) {
    if (n.test == DispatchNode::Test::kLeaf) {
      nodes.push_back({{"leaf", n.yes}});
      continue;
    }
    Json node = {{"feature", kFeatures[static_cast<int>(n.feature.kind)]},
                 {"op", n.test == DispatchNode::Test::kEqual ? "==" : "<="},
                 {"value", n.threshold},
                 {"yes", n.yes},
                 {"no", n.no}};
    using Kind = DispatchFeature::Kind;
    if (n.feature.kind != Kind::kThreads) node["a"] = symbols.at(n.feature.a);
    if (n.feature.kind == Kind::kProduct) node["b"] = symbols.at(n.feature.b);
    if (n.feature.kind == Kind::kCeilDiv || n.feature.kind == Kind::kMod) node["t"] = n.feature.t;
    nodes.push_back(std::move(node));
  }
  return Json{{"nodes", nodes}}.dump();
}

DispatchTree tree_from_json(const std::string& text, const std::vector<std::string>& symbols) {
  DispatchTree tree;
  try {
    auto symbol = [&](const Json& name) {
      for (uint32_t i = 0; i < symbols.size(); ++i)
        if (symbols[i] == name.get<std::string>()) return i;
      bad("it names the unknown symbol " + name.get<std::string>());
    };
    const Json json = Json::parse(text);
    for (const Json& j : json.at("nodes")) {
      DispatchNode n;
      if (j.contains("leaf")) {
        n.yes = integer_at<uint32_t>(j, "leaf", kPlace);
        tree.nodes.push_back(n);
        continue;
      }
      auto name = j.at("feature").get<std::string>();
      auto it = std::find(std::begin(kFeatures), std::end(kFeatures), name);
      if (it == std::end(kFeatures)) bad("it has the unknown feature " + name);
      n.feature.kind = static_cast<DispatchFeature::Kind>(it - std::begin(kFeatures));
      if (j.contains("a")) n.feature.a = symbol(j.at("a"));
      if (j.contains("b")) n.feature.b = symbol(j.at("b"));
      if (j.contains("t")) n.feature.t = integer_at<int64_t>(j, "t", kPlace);
      const auto op = j.at("op").get<std::string>();
      if (op != "==" && op != "<=") bad("it has the unknown test " + op);
      n.test = op == "==" ? DispatchNode::Test::kEqual : DispatchNode::Test::kLessEqual;
      n.threshold = integer_at<int64_t>(j, "value", kPlace);
      n.yes = integer_at<uint32_t>(j, "yes", kPlace);
      n.no = integer_at<uint32_t>(j, "no", kPlace);
      tree.nodes.push_back(n);
    }
  } catch (const Json::exception& e) {
    bad(std::string("it is not a valid tree: ") + e.what());
  }
  return tree;
}

}  // namespace nimble::exec
