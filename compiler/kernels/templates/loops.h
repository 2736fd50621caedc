// Loops that most templates share: vectors over a stretch of elements with a masked tail, and the
// set-up around them.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/kernels/group.h"
#include "compiler/kernels/template.h"

namespace nimble::kernels {

// One vector of a stretch: its first element, and how many lanes exist (nothing: all).
struct Slice {
  kir::Dim at;
  std::optional<kir::Dim> valid;
  int slot = 0;   // which of the `unroll` copies this is: an accumulator's number
  int lanes = 1;  // of this vector
};
// What the `unroll` vectors of a step of vector_loop() are.
enum class Unrolled {
  kCopies,  // one behind the other, with a slot each
  // One vector of as many lanes together. LLVM cuts it to vectors that there are and computes them
  // in turns, operator by operator: constants are loaded once for all, and none waits for all of
  // another. For chains so long that a core does not see the next copy's beginning.
  kTurns,
};
using SliceBody = std::function<std::vector<kir::StmtRef>(const Slice&)>;

// Elements [begin, begin + extent) in vectors of `lanes`: a loop of `unroll` vectors a step, a
// loop of single vectors for the rest, and a masked tail unless it is provably empty. Statements
// of the body that depend neither on the element nor on one another's such results are moved
// ahead of their loop.
kir::StmtRef vector_loop(const std::string& var, const kir::Dim& begin, const kir::Dim& extent,
                         int lanes, int unroll, const SliceBody& body,
                         Unrolled as = Unrolled::kCopies);
// The same where code is dearer than time: if the extent is symbolic, one loop whose every vector
// has a mask, instead of a copy of the body for each of the above.
kir::StmtRef masked_loop(const std::string& var, const kir::Dim& begin, const kir::Dim& extent,
                         int lanes, const SliceBody& body);

// Splits `body` into statements that may stand ahead of what gives the symbols `varying` their
// values, and the others.
void hoist(std::set<std::string> varying, std::vector<kir::StmtRef> body,
           std::vector<kir::StmtRef>& ahead, std::vector<kir::StmtRef>& inside);
// Whether a check among `body` depends on a symbol of `varying`, or on a condition.
bool has_varying_check(std::set<std::string> varying, const std::vector<kir::StmtRef>& body);

// Lane < valid as a bool vector.
kir::ValueRef lane_mask(const kir::Dim& valid, int lanes);

// `d`, or unless that is a constant or a symbol already, a symbol that stands for it, which a
// statement appended to `out` binds.
kir::Dim bind_dim(const std::string& symbol, const kir::Dim& d, std::vector<kir::StmtRef>& out);

// Binds the coordinates of element `flat` of `dims` to symbols prefix0, prefix1, … (constants
// stay constants), appending the statements to `out`.
std::vector<kir::Dim> bind_coordinates(const std::string& prefix, const std::vector<kir::Dim>& dims,
                                       const kir::Dim& flat, std::vector<kir::StmtRef>& out);

// The names that a kernel gives to compound extents, bound ahead of all else: c * (2*h + 5) *
// (2*w + 5) multiplied out is many products at every step of a loop.
class NamedExtents {
 public:
  explicit NamedExtents(const Workload& w) : w_(w) {}
  // `d`, over the contract's symbols, or a symbol that stands for it.
  kir::Dim operator()(const std::string& name, const kir::Dim& d);
  const std::vector<kir::StmtRef>& statements() const { return statements_; }

 private:
  const Workload& w_;
  std::vector<kir::StmtRef> statements_;
};

// Vector width for a group: of 4-byte elements, or of 8-byte ones if it has no smaller numbers.
int group_lanes(const ir::Function& group, const TargetInfo& t);

// Whether GroupEvaluator knows an operator (everything element-wise or injective).
bool is_pullable(const ir::Expr& call);
// Whether it knows all of a group's.
bool is_pullable_group(const ir::Function& group);

// A value through the reshapes, squeezes and unsqueezes at its end, which keep flat offsets.
ir::Atom strip_reshapes(const GroupEvaluator& group, const ir::Atom& a);

// The call of `op` that forms a value up to element-wise operators in its own shape; null if none.
const ir::Binding* formed_by(const ir::Function& group, const std::string& op, const ir::Atom& a);

// Whether an element-wise operator of a group computes a function: so many operations one behind
// the other, in vectors of `lanes`, that most of the time goes in waiting. An exponential or a
// sigmoid does, no relu, clip, square root or rounding. Operations on wider elements, as those of a
// sine in f64, do not count: LLVM cuts them to several vectors as they are.
bool computes_functions(const ir::Function& group, int lanes, const TargetInfo& t);

// 1 if fewer than `least` elements are to be computed in every call, else 0 (any number).
int threads_for(const kir::Dim& elements, int64_t least = 4096);

}  // namespace nimble::kernels
