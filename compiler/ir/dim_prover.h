// What the prover's files share: terms, the price of a question, and what is remembered of earlier
// ones. Private to dim_*.cpp.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/ir/dim_node.h"

namespace nimble::ir {

__extension__ typedef __int128 Wide;

// INT64_MIN and INT64_MAX stand for infinities and absorb.
inline constexpr int64_t kNoLow = INT64_MIN, kNoHigh = INT64_MAX;
inline int64_t saturate(Wide v) {
  return v <= kNoLow ? kNoLow : v >= kNoHigh ? kNoHigh : static_cast<int64_t>(v);
}

// Assumptions that a proof uses one after the other, at most.
inline constexpr int kProofDepth = 4;

inline Dim wrap(const DimNode* n) {
  return DimInterner::wrap(n);
}
inline Dim from_term(const PolyTerm& t) {
  Terms one;
  one.push_back(t);
  return wrap(DimInterner::sum(one));
}

// Rules look at pairs of operands at every level, so their cost grows fast with depth. What a
// reshape by values of a tensor gives is far beyond what anybody reads; nothing is proved of it but
// that it equals itself.
inline constexpr size_t kLargest = 64;
// Nodes that a walk of the expression meets, up to kLargest + 1.
size_t size_of(const Dim& d);
inline bool too_large(const Dim& d) {
  return size_of(d) > kLargest;
}

// The assumptions d >= 0 of a context, found by what stands in them.
class Assumptions {
 public:
  struct Use {
    Dim assumption;
    PolyTerm term;  // one of its terms
  };
  explicit Assumptions(const std::vector<Dim>& nonnegative);

  bool contains(const Dim& d) const { return members_.contains(d); }
  // What a proof may take away: the terms whose first atom this is.
  const std::vector<Use>& uses(const DimNode* atom) const;
  // What an equality (both inequalities are there) says that a function is. It has no functions
  // itself, so that putting values in their place ends.
  std::optional<Dim> value_of(const Dim& function) const;

 private:
  std::unordered_set<Dim> members_;
  std::unordered_map<const DimNode*, std::vector<Use>> uses_;
  std::unordered_map<const DimNode*, Dim> values_;
};

// What a context assumes, as it stands.
struct Facts {
  const std::map<std::string, SymbolFacts>& ranges;
  const std::map<std::string, Dim>& equal_to;
  const std::vector<Dim>& nonnegative;
};

// Assignments of all symbols under which what a context assumes is true. There may be none.
class Witnesses {
 public:
  // `facts` must live as long.
  explicit Witnesses(const Facts& facts);
  // Whether d < 0 under one of them, so that d >= 0 cannot be proved.
  bool refute(const Dim& d);

 private:
  // A symbol's value is made of its name and the point's number when it is first asked for. Where
  // something is not defined or has no 64 bits there is none.
  class Point {
   public:
    Point(const Facts& facts, size_t index)
        : ranges_(&facts.ranges), equal_to_(&facts.equal_to), index_(index) {}
    std::optional<int64_t> of(const DimNode* n);

   private:
    std::optional<int64_t> of_symbol(const DimNode* n);
    std::optional<int64_t> of_function(const DimNode* n);

    const std::map<std::string, SymbolFacts>* ranges_;
    const std::map<std::string, Dim>* equal_to_;
    size_t index_;
    std::unordered_map<const DimNode*, std::optional<int64_t>> atoms_;
  };
  std::vector<Point> points_;
};

// What was found of one Dim under the same facts.
struct Answer {
  int proved = std::numeric_limits<int>::max();  // >= 0 with this depth, and any greater
  int refuted = -1;                              // no proof with this depth, nor any smaller
  std::optional<Dim> simplified;
  bool gave_up_equal = false;       // whether it is 0,
  bool gave_up_less_equal = false;  // or >= 0, is beyond what a question may cost
};

// A proof simplifies, and to simplify is to prove: how often one stands inside the other.
class Nesting {
 public:
  Nesting() { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool too_deep() const { return depth_ > 12; }

 private:
  static thread_local int depth_;
};

// Every proof tries several others, so even at that depth four inequalities among five symbols
// could take minutes. Two things hold that:
//   - What was proved or refuted of a Dim is remembered for as long as the facts are the same, from
//     question to question and context to context of a thread: inference comes back to the same
//     functions, and most questions are old ones. Not so where a limit cut a proof short: that says
//     nothing of a proof that starts elsewhere, unless it had the better part of a question's
//     budget.
//   - One question, the outermost Effort, may cost kMost operations on terms. Beyond, nothing more
//     is tried, and the answer is "unknown". Operations count, never time: a program that compiles
//     does so on every machine.
class Effort {
 public:
  Effort();
  ~Effort();
  Effort(const Effort&) = delete;
  Effort& operator=(const Effort&) = delete;

  // Pays for work on so many terms or nodes; false where the question has become too dear.
  bool pay(size_t operations) const;
  // Whether the better part of the budget is left, and whether none is.
  bool fresh() const;
  bool exhausted() const;
  // A limit cut something short.
  void cut() const;
  int64_t cuts() const;
  Answer& answer(const Facts& facts, const Dim& d) const;
  Witnesses& witnesses(const Facts& facts) const;
  const Assumptions& assumptions(const Facts& facts) const;
  // The facts have changed since the outermost Effort began.
  void forget() const;

 private:
  static constexpr size_t kMost = 50'000;  // some hundredths of a second
};

}  // namespace nimble::ir
