// Dispatch trees as JSON, and with overrides laid over them.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/tuned/overlay.h"
#include "compiler/tuned/tuned.h"

namespace nimble::tuned {
namespace {

using exec::DispatchFeature;
using exec::DispatchNode;
using exec::DispatchTree;

// lay_over against asking the layers one by one.
TEST(Overlay, AsksTheLayersInTheirOrder) {
  unsigned state = 7;
  const auto random = [&](int64_t below) {
    state = state * 1664525 + 1013904223;
    return static_cast<int64_t>((state >> 8) % static_cast<uint64_t>(below));
  };
  const std::vector<std::string> symbols = {"s0", "s1"};
  for (int round = 0; round < 200; ++round) {
    const auto base_threshold = random(20);
    DispatchTree base;
    base.nodes = {{DispatchNode::Test::kLessEqual, {}, base_threshold, 1, 2},
                  {DispatchNode::Test::kLeaf, {}, 0, 0, 0},
                  {DispatchNode::Test::kLeaf, {}, 0, 1, 0}};
    std::vector<db::Region> regions;
    std::vector<Layer> layers;
    for (int64_t i = random(5); i-- > 0;) {
      db::Region region;
      for (const char* name : {"s0", "s1", "s0*s1", "ceildiv(s0,8)"}) {
        if (random(3) != 0) continue;
        const int64_t first = random(12);
        region[name] = {first, random(2) ? std::optional(first + random(12)) : std::nullopt};
      }
      db::Override o;
      o.uuid = "test";
      o.region = db::json_of(region);
      layers.push_back(layer_of(o, symbols));
      layers.back().leaf = static_cast<uint32_t>(2 + regions.size());
      regions.push_back(std::move(region));
    }
    const DispatchTree tree = lay_over(layers, base);
    ASSERT_EQ(tree.verify(2, static_cast<uint32_t>(2 + layers.size())), "");
    for (int64_t a = 0; a < 24; a += 1)
      for (int64_t b = 0; b < 24; b += 3) {
        const std::map<std::string, int64_t> value = {
            {"s0", a}, {"s1", b}, {"s0*s1", a * b}, {"ceildiv(s0,8)", (a + 7) / 8}};
        uint32_t expected = a <= base_threshold ? 0 : 1;
        for (size_t i = 0; i < regions.size(); ++i) {
          const bool inside =
              std::all_of(regions[i].begin(), regions[i].end(), [&](const auto& range) {
                const int64_t v = value.at(range.first);
                return v >= range.second.first &&
                       (!range.second.second || v <= *range.second.second);
              });
          if (!inside) continue;
          expected = static_cast<uint32_t>(2 + i);
          break;
        }
        ASSERT_EQ(tree.choose(std::vector<int64_t>{a, b}, 1), expected) << a << " " << b;
      }
  }
}

TEST(TreeJson, EveryFeatureRoundTrips) {
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
  for (const char* bad : {"", "{", "[]", R"({"nodes":[{}]})", R"({"nodes":[{"leaf":"x"}]})",
                          R"({"nodes":[{"feature":"moon","op":"<=","value":1,"yes":1,"no":2}]})"})
    EXPECT_THROW(tree_from_json(bad, symbols), Error) << bad;
}

}  // namespace
}  // namespace nimble::tuned
