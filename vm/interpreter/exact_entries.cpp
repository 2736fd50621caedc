#include "vm/interpreter/exact_entries.h"

#include <algorithm>
#include <set>

#include "vm/executable/effects.h"

namespace nimble::rt {
namespace {

using exec::DispatchFeature;
using exec::DispatchNode;
using exec::Opcode;

constexpr size_t kMostWays = 4096;
// Each way that is open keeps bounds of all symbols; a tree may be as deep as there are ways.
constexpr size_t kMostSymbols = 64;
// Instructions looked at for one kernel, all its calls together.
constexpr size_t kMostInstructions = size_t{1} << 24;

// What tests on the way say of a symbol; extents are not negative.
struct Bounds {
  int64_t low = 0, high = INT64_MAX;
};

struct Way {
  uint32_t node = 0;
  std::vector<Bounds> bounds;
};

// The bounds after the test has come out as `yes` says; false if that cannot be.
bool narrow(const DispatchNode& n, bool yes, int32_t threads, std::vector<Bounds>& bounds) {
  if (n.feature.kind == DispatchFeature::Kind::kThreads) {
    const bool is =
        n.test == DispatchNode::Test::kEqual ? threads == n.threshold : threads <= n.threshold;
    return is == yes;
  }
  if (n.feature.kind != DispatchFeature::Kind::kSymbol) return true;
  Bounds& b = bounds[n.feature.a];
  if (n.test == DispatchNode::Test::kEqual) {
    if (!yes) return b.low != b.high || b.low != n.threshold;
    if (n.threshold < b.low || n.threshold > b.high) return false;
    b = {n.threshold, n.threshold};
  } else if (yes) {
    b.high = std::min(b.high, n.threshold);
  } else {
    if (n.threshold == INT64_MAX) return false;
    b.low = std::max(b.low, n.threshold + 1);
  }
  return b.low <= b.high;
}

// The instructions from which control may go to each.
std::vector<std::vector<uint32_t>> predecessors_of(const exec::BytecodeFunction& f) {
  std::vector<std::vector<uint32_t>> out(f.code.size());
  for (uint32_t i = 0; i < f.code.size(); ++i) {
    const exec::Instruction& in = f.code[i];
    const auto lead_to = [&](int64_t target) { out[static_cast<size_t>(target)].push_back(i); };
    if (in.op == Opcode::kIf) {
      lead_to(in.operands[1]);
      lead_to(in.operands[2]);
    } else if (in.op == Opcode::kGoto) {
      lead_to(in.operands[0]);
    } else if (in.op != Opcode::kRet && in.op != Opcode::kFatal && i + 1 < f.code.size()) {
      lead_to(i + 1);
    }
  }
  return out;
}

class Search {
 public:
  Search(const exec::Executable& executable, const exec::BytecodeFunction& f, size_t* left,
         std::set<uint32_t>* found)
      : executable_(executable), f_(f), left_(left), found_(found) {}

  // What register `reg` holds when instruction `at` begins.
  void look(uint32_t at, uint32_t reg) {
    if (before_.empty()) before_ = predecessors_of(f_);
    std::set<std::pair<uint32_t, uint32_t>> seen;
    std::vector<std::pair<uint32_t, uint32_t>> open = {{at, reg}};
    while (!open.empty() && *left_ > 0) {
      --*left_;
      const auto [to, wanted] = open.back();
      open.pop_back();
      for (const uint32_t i : before_[to]) {
        const std::optional<uint32_t> next = source(i, wanted);
        if (next && seen.emplace(i, *next).second) open.emplace_back(i, *next);
      }
    }
  }

 private:
  // The register to look for before instruction `i`; nothing where the search ends.
  std::optional<uint32_t> source(uint32_t i, uint32_t wanted) {
    exec::find_effects(executable_, f_.code[i], &effects_);
    const bool writes = std::any_of(effects_.writes.begin(), effects_.writes.end(),
                                    [&](const exec::Write& w) { return w.reg == wanted; });
    if (!writes) return wanted;
    const exec::Instruction& in = f_.code[i];
    if (in.op == Opcode::kLoadConst) found_->insert(static_cast<uint32_t>(in.operands[1]));
    if (in.op == Opcode::kMove) return static_cast<uint32_t>(in.operands[1]);
    return std::nullopt;
  }

  const exec::Executable& executable_;
  const exec::BytecodeFunction& f_;
  size_t* left_;
  std::set<uint32_t>* found_;
  std::vector<std::vector<uint32_t>> before_;
  exec::Effects effects_;
};

}  // namespace

std::vector<ExactEntry> exact_entries(const exec::DispatchTree& tree, size_t symbols,
                                      int32_t threads) {
  std::vector<ExactEntry> out;
  if (symbols > kMostSymbols) return out;
  std::vector<Way> open = {{0, std::vector<Bounds>(symbols)}};
  for (size_t ways = 0; !open.empty() && ways < kMostWays; ++ways) {
    const Way way = std::move(open.back());
    open.pop_back();
    const DispatchNode& n = tree.nodes[way.node];
    if (n.test != DispatchNode::Test::kLeaf) {
      for (const bool yes : {false, true}) {
        Way next = {yes ? n.yes : n.no, way.bounds};
        if (narrow(n, yes, threads, next.bounds)) open.push_back(std::move(next));
      }
      continue;
    }
    ExactEntry e{n.yes, {}};
    for (const Bounds& b : way.bounds)
      if (b.low == b.high) e.symbols.push_back(b.low);
    // Tests of other features than symbols were not followed: ask the tree.
    if (e.symbols.size() == symbols && tree.choose(e.symbols, threads) == n.yes &&
        std::none_of(out.begin(), out.end(),
                     [&](const ExactEntry& o) { return o.symbols == e.symbols; }))
      out.push_back(std::move(e));
  }
  return out;
}

std::vector<uint32_t> constants_passed(const exec::Executable& executable, uint32_t kernel,
                                       size_t argument) {
  std::set<uint32_t> found;
  size_t left = kMostInstructions;
  for (const exec::BytecodeFunction& f : executable.functions) {
    Search search(executable, f, &left, &found);
    for (uint32_t i = 0; i < f.code.size(); ++i) {
      const exec::Instruction& in = f.code[i];
      // The kernel, the number of arguments, the arguments.
      if (in.op == Opcode::kInvokePacked && in.operands[0] == static_cast<int64_t>(kernel) &&
          in.operands.size() > 2 + argument)
        search.look(i, static_cast<uint32_t>(in.operands[2 + argument]));
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace nimble::rt
