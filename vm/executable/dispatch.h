// Dispatch is data: a decision tree over features of the shape, made by the tuner (or by a
// template for its own tails), stored in the executable, walked by the VM at each invocation.
//
// A node asks whether feature(symbols, threads) op threshold; leaves name an implementation.
// Trees are small (tens of nodes); a walk costs a few nanoseconds. Every tree is total: there
// is no shape without a leaf.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/executable/fault.h"

namespace nimble::exec {

struct DispatchFeature {
  enum class Kind : uint8_t {
    kSymbol = 0,   // s[a]
    kCeilDiv = 1,  // ceil(s[a] / t)
    kMod = 2,      // s[a] mod t
    kProduct = 3,  // s[a] * s[b], saturating
    kThreads = 4,  // threads of the region
  };
  Kind kind = Kind::kSymbol;
  uint32_t a = 0, b = 0;
  int64_t t = 1;
  friend bool operator==(const DispatchFeature&, const DispatchFeature&) = default;
};
// At a shape; the feature's symbols must exist.
int64_t value_of(const DispatchFeature& f, std::span<const int64_t> symbols, int32_t threads);

struct DispatchNode {
  enum class Test : uint8_t { kLeaf = 0, kLessEqual = 1, kEqual = 2 };
  Test test = Test::kLeaf;
  DispatchFeature feature;
  int64_t threshold = 0;
  // kLeaf: `yes` is the implementation. Else node indices, both greater than this node's own.
  uint32_t yes = 0, no = 0;
  friend bool operator==(const DispatchNode&, const DispatchNode&) = default;
};

struct DispatchTree {
  std::vector<DispatchNode> nodes;  // root is node 0

  static DispatchTree single(uint32_t implementation) {
    return {{{DispatchNode::Test::kLeaf, {}, 0, implementation, 0}}};
  }
  // What is wrong, by rule R13 (VerifierRules.def), for `symbols` symbols and `implementations`
  // leaves.
  std::optional<Finding> find_fault(uint32_t symbols, uint32_t implementations) const;
  // The same as text, "" if it is well formed.
  std::string verify(uint32_t symbols, uint32_t implementations) const;
  // The implementation for a shape; the tree must be verified.
  uint32_t choose(std::span<const int64_t> symbols, int32_t threads) const;
  // Puts `trees[i]`'s leaves in place of leaf i, whose own leaves are offset by `base[i]`.
  DispatchTree graft(std::span<const DispatchTree> trees, std::span<const uint32_t> base) const;
  std::string str(std::span<const std::string> symbol_names) const;
  friend bool operator==(const DispatchTree&, const DispatchTree&) = default;
};

}  // namespace nimble::exec
