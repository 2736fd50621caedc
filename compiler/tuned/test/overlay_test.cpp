// Dispatch trees with overrides laid over them.
#include "compiler/tuned/overlay.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nimble::tuned {
namespace {

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

}  // namespace
}  // namespace nimble::tuned
