#include "vm/executable/dispatch_json.h"

#include <gtest/gtest.h>

#include "vm/base/error.h"

namespace nimble::exec {
namespace {

TEST(DispatchJson, EveryFeatureRoundTrips) {
  using Kind = DispatchFeature::Kind;
  DispatchTree tree;
  auto node = [&](Kind kind, uint32_t a, uint32_t b, int64_t t, DispatchNode::Test test) {
    auto here = static_cast<uint32_t>(tree.nodes.size());
    tree.nodes.push_back({test, {kind, a, b, t}, 5, here + 1, here + 2});
    tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, here, 0});
  };
  node(Kind::kSymbol, 1, 0, 1, DispatchNode::Test::kLessEqual);
  node(Kind::kCeilDiv, 0, 0, 8, DispatchNode::Test::kLessEqual);
  node(Kind::kMod, 1, 0, 16, DispatchNode::Test::kEqual);
  node(Kind::kProduct, 0, 1, 1, DispatchNode::Test::kLessEqual);
  node(Kind::kThreads, 0, 0, 1, DispatchNode::Test::kEqual);
  tree.nodes.push_back({DispatchNode::Test::kLeaf, {}, 0, 3, 0});
  const std::vector<std::string> symbols = {"s0", "s1"};
  std::string text = tree_to_json(tree, symbols);
  EXPECT_EQ(tree_from_json(text, symbols), tree) << text;
  EXPECT_THROW(tree_from_json(text, {"s0"}), Error);
  for (const char* bad :
       {"", "{", "[]", R"({"nodes":[{}]})", R"({"nodes":[{"leaf":"x"}]})",
        R"({"nodes":[{"leaf":1e99}]})", R"({"nodes":[{"leaf":4294967296}]})",
        R"({"nodes":[{"leaf":-1}]})",
        R"({"nodes":[{"feature":"symbol","a":"s0","op":">","value":1,"yes":1,"no":2}]})",
        R"({"nodes":[{"feature":"moon","op":"<=","value":1,"yes":1,"no":2}]})"})
    EXPECT_THROW(tree_from_json(bad, symbols), Error) << bad;
}

}  // namespace
}  // namespace nimble::exec
