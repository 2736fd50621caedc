// The basic blocks of a function, which of them lead where, and who dominates whom. Internal to
// the verifier.
//
// Dominators by Lengauer and Tarjan ("A fast algorithm for finding dominators in a flowgraph",
// TOPLAS 1979), the version with simple path compression: E log N whatever the graph. Dominance
// frontiers as in Cytron et al. ("Efficiently computing static single assignment form", TOPLAS
// 1991); they can grow with the square of the blocks, so each of their elements is charged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vm/executable/executable.h"

namespace nimble::exec {

// What the verifier may still do. Whoever spends the last step is stopped by OutOfSteps.
struct OutOfSteps {};
class StepBudget {
 public:
  explicit StepBudget(uint64_t steps) : total_(steps), left_(steps) {}
  void spend(uint64_t steps = 1) {
    if (steps > left_) [[unlikely]] {
      left_ = 0;
      throw OutOfSteps{};
    }
    left_ -= steps;
  }
  uint64_t total() const { return total_; }
  uint64_t spent() const { return total_ - left_; }

 private:
  uint64_t total_, left_;
};

inline constexpr uint32_t kNone = UINT32_MAX;

// The targets that a control instruction names, at most two.
std::span<const int64_t> targets_of(const Instruction& instruction);

class ControlFlow {
 public:
  // Blocks that can be reached, in preorder of the dominator tree: block 0 is where the function
  // begins, and what a block dominates are the blocks from itself to `last`.
  struct Block {
    uint32_t first, end;  // instructions
    uint32_t last;
    uint32_t dominator;  // the nearest other; kNone of block 0
  };

  // `function` has instructions, which fit the table, and targets that exist.
  void build(const BytecodeFunction& function, StepBudget* budget);

  std::span<const Block> blocks() const { return blocks_; }
  // Blocks whose control goes to `block`, twice where both targets of an If are it.
  std::span<const uint32_t> predecessors(uint32_t block) const {
    return std::span(predecessors_)
        .subspan(predecessors_from_[block],
                 predecessors_from_[block + 1] - predecessors_from_[block]);
  }
  bool dominates(uint32_t a, uint32_t b) const { return a <= b && b <= blocks_[a].last; }
  // Calls visit(b) for each block b where what `block` says of a register meets what others say:
  // it dominates one of b's predecessors, but not b, or is b itself.
  template <typename Visit>
  void for_each_frontier(uint32_t block, Visit visit) const {
    for (uint32_t i = frontier_[block]; i != kNone; i = frontier_next_[i]) visit(frontier_of_[i]);
  }

 private:
  void find_blocks(const BytecodeFunction& function);
  void find_dominators();
  void number_blocks();
  void find_frontiers(StepBudget* budget);

  // Until number_blocks() a block's number is that of a depth-first walk from the first one.
  std::vector<Block> blocks_;
  std::vector<uint32_t> predecessors_, predecessors_from_;
  std::vector<uint32_t> frontier_, frontier_next_, frontier_of_;  // lists by block
  // Scratch, kept from function to function.
  std::vector<uint32_t> block_at_;  // by instruction that begins one
  std::vector<uint32_t> parent_, semi_, label_, ancestor_, bucket_, bucket_next_, path_, place_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_, work_;
};

}  // namespace nimble::exec
