#include "vm/executable/control_flow.h"

#include <algorithm>
#include <numeric>

#include "vm/executable/opcodes.h"

namespace nimble::exec {
namespace {

bool is_control(const Instruction& in) {
  return info_of(in.op).effect == Effect::kControl;
}

// Gathers `to` by `from`: lists[starts[a]] … lists[starts[a + 1]] are the second parts of the pairs
// with first part `a`, in their order.
void group(std::span<const std::pair<uint32_t, uint32_t>> pairs, size_t count,
           std::vector<uint32_t>* starts, std::vector<uint32_t>* lists) {
  starts->assign(count + 1, 0);
  lists->resize(pairs.size());
  for (const auto& [a, b] : pairs) ++(*starts)[a + 1];
  std::partial_sum(starts->begin(), starts->end(), starts->begin());
  for (const auto& [a, b] : pairs) (*lists)[(*starts)[a]++] = b;
  std::copy_backward(starts->begin(), starts->end() - 1, starts->end());
  (*starts)[0] = 0;
}

}  // namespace

std::span<const int64_t> targets_of(const Instruction& in) {
  const std::span<const int64_t> operands = in.operands;
  if (in.op == Opcode::kIf) return operands.subspan(1, 2);
  if (in.op == Opcode::kGoto) return operands.first(1);
  return {};
}

void ControlFlow::build(const BytecodeFunction& function, StepBudget* budget) {
  find_blocks(function);
  find_dominators();
  number_blocks();
  find_frontiers(budget);
}

// Blocks that can be reached and the edges between them, numbered by a depth-first walk.
void ControlFlow::find_blocks(const BytecodeFunction& f) {
  constexpr uint32_t kLeader = kNone - 1;  // begins a block that was not reached yet
  const auto size = static_cast<uint32_t>(f.code.size());
  block_at_.assign(size + 1, kNone);
  block_at_[0] = kLeader;
  for (uint32_t i = 0; i < size; ++i) {
    if (!is_control(f.code[i])) continue;
    block_at_[i + 1] = kLeader;
    for (int64_t target : targets_of(f.code[i])) block_at_[static_cast<size_t>(target)] = kLeader;
  }
  blocks_.clear();
  parent_.clear();
  edges_.clear();
  work_.assign(1, {kNone, 0});
  while (!work_.empty()) {
    const auto [from, at] = work_.back();
    work_.pop_back();
    uint32_t& block = block_at_[at];
    const bool found = block == kLeader;
    if (found) {
      block = static_cast<uint32_t>(blocks_.size());
      uint32_t end = at + 1;
      while (end < size && block_at_[end] == kNone) ++end;
      blocks_.push_back({at, end, 0, 0});
      parent_.push_back(from);
    }
    if (from != kNone) edges_.push_back({block, from});
    if (!found) continue;
    const uint32_t end = blocks_[block].end;
    const Instruction& last = f.code[end - 1];
    if (!is_control(last)) work_.push_back({block, end});
    for (int64_t target : targets_of(last)) work_.push_back({block, static_cast<uint32_t>(target)});
  }
  group(edges_, blocks_.size(), &predecessors_from_, &predecessors_);
}

// Sets `dominator` of each block, in the numbers of the walk.
void ControlFlow::find_dominators() {
  const auto count = static_cast<uint32_t>(blocks_.size());
  semi_.resize(count);
  std::iota(semi_.begin(), semi_.end(), 0u);
  label_ = semi_;
  ancestor_.assign(count, kNone);
  bucket_.assign(count, kNone);
  bucket_next_.assign(count, kNone);
  // The block of least semidominator on the way up the forest that was linked so far.
  const auto least = [&](uint32_t v) {
    if (ancestor_[v] == kNone) return v;
    path_.clear();
    for (uint32_t u = v; ancestor_[ancestor_[u]] != kNone; u = ancestor_[u]) path_.push_back(u);
    for (size_t i = path_.size(); i-- > 0;) {
      const uint32_t u = path_[i], above = ancestor_[u];
      if (semi_[label_[above]] < semi_[label_[u]]) label_[u] = label_[above];
      ancestor_[u] = ancestor_[above];
    }
    return label_[v];
  };
  for (uint32_t w = count; w-- > 1;) {
    for (uint32_t v : predecessors(w)) semi_[w] = std::min(semi_[w], semi_[least(v)]);
    bucket_next_[w] = bucket_[semi_[w]];
    bucket_[semi_[w]] = w;
    const uint32_t parent = parent_[w];
    ancestor_[w] = parent;
    for (uint32_t v = bucket_[parent]; v != kNone; v = bucket_next_[v]) {
      const uint32_t u = least(v);
      blocks_[v].dominator = semi_[u] < semi_[v] ? u : parent;
    }
    bucket_[parent] = kNone;
  }
  blocks_[0].dominator = kNone;
  for (uint32_t w = 1; w < count; ++w)
    if (blocks_[w].dominator != semi_[w])
      blocks_[w].dominator = blocks_[blocks_[w].dominator].dominator;
}

// Renumbers the blocks in preorder of the dominator tree. A dominator has the smaller number in the
// walk, so sizes of subtrees are summed backwards and places given out forwards.
void ControlFlow::number_blocks() {
  const size_t count = blocks_.size();
  std::vector<uint32_t>& size = semi_;
  std::vector<uint32_t>& next = label_;  // free place below a block
  size.assign(count, 1);
  for (size_t w = count; w-- > 1;) size[blocks_[w].dominator] += size[w];
  next.resize(count);
  place_.resize(count);
  place_[0] = 0;
  next[0] = 1;
  for (size_t w = 1; w < count; ++w) {
    uint32_t& place = next[blocks_[w].dominator];
    place_[w] = place;
    next[w] = place + 1;
    place += size[w];
  }
  std::vector<Block> moved(count);
  for (size_t w = 0; w < count; ++w) {
    Block b = blocks_[w];
    b.last = place_[w] + size[w] - 1;
    if (w > 0) b.dominator = place_[b.dominator];
    moved[place_[w]] = b;
  }
  blocks_.swap(moved);
  for (auto& [to, from] : edges_) {
    to = place_[to];
    from = place_[from];
  }
  group(edges_, count, &predecessors_from_, &predecessors_);
}

void ControlFlow::find_frontiers(StepBudget* budget) {
  frontier_.assign(blocks_.size(), kNone);
  frontier_next_.clear();
  frontier_of_.clear();
  for (uint32_t b = 0; b < blocks_.size(); ++b)
    for (uint32_t p : predecessors(b))
      // Further up another predecessor has been.
      for (uint32_t at = p; at != blocks_[b].dominator; at = blocks_[at].dominator) {
        if (frontier_[at] != kNone && frontier_of_[frontier_[at]] == b) break;
        budget->spend();
        frontier_of_.push_back(b);
        frontier_next_.push_back(frontier_[at]);
        frontier_[at] = static_cast<uint32_t>(frontier_of_.size()) - 1;
      }
}

}  // namespace nimble::exec
